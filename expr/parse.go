package expr

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/participle/v2"
	"github.com/alecthomas/participle/v2/lexer"
)

// MaxNesting is how deep parentheses may be nested.
const MaxNesting = 100

// The grammar, in participle's terms: what binds less tightly stands higher.
type (
	sequenceRule struct {
		Parts []*eitherRule `parser:"@@ (';' @@)*"`
	}
	eitherRule struct {
		Parts []*bothRule `parser:"@@ ('|' @@)*"`
	}
	bothRule struct {
		Parts []*operandRule `parser:"@@ ('&' @@)*"`
	}
	operandRule struct {
		Name  lexer.Token   `parser:"@Name"`
		Group *sequenceRule `parser:"| '(' @@ ')'"`
	}
)

const namePattern = `[\p{L}\p{Nd}_.-]+`

var (
	tokens = lexer.MustSimple([]lexer.SimpleRule{
		{Name: "Name", Pattern: namePattern},
		{Name: "Sign", Pattern: `[;|&()]`},
		{Name: "blank", Pattern: `[ \t\r\n]+`},
		{Name: "Other", Pattern: `(?s:.)`},
	})
	other = tokens.Symbols()["Other"]

	// Without lookahead, the first token that is wrong ends the parsing and is the one reported.
	grammar = participle.MustBuild[sequenceRule](participle.Lexer(tokens),
		participle.UseLookahead(0))

	validName = regexp.MustCompile(`^` + namePattern + `$`)
)

// ValidName reports whether s is a valid name in an expression.
func ValidName(s string) bool { return validName.MatchString(s) }

// Error is a mistake in the text of an expression.
type Error struct {
	Offset  int // of the wrong byte, 0-based; the length of the text if it ends too early
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("%d: %s", e.Offset, e.Message) }

// Parse reads an expression. The error is an *Error.
func Parse(text string) (*Expr, error) {
	lex, err := tokens.LexString("", text)
	if err != nil {
		return nil, &Error{Message: err.Error()}
	}
	all, err := lexer.Upgrade(lex)
	if err != nil {
		return nil, &Error{Message: err.Error()}
	}
	if err := checkNesting(*all); err != nil {
		return nil, err
	}
	rest := *all
	whole, err := grammar.ParseFromLexer(&rest)
	if err != nil {
		return nil, explain(*all, err)
	}
	return newExpr(whole.term()), nil
}

// checkNesting keeps the parser from recursing too deep.
func checkNesting(all lexer.PeekingLexer) error {
	depth := 0
	for t := all.Next(); !t.EOF(); t = all.Next() {
		switch t.Value {
		case "(":
			depth++
		case ")":
			depth--
		}
		if depth > MaxNesting {
			return &Error{t.Pos.Offset, fmt.Sprintf("more than %d nested parentheses", MaxNesting)}
		}
	}
	return nil
}

// explain puts the parser's error in the words of the language.
func explain(all lexer.PeekingLexer, err error) *Error {
	var unexpected *participle.UnexpectedTokenError
	if !errors.As(err, &unexpected) {
		return &Error{Message: err.Error()}
	}
	wrong := unexpected.Unexpected
	at := wrong.Pos.Offset
	var before string // the token before the wrong one
	var open []int    // offsets of the parentheses that are open there
	for t := all.Next(); t.Pos.Offset < at; t = all.Next() {
		switch before = t.Value; before {
		case "(":
			open = append(open, t.Pos.Offset)
		case ")":
			open = open[:len(open)-1]
		}
	}
	wantName := strings.Contains(";|&(", before) // also if there is none
	expected := `expected ";", "|", "&" or the end`
	if wantName {
		expected = `expected a name or "("`
	}
	if wrong.Type == other {
		expected = `a name consists of letters, digits, "_", "-" and "."`
	}
	switch {
	case wrong.EOF() && before == "":
		return &Error{at, "the expression is empty"}
	case wrong.EOF() && wantName:
		return &Error{at, "unexpected end: " + expected}
	case wrong.EOF():
		return &Error{open[len(open)-1], `"(" is never closed`}
	case !utf8.ValidString(wrong.Value):
		return &Error{at, "invalid UTF-8 encoding"}
	case wrong.Value == ")" && !wantName:
		return &Error{at, `")" without "("`}
	}
	return &Error{at, fmt.Sprintf("unexpected %q: %s", wrong.Value, expected)}
}

func (r *sequenceRule) term() *term { return joinAll(sequence, r.Parts, (*eitherRule).term) }

func (r *eitherRule) term() *term { return joinAll(either, r.Parts, (*bothRule).term) }

func (r *bothRule) term() *term { return joinAll(both, r.Parts, (*operandRule).term) }

func (r *operandRule) term() *term {
	if r.Group != nil {
		return r.Group.term()
	}
	return &term{op: leaf, name: r.Name.Value, offset: r.Name.Pos.Offset}
}

func joinAll[T any](op operator, rules []T, read func(T) *term) *term {
	parts := make([]*term, len(rules))
	for i, rule := range rules {
		parts[i] = read(rule)
	}
	return join(op, parts)
}
