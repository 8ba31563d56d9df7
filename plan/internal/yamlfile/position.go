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

// yamlLine is where a line of YAML begins, as editors count.
type yamlLine struct {
	line   int // 1-based
	before int // the characters before it in that line
}

// lineStarts returns the lines of a text as YAML 1.1 counts them, which also ends a line at a carriage return and at
// three characters of Unicode (is_break of yaml.v3). It returns nil if there is no such character.
func lineStarts(src []byte) []yamlLine {
	if !bytes.ContainsAny(src, "\r\u0085\u2028\u2029") {
		return nil
	}
	all := []yamlLine{{line: 1}}
	line, col := 1, 0
	for i := 0; i < len(src); {
		r, size := utf8.DecodeRune(src[i:])
		i += size
		col++
		switch {
		case r == '\n':
			line, col = line+1, 0
			all = append(all, yamlLine{line, col})
		case r == '\r' && !bytes.HasPrefix(src[i:], []byte("\n")), r == '\u0085', r == '\u2028', r == '\u2029':
			all = append(all, yamlLine{line, col})
		}
	}
	return all
}

// renumber gives the nodes of a tree their lines and columns as editors count.
func (f *File) renumber(root *yaml.Node) {
	starts := lineStarts(f.Text)
	if starts == nil {
		return
	}
	var nodes func(n *yaml.Node)
	nodes = func(n *yaml.Node) {
		if n.Line > 0 && n.Line <= len(starts) {
			start := starts[n.Line-1]
			n.Line, n.Column = start.line, n.Column+start.before
		}
		for _, c := range n.Content {
			nodes(c)
		}
	}
	nodes(root)
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
