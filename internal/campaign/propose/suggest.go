package propose

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// SuggestWait returns a step that waits for what runs of a workload without faults ended with: the status of the custom
// resource that the workload creates, or, if that says nothing, what the controllers under test have made. It returns
// nil if the workload already waits for more than a time or for any status, or if nothing is known to wait for.
func SuggestWait(steps []plan.Step, runs ...[]facts.Change) *plan.Step {
	sample, ends := created(runs)
	if sample == nil {
		return nil
	}
	if key, _ := named(sample); !waitsForLittle(steps, key) {
		return nil
	}
	atEnd := func(key facts.Key) string {
		var others []map[string]any
		for _, end := range ends[1:] {
			others = append(others, end[key])
		}
		if end := ends[0][key]; !unfinished(end) {
			return ready(end, others...)
		}
		return ""
	}
	in := func(key facts.Key, step *plan.Step) *plan.Step {
		step.Cluster = key.Cluster()
		return step
	}
	if condition := atEnd(sample.Key); condition != "" {
		key, _ := named(sample)
		return in(sample.Key, until(key, condition, "it is ready"))
	}
	var made []facts.Key // by the controllers; the last one first
	for _, c := range slices.Backward(runs[0]) {
		_, ok := named(&c)
		if ok && c.By != "" && c.Event == record.Created && throughout(ends, c.Key) && !slices.Contains(made, c.Key) {
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

// created finds the first custom resource that a workload creates and that is there at the end of all its runs, and how
// the runs end. Nil: there is none.
func created(runs [][]facts.Change) (sample *facts.Change, ends []map[facts.Key]map[string]any) {
	if len(runs) == 0 {
		return nil, nil
	}
	for _, changes := range runs {
		ends = append(ends, states(changes))
	}
	for i := range runs[0] {
		c := &runs[0][i]
		byUsers := c.By == "" && c.Event == record.Created && facts.IsCustom(c.Key.Type())
		if _, ok := named(c); ok && byUsers && throughout(ends, c.Key) {
			return c, ends
		}
	}
	return nil, nil
}

// throughout reports whether the object is there at the end of all runs.
func throughout(ends []map[facts.Key]map[string]any, key facts.Key) bool {
	return !slices.ContainsFunc(ends, func(end map[facts.Key]map[string]any) bool { return end[key] == nil })
}

// TroubleAdvice is what to do about [Trouble].
const TroubleAdvice = "with an object like that a controller does little: add what it lacks, or take another sample"

// Trouble says what is wrong with the custom resource that a workload creates, according to the status with which runs
// without faults ended, or with a pod that no node takes or that cannot be created. Of an object that it rejects, or
// that lacks something, a controller does little that a plan could strike at. Empty: nothing is known to be wrong.
func Trouble(runs ...[]facts.Change) string {
	sample, ends := created(runs)
	if sample == nil {
		return ""
	}
	var all []string
	if what := facts.Complaint(ends[0][sample.Key]); what != "" {
		all = append(all, fmt.Sprintf("%s ended with %s", sample.Key.Local(), what))
	}
	// Names of pods may differ each time.
	if what := troubleOfPods(ends[0]); what != "" && !slices.ContainsFunc(ends,
		func(end map[facts.Key]map[string]any) bool { return troubleOfPods(end) == "" }) {
		all = append(all, what)
	}
	return strings.Join(all, ", and ")
}

func troubleOfPods(end map[facts.Key]map[string]any) string {
	return cmp.Or(pending(end), podless(end))
}

// podless says which set has no pod in the end, although it must have some; the first one by name. Most often the
// sample's service account is missing.
func podless(end map[facts.Key]map[string]any) string {
	for _, key := range slices.Sorted(maps.Keys(end)) {
		if key.Type() != "statefulset.apps" && key.Type() != "replicaset.apps" {
			continue
		}
		text, err := json.Marshal(end[key])
		var set struct {
			Spec struct {
				Replicas *int32
				Template corev1.PodTemplateSpec
			}
			Status appsv1.StatefulSetStatus
		}
		if err != nil || json.Unmarshal(text, &set) != nil || set.Status.ObservedGeneration == 0 ||
			set.Status.Replicas > 0 || set.Spec.Replicas == nil || *set.Spec.Replicas == 0 {
			continue
		}
		what := key.Local() + " ended without a pod"
		if account := set.Spec.Template.Spec.ServiceAccountName; account != "" {
			what += fmt.Sprintf(" (is there a service account %q?)", account)
		}
		return what
	}
	return ""
}

// pending says which pod has no node in the end, and why; the first one by name.
func pending(end map[facts.Key]map[string]any) string {
	for _, key := range slices.Sorted(maps.Keys(end)) {
		if key.Type() != "pod" {
			continue
		}
		if why := unscheduled(end[key]); why != "" {
			return fmt.Sprintf("%s ended without a node: %s", key.Local(), why)
		}
	}
	return ""
}

// unscheduled is why the scheduler has found no node for a pod.
func unscheduled(pod map[string]any) string {
	status, _ := pod["status"].(map[string]any)
	for _, c := range conditionsOf(status) {
		if c["type"] == string(corev1.PodScheduled) && c["status"] == string(corev1.ConditionFalse) {
			message, _ := c["message"].(string)
			return cmp.Or(wording.FirstLine(message), "it is not scheduled")
		}
	}
	return ""
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

// trouble matches words for states that a workload should not wait for.
var trouble = regexp.MustCompile(`(?i)` + facts.Failures + `|unknown|pending|creating|initiali[sz]ing`)

// unfinished reports whether a status says that something is wrong or not yet done.
func unfinished(object map[string]any) bool {
	status, _ := object["status"].(map[string]any)
	return slices.ContainsFunc(trueConditions(status), trouble.MatchString) ||
		slices.ContainsFunc(facts.StateFields(status), func(name string) bool {
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
