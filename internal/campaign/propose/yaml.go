package propose

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/plan"
)

// Workload is a proposed workload.
type Workload struct {
	Name    string
	Comment string // what it is for, one or more lines
	Steps   []*plan.Step
}

// Render writes workloads as the value of a suite's workloads, with comments. A step that several places share is
// written once, with an anchor that begins with prefix.
func Render(all []Workload, prefix string) ([]byte, error) {
	uses := map[*plan.Step]int{}
	for _, w := range all {
		for _, s := range w.Steps {
			uses[s]++
		}
	}
	written := map[*plan.Step]*yaml.Node{}
	anchors := map[string]bool{}
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, w := range all {
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, s := range w.Steps {
			if n, ok := written[s]; ok {
				list.Content = append(list.Content, &yaml.Node{Kind: yaml.AliasNode, Value: n.Anchor, Alias: n})
				continue
			}
			n, err := stepNode(s)
			if err != nil {
				return nil, fmt.Errorf("workload %s: %w", w.Name, err)
			}
			if uses[s] > 1 {
				n.Anchor = unused(prefix+kebab(s.Name), func(name string) bool { return anchors[name] })
				anchors[n.Anchor] = true
				written[s] = n
			}
			list.Content = append(list.Content, n)
		}
		name := textNode(w.Name)
		name.HeadComment = "# " + strings.ReplaceAll(w.Comment, "\n", "\n# ")
		root.Content = append(root.Content, name, list)
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(root); err != nil {
		return nil, fmt.Errorf("write workloads: %w", err)
	}
	if err := enc.Close(); err != nil {
		return nil, fmt.Errorf("write workloads: %w", err)
	}
	return bytes.TrimLeft(beforeComments.ReplaceAll(b.Bytes(), []byte("$1\n$2")), "\n"), nil
}

// beforeComments is where a workload's comment begins, which a blank line sets apart from the workload before.
var beforeComments = regexp.MustCompile(`(?m)(^[^#\n].*\n)(# )`)

// unused returns the name, with a number if it is taken.
func unused(name string, taken func(string) bool) string {
	for n, try := 2, name; ; n++ {
		if !taken(try) {
			return try
		}
		try = fmt.Sprintf("%s-%d", name, n)
	}
}

func textNode(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

// mapping makes a mapping of names and values, in this order. Values are nodes or anything that has a YAML form.
func mapping(pairs ...any) (*yaml.Node, error) {
	m := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i < len(pairs); i += 2 {
		value, ok := pairs[i+1].(*yaml.Node)
		if !ok {
			var err error
			if value, err = node(pairs[i+1]); err != nil {
				return nil, err
			}
		}
		m.Content = append(m.Content, textNode(pairs[i].(string)), value)
	}
	flow(m)
	return m, nil
}

func node(v any) (*yaml.Node, error) {
	n := &yaml.Node{}
	err := n.Encode(v)
	flow(n)
	return n, err
}

// flow writes mappings and lists that are short on one line.
func flow(n *yaml.Node) (width int) {
	width = len(n.Value) + 4
	for _, item := range n.Content {
		width += flow(item)
	}
	if n.Kind != yaml.ScalarNode && width <= 90 {
		n.Style |= yaml.FlowStyle
	}
	return width
}

func stepNode(s *plan.Step) (*yaml.Node, error) {
	var kind string
	var value *yaml.Node
	var err error
	switch {
	case s.Apply != nil && s.Apply.File != "":
		kind, value = "apply", textNode(s.Apply.File)
	case s.Apply != nil && len(s.Apply.Objects) == 1:
		kind = "apply"
		value, err = node(plain(s.Apply.Objects[0]))
	case s.Apply != nil:
		var list []any
		for _, o := range s.Apply.Objects {
			list = append(list, plain(o))
		}
		kind = "apply"
		value, err = mapping("objects", list)
	case s.Delete != nil:
		kind, value = "delete", textNode(s.Delete.ResourceKey.String())
	case s.Patch != nil:
		kind = "patch"
		pairs := []any{"resourceKey", s.Patch.ResourceKey.String()}
		if s.Patch.PatchType != "merge" {
			pairs = append(pairs, "patchType", s.Patch.PatchType)
		}
		value, err = mapping(append(pairs, "patch", plain(s.Patch.Patch))...)
	case s.Wait != nil && s.Wait.Absent:
		kind = "wait"
		value, err = mapping("resourceKey", s.Wait.ResourceKey.String(), "absent", true)
	case s.Sleep > 0:
		kind, value = "sleep", textNode(plan.FormatDuration(s.Sleep))
	case s.AdvanceTime > 0:
		kind, value = "advanceTime", textNode(plan.FormatDuration(s.AdvanceTime))
	case s.Wait != nil:
		kind = "wait"
		value, err = mapping("resourceKey", s.Wait.ResourceKey.String(), "condition", s.Wait.Condition)
	default:
		return nil, fmt.Errorf("step %q does nothing that is proposed", s.Name)
	}
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	if s.Name != "" {
		n.Content = append(n.Content, textNode("name"), textNode(s.Name))
	}
	n.Content = append(n.Content, textNode(kind), value)
	return n, nil
}

// Insert puts rendered workloads into the text of a suite: at the end of its workloads, or, if alone, instead of them.
// Everything else stays as it is, with its comments.
func Insert(suite, workloads []byte, alone bool) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(suite, &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("the suite is not a mapping")
	}
	root := doc.Content[0]
	lines := strings.SplitAfter(string(suite), "\n")
	if last := &lines[len(lines)-1]; *last == "" {
		lines = lines[:len(lines)-1]
	} else {
		*last += "\n"
	}
	begin, end := -1, len(lines) // of the workloads, with the line of their name
	var value *yaml.Node
	for i := 0; i < len(root.Content); i += 2 {
		switch key := root.Content[i]; {
		case key.Value == "workloads":
			begin, value = key.Line-1, root.Content[i+1]
		case begin >= 0 && key.Line-1 < end:
			end = key.Line - 1
		}
	}
	block := strings.Split(strings.TrimRight(string(workloads), "\n"), "\n")
	indent := "  "
	switch {
	case begin < 0:
		lines = append(lines, "\n")
		begin, end, alone = len(lines), len(lines), true
	case value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0 && len(value.Content) > 0:
		indent = strings.Repeat(" ", value.Content[0].Column-1)
	case value.Kind == yaml.MappingNode && len(value.Content) > 0 && !alone:
		return nil, errors.New("the suite's workloads are in braces: write one to a line, without braces")
	default:
		alone = true
	}
	// The comments above what follows belong to it.
	for end > begin+1 && (strings.TrimSpace(lines[end-1]) == "" || strings.HasPrefix(lines[end-1], "#")) {
		end--
	}
	keep := lines[:end]
	if alone {
		keep = append(slices.Clone(lines[:begin]), "workloads:\n")
	}
	var b strings.Builder
	for _, line := range keep {
		b.WriteString(line)
	}
	if !alone {
		b.WriteString("\n")
	}
	for _, line := range block {
		if strings.TrimSpace(line) != "" {
			b.WriteString(indent + line)
		}
		b.WriteString("\n")
	}
	for _, line := range lines[end:] {
		b.WriteString(line)
	}
	return []byte(b.String()), nil
}
