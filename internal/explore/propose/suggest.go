package propose

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/internal/reference"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// SuggestWait returns a step that waits for what runs of a workload without faults ended with: the status of the custom
// resource that the workload creates, or, if that says nothing, what the controllers under test have made. It returns
// nil if the workload already waits for more than a time or for any status, or if nothing is known to wait for.
func SuggestWait(steps []plan.Step, runs ...[]reference.Change) *plan.Step {
	if len(runs) == 0 {
		return nil
	}
	ends := make([]map[reference.Key]map[string]any, len(runs))
	for i, changes := range runs {
		ends[i] = states(changes)
	}
	stays := func(key reference.Key) bool {
		return !slices.ContainsFunc(ends, func(end map[reference.Key]map[string]any) bool { return end[key] == nil })
	}
	first := runs[0]
	at := slices.IndexFunc(first, func(c reference.Change) bool {
		_, ok := named(&c)
		return ok && c.By == "" && c.Event == record.Created && reference.IsCustom(c.Key.Type()) && stays(c.Key)
	})
	if at < 0 {
		return nil
	}
	sample, _ := named(&first[at])
	if !waitsForLittle(steps, sample) {
		return nil
	}
	atEnd := func(key reference.Key) string {
		var others []map[string]any
		for _, end := range ends[1:] {
			others = append(others, end[key])
		}
		if end := ends[0][key]; !unfinished(end) {
			return done(end, others...)
		}
		return ""
	}
	in := func(key reference.Key, step *plan.Step) *plan.Step {
		step.Cluster = key.Cluster()
		return step
	}
	if condition := atEnd(first[at].Key); condition != "" {
		return in(first[at].Key, until(sample, condition, "it is ready"))
	}
	var made []reference.Key // by the controllers; the last one first
	for _, c := range slices.Backward(first) {
		_, ok := named(&c)
		if ok && c.By != "" && c.Event == record.Created && stays(c.Key) && !slices.Contains(made, c.Key) {
			made = append(made, c.Key)
		}
	}
	for _, key := range made {
		if condition := atEnd(key); condition != "" {
			k, _ := plan.ParseResourceKey(key.Local()) // cannot fail: named has parsed it
			return in(key, until(k, condition, k.Type+" "+k.Name+" is ready"))
		}
	}
	for _, key := range made {
		k, _ := plan.ParseResourceKey(key.Local())
		return in(key, exists(k))
	}
	return nil
}

// anyStatus is an object of which nothing is known but that it has a status.
var anyStatus = map[string]any{"metadata": map[string]any{}, "status": map[string]any{"any": true}}

// waitsForLittle reports whether the steps wait, but only for a time or until the sample has any status.
func waitsForLittle(steps []plan.Step, sample plan.ResourceKey) bool {
	little := false
	for _, s := range steps {
		switch w := s.Wait; {
		case w == nil:
			little = little || s.Sleep > 0
		case w.Absent || w.ResourceKey.Type != sample.Type || w.ResourceKey.Name != sample.Name ||
			!meets(w.Condition, anyStatus):
			return false
		default:
			little = true
		}
	}
	return little
}

// trouble is in words for states that nobody waits for.
var trouble = regexp.MustCompile(`(?i)fail|error|invalid|degraded|unknown|pending|creating|initiali[sz]ing`)

// unfinished reports whether a status says that something is wrong or not yet done.
func unfinished(object map[string]any) bool {
	status, _ := object["status"].(map[string]any)
	return slices.ContainsFunc(trueConditions(status), trouble.MatchString) ||
		slices.ContainsFunc(stateWords, func(name string) bool {
			text, _ := status[name].(string)
			return trouble.MatchString(text)
		})
}

// StepText is the step as an item of a workload, on one line.
func StepText(s *plan.Step) (string, error) {
	n, err := stepNode(s)
	if err != nil {
		return "", err
	}
	oneLine(n)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	if err := enc.Encode(n); err != nil {
		return "", fmt.Errorf("write step: %w", err)
	}
	return "- " + strings.TrimSpace(b.String()), nil
}

func oneLine(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode {
		n.Style |= yaml.FlowStyle
	}
	for _, item := range n.Content {
		oneLine(item)
	}
}
