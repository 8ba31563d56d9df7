package plan

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Limits of input files. They are far above any real plan, and low enough to keep time and memory small.
const (
	maxFileSize = 8 << 20 // bytes
	maxNodes    = 200_000 // YAML nodes; an alias counts as the nodes that it repeats
	maxDepth    = 500     // of nested mappings and lists
)

// source is a YAML file and the mistakes in it. For a plan that was built in Go it has only the mistakes.
type source struct {
	file   string
	text   []byte
	root   *yaml.Node // nil: there is no file
	errs   Errors
	failed map[*yaml.Node]bool // nodes that could not be read: they have been reported, and have no value
}

// report adds a mistake at a node; a nil node means the start of the file.
func (s *source) report(n *yaml.Node, format string, args ...any) {
	line, col := 1, 1
	if n != nil && n.Line > 0 {
		line, col = n.Line, n.Column
	}
	s.errs = append(s.errs, &Error{File: s.file, Line: line, Col: col, Message: fmt.Sprintf(format, args...)})
}

// errorf reports a node that cannot be read.
func (s *source) errorf(n *yaml.Node, format string, args ...any) {
	if s.failed == nil {
		s.failed = map[*yaml.Node]bool{}
	}
	s.failed[deref(n)] = true
	s.report(n, format, args...)
}

var yamlErrorLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(.*)$`)

// parse reads the only document of a file and checks that it can be walked safely. It returns nil if nothing is left to
// check.
func (s *source) parse(data []byte, kind string) *yaml.Node {
	if len(data) > maxFileSize {
		s.errorf(nil, "the file has more than the allowed %d bytes", maxFileSize)
		return nil
	}
	data = asUTF8(data)
	s.text = data
	// Each node but the first begins with one of these bytes, so their number limits the memory that parsing needs.
	separators := 0
	for _, c := range []byte("\n,[{:") {
		separators += bytes.Count(data, []byte{c})
	}
	if separators > 2*maxNodes {
		s.errorf(nil, "the file has more lines and items than any %s; at most %d are allowed", kind, 2*maxNodes)
		return nil
	}
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	if err := decodeNode(dec, &doc); err != nil {
		if errors.Is(err, io.EOF) {
			s.errorf(nil, "the file is empty; a %s is a YAML mapping", kind)
			return nil
		}
		s.syntaxError(err)
		return nil
	}
	for more := 0; ; more++ {
		err := decodeNode(dec, &second)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			s.syntaxError(err)
			return nil
		}
		if n := second.Content[0]; !isNull(n) || n.Value != "" || more > 10 { // a trailing --- has nothing after it
			s.errorf(n, "a second document; a %s file holds one", kind)
			break
		}
	}
	root := doc.Content[0]
	if isNull(root) {
		s.errorf(nil, "the file is empty; a %s is a YAML mapping", kind)
		return nil
	}
	merges, ok := s.walkable(root)
	if !ok {
		return nil
	}
	if merges {
		s.merge(root)
	}
	return root
}

// decodeNode is dec.Decode with the panics of the YAML package turned into errors: its parser is fuzzed less than our
// code.
func decodeNode(dec *yaml.Decoder, n *yaml.Node) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cannot be parsed: %v", r)
		}
	}()
	if err := dec.Decode(n); err != nil {
		return err
	}
	if len(n.Content) == 0 {
		return io.EOF
	}
	return nil
}

var tabIndent = regexp.MustCompile(`(?m)^ *\t`)

func (s *source) syntaxError(err error) {
	m := yamlErrorLine.FindStringSubmatch(strings.SplitN(err.Error(), "\n", 2)[0])
	line, _ := strconv.Atoi(m[1])
	e := &Error{File: s.file, Line: max(line, 1), Col: 1, Message: "not YAML: " + m[2]}
	if strings.Contains(e.Message, "tab character") {
		// The reported line is that of the text before the tab.
		from := max(0, lineStart(s.text, line))
		if at := tabIndent.FindIndex(s.text[from:]); at != nil {
			e.Line, e.Col = position(s.text, from+at[1]-1)
		}
	}
	if line == 0 {
		e.Line, e.Col = position(s.text, s.suspect(m[2]))
	}
	s.errs = append(s.errs, e)
}

// suspect finds the likely place of an error of the YAML package that has no line. It returns the offset, or 0.
func (s *source) suspect(message string) int {
	if anchor, ok := strings.CutPrefix(message, "unknown anchor '"); ok {
		alias := regexp.MustCompile(`\*` + regexp.QuoteMeta(strings.TrimSuffix(anchor, "' referenced")) +
			`(?:[\s,}\]]|$)`)
		if at := alias.FindIndex(s.text); at != nil {
			return at[0]
		}
		return 0
	}
	for i := 0; i < len(s.text); {
		r, size := utf8.DecodeRune(s.text[i:])
		if r == utf8.RuneError && size == 1 || unicode.IsControl(r) && r != '\t' && r != '\r' && r != '\n' &&
			r != '\u0085' {
			return i
		}
		i += size
	}
	return 0
}

// position turns an offset into a line and a column, in characters.
func position(src []byte, offset int) (line, col int) {
	before := src[:offset]
	return 1 + bytes.Count(before, []byte{'\n'}), 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
}

// asUTF8 removes the byte order mark from a file, and decodes the file if the mark says UTF-16.
func asUTF8(data []byte) []byte {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return data[3:]
	case bytes.HasPrefix(data, []byte("\xff\xfe")):
		order = binary.LittleEndian
	case bytes.HasPrefix(data, []byte("\xfe\xff")):
		order = binary.BigEndian
	default:
		return data
	}
	units := make([]uint16, 0, len(data)/2)
	for i := 2; i+1 < len(data); i += 2 {
		units = append(units, order.Uint16(data[i:]))
	}
	return []byte(string(utf16.Decode(units)))
}

// walkable rejects documents that aliases make infinite or huge, and documents that are nested too deeply. It also
// returns whether there are merge keys.
func (s *source) walkable(root *yaml.Node) (merges, ok bool) {
	var sizes map[*yaml.Node]int // of anchored nodes; -1 while they are being measured
	ok = true
	var size func(n *yaml.Node, depth int) int
	size = func(n *yaml.Node, depth int) int {
		if !ok {
			return 0
		}
		if depth > maxDepth {
			s.errorf(n, "nested deeper than %d", maxDepth)
			ok = false
			return 0
		}
		if n.Kind == yaml.AliasNode {
			switch known := sizes[n.Alias]; {
			case known < 0:
				s.errorf(n, "alias *%s is inside its own anchor", n.Value)
				ok = false
				return 0
			case known > 0:
				return known
			}
			return size(n.Alias, depth+1)
		}
		if n.Anchor != "" {
			if sizes == nil {
				sizes = map[*yaml.Node]int{}
			}
			sizes[n] = -1
		}
		merges = merges || n.Tag == mergeTag
		total := 1 + len(n.Value)/64 // long texts count too: aliases may repeat them
		for _, c := range n.Content {
			total += size(c, depth+1)
			if total > maxNodes && ok {
				s.errorf(n, "with its aliases resolved the file has more than %d nodes", maxNodes)
				ok = false
			}
		}
		if n.Anchor != "" {
			sizes[n] = total
		}
		return total
	}
	size(root, 0)
	return merges, ok
}

// deref follows an alias.
func deref(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool {
	return n == nil || n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// kindOf names the kind of a node in messages.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!null":
		return "nothing"
	}
	return "text"
}

const mergeTag = "!!merge"

// merge replaces << by the fields that it merges, in root and below. A mapping's own fields override merged ones, and
// earlier merged mappings override later ones. Merged fields are the same nodes as in the other mapping, so a mistake
// is reported where it is written. The document must have been checked to be finite.
func (s *source) merge(root *yaml.Node) {
	done := map[*yaml.Node]bool{}
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		if n = deref(n); done[n] {
			return
		}
		done[n] = true
		for _, c := range n.Content {
			walk(c)
		}
		if n.Kind == yaml.MappingNode {
			s.mergeInto(n)
		}
	}
	walk(root)
}

func (s *source) mergeInto(n *yaml.Node) {
	at := -1
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag == mergeTag {
			at = i
			break
		}
	}
	if at < 0 {
		return
	}
	content := make([]*yaml.Node, 0, len(n.Content))
	has := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch key := n.Content[i]; {
		case key.Tag != mergeTag:
			content = append(content, key, n.Content[i+1])
			has[deref(key).Value] = true
		case i != at:
			s.errorf(key, "duplicate <<; first at line %d; to merge several mappings give it a list of them",
				n.Content[at].Line)
		}
	}
	add := func(from *yaml.Node) {
		r := deref(from)
		if r.Kind != yaml.MappingNode {
			s.errorf(from, "<< merges a mapping or a list of mappings, not %s", kindOf(r))
			return
		}
		for i := 0; i+1 < len(r.Content); i += 2 {
			if key := deref(r.Content[i]); !has[key.Value] {
				has[key.Value] = true
				content = append(content, r.Content[i], r.Content[i+1])
			}
		}
	}
	if from := n.Content[at+1]; deref(from).Kind == yaml.SequenceNode {
		for _, item := range deref(from).Content {
			add(item)
		}
	} else {
		add(from)
	}
	n.Content = content
}
