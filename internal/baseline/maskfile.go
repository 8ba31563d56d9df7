package baseline

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// MaskEntry is an entry of a file of masks.
type MaskEntry struct {
	Type string `yaml:"type,omitempty"`
	// Object is the key of the only object, instead of a type; see [Found].
	Object string `yaml:"object,omitempty"`
	Path   string `yaml:"path"`
	Reason string `yaml:"reason,omitempty"`
	// Value masks only the value at the path: whether the field is there counts.
	Value bool `yaml:"value,omitempty"`
	// Order masks only the order of the list at the path.
	Order bool `yaml:"order,omitempty"`
	// Compare makes the field count although it is masked.
	Compare bool `yaml:"compare,omitempty"`
}

const maskFileHead = "" +
	`# The fields that never count when runs of the workload %s are compared with its runs without faults.
# You may edit this file. To make a field count, set "compare: true" in its entry: an entry that is deleted comes back.
# To add a mask, add an entry with the type of the object (type[.group], or "*"), the path of the field, and a reason.
# "object" in place of "type" is for one object, or for all that differ only in a number. "value: true" masks only the
# value: whether the field is there still counts.
# "order: true" masks only the order of a list.
`

// MaskEntries lists what never counts in comparisons with the baseline: what was found in its runs first.
func (m *Masks) MaskEntries() []MaskEntry {
	var all []MaskEntry
	for _, c := range m.Compared {
		all = append(all, MaskEntry{Type: c.Type, Path: c.Path, Reason: c.Reason, Compare: true})
	}
	for _, f := range m.Found {
		all = append(all, MaskEntry{
			Object: string(f.Object), Path: f.Path, Reason: f.Reason, Value: f.Value, Compare: f.Compare,
		})
	}
	for _, u := range m.Unordered {
		all = append(all, MaskEntry{Type: u.Type, Path: u.Path, Reason: u.Reason, Order: true})
	}
	for _, g := range m.Given {
		all = append(all, MaskEntry{Type: g.Type, Path: g.Path, Reason: g.Reason})
	}
	return all
}

// Override adds masks that people have edited: fields that count although they are masked, and further masks.
func (m *Masks) Override(entries []MaskEntry) {
	for _, e := range entries {
		if e.Object != "" {
			m.find(Found{
				Object: facts.Key(e.Object).Group(), Path: e.Path, Reason: e.Reason, Value: e.Value, Compare: e.Compare,
			})
			continue
		}
		mask := Mask{Type: e.Type, Path: e.Path, Reason: e.Reason}
		list := &m.Given
		switch {
		case e.Compare:
			list = &m.Compared
		case e.Order:
			list = &m.Unordered
		}
		if !slices.ContainsFunc(*list, func(old Mask) bool { return old.Type == mask.Type && old.Path == mask.Path }) {
			*list = append(*list, mask)
		}
	}
}

// WriteMasks writes the masks of a reference to a file, for people to read and edit. It keeps what they have changed in
// the file before: the entries with "compare: true", and those that the baseline does not have.
func (ref *Baseline) WriteMasks(file string) error {
	edited, err := ReadMasks(file)
	if err != nil {
		return err
	}
	entries := ref.MaskEntries()
	for _, e := range edited {
		at := slices.IndexFunc(entries, func(x MaskEntry) bool {
			return x.Type == e.Type && x.Object == e.Object && x.Path == e.Path && x.Order == e.Order
		})
		switch {
		case at < 0 && e.Reason == Differs && e.Object == "" && !e.Compare:
			// It was found when masks were for whole types.
		case at >= 0 && e.Object != "":
			entries[at].Value = entries[at].Value && e.Value
			entries[at].Compare = e.Compare
		case at < 0:
			entries = append(entries, e)
		case e.Compare:
			entries[at] = e
		}
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, maskFileHead, ref.Workload)
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(entries), encoder.Close()); err != nil {
		return fmt.Errorf("write masks: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), record.DirMode); err != nil {
		return fmt.Errorf("write masks: %w", err)
	}
	if err := os.WriteFile(file, text.Bytes(), record.FileMode); err != nil {
		return fmt.Errorf("write masks: %w", err)
	}
	return nil
}

// ReadMasks reads a file of masks; a file that does not exist has none. The error says what is wrong in the file, and
// where, as a [plan.Error] does.
func ReadMasks(file string) ([]MaskEntry, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read masks: %w", err)
	}
	var nodes []yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&nodes); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var entries []MaskEntry
	strict := yaml.NewDecoder(bytes.NewReader(data))
	strict.KnownFields(true)
	if err := strict.Decode(&entries); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i := range entries {
		e := &entries[i]
		typed := e.Type != ""
		if !typed && e.Object == "" {
			e.Type = "*"
		}
		mistake := &plan.Error{File: file, Line: nodes[i].Line, Col: nodes[i].Column}
		switch {
		case e.Path == "":
			mistake.Message = "path is missing: which field is masked?"
			return nil, mistake
		case typed && e.Object != "":
			mistake.Message = "type and object exclude each other"
			return nil, mistake
		case e.Order && (e.Object != "" || e.Value):
			mistake.Message = "order is for a type, and for the whole list"
			return nil, mistake
		case e.Value && e.Object == "":
			mistake.Message = "value needs an object"
			return nil, mistake
		case strings.Count(e.Object, "/") != 2 && e.Object != "":
			mistake.Message = "an object is named type[.group]/namespace/name"
			return nil, mistake
		case e.Compare && e.Order:
			mistake.Message = "compare and order exclude each other"
			return nil, mistake
		}
	}
	return entries, nil
}
