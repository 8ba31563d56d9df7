// Package yamlfile reads YAML files strictly into Go structs and writes them. Every mistake in a file is found, and
// each has its position. The tags of the Go types and a [Format] describe the files; what they hold is not known here.
package yamlfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Limits of input files. They are far above any real file, and low enough to keep time and memory small.
const (
	MaxSize  = 8 << 20 // bytes
	MaxDepth = 500     // of nested mappings and lists
	maxNodes = 200_000 // YAML nodes; an alias counts as the nodes that it repeats
)

// File is a YAML file and the mistakes in it. For a value that was built in Go it has only the mistakes.
type File struct {
	Name   string
	Format *Format
	Text   []byte
	Root   *yaml.Node // nil: there is no file
	// Mistakes are in the order in which they were found. Fields that are merged into several mappings are read, and
	// reported, several times.
	Mistakes []Mistake

	failed map[*yaml.Node]bool // nodes that could not be read: they have been reported, and have no value
}

// Mistake is one mistake in a file, or in a value that was built in Go.
type Mistake struct {
	Line    int    // 1-based; 0 where there is no file
	Col     int    // 1-based, in characters
	Path    string // without a file: the place in the value, e.g. actions[0].trigger
	Message string
}

// Report adds a mistake at a node; a nil node means the start of the file.
func (f *File) Report(n *yaml.Node, format string, args ...any) {
	line, col := 1, 1
	if n != nil && n.Line > 0 {
		line, col = n.Line, n.Column
	}
	f.Mistakes = append(f.Mistakes, Mistake{Line: line, Col: col, Message: fmt.Sprintf(format, args...)})
}

// Errorf reports a node that cannot be read.
func (f *File) Errorf(n *yaml.Node, format string, args ...any) {
	if f.failed == nil {
		f.failed = map[*yaml.Node]bool{}
	}
	f.failed[Deref(n)] = true
	f.Report(n, format, args...)
}

// Decode reads the file into a struct, to which v points, and reports every mistake in it. Messages call the whole by
// the name called. Decode reports whether the struct was read at all.
func (f *File) Decode(v any, called string) bool {
	f.decode(&f.Root, reflect.ValueOf(v).Elem(), &Field{called: called})
	return !f.failed[Deref(f.Root)]
}

var yamlErrorLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(.*)$`)

// Parse reads the only document of a file and checks that it can be walked safely. Messages name the kind of file.
// Parse sets Root, and reports whether anything is left to check.
func (f *File) Parse(data []byte, kind string) bool {
	if len(data) > MaxSize {
		f.Errorf(nil, "the file has more than the allowed %d bytes", MaxSize)
		return false
	}
	data = asUTF8(data)
	f.Text = data
	// Each node but the first begins with one of these bytes, so their number limits the memory that parsing needs.
	separators := 0
	for _, c := range []byte("\n,[{:") {
		separators += bytes.Count(data, []byte{c})
	}
	if separators > 2*maxNodes {
		f.Errorf(nil, "the file has more lines and items than any %s; at most %d are allowed", kind, 2*maxNodes)
		return false
	}
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	if err := decodeNode(dec, &doc); err != nil {
		if errors.Is(err, io.EOF) {
			f.Errorf(nil, "the file is empty; a %s is a YAML mapping", kind)
			return false
		}
		f.syntaxError(err)
		return false
	}
	for more := 0; ; more++ {
		err := decodeNode(dec, &second)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			f.syntaxError(err)
			return false
		}
		if n := second.Content[0]; !isNull(n) || n.Value != "" || more > 10 { // a trailing --- has nothing after it
			f.renumber(n)
			f.Errorf(n, "a second document; a %s file holds one", kind)
			break
		}
	}
	f.renumber(&doc)
	root := doc.Content[0]
	if isNull(root) {
		f.Errorf(nil, "the file is empty; a %s is a YAML mapping", kind)
		return false
	}
	merges, ok := f.walkable(root)
	if !ok {
		return false
	}
	if merges {
		f.merge(root)
	}
	f.Root = root
	return true
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

func (f *File) syntaxError(err error) {
	m := yamlErrorLine.FindStringSubmatch(strings.SplitN(err.Error(), "\n", 2)[0])
	line, _ := strconv.Atoi(m[1])
	if starts := lineStarts(f.Text); starts != nil && line > 0 {
		line = starts[min(line, len(starts))-1].line
	}
	e := Mistake{Line: max(line, 1), Col: 1, Message: "not YAML: " + m[2]}
	if strings.Contains(e.Message, "tab character") {
		// The reported line is that of the text before the tab.
		from := max(0, lineStart(f.Text, line))
		if at := tabIndent.FindIndex(f.Text[from:]); at != nil {
			e.Line, e.Col = position(f.Text, from+at[1]-1)
		}
	}
	if line == 0 {
		e.Line, e.Col = position(f.Text, f.suspect(m[2]))
	}
	f.Mistakes = append(f.Mistakes, e)
}

// suspect finds the likely place of an error of the YAML package that has no line. It returns the offset, or 0.
func (f *File) suspect(message string) int {
	if anchor, ok := strings.CutPrefix(message, "unknown anchor '"); ok {
		alias := regexp.MustCompile(`\*` + regexp.QuoteMeta(strings.TrimSuffix(anchor, "' referenced")) +
			`(?:[\s,}\]]|$)`)
		if at := alias.FindIndex(f.Text); at != nil {
			return at[0]
		}
		return 0
	}
	for i := 0; i < len(f.Text); {
		r, size := utf8.DecodeRune(f.Text[i:])
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
func (f *File) walkable(root *yaml.Node) (merges, ok bool) {
	var sizes map[*yaml.Node]int // of anchored nodes; -1 while they are being measured
	ok = true
	var size func(n *yaml.Node, depth int) int
	size = func(n *yaml.Node, depth int) int {
		if !ok {
			return 0
		}
		if depth > MaxDepth {
			f.Errorf(n, "nested deeper than %d", MaxDepth)
			ok = false
			return 0
		}
		if n.Kind == yaml.AliasNode {
			switch known := sizes[n.Alias]; {
			case known < 0:
				f.Errorf(n, "alias *%s is inside its own anchor", n.Value)
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
				f.Errorf(n, "with its aliases resolved the file has more than %d nodes", maxNodes)
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

// Deref follows an alias.
func Deref(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool {
	return n == nil || n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// KindOf names the kind of a node in messages.
func KindOf(n *yaml.Node) string {
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

// Entry returns the key and the value of a mapping's field, or nil.
func Entry(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n = Deref(n); n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if Deref(n.Content[i]).Value == name {
			if isNull(Deref(n.Content[i+1])) {
				return n.Content[i], nil
			}
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// IsEmpty reports whether the node is an empty string.
func IsEmpty(n *yaml.Node) bool {
	r := Deref(n)
	return r != nil && r.Kind == yaml.ScalarNode && r.Value == ""
}
