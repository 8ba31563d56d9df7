package judge

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/judge/invariant"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// invariantJudge judges never and always.
type invariantJudge struct{}

func (invariantJudge) Is() Traits { return is("invariants", allClusters, whatHappened) }

func (invariantJudge) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	did := map[uint64]invariant.Deed{}
	for _, part := range e.byCluster() {
		maps.Copy(did, part.deeds()) // resource versions of different clusters differ
	}
	return e.Invariants.CheckExcept(e.History, ownDeletions(e), did), nil
}

// ownDeletions returns the indexes of the history entries that the plan itself has caused by deleting an object: that
// the object is marked for deletion, and its next deletion, as nothing takes a deletion back. That an invariant does
// not hold then says nothing about the controllers.
func ownDeletions(e Evidence) map[int]bool {
	own := map[int]bool{}
	for _, a := range e.Actions {
		var key plan.ResourceKey
		if write := plan.EffectOf[*plan.Write](&e.Plan.Actions[a.Index]); write != nil {
			key = write.Deletes
		}
		if key.HasWildcard() { // the record has the object that fired the action
			key, _ = plan.ParseResourceKey(a.Target)
		}
		if key.IsZero() || a.Error != "" {
			continue
		}
		before := false // it was marked before
		for i := range e.History {
			h := &e.History[i]
			if !key.Matches(h.Type, h.Group, true, h.Namespace, h.Name) ||
				h.Cluster != e.Plan.Actions[a.Index].Cluster {
				continue
			}
			was := before
			var now struct {
				Metadata struct{ DeletionTimestamp any }
			}
			before = json.Unmarshal(h.Object, &now) == nil && now.Metadata.DeletionTimestamp != nil
			if h.Time.Before(a.Fired) {
				continue
			}
			if h.Event == record.Deleted {
				own[i] = true
				break
			}
			own[i] = own[i] || before && !was
		}
	}
	return own
}

// maxFields limits how many changed fields a finding lists of the event that violated an invariant.
const maxFields = 3

// deeds says what changed with each entry of the history and who did it, by resource version.
func (e Evidence) deeds() map[uint64]invariant.Deed {
	changes, err := e.Changes()
	if err != nil {
		return nil // what cannot be read becomes a finding
	}
	did := map[uint64]invariant.Deed{}
	for i := range changes {
		c := &changes[i]
		text := c.String()
		if who := e.who(c); who != "" {
			text += " by " + who
		}
		var fields []string
		counting := baseline.Fields(c)
		for _, f := range facts.FieldsOf(c) {
			if !c.Marked() && slices.Contains(counting, f.Where) {
				fields = append(fields, fmt.Sprintf("%s from %s to %s", f.Where, baseline.Value(f.Prev),
					baseline.Value(f.Cur)))
			}
		}
		if more := len(fields) - maxFields; more > 0 {
			fields = append(fields[:maxFields], fmt.Sprintf("and %d more", more))
		}
		if len(fields) > 0 {
			text += " (" + strings.Join(fields, ", ") + ")"
		}
		did[c.Version] = invariant.Deed{Text: text, Origin: c.Origin}
	}
	return did
}
