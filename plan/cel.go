package plan

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
)

// celCostLimit bounds one evaluation; it is some tens of milliseconds.
const celCostLimit = 200_000

// newCELEnv is CEL as the plan language has it: numbers of different types compare by value, optional fields
// (object.?status.?phase.orValue("")), and the string and set functions of CEL's extension library.
func newCELEnv(vars ...cel.EnvOption) *cel.Env {
	env, err := cel.NewEnv(append([]cel.EnvOption{
		cel.CrossTypeNumericComparisons(true),
		cel.OptionalTypes(),
		cel.DefaultUTCTimeZone(true),
		ext.Strings(),
		ext.Sets(),
	}, vars...)...)
	if err != nil {
		panic(err) // the options above are constant
	}
	return env
}

var (
	// whereEnv is for a trigger's where.
	whereEnv = sync.OnceValue(func() *cel.Env {
		return newCELEnv(cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType))
	})
	// waitEnv is for the condition of a workload's wait.
	waitEnv = sync.OnceValue(func() *cel.Env {
		return newCELEnv(cel.Variable("object", cel.DynType))
	})
	// invariantEnv is for an invariant's never and always.
	invariantEnv = sync.OnceValue(func() *cel.Env {
		return newCELEnv(
			cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType),
			cel.Variable("event", cel.StringType), cel.Variable("objects", cel.ListType(cel.DynType)))
	})
	// eventuallyEnv is for an invariant's eventually.
	eventuallyEnv = sync.OnceValue(func() *cel.Env {
		return newCELEnv(cel.Variable("objects", cel.ListType(cel.DynType)))
	})
)

// celError is what is wrong with a CEL expression.
type celError struct {
	line, col int // 1-based and 0-based, in characters
	message   string
}

func (e *celError) Error() string { return e.message }

// compileCEL checks an expression; the result type may be left open.
func compileCEL(env *cel.Env, text string, want *cel.Type) (*cel.Ast, error) {
	ast, iss := env.Compile(text)
	if iss != nil && iss.Err() != nil {
		first := iss.Errors()[0]
		return nil, &celError{first.Location.Line(), first.Location.Column(), "CEL: " + first.Message}
	}
	if t := ast.OutputType(); want != nil && !t.IsExactType(want) && !t.IsExactType(cel.DynType) {
		return nil, &celError{1, 0, "CEL: the result is " + t.String() + ", not " + want.String()}
	}
	return ast, nil
}

// offset is where in the text the mistake is, in bytes.
func (e *celError) offset(text string) int {
	at := 0
	for l := 1; l < e.line; l++ {
		n := strings.IndexByte(text[at:], '\n')
		if n < 0 {
			break
		}
		at += n + 1
	}
	for range e.col {
		if at >= len(text) {
			break
		}
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	return at
}
