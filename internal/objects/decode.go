package objects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlv3 "gopkg.in/yaml.v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

var yamlLine = regexp.MustCompile(`line (\d+): `)

// Decode decodes the documents of a YAML stream; a List is replaced by its items, an empty document by nothing. The
// file name is used in messages. All mistakes are reported at once.
func Decode(data []byte, file string) ([]*unstructured.Unstructured, error) {
	all, err := DecodeLocated(data, file)
	var list []*unstructured.Unstructured
	for _, l := range all {
		list = append(list, l.Unstructured)
	}
	return list, err
}

// Located is an object and the place that it was read from, as file:line.
type Located struct {
	*unstructured.Unstructured
	Where   string
	Cluster string // of a suite with several, in which the object is installed

	document document // that it was read from; without text if unknown
	file     string
	below    string // its path in the document, with a dot at the end; empty: it is the whole document
}

// At returns the place of a field of the object, as file:line. The path is written as in spec.containers[1].name. For a
// field that is absent it is the place of the field that should have it, and [Located.Where] if no line is known.
func (l Located) At(path string) string {
	var doc yamlv3.Node
	if len(l.document.text) == 0 || yamlv3.Unmarshal(l.document.text, &doc) != nil || len(doc.Content) == 0 {
		return l.Where
	}
	line, node, rest := 0, doc.Content[0], l.below+path
	for node != nil && rest != "" {
		var key *yamlv3.Node
		if key, node, rest = child(node, rest); key != nil {
			line = key.Line
		}
	}
	if line == 0 {
		return l.Where
	}
	return fmt.Sprintf("%s:%d", l.file, l.document.line+line-1)
}

// child returns the first element of the path below a node, its value, and the rest of the path. It returns nil if
// there is none. Keys may contain dots: the longest one counts.
func child(node *yamlv3.Node, path string) (key, value *yamlv3.Node, rest string) {
	switch node.Kind {
	case yamlv3.AliasNode:
		return child(node.Alias, path)
	case yamlv3.SequenceNode:
		index, after, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
		i, err := strconv.Atoi(index)
		if err != nil || i < 0 || i >= len(node.Content) {
			return nil, nil, ""
		}
		return node.Content[i], node.Content[i], strings.TrimPrefix(after, ".")
	case yamlv3.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			after, ok := AfterKey(path, node.Content[i].Value)
			if ok && (key == nil || len(after) < len(rest)) {
				key, value, rest = node.Content[i], node.Content[i+1], after
			}
		}
	}
	return key, value, rest
}

// AfterKey returns what follows a key at the beginning of a path such as spec.containers[1].name; false if the path
// does not begin with the key.
func AfterKey(path, key string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path, key)
	if !ok || rest != "" && rest[0] != '.' && rest[0] != '[' {
		return "", false
	}
	return strings.TrimPrefix(rest, "."), true
}

// DecodeLocated is [Decode] with the place of each object.
func DecodeLocated(data []byte, file string) ([]Located, error) {
	var all []Located
	var errs []error
	for _, d := range documents(data) {
		where := fmt.Sprintf("%s:%d", file, d.first())
		fail := func(line int, format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s:%d: %s", file, line, fmt.Sprintf(format, args...)))
		}
		asJSON, err := yaml.YAMLToJSONStrict(d.text)
		if err != nil {
			line, text := d.line, err.Error()
			if m := yamlLine.FindStringSubmatchIndex(text); m != nil {
				n, _ := strconv.Atoi(text[m[2]:m[3]])
				line, text = d.line+n-1, text[m[1]:]
			}
			fail(line, "%s", text)
			continue
		}
		if string(asJSON) == "null" {
			continue
		}
		u, err := DecodeJSON(asJSON)
		if err != nil {
			fail(d.line, "%v", err)
			continue
		}
		if !u.IsList() {
			all = append(all, Located{Unstructured: u, Where: where, document: d, file: file})
			continue
		}
		items := 0
		err = u.EachListItem(func(o runtime.Object) error {
			item, ok := o.(*unstructured.Unstructured)
			if !ok {
				return fmt.Errorf("an item of the list is a %T", o)
			}
			all = append(all, Located{Unstructured: item, Where: where, document: d, file: file,
				below: fmt.Sprintf("items[%d].", items)})
			items++
			return nil
		})
		if err != nil {
			fail(d.line, "%v", err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return all, nil
}

// DecodeJSON decodes one object, which must have an apiVersion and a kind.
func DecodeJSON(data []byte) (*unstructured.Unstructured, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, errors.New("not a Kubernetes object: no mapping with apiVersion and kind")
	}
	switch {
	case head.APIVersion == "":
		return nil, errors.New("the object has no apiVersion")
	case head.Kind == "":
		return nil, errors.New("the object has no kind")
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	return u, nil
}

// FromMap makes an object from a decoded mapping, whose numbers may be of any Go type. The mapping is not changed and
// not shared.
func FromMap(m map[string]any) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return DecodeJSON(data)
}

// Encode writes objects as a YAML stream that [Decode] reads.
func Encode(all []*unstructured.Unstructured) ([]byte, error) {
	var b bytes.Buffer
	for _, u := range all {
		data, err := yaml.Marshal(u.Object)
		if err != nil {
			return nil, fmt.Errorf("encode %s %s: %w", u.GetKind(), u.GetName(), err)
		}
		b.WriteString("---\n")
		b.Write(data)
	}
	return b.Bytes(), nil
}

type document struct {
	text []byte
	line int // of its first line in the file, 1-based
}

// first is the line of the file on which the document's content begins, including its leading comments.
func (d document) first() int {
	blank := len(d.text) - len(bytes.TrimLeft(d.text, " \t\r\n"))
	return d.line + bytes.Count(d.text[:blank], []byte("\n"))
}

// documents splits a YAML stream at its document markers.
func documents(data []byte) []document {
	var all []document
	current := document{line: 1}
	for i, line := range bytes.SplitAfter(data, []byte("\n")) {
		if rest, ok := bytes.CutPrefix(line, []byte("---")); ok &&
			(len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0) {
			all = append(all, current)
			current = document{line: i + 1, text: slices.Concat([]byte("   "), rest)}
			if len(bytes.TrimSpace(rest)) == 0 {
				current.text = []byte("\n")
			}
			continue
		}
		current.text = append(current.text, line...)
	}
	return append(all, current)
}
