package learn

import (
	"encoding/json"
	"slices"

	"github.com/trommel-dev/trommel/internal/cel"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// hopeless reports whether a run without faults has failed in a way that does not depend on the pace of its workload.
// Either a controller changes one object without end. Or the last step of the run waits for a state of an object, and
// the history has this object, but never in that state. Then at most one step before it changes something, so the
// controllers get the same work at any pace.
func hopeless(steps []plan.Step, r *record.Run) bool {
	if slices.ContainsFunc(r.Findings, func(f record.Finding) bool { return f.Judge == record.JudgeHot && f.IsBug() }) {
		return true
	}
	n := len(r.Meta.Steps)
	if n == 0 || n > len(steps) || steps[n-1].Wait == nil ||
		!slices.ContainsFunc(r.Findings, func(f record.Finding) bool {
			return f.Judge == record.JudgeWorkload && f.IsBug()
		}) {
		return false
	}
	changes := 0
	for i := range steps[:n-1] {
		if s := &steps[i]; s.Wait == nil && s.Sleep == 0 {
			changes++
		}
	}
	return changes <= 1 && neverHeld(steps[n-1].Wait, steps[n-1].Cluster, r.History)
}

// neverHeld reports whether the history has objects that a step waits for, and none of their states is the awaited one.
func neverHeld(s *plan.WaitStep, cluster string, history []record.HistoryEntry) bool {
	if s.Absent || s.Phase == "" && s.Condition == "" {
		return false
	}
	var condition *cel.Expression
	if s.Condition != "" {
		var err error
		if condition, err = cel.Object.Compile(s.Condition); err != nil {
			return false
		}
	}
	seen := false
	for i := range history {
		h := &history[i]
		if h.Event == record.Deleted || cluster != "" && h.Cluster != cluster ||
			!s.ResourceKey.Matches(h.Type, h.Group, true, h.Namespace, h.Name) {
			continue
		}
		seen = true
		var object map[string]any
		if json.Unmarshal(h.Object, &object) != nil {
			return false
		}
		if condition != nil {
			// A condition that cannot be evaluated does not hold: the object may lack the field.
			if holds, _ := condition.Holds(map[string]any{"object": object}); holds {
				return false
			}
			continue
		}
		if status, _ := object["status"].(map[string]any); status["phase"] == s.Phase {
			return false
		}
	}
	return seen
}
