package objects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

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
	Where string
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
			all = append(all, Located{u, where})
			continue
		}
		err = u.EachListItem(func(o runtime.Object) error {
			item, ok := o.(*unstructured.Unstructured)
			if !ok {
				return fmt.Errorf("an item of the list is a %T", o)
			}
			all = append(all, Located{item, where})
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
