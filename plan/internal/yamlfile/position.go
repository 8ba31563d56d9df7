package yamlfile

import (
	"bytes"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// scalarPosition finds the line and column of the byte at offset in a scalar's value.
//
// YAML folds lines: it changes the white space of a value and keeps all other characters. So the position is found by
// counting those. If the text does not agree with the value, the position is the start of the scalar.
func scalarPosition(src []byte, n *yaml.Node, offset int) (line, col int) {
	start := lineStart(src, n.Line)
	if start < 0 || n.Alias != nil || offset > len(n.Value) {
		return n.Line, n.Column
	}
	t := &text{rest: string(src[start:]), line: n.Line, col: 1}
	for t.col < n.Column && t.rest != "" {
		t.advance(1)
	}
	for strings.HasPrefix(t.rest, "&") || strings.HasPrefix(t.rest, "!") { // an anchor or a tag
		end := strings.IndexAny(t.rest, " \t\r\n")
		if end < 0 {
			return n.Line, n.Column
		}
		t.advance(utf8.RuneCountInString(t.rest[:end]))
		t.skipBlanks()
	}
	switch n.Style &^ (yaml.TaggedStyle | yaml.FlowStyle) {
	case yaml.DoubleQuotedStyle, yaml.SingleQuotedStyle:
		t.quote = t.rest[:min(1, len(t.rest))]
		t.advance(1)
	case yaml.LiteralStyle, yaml.FoldedStyle:
		t.advance(
			utf8.RuneCountInString(t.rest[:max(0, strings.IndexByte(t.rest, '\n'))])) // skip the line with | or >
	}
	for i, r := range n.Value {
		if i >= offset {
			break
		}
		if unicode.IsSpace(r) {
			continue
		}
		if got, ok := t.next(); !ok || got != r {
			return n.Line, n.Column
		}
	}
	if r, _ := utf8.DecodeRuneInString(n.Value[offset:]); offset < len(n.Value) && !unicode.IsSpace(r) {
		t.skipToNext()
	}
	return t.line, t.col
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

// text is the rest of a scalar's text, from some position on.
type text struct {
	rest      string
	quote     string // ' or "; empty: the scalar is not quoted
	line, col int
}

func (t *text) advance(characters int) {
	for range characters {
		r, size := utf8.DecodeRuneInString(t.rest)
		t.rest = t.rest[size:]
		if r == '\n' {
			t.line, t.col = t.line+1, 1
		} else {
			t.col++
		}
	}
}

// skipBlanks reports whether anything is left.
func (t *text) skipBlanks() bool {
	for t.rest != "" {
		if r, _ := utf8.DecodeRuneInString(t.rest); !unicode.IsSpace(r) {
			return true
		}
		t.advance(1)
	}
	return false
}

// skipToNext skips to the next non-blank character of the value.
func (t *text) skipToNext() (r rune, length int) {
	for t.skipBlanks() {
		if r, length = t.unescape(); !unicode.IsSpace(r) {
			return r, length
		}
		t.advance(length)
	}
	return 0, 0
}

// next is skipToNext, and consumes that character.
func (t *text) next() (r rune, ok bool) {
	r, length := t.skipToNext()
	t.advance(length)
	return r, length > 0
}

// unescape decodes the character at the beginning of the text. The length is in characters.
func (t *text) unescape() (r rune, length int) {
	switch {
	case t.quote == `'` && strings.HasPrefix(t.rest, "''"):
		return '\'', 2
	case t.quote == `"` && len(t.rest) > 1 && t.rest[0] == '\\':
		if digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[t.rest[1]]; digits > 0 && len(t.rest) >= 2+digits {
			v, _ := strconv.ParseUint(t.rest[2:2+digits], 16, 32)
			return rune(v), 2 + digits
		}
		simple := map[byte]rune{
			'0': 0, 'a': '\a', 'b': '\b', 't': '\t', '\t': '\t', 'n': '\n', 'v': '\v', 'f': '\f',
			'r': '\r', 'e': '\x1b',
			'N': '\u0085', '_': '\u00a0', 'L': '\u2028', 'P': '\u2029',
		}
		if r, ok := simple[t.rest[1]]; ok {
			return r, 2
		}
		return rune(t.rest[1]), 2 // a quote, a backslash, or a line break that is not part of the value
	}
	r, _ = utf8.DecodeRuneInString(t.rest)
	return r, 1
}
