package plan

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Limits of what is read. They are far above any plan and far below what hurts.
const (
	maxFileSize = 8 << 20 // bytes
	maxNodes    = 200_000 // YAML nodes, each alias counted with all that it stands for
	maxDepth    = 500     // of nested mappings and lists
)

// keySource is a resource key and where it stands.
type keySource struct {
	key       ResourceKey
	line, col int
}

// decoder reads YAML nodes into values and collects what is wrong with them.
type decoder struct {
	file string
	src  []byte
	errs Errors
	keys []keySource  // of a suite: what was read
	room []*yaml.Node // for the values of the next mappings
}

// errorf reports a mistake at a node; a nil node stands for the start of the file.
func (d *decoder) errorf(n *yaml.Node, format string, args ...any) {
	line, col := 1, 1
	if n != nil && n.Line > 0 {
		line, col = n.Line, n.Column
	}
	d.errs = append(d.errs, &Error{File: d.file, Line: line, Col: col, Message: fmt.Sprintf(format, args...)})
}

var yamlErrorLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(.*)$`)

// parse reads the only document of a file and checks that it can be walked safely. It returns nil after a mistake
// that leaves nothing to look at.
func (d *decoder) parse(data []byte, kind string) *yaml.Node {
	if len(data) > maxFileSize {
		d.errorf(nil, "the file has more than %d bytes, the most that is read", maxFileSize)
		return nil
	}
	data = asUTF8(data)
	d.src = data
	// Each node but the first begins with one of these bytes, so what they bound is the memory that parsing takes.
	separators := 0
	for _, c := range []byte("\n,[{:") {
		separators += bytes.Count(data, []byte{c})
	}
	if separators > 2*maxNodes {
		d.errorf(nil, "the file has more lines and items than any %s; %d are the most that is read", kind, 2*maxNodes)
		return nil
	}
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	if err := decodeNode(dec, &doc); err != nil {
		if errors.Is(err, io.EOF) {
			d.errorf(nil, "the file is empty; a %s is a YAML mapping", kind)
			return nil
		}
		d.syntaxError(err)
		return nil
	}
	for more := 0; ; more++ {
		err := decodeNode(dec, &second)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			d.syntaxError(err)
			return nil
		}
		if n := second.Content[0]; !isNull(n) || n.Value != "" || more > 10 { // a last --- has nothing behind it
			d.errorf(n, "a second document; a %s file holds one", kind)
			break
		}
	}
	root := doc.Content[0]
	if isNull(root) {
		d.errorf(nil, "the file is empty; a %s is a YAML mapping", kind)
		return nil
	}
	merges, ok := d.walkable(root)
	if !ok {
		return nil
	}
	if merges {
		d.merge(root)
	}
	return root
}

// decodeNode is dec.Decode with the panics of the YAML package turned into errors: its parser is fuzzed less than ours.
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

func (d *decoder) syntaxError(err error) {
	m := yamlErrorLine.FindStringSubmatch(strings.SplitN(err.Error(), "\n", 2)[0])
	line, _ := strconv.Atoi(m[1])
	e := &Error{File: d.file, Line: max(line, 1), Col: 1, Message: "not YAML: " + m[2]}
	if strings.Contains(e.Message, "tab character") {
		// The line is that of what the tab stands behind.
		from := max(0, lineStart(d.src, line))
		if at := tabIndent.FindIndex(d.src[from:]); at != nil {
			e.Line, e.Col = position(d.src, from+at[1]-1)
		}
	}
	if line == 0 {
		e.Line, e.Col = position(d.src, d.suspect(m[2]))
	}
	d.errs = append(d.errs, e)
}

// suspect finds what an error of the YAML package without a line is about: the offset in the file, or 0.
func (d *decoder) suspect(message string) int {
	if anchor, ok := strings.CutPrefix(message, "unknown anchor '"); ok {
		alias := regexp.MustCompile(`\*` + regexp.QuoteMeta(strings.TrimSuffix(anchor, "' referenced")) + `(?:[\s,}\]]|$)`)
		if at := alias.FindIndex(d.src); at != nil {
			return at[0]
		}
		return 0
	}
	for i := 0; i < len(d.src); {
		r, size := utf8.DecodeRune(d.src[i:])
		if r == utf8.RuneError && size == 1 || unicode.IsControl(r) && r != '\t' && r != '\r' && r != '\n' && r != '\u0085' {
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

// asUTF8 takes the byte order mark from a file, and decodes it if that says that it is UTF-16.
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

// walkable refuses documents whose aliases make them endless or huge, and ones nested too deep. It reports too whether
// there are merge keys.
func (d *decoder) walkable(root *yaml.Node) (merges, ok bool) {
	var sizes map[*yaml.Node]int // of anchored nodes; -1 while they are being measured
	ok = true
	var size func(n *yaml.Node, depth int) int
	size = func(n *yaml.Node, depth int) int {
		if !ok {
			return 0
		}
		if depth > maxDepth {
			d.errorf(n, "nested deeper than %d", maxDepth)
			ok = false
			return 0
		}
		if n.Kind == yaml.AliasNode {
			switch s := sizes[n.Alias]; {
			case s < 0:
				d.errorf(n, "alias *%s stands within its own anchor", n.Value)
				ok = false
				return 0
			case s > 0:
				return s
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
		total := 1 + len(n.Value)/64 // a long text counts too: aliases may repeat it
		for _, c := range n.Content {
			total += size(c, depth+1)
			if total > maxNodes && ok {
				d.errorf(n, "with its aliases resolved the file has more than %d nodes", maxNodes)
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

// kindOf names what a node is, for messages.
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

// schema is the set of fields of a mapping.
type schema struct {
	what   string            // an action, a trigger …
	fields []string          // by the number under which mapping returns them
	words  map[string]string // other words for fields
	hints  map[string]string // what to say about fields that are not ours
}

// mapping reads a mapping's fields into a slice by their number in the schema; absent and null fields are nil. It
// returns nil when the node is no mapping, which is reported.
func (d *decoder) mapping(n *yaml.Node, s *schema) []*yaml.Node {
	n = deref(n)
	if n.Kind != yaml.MappingNode {
		d.errorf(n, "%s is a mapping, not %s", s.what, kindOf(n))
		return nil
	}
	if len(d.room) < len(s.fields) {
		d.room = make([]*yaml.Node, 64+len(s.fields))
	}
	values := d.room[:len(s.fields):len(s.fields)]
	d.room = d.room[len(s.fields):]
	var seen uint64 // by number
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := deref(n.Content[i]), deref(n.Content[i+1])
		at := slices.Index(s.fields, key.Value)
		if at < 0 {
			if word, ok := s.words[key.Value]; ok {
				at = slices.Index(s.fields, word)
			}
		}
		switch {
		case key.Kind != yaml.ScalarNode:
			d.errorf(n.Content[i], "a field of %s is named by text, not %s", s.what, kindOf(key))
		case at < 0:
			if hint, ok := s.hints[key.Value]; ok {
				d.errorf(n.Content[i], "unknown field %q in %s; %s", key.Value, s.what, hint)
			} else {
				d.errorf(n.Content[i], "unknown field %q in %s%s", key.Value, s.what, didYouMean(key.Value, s.fields))
			}
			// Still walk nothing of it: what it means is unknown.
		case seen&(1<<at) != 0:
			d.errorf(n.Content[i], "field %q stands twice; first at line %d", s.fields[at], s.find(n, at))
		default:
			seen |= 1 << at
			if !isNull(value) {
				values[at] = n.Content[i+1]
			}
		}
	}
	return values
}

// find returns the line at which a field of the mapping first stands.
func (s *schema) find(n *yaml.Node, at int) int {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if key := deref(n.Content[i]).Value; key == s.fields[at] || s.words[key] == s.fields[at] {
			return n.Content[i].Line
		}
	}
	return n.Line
}

// list returns the items of a list, nil (reported) for anything else. A nil node is an empty list.
func (d *decoder) list(n *yaml.Node, what string) []*yaml.Node {
	if n == nil {
		return nil
	}
	if r := deref(n); r.Kind != yaml.SequenceNode {
		d.errorf(n, "%s is a list, not %s", what, kindOf(r))
		return nil
	} else {
		return r.Content
	}
}

// named walks a mapping whose keys are names.
func (d *decoder) named(n *yaml.Node, what string, each func(name string, key, value *yaml.Node)) {
	if n == nil {
		return
	}
	r := deref(n)
	if r.Kind != yaml.MappingNode {
		d.errorf(n, "%s is a mapping, not %s", what, kindOf(r))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(r.Content); i += 2 {
		key := deref(r.Content[i])
		if key.Kind != yaml.ScalarNode {
			d.errorf(r.Content[i], "a name in %s is text, not %s", what, kindOf(key))
			continue
		}
		if line, ok := seen[key.Value]; ok {
			d.errorf(r.Content[i], "%q stands twice in %s; first at line %d", key.Value, what, line)
			continue
		}
		seen[key.Value] = r.Content[i].Line
		each(key.Value, r.Content[i], r.Content[i+1])
	}
}

// text reads a string. A nil node is empty.
func (d *decoder) text(n *yaml.Node, what string) string {
	if n == nil {
		return ""
	}
	r := deref(n)
	switch {
	case r.Kind != yaml.ScalarNode:
		d.errorf(n, "%s is text, not %s", what, kindOf(r))
		return ""
	case r.Tag == "!!int", r.Tag == "!!float", r.Tag == "!!bool", r.Tag == "!!null":
		d.errorf(n, "%s is text, not %s; write %s", what, kindOf(r), strconv.Quote(r.Value))
		return ""
	}
	return r.Value
}

// texts reads a list of strings.
func (d *decoder) texts(n *yaml.Node, what string) []string {
	var list []string
	for _, item := range d.list(n, what) {
		list = append(list, d.text(item, "an item of "+what))
	}
	return list
}

// textMap reads a mapping of strings.
func (d *decoder) textMap(n *yaml.Node, what string) map[string]string {
	var m map[string]string
	d.named(n, what, func(name string, _, value *yaml.Node) {
		if m == nil {
			m = map[string]string{}
		}
		m[name] = d.text(value, name+" in "+what)
	})
	return m
}

func (d *decoder) boolMap(n *yaml.Node, what string) map[string]bool {
	var m map[string]bool
	d.named(n, what, func(name string, _, value *yaml.Node) {
		if m == nil {
			m = map[string]bool{}
		}
		m[name] = d.boolean(value, name+" in "+what)
	})
	return m
}

func (d *decoder) boolean(n *yaml.Node, what string) bool {
	if n == nil {
		return false
	}
	r := deref(n)
	if r.Kind != yaml.ScalarNode || r.Tag != "!!bool" {
		d.errorf(n, "%s is true or false, not %s", what, kindOf(r))
		return false
	}
	return strings.EqualFold(r.Value, "true")
}

// integer reads a whole number. A nil node is fallback.
func (d *decoder) integer(n *yaml.Node, what string, fallback int) int {
	if n == nil {
		return fallback
	}
	r := deref(n)
	if r.Kind == yaml.ScalarNode && r.Tag == "!!int" {
		if v, err := strconv.Atoi(r.Value); err == nil {
			return v
		}
		var v int
		if err := r.Decode(&v); err == nil {
			return v
		}
	}
	switch digits := strings.TrimLeft(r.Value, "+-"); {
	case r.Kind == yaml.ScalarNode && r.Tag != "!!str" && digits != "" && strings.Trim(digits, "0123456789") == "":
		d.errorf(n, "%s: %s is too large a number", what, r.Value)
	case r.Tag == "!!float":
		d.errorf(n, "%s is a whole number, not %s", what, r.Value)
	default:
		d.errorf(n, "%s is a whole number, not %s", what, kindOf(r))
	}
	return fallback
}

// longDuration has the form of a duration.
var longDuration = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(h|m|s|ms|us|µs|ns)$`)

// duration reads a Go duration. A nil node is fallback.
func (d *decoder) duration(n *yaml.Node, what string, fallback time.Duration) time.Duration {
	if n == nil {
		return fallback
	}
	r := deref(n)
	if r.Kind != yaml.ScalarNode {
		d.errorf(n, "%s is a duration such as 20s, not %s", what, kindOf(r))
		return fallback
	}
	v, err := time.ParseDuration(r.Value)
	switch {
	case err != nil && (r.Tag == "!!int" || r.Tag == "!!float"):
		d.errorf(n, "%s: a duration has a unit; write %ss", what, r.Value)
	case err != nil && longDuration.MatchString(r.Value):
		d.errorf(n, "%s: %s is longer than any duration can be", what, r.Value)
	case err != nil:
		d.errorf(n, "%s: %q is no duration; write it like 20s, 1m30s or 500ms", what, r.Value)
	case v < 0:
		d.errorf(n, "%s: a duration is not negative", what)
	default:
		return v
	}
	return fallback
}

// word reads one of a set of words.
func word[T ~string](d *decoder, n *yaml.Node, what string, known []T) T {
	if n == nil {
		return ""
	}
	s := T(d.text(n, what))
	if s == "" {
		if r := deref(n); r.Kind == yaml.ScalarNode && r.Value == "" {
			d.errorf(n, "%s is empty%s", what, didYouMean("", stringsOf(known)))
		}
		return ""
	}
	if !slices.Contains(known, s) {
		d.errorf(n, "unknown %s %q%s", what, s, didYouMean(string(s), stringsOf(known)))
		return ""
	}
	return s
}

func stringsOf[T ~string](list []T) []string {
	s := make([]string, len(list))
	for i, v := range list {
		s[i] = string(v)
	}
	return s
}

// resourceKey reads a resource key. A nil node is the zero key.
func (d *decoder) resourceKey(n *yaml.Node, what string) ResourceKey {
	if n == nil {
		return ResourceKey{}
	}
	s := d.text(n, what)
	if s == "" {
		if r := deref(n); r.Kind == yaml.ScalarNode && r.Value == "" {
			d.errorf(n, "%s is empty; write type/namespace/name", what)
		}
		return ResourceKey{}
	}
	k, err := ParseResourceKey(s)
	if err != nil {
		d.errorf(n, "%s %v", what, err)
		return ResourceKey{}
	}
	if d.keys != nil {
		d.keys = append(d.keys, keySource{k, n.Line, n.Column})
	}
	return k
}

// value reads any YAML as what JSON would hold: map[string]any, []any, string, int64, float64, bool, nil.
func (d *decoder) value(n *yaml.Node) any {
	r := deref(n)
	switch r.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(r.Content)/2)
		for i := 0; i+1 < len(r.Content); i += 2 {
			key := deref(r.Content[i])
			if key.Kind != yaml.ScalarNode {
				d.errorf(r.Content[i], "a field is named by text, not %s", kindOf(key))
				continue
			}
			if _, ok := m[key.Value]; ok {
				d.errorf(r.Content[i], "field %q stands twice", key.Value)
				continue
			}
			m[key.Value] = d.value(r.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, len(r.Content))
		for i, c := range r.Content {
			list[i] = d.value(c)
		}
		return list
	}
	switch r.Tag {
	case "!!null":
		return nil
	case "!!bool":
		return strings.EqualFold(r.Value, "true")
	case "!!int":
		if v, err := strconv.ParseInt(r.Value, 10, 64); err == nil {
			return v
		}
		var v int64
		if err := r.Decode(&v); err == nil {
			return v
		}
		fallthrough
	case "!!float":
		v, err := strconv.ParseFloat(r.Value, 64)
		if err != nil {
			err = r.Decode(&v)
		}
		if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
			d.errorf(n, "%s is no number that JSON can hold", r.Value)
			return nil
		}
		return whole(v)
	}
	return r.Value
}

// whole turns a number without a fraction into an int64: JSON makes no difference between 1 and 1.0.
func whole(f float64) any {
	if math.Trunc(f) == f && math.Abs(f) < 1<<53 {
		return int64(f)
	}
	return f
}
