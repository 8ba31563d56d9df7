package expr

import (
	"errors"
	"fmt"
	"strings"
	"text/scanner"
	"unicode"
	"unicode/utf8"

	"github.com/alecthomas/participle/v2"
	"github.com/alecthomas/participle/v2/lexer"
)

// Error is what is wrong with the text of an expression.
type Error struct {
	Offset  int // of the offending byte, 0-based; the length of the text where it ends too early
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("%d: %s", e.Offset, e.Message) }

// tokens is the lexer. It gives a name, or a single character, a token; blanks are skipped.
//
// The grammar below it is written out and not given to participle as tags of a struct. Participle walks such a
// grammar by recursion, some ten frames of reflection a parenthesis, and keeps every token: 10,000 parentheses cost it
// tens of megabytes of stack, and 1,000 names several times the 200 microseconds that we allow. Three binding
// strengths need no more than the stack of frames in parse.
var tokens = lexer.NewTextScannerLexer(func(s *scanner.Scanner) {
	s.Mode = scanner.ScanIdents
	s.IsIdentRune = func(r rune, _ int) bool { return nameRune(r) }
})

// Parse reads an expression. The error is an *Error.
func Parse(text string) (*Expr, error) {
	if ValidName(text) {
		// Nearly all expressions are a single name.
		return &Expr{root: &term{op: leaf, name: text}, names: 1}, nil
	}
	lex, err := tokens.Lex("", strings.NewReader(text))
	if err != nil {
		return nil, &Error{Message: err.Error()}
	}
	e, problem := parse(lex)
	if problem != nil {
		problem.Offset = min(problem.Offset, len(text))
		return nil, problem
	}
	return e, nil
}

// frame is an open parenthesis, or the whole text. Of the operands read so far, those from start[op] to
// start[op+1] are the frame's list for op: the operands of its sequence, then those of the sequence's last either,
// then those of that one's last both, up to the end.
type frame struct {
	open  int // offset of the parenthesis
	start [leaf]int
}

// operands is the stack of all frames' lists.
type operands struct {
	terms []*term
	slab  []term
}

func (o *operands) newTerm(t term) *term {
	if len(o.slab) == cap(o.slab) {
		o.slab = make([]term, 0, 2*cap(o.slab)+16)
	}
	o.slab = append(o.slab, t)
	return &o.slab[len(o.slab)-1]
}

// close ends the frame's lists that bind tighter than op and makes them the last operand of op's own.
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

// result ends every list of the frame and leaves one operand.
func (o *operands) result(f *frame) {
	o.close(f, sequence)
	o.join(sequence, f.start[sequence])
}

func parse(lex lexer.Lexer) (*Expr, *Error) {
	names := 0
	var stack operands
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
				return nil, &Error{offset, `the expression ends where a name or "(" should stand`}
			case len(frames) > 1:
				return nil, &Error{top.open, `"(" is never closed`}
			}
			stack.result(top)
			return &Expr{root: flatten(stack.terms[0]), names: names}, nil
		case wantOperand && tok.Type == scanner.Ident:
			stack.terms = append(stack.terms, stack.newTerm(term{op: leaf, name: tok.Value, offset: offset}))
			names++
			wantOperand = false
		case wantOperand && tok.Type == '(':
			n := len(stack.terms)
			frames = append(frames, frame{open: offset, start: [leaf]int{n, n, n}})
		case tok.Type != scanner.Ident && !strings.Contains(";|&()", tok.Value):
			return nil, &Error{offset, fmt.Sprintf(`unexpected %q: a name consists of letters, digits, "_", "-" and "."`, tok.Value)}
		case wantOperand:
			return nil, &Error{offset, fmt.Sprintf(`%q stands where a name or "(" should stand`, tok.Value)}
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
			return nil, &Error{offset, fmt.Sprintf(`%q stands where ";", "|", "&" or the end should stand`, tok.Value)}
		}
	}
}

var operators = [...]operator{';': sequence, '|': either, '&': both}

// flatten takes kids with their parent's own operator into the parent: a;(b;c) is a;b;c.
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
			// Each of the nested terms is taken apart once, whatever their depth.
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

// nameRune reports whether r may stand in a name.
func nameRune(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-', r == '.':
		return true
	}
	return r >= utf8.RuneSelf && r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// ValidName reports whether s can stand as a name in an expression.
func ValidName(s string) bool {
	for _, r := range s {
		if !nameRune(r) {
			return false
		}
	}
	return s != ""
}
