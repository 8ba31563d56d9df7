package plan

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// Marshal writes a plan in its canonical form: this package's own format, fields in a fixed order, no defaults. Parsing
// it gives an equal plan. Plans with the same meaning but for names and texts have the same form.
func Marshal(p *Plan) ([]byte, error) {
	q := *p
	q.APIVersion, q.Kind = APIVersion, "TestPlan"
	text, err := layout.Marshal(reflect.ValueOf(q))
	if err != nil {
		return nil, fmt.Errorf("write plan %q: %w", p.TestName, err)
	}
	return text, nil
}

// otherNames are the other names of fields that plans may have.
var otherNames = map[string]string{"conditionName": "triggerName", "observePoint": "observationPoint"}

// MarshalLike writes a plan as the author of a plan that it was made from has written that one: with his order, flow
// style, short forms and comments, as far as the two have parts in common. Steps that the plan has of its own, instead
// of the workload that the other one has of the suite, are written like those of the suite. What was not read from a
// file is written as Marshal does. Parsing it gives an equal plan.
func MarshalLike(p, from *Plan, suite *Suite) ([]byte, error) {
	canonical, err := Marshal(p)
	if err != nil || from.source == nil || from.source.Root == nil {
		return canonical, err
	}
	var doc yaml.Node // as it is in the file: reading it has taken merge keys away
	if yaml.Unmarshal(from.source.Text, &doc) != nil || len(doc.Content) != 1 {
		return canonical, nil
	}
	encode := func(p Plan) (*yaml.Node, error) {
		p.APIVersion, p.Kind = APIVersion, "TestPlan"
		p.Actions = slices.Clone(p.Actions)
		for i := range p.Actions { // the only definition's name is the default
			if t := &p.Actions[i].Trigger; len(t.Definitions) == 1 && t.Expression == t.Definitions[0].Name {
				t.Expression = ""
			}
		}
		return layout.Encode(p)
	}
	value, err := encode(*p)
	if err != nil {
		return canonical, nil
	}
	similar, err := encode(*from)
	if err != nil {
		return canonical, nil
	}
	if own, ofSuite := stepsNode(value), suite.workloadNode(from.Workload); own != nil && stepsNode(similar) == nil &&
		ofSuite != nil {
		if steps, err := layout.Encode(suite.Workloads[from.Workload].Steps); err == nil {
			*own = *yamlfile.Like(own, steps, ofSuite, otherNames)
		}
	}
	doc.Content[0] = yamlfile.Like(value, similar, doc.Content[0], otherNames)
	text, err := yamlfile.Text(&doc)
	if err != nil {
		return canonical, nil
	}
	if same, err := Parse(text, p.File); err == nil {
		same.Complete(suite)
		if again, err := Marshal(same); err == nil && bytes.Equal(again, canonical) {
			return text, nil
		}
	}
	return canonical, nil
}

// stepsNode returns the steps of a plan that was encoded; nil: it has none of its own.
func stepsNode(n *yaml.Node) *yaml.Node {
	_, steps := yamlfile.Entry(n, "steps")
	return steps
}

// workloadNode returns the steps of a workload as they are in the suite's file; nil: they are not in a file.
func (s *Suite) workloadNode(name string) *yaml.Node {
	if s == nil || s.source == nil || s.source.Root == nil {
		return nil
	}
	_, all := yamlfile.Entry(s.source.Root, "workloads")
	_, n := yamlfile.Entry(all, name)
	if n = yamlfile.Deref(n); n != nil && n.Kind == yaml.MappingNode {
		_, n = yamlfile.Entry(n, "steps")
	}
	if n = yamlfile.Deref(n); n != nil && n.Kind != yaml.SequenceNode {
		return nil
	}
	return n
}

// MarshalSuite writes a suite without its defaults. Parsing it gives an equal suite, complete and checked: this is how
// a suite that was built in Go becomes one that plans can run with.
func MarshalSuite(s *Suite) ([]byte, error) {
	q := *s
	q.APIVersion, q.Kind = APIVersion, "Suite"
	root, err := layout.Encode(q)
	if err != nil {
		return nil, fmt.Errorf("write suite: %w", err)
	}
	if _, clusters := yamlfile.Entry(root, "clusters"); clusters != nil {
		// The first one is the default.
		var ordered []*yaml.Node
		for _, name := range s.ClusterNames() {
			key, value := yamlfile.Entry(clusters, name)
			ordered = append(ordered, key, value)
		}
		clusters.Content = ordered
	}
	text, err := yamlfile.Text(root)
	if err != nil {
		return nil, fmt.Errorf("write suite: %w", err)
	}
	return text, nil
}

// FormatDuration writes a duration as plans do: 1m rather than 1m0s.
func FormatDuration(d time.Duration) string { return yamlfile.FormatDuration(d) }
