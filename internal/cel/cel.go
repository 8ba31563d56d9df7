// Package cel compiles and evaluates conditions on objects, written in CEL.
package cel

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// Scope is the set of variables that an expression may use.
type Scope struct{ env func() *cel.Env }

// The scopes.
var (
	// Object has only object: for the condition of a wait.
	Object = scope(cel.Variable("object", cel.DynType))
	// Transition has object and oldObject: for a trigger's where.
	Transition = scope(cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType))
	// History has object, oldObject, event, objects and clusters: for never and always.
	History = scope(cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType),
		cel.Variable("event", cel.StringType), cel.Variable("objects", cel.ListType(cel.DynType)), clusters)
	// Self has only self: for the rules in a CustomResourceDefinition.
	Self = scope(cel.Variable("self", cel.DynType))
	// Objects has objects and clusters: for eventually.
	Objects = scope(cel.Variable("objects", cel.ListType(cel.DynType)), clusters)
)

// clusters has the objects of each of several clusters, by its name.
var clusters = cel.Variable("clusters", cel.MapType(cel.StringType, cel.ListType(cel.DynType)))

// scope returns the CEL environment of plans: numbers of different types compare by value, and fields can be optional
// (object.?status.?phase.orValue("")).
func scope(variables ...cel.EnvOption) Scope {
	return Scope{sync.OnceValue(func() *cel.Env {
		env, err := cel.NewEnv(append([]cel.EnvOption{
			cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), cel.DefaultUTCTimeZone(true), functions(),
		}, variables...)...)
		if err != nil {
			panic(err) // the options are constants
		}
		return env
	})}
}

// Check returns what is wrong with a condition. The error is a [SyntaxError].
func (s Scope) Check(text string) error {
	_, err := s.check(text, cel.BoolType)
	return err
}

// Program compiles a condition; its evaluation may cost at most the given amount. The error is a [SyntaxError].
func (s Scope) Program(text string, cost uint64) (cel.Program, error) {
	ast, err := s.check(text, cel.BoolType)
	if err != nil {
		return nil, err
	}
	program, err := s.env().Program(ast, cel.CostLimit(cost), bySize)
	if err != nil {
		return nil, &SyntaxError{0, err.Error()}
	}
	return program, nil
}

// SyntaxError is a mistake in an expression.
type SyntaxError struct {
	Offset  int // of the mistake in the expression; bytes, 0-based
	Message string
}

func (e *SyntaxError) Error() string { return e.Message }

// Expression is a compiled expression. It is immutable and safe for concurrent use.
type Expression struct {
	text    string
	program cel.Program
	uses    map[string]bool
}

// Compile compiles a condition: its type must be bool, or unknown until it is evaluated. The error is a [SyntaxError].
func (s Scope) Compile(text string) (*Expression, error) { return s.compile(text, cel.BoolType) }

// CompileText compiles an expression whose result is a string.
func (s Scope) CompileText(text string) (*Expression, error) { return s.compile(text, cel.StringType) }

func (s Scope) check(text string, want *cel.Type) (*cel.Ast, error) {
	ast, issues := s.env().Compile(text)
	if issues.Err() != nil {
		first := misspelt(s.env(), issues.Errors())
		return nil, &SyntaxError{offset(text, first.Location.Line(), first.Location.Column()), first.Message}
	}
	if t := ast.OutputType(); !t.IsExactType(want) && !t.IsExactType(cel.DynType) {
		return nil, &SyntaxError{0, fmt.Sprintf("the result is %s, not %s", t, want)}
	}
	return ast, nil
}

// undeclared is the message about a name that does not exist.
var undeclared = regexp.MustCompile(`^undeclared reference to '([^']*)'`)

// misspelt returns the first of some mistakes. CEL reports a misspelt function such as base64.decod as two unknown
// names, base64 first: here it is one, with those that there are.
func misspelt(env *cel.Env, all []*cel.Error) *cel.Error {
	if len(all) < 2 {
		return all[0]
	}
	space, name := undeclared.FindStringSubmatch(all[0].Message), undeclared.FindStringSubmatch(all[1].Message)
	if space == nil || name == nil {
		return all[0]
	}
	var there []string
	for _, f := range slices.Sorted(maps.Keys(env.Functions())) {
		if strings.HasPrefix(f, space[1]+".") && !strings.Contains(f, "@") {
			there = append(there, f)
		}
	}
	if len(there) == 0 {
		return all[0]
	}
	return &cel.Error{Location: all[1].Location, Message: fmt.Sprintf("undeclared reference to '%s.%s' (there are %s)",
		space[1], name[1], strings.Join(there, ", "))}
}

func (s Scope) compile(text string, want *cel.Type) (*Expression, error) {
	ast, err := s.check(text, want)
	if err != nil {
		return nil, err
	}
	program, err := s.env().Program(ast, cel.CostLimit(10_000_000), bySize,
		cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, &SyntaxError{0, err.Error()}
	}
	e := &Expression{text: text, program: program, uses: map[string]bool{}}
	for _, r := range ast.NativeRep().ReferenceMap() {
		if r.Name != "" {
			e.uses[r.Name] = true
		}
	}
	return e, nil
}

// offset converts a line and a column, in characters, to an offset in bytes.
func offset(text string, line, column int) int {
	at := 0
	for ; line > 1; line-- {
		next := strings.IndexByte(text[at:], '\n')
		if next < 0 {
			break
		}
		at += next + 1
	}
	for range text[at:] {
		if column <= 0 {
			break
		}
		column--
		at++
		for at < len(text) && text[at]&0xC0 == 0x80 {
			at++
		}
	}
	return min(at, len(text))
}

// String returns the expression as it was written, on one line.
func (e *Expression) String() string { return strings.Join(strings.Fields(e.text), " ") }

// Uses reports whether the expression reads the variable.
func (e *Expression) Uses(variable string) bool { return e.uses[variable] }

// ErrMissing is wrapped by the error of an evaluation that needs a field or an item that does not exist.
var ErrMissing = errors.New("missing field or item")

// Holds evaluates a condition.
func (e *Expression) Holds(variables map[string]any) (bool, error) {
	v, err := e.eval(variables)
	if err != nil {
		return false, err
	}
	if b, ok := v.(types.Bool); ok {
		return bool(b), nil
	}
	return false, fmt.Errorf("the result is a %s, not a bool", v.Type().TypeName())
}

// Text evaluates an expression whose result is a string.
func (e *Expression) Text(variables map[string]any) (string, error) {
	v, err := e.eval(variables)
	if err != nil {
		return "", err
	}
	if s, ok := v.(types.String); ok {
		return string(s), nil
	}
	return "", fmt.Errorf("the result is a %s, not a string", v.Type().TypeName())
}

func (e *Expression) eval(variables map[string]any) (ref.Val, error) {
	v, _, err := e.program.Eval(variables)
	if err != nil {
		for _, missing := range []string{"no such key", "index out of bounds", "invalid index", "index '"} {
			if strings.Contains(err.Error(), missing) {
				return nil, &missingError{err}
			}
		}
		return nil, err
	}
	return v, nil
}

type missingError struct{ err error }

func (e *missingError) Error() string        { return e.err.Error() }
func (e *missingError) Is(target error) bool { return target == ErrMissing }
func (e *missingError) Unwrap() error        { return e.err }
