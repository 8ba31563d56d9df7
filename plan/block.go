package plan

import (
	"strings"

	"gopkg.in/yaml.v3"
)

// blockReader reads the YAML in which generators write plans: block mappings and sequences with scalars that are plain and
// on one line, or quoted without escapes, in ASCII. It gives up on everything else, mistakes above all, and the YAML
// package reads the file instead. What it does read it reads as that package does, but comments.
//
// It is there because plans come by the thousand, and the YAML package takes more time for one than all that is done with
// it afterwards.
type blockReader struct {
	text      string
	at        int // the next character
	line      int // the line that at is in, 1-based
	lineStart int // where it begins
	indent    int // the column of the line's content, 0-based; of an item's, after its dash
	depth     int

	nodes   []yaml.Node  // room
	links   []*yaml.Node // room
	pending []*yaml.Node // contents of the mappings and sequences that are being read
}

const (
	maxBlockSize  = 256 << 10 // bytes; too few for maxNodes
	maxBlockDepth = 100
	maxBlockKey   = 128 // bytes
)

// readBlock returns the root of a document, or nil if it is none that blockReader reads.
func readBlock(data []byte) *yaml.Node {
	if len(data) > maxBlockSize {
		return nil
	}
	for _, c := range data {
		if (c < ' ' || c > '~') && c != '\n' {
			return nil
		}
	}
	r := &blockReader{text: string(data)}
	if r.nextLine(); r.end() {
		return nil
	}
	root := r.mapping(r.indent)
	if !r.end() {
		return nil
	}
	return root
}

func (r *blockReader) end() bool { return r.at >= len(r.text) }

// peek returns the next character; a file ends with a line break, whether it stands there or not.
func (r *blockReader) peek() byte {
	if r.end() {
		return '\n'
	}
	return r.text[r.at]
}

// nextLine goes to the content of the next line that has some. At the beginning of the file that is the first.
func (r *blockReader) nextLine() {
	for r.at < len(r.text) {
		if r.line > 0 {
			i := strings.IndexByte(r.text[r.at:], '\n')
			if i < 0 {
				r.at = len(r.text)
				return
			}
			r.at += i + 1
		}
		r.line++
		r.lineStart = r.at
		r.blanks()
		if c := r.peek(); c != '\n' && c != '#' {
			r.indent = r.at - r.lineStart
			return
		}
	}
}

// blanks passes over blanks and reports whether there were any.
func (r *blockReader) blanks() bool {
	start := r.at
	for r.at < len(r.text) && r.text[r.at] == ' ' {
		r.at++
	}
	return r.at > start
}

// lineEnds reports whether the line has nothing more, or a comment.
func (r *blockReader) lineEnds() bool {
	blanks := r.blanks()
	return r.peek() == '\n' || blanks && r.peek() == '#'
}

func (r *blockReader) node(kind yaml.Kind, tag string) *yaml.Node {
	if len(r.nodes) == 0 {
		r.nodes = make([]yaml.Node, 32)
	}
	n := &r.nodes[0]
	r.nodes = r.nodes[1:]
	n.Kind, n.Tag, n.Line, n.Column = kind, tag, r.line, r.at-r.lineStart+1
	return n
}

// contents takes what is pending from start on.
func (r *blockReader) contents(start int) []*yaml.Node {
	size := len(r.pending) - start
	if len(r.links) < size {
		r.links = make([]*yaml.Node, 64+size)
	}
	list := r.links[:size:size]
	r.links = r.links[size:]
	copy(list, r.pending[start:])
	r.pending = r.pending[:start]
	return list
}

// dash reports whether an item of a sequence begins here.
func (r *blockReader) dash() bool {
	return r.peek() == '-' && r.at+1 < len(r.text) && r.text[r.at+1] == ' '
}

// key returns the length of the key of a mapping that stands here, or 0.
func (r *blockReader) key() int {
	for i := range min(len(r.text)-r.at, maxBlockKey) {
		switch c := r.text[r.at+i]; {
		case letter(c):
		case i > 0 && (c >= '0' && c <= '9' || c == '-' || c == '.' || c == '/'):
		case i > 0 && c == ':' && (r.at+i+1 == len(r.text) || r.text[r.at+i+1] == ' ' || r.text[r.at+i+1] == '\n'):
			return i
		default:
			return 0
		}
	}
	return 0
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }

// mapping reads a mapping whose keys stand in the column indent.
func (r *blockReader) mapping(indent int) *yaml.Node {
	if r.depth++; r.depth > maxBlockDepth {
		return nil
	}
	defer func() { r.depth-- }()
	m := r.node(yaml.MappingNode, "!!map")
	start := len(r.pending)
	for {
		length := r.key()
		if length == 0 {
			return nil
		}
		key := r.node(yaml.ScalarNode, "")
		key.Value = r.text[r.at : r.at+length]
		key.Tag = plainTag(key.Value)
		r.at += length + 1
		var value *yaml.Node
		if !r.lineEnds() {
			value = r.scalar(indent)
		} else if r.nextLine(); !r.end() {
			switch {
			case r.dash() && r.indent >= indent:
				value = r.sequence(r.indent, r.indent == indent)
			case r.indent > indent:
				value = r.mapping(r.indent)
			}
		}
		if value == nil {
			return nil
		}
		r.pending = append(r.pending, key, value)
		if r.end() || r.indent < indent {
			m.Content = r.contents(start)
			return m
		}
		if r.indent > indent {
			return nil
		}
	}
}

// sequence reads a sequence whose dashes stand in the column indent. Where that is the column of the mapping around it,
// the mapping may go on behind it.
func (r *blockReader) sequence(indent int, inMapping bool) *yaml.Node {
	if r.depth++; r.depth > maxBlockDepth {
		return nil
	}
	defer func() { r.depth-- }()
	s := r.node(yaml.SequenceNode, "!!seq")
	start := len(r.pending)
	for {
		r.at++
		if r.lineEnds() {
			return nil
		}
		var item *yaml.Node
		if r.key() > 0 {
			r.indent = r.at - r.lineStart
			item = r.mapping(r.indent)
		} else {
			item = r.scalar(indent)
		}
		if item == nil {
			return nil
		}
		r.pending = append(r.pending, item)
		switch {
		case r.end(), r.indent < indent, r.indent == indent && inMapping && !r.dash():
			s.Content = r.contents(start)
			return s
		case r.indent > indent, !r.dash():
			return nil
		}
	}
}

// scalar reads a scalar to the end of its line, within something in the column indent, and goes to the next.
func (r *blockReader) scalar(indent int) *yaml.Node {
	n := r.node(yaml.ScalarNode, "!!str")
	switch c := r.peek(); {
	case c == '\'', c == '"':
		n.Style = yaml.DoubleQuotedStyle
		if c == '\'' {
			n.Style = yaml.SingleQuotedStyle
		}
		value, ok := r.quoted(c, indent)
		if !ok || !r.lineEnds() {
			return nil
		}
		n.Value = value
	case letter(c), c >= '0' && c <= '9', c == '/', c == '$':
		line, _, _ := strings.Cut(r.text[r.at:], "\n")
		if i := strings.Index(line, " #"); i >= 0 {
			line = line[:i]
		}
		line = strings.TrimRight(line, " ")
		if strings.Contains(line, ": ") || strings.HasSuffix(line, ":") {
			return nil
		}
		n.Value, n.Tag = line, plainTag(line)
	default:
		return nil
	}
	if r.nextLine(); !r.end() && r.indent > indent {
		return nil // a plain scalar of several lines, or a mistake
	}
	return n
}

// quoted reads a quoted scalar: in it ” stands for one, and a line break, with the blanks around it, for a blank.
func (r *blockReader) quoted(quote byte, indent int) (string, bool) {
	r.at++
	var parts strings.Builder // the value up to start
	start := r.at
	for ; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; {
		case c == '\\' && quote == '"':
			return "", false
		case c == quote && quote == '\'' && r.at+1 < len(r.text) && r.text[r.at+1] == quote:
			parts.WriteString(r.text[start : r.at+1])
			r.at++
			start = r.at + 1
		case c == quote:
			value := r.text[start:r.at]
			r.at++
			if parts.Len() == 0 {
				return value, true
			}
			parts.WriteString(value)
			return parts.String(), true
		case c == '\n':
			parts.WriteString(strings.TrimRight(r.text[start:r.at], " "))
			parts.WriteByte(' ')
			r.line++
			r.lineStart = r.at + 1
			r.at++
			if r.blanks(); r.at-r.lineStart <= indent || r.peek() == '\n' {
				return "", false
			}
			start = r.at
			r.at--
		}
	}
	return "", false
}

// plainTag is the type that YAML sees in a plain scalar.
func plainTag(value string) string {
	// Few words that begin with a letter are anything but text, and none of them is long.
	if c := value[0]; c == '/' || c == '$' || letter(c) && (len(value) > 5 || !strings.ContainsRune("yYnNtTfFoO", rune(c))) {
		return "!!str"
	}
	return (&yaml.Node{Kind: yaml.ScalarNode, Value: value}).ShortTag()
}
