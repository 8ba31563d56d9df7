package expr

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/alecthomas/participle/v2"
	"github.com/alecthomas/participle/v2/lexer"
)

// Error is a mistake in the text of an expression.
type Error struct {
	Offset  int // of the wrong byte, 0-based; the length of the text if it ends too early
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("%d: %s", e.Offset, e.Message) }

// tokens is the lexer, in participle's terms; see definition.
//
// The grammar is code, not participle struct tags. Participle walks such a grammar by recursion, about ten reflection
// frames for each parenthesis, and keeps every token: 10,000 parentheses take tens of megabytes of stack, and 1,000
// names take several times the 200 microseconds that we allow. For three precedence levels, the stack of frames in
// parse is enough.
var tokens lexer.StringDefinition = definition{}

// Parse reads an expression. The error is an *Error.
func Parse(text string) (*Expr, error) {
	if ValidName(text) {
		// Nearly all expressions are a single name.
		return &Expr{root: &term{op: leaf, name: text}, names: 1, terms: 1}, nil
	}
	lex, err := tokens.LexString("", text)
	if err != nil {
		return nil, &Error{Message: err.Error()}
	}
	e, problem := parse(lex, 1+strings.Count(text, ";")+strings.Count(text, "|")+strings.Count(text, "&"))
	if problem != nil {
		problem.Offset = min(problem.Offset, len(text))
		return nil, problem
	}
	return e, nil
}

// frame is an open parenthesis or the whole text. Of the operands read so far, those from start[op] to start[op+1] are
// the frame's list for op: the operands of its sequence, then those of the sequence's last either, then those of that
// one's last both, up to the end.
type frame struct {
	open  int // offset of the parenthesis
	start [leaf]int
}

// operands is the stack of all frames' lists.
type operands struct {
	terms []*term
	slab  []term
	made  int // number of terms
}

func (o *operands) newTerm(t term) *term {
	if len(o.slab) == cap(o.slab) {
		o.slab = make([]term, 0, cap(o.slab)+16)
	}
	o.made++
	o.slab = append(o.slab, t)
	return &o.slab[len(o.slab)-1]
}

// close ends the frame's lists that bind tighter than op and makes them the last operand of op's list.
func (o *operands) close(f *frame, op operator) {
	for tighter := both; tighter > op; tighter-- {
		o.join(tighter, f.start[tighter])
	}
	for tighter := op + 1; tighter <= both; tighter++ {
		f.start[tighter] = len(o.terms)
	}
}

// join replaces the operands from start on by one term.
func (o *operands) join(op operator, start int) {
	if len(o.terms)-start < 2 {
		return
	}
	kids := append([]*term(nil), o.terms[start:]...)
	o.terms = append(o.terms[:start], o.newTerm(term{op: op, kids: kids}))
}

// result ends all lists of the frame and leaves one operand.
func (o *operands) result(f *frame) {
	o.close(f, sequence)
	o.join(sequence, f.start[sequence])
}

// parse reads the tokens of an expression. Expected is the estimated number of names.
func parse(lex lexer.Lexer, expected int) (*Expr, *Error) {
	names := 0
	stack := operands{terms: make([]*term, 0, expected), slab: make([]term, 0, expected+expected/4+1)}
	frames := []frame{{}}
	wantOperand := true
	for {
		tok, err := lex.Next()
		if err != nil {
			var positioned participle.Error
			if errors.As(err, &positioned) {
				return nil, &Error{positioned.Position().Offset, positioned.Message()}
			}
			return nil, &Error{Message: err.Error()}
		}
		top := &frames[len(frames)-1]
		offset := tok.Pos.Offset
		switch {
		case tok.EOF():
			switch {
			case names == 0 && len(frames) == 1:
				return nil, &Error{offset, "the expression is empty"}
			case wantOperand:
				return nil, &Error{offset, `unexpected end: expected a name or "("`}
			case len(frames) > 1:
				return nil, &Error{top.open, `"(" is never closed`}
			}
			stack.result(top)
			return &Expr{root: flatten(stack.terms[0]), names: names, terms: stack.made}, nil
		case wantOperand && tok.Type == tokName:
			stack.terms = append(stack.terms, stack.newTerm(term{op: leaf, name: tok.Value, offset: offset}))
			names++
			wantOperand = false
		case wantOperand && tok.Type == '(':
			n := len(stack.terms)
			frames = append(frames, frame{open: offset, start: [leaf]int{n, n, n}})
		case tok.Type != tokName && !strings.Contains(";|&()", tok.Value):
			return nil, &Error{offset,
				fmt.Sprintf(`unexpected %q: a name consists of letters, digits, "_", "-" and "."`,
					tok.Value)}
		case wantOperand:
			return nil, &Error{offset, fmt.Sprintf(`unexpected %q: expected a name or "("`, tok.Value)}
		case tok.Type == ';', tok.Type == '|', tok.Type == '&':
			stack.close(top, operators[tok.Value[0]])
			wantOperand = true
		case tok.Type == ')':
			if len(frames) == 1 {
				return nil, &Error{offset, `")" without "("`}
			}
			stack.result(top)
			frames = frames[:len(frames)-1]
		default:
			return nil, &Error{offset, fmt.Sprintf(`unexpected %q: expected ";", "|", "&" or the end`, tok.Value)}
		}
	}
}

var operators = [...]operator{';': sequence, '|': either, '&': both}

// flatten merges kids that have their parent's operator into the parent: a;(b;c) becomes a;b;c.
func flatten(root *term) *term {
	pending := []*term{root}
	var todo []*term
	for len(pending) > 0 {
		t := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if t.op == leaf {
			continue
		}
		nested := false
		for _, k := range t.kids {
			if k.op == t.op {
				nested = true
				break
			}
		}
		if nested {
			// Each nested term is visited once, at any depth.
			var kids []*term
			todo = append(todo[:0], t)
			for len(todo) > 0 {
				k := todo[len(todo)-1]
				todo = todo[:len(todo)-1]
				if k.op != t.op {
					kids = append(kids, k)
					continue
				}
				for i := len(k.kids) - 1; i >= 0; i-- {
					todo = append(todo, k.kids[i])
				}
			}
			t.kids = kids
		}
		for _, k := range t.kids {
			if k.op != leaf {
				pending = append(pending, k)
			}
		}
	}
	return root
}

// tokName is the type of a name. Any other character is its own token, with the character as its type.
const tokName lexer.TokenType = -2

// definition defines the tokens: names and single characters, with blanks between them. Participle's own lexers use
// regular expressions or copy each token; this one allocates no memory.
type definition struct{}

var _ lexer.Definition = definition{}

// Symbols implements lexer.Definition.
func (definition) Symbols() map[string]lexer.TokenType {
	return map[string]lexer.TokenType{"EOF": lexer.EOF, "Name": tokName}
}

// Lex implements lexer.Definition.
func (d definition) Lex(filename string, r io.Reader) (lexer.Lexer, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return d.LexString(filename, string(text))
}

// LexString implements lexer.StringDefinition.
func (definition) LexString(filename, text string) (lexer.Lexer, error) {
	return &scanner{filename: filename, text: text}, nil
}

// scanner returns the tokens of a text. All positions are in line 1: only the caller knows the expression's file and
// line.
type scanner struct {
	filename, text string
	at             int
}

// Next implements lexer.Lexer.
func (s *scanner) Next() (lexer.Token, error) {
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\n' || s.text[s.at] == '\t' ||
		s.text[s.at] == '\r') {
		s.at++
	}
	start := s.at
	pos := lexer.Position{Filename: s.filename, Offset: start, Line: 1, Column: start + 1}
	if start == len(s.text) {
		return lexer.EOFToken(pos), nil
	}
	for s.at < len(s.text) {
		r, size := rune(s.text[s.at]), 1
		if r >= utf8.RuneSelf {
			if r, size = utf8.DecodeRuneInString(s.text[s.at:]); r == utf8.RuneError && size == 1 {
				if s.at > start {
					break // the name before it is returned first
				}
				return lexer.Token{}, participle.Errorf(pos, "invalid UTF-8 encoding")
			}
		}
		if nameRune(r) {
			s.at += size
			continue
		}
		if s.at == start {
			s.at += size
			return lexer.Token{Type: lexer.TokenType(r), Value: s.text[start:s.at], Pos: pos}, nil
		}
		break
	}
	return lexer.Token{Type: tokName, Value: s.text[start:s.at], Pos: pos}, nil
}

// nameRune reports whether r may occur in a name.
func nameRune(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-', r == '.':
		return true
	}
	return r >= utf8.RuneSelf && r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// ValidName reports whether s is a valid name in an expression.
func ValidName(s string) bool {
	for _, r := range s {
		if !nameRune(r) {
			return false
		}
	}
	return s != ""
}
