package plan

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// scalarPosition finds the line and column of the byte at offset in a scalar's value. The way from the value back to
// the text leads through quotes, escapes and folded lines; so the text is decoded again up to that byte. Where that does
// not arrive at the value (an anchor or tag before it, say), the position is the scalar's own.
func scalarPosition(src []byte, n *yaml.Node, offset int) (line, col int) {
	line, col = n.Line, n.Column
	start := lineStart(src, n.Line)
	if start < 0 || n.Alias != nil {
		return line, col
	}
	text := string(src[start:])
	at := 0
	for range n.Column - 1 {
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	if at > len(text) {
		return line, col
	}
	r := &rereader{text: text, at: at, line: n.Line, col: n.Column, offset: offset}
	for r.peek() == "&" || r.peek() == "!" { // an anchor or a tag
		for !strings.Contains(" \t\r\n", r.peek()) {
			r.advance()
		}
		for r.peek() != "" && strings.Contains(" \t\r\n", r.peek()) {
			r.advance()
		}
	}
	switch n.Style &^ (yaml.TaggedStyle | yaml.FlowStyle) {
	case yaml.DoubleQuotedStyle, yaml.SingleQuotedStyle:
		r.quoted()
	case yaml.LiteralStyle, yaml.FoldedStyle:
		r.block(n.Value)
	default:
		r.plain(len(n.Value))
	}
	if r.found && strings.HasPrefix(n.Value, r.value.String()) {
		return r.foundLine, r.foundCol
	}
	return line, col
}

// lineStart returns the offset at which the 1-based line begins, or -1.
func lineStart(src []byte, line int) int {
	at := 0
	for range line - 1 {
		i := bytes.IndexByte(src[at:], '\n')
		if i < 0 {
			return -1
		}
		at += i + 1
	}
	return at
}

// rereader decodes a scalar's text until its value is offset bytes long.
type rereader struct {
	text      string
	at        int
	line, col int
	offset    int
	value     strings.Builder

	found               bool
	foundLine, foundCol int
}

// emit takes note of value bytes that begin at the present position; it reports whether that was the wanted place.
func (r *rereader) emit(s string) bool {
	if r.found {
		return true
	}
	if r.offset < r.value.Len()+len(s) || r.offset == r.value.Len() {
		r.found, r.foundLine, r.foundCol = true, r.line, r.col
		return true
	}
	r.value.WriteString(s)
	return false
}

// end is the place behind the last byte.
func (r *rereader) end() {
	if !r.found && r.offset == r.value.Len() {
		r.found, r.foundLine, r.foundCol = true, r.line, r.col
	}
}

func (r *rereader) peek() string {
	if r.at >= len(r.text) {
		return ""
	}
	_, size := utf8.DecodeRuneInString(r.text[r.at:])
	return r.text[r.at : r.at+size]
}

func (r *rereader) advance() {
	c := r.peek()
	r.at += len(c)
	if c == "\n" {
		r.line, r.col = r.line+1, 1
	} else {
		r.col++
	}
}

// fold passes over the blanks and line breaks between two pieces of a flow scalar.
func (r *rereader) fold() bool {
	blanks := *r
	s, breaks := "", 0
	for {
		switch r.peek() {
		case " ", "\t", "\r":
			s += r.peek()
			r.advance()
			continue
		case "\n":
			breaks++
			r.advance()
			continue
		}
		break
	}
	switch {
	case breaks == 1:
		s = " "
	case breaks > 1:
		s = strings.Repeat("\n", breaks-1)
	}
	if breaks > 0 {
		return r.emit(s)
	}
	// Blanks within a line: each has its own place.
	r.at, r.line, r.col = blanks.at, blanks.line, blanks.col
	for range s {
		if r.emit(r.peek()) {
			return true
		}
		r.advance()
	}
	return false
}

func (r *rereader) plain(length int) {
	for r.value.Len() < length {
		c := r.peek()
		switch c {
		case "":
			return
		case " ", "\t", "\r", "\n":
			if r.fold() {
				return
			}
			continue
		}
		if r.emit(c) {
			return
		}
		r.advance()
	}
	r.end()
}

func (r *rereader) quoted() {
	quote := r.peek()
	if quote != `"` && quote != `'` {
		return
	}
	r.advance()
	for {
		c := r.peek()
		switch {
		case c == "":
			return
		case c == quote:
			if quote == `'` && strings.HasPrefix(r.text[r.at:], "''") {
				if r.emit("'") {
					return
				}
				r.advance()
				r.advance()
				continue
			}
			r.end()
			return
		case c == " " || c == "\t" || c == "\r" || c == "\n":
			if r.fold() {
				return
			}
		case c == `\` && quote == `"`:
			s, length := unescape(r.text[r.at:])
			if s != "" && r.emit(s) {
				return
			}
			for range length {
				r.advance()
			}
			if s == "" { // an escaped line break: the next line's indentation is not part of the value either
				for r.peek() == " " || r.peek() == "\t" {
					r.advance()
				}
			}
		default:
			if r.emit(c) {
				return
			}
			r.advance()
		}
	}
}

// unescape decodes the escape at the start of s and returns its length in characters.
func unescape(s string) (value string, length int) {
	if len(s) < 2 {
		return "\\", 1
	}
	simple := map[byte]string{
		'0': "\x00", 'a': "\a", 'b': "\b", 't': "\t", '\t': "\t", 'n': "\n", 'v': "\v", 'f': "\f", 'r': "\r", 'e': "\x1b",
		' ': " ", '"': `"`, '/': "/", '\\': `\`, 'N': "\u0085", '_': "\u00a0", 'L': "\u2028", 'P': "\u2029", '\n': "",
	}
	if v, ok := simple[s[1]]; ok {
		return v, 2
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[1]]
	var r rune
	for i := 0; i < digits && 2+i < len(s); i++ {
		d := strings.IndexByte("0123456789abcdef", s[2+i]|0x20)
		if d < 0 {
			break
		}
		r = r<<4 | rune(d)
	}
	return string(r), 2 + digits
}

func (r *rereader) block(value string) {
	folded := r.peek() == ">"
	if !folded && r.peek() != "|" {
		return
	}
	given := false
	for r.peek() != "\n" {
		if c := r.peek(); c == "" {
			return
		} else if len(c) == 1 && c[0] >= '1' && c[0] <= '9' {
			given = true
		} else if c == "#" {
			for r.peek() != "\n" && r.peek() != "" {
				r.advance()
			}
			break
		}
		r.advance()
	}
	r.advance()
	indent := 0
	for _, line := range strings.Split(r.text[r.at:], "\n") {
		if trimmed := strings.TrimLeft(line, " "); trimmed != "" && trimmed != "\r" {
			indent = len(line) - len(trimmed)
			break
		}
	}
	if given {
		// The indentation that is given is relative to the parent's, which is not known here. That of the first line is the
		// most that it can be; the right one gives the value.
		for ; indent > 1; indent-- {
			try := rereader{text: r.text, at: r.at, line: r.line, col: r.col, offset: r.offset}
			if try.lines(indent, folded); try.found && strings.HasPrefix(value, try.value.String()) {
				break
			}
		}
	}
	r.lines(indent, folded)
}

// lines decodes the lines of a block scalar.
func (r *rereader) lines(indent int, folded bool) {
	breaks, first, lastMore := 0, true, false
	for r.at < len(r.text) {
		// The indentation of a line.
		n := 0
		for n < indent && r.peek() == " " {
			r.advance()
			n++
		}
		if r.peek() == "\n" || r.peek() == "\r" {
			if !folded {
				if r.emit("\n") {
					return
				}
			} else {
				breaks++
			}
			for r.peek() == "\r" {
				r.advance()
			}
			r.advance()
			continue
		}
		if n < indent || r.peek() == "" {
			break
		}
		if folded {
			more := r.peek() == " " || r.peek() == "\t"
			s := strings.Repeat("\n", breaks)
			if !first && !more && !lastMore {
				if breaks == 1 {
					s = " "
				} else if breaks > 1 {
					s = s[1:]
				}
			}
			if s != "" && r.emit(s) {
				return
			}
			breaks, lastMore = 0, more
		}
		first = false
		for c := r.peek(); c != "" && c != "\n" && c != "\r"; c = r.peek() {
			if r.emit(c) {
				return
			}
			r.advance()
		}
		for r.peek() == "\r" {
			r.advance()
		}
		if folded {
			breaks++
		} else if r.emit("\n") {
			return
		}
		r.advance()
	}
	r.end()
}
