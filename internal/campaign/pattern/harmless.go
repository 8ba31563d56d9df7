package pattern

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// Harmless returns a few plans of faults that each controller meets now and then: it is restarted when it has nothing
// to do, or one of its writes is refused once, or one write of each other kind is. If a status differs after such a
// fault, and nothing else does, the status describes the past. Why of each candidate completes "it also ends like
// that". See GenerateFor about steps.
func Harmless(suite *plan.Suite, steps []plan.Step, b *baseline.Baseline) []Candidate {
	m := moment.New(suite, b, steps)
	p := newPlanner(m, steps)
	for _, by := range b.Controllers {
		if len(m.Writes[by]) > 0 {
			p.take(Pattern{Name: "harmless", chance: 1}, harmless(m, by))
		}
	}
	var all []Candidate
	for _, r := range p.all {
		if r.Plan != nil {
			if r.Plan.Pace == "" {
				r.Plan.Pace = b.Pace
			}
			all = append(all, r.Candidate)
		}
	}
	return all
}

// harmless makes the harmless plans for a controller.
func harmless(m *moment.Set, by string) drafts {
	why := fmt.Sprintf("if %s is restarted when it has nothing to do", by)
	all := drafts{disturb(m, steady(m, by), by, by, why, build.RestartController(by))}
	if i, write, ok := firstWrite(m, by); ok {
		all.add(by+" refused", fmt.Sprintf("if one write of %s is refused (%s)", by, m.Describe(i)),
			refuse(m, i, write))
		all = append(all, refuseOthers(m, by, i)...)
	}
	return all
}

// refuse refuses a write once.
func refuse(m *moment.Set, i int, write moment.Moment) *build.Action {
	scope, _ := m.Object(i)
	c := &m.Changes[i]
	return build.FailCall(c.By, plan.Refused, http.StatusInternalServerError).InCluster(m.Cluster(i)).Scope(scope).
		Operations(plan.Operation(c.Op)).When(write.Trigger)
}

// refuseOthers refuses one write of each kind, type and operation, of a controller that a trigger can name, but of the
// kind of the i-th change: a status may report each kind in another way.
func refuseOthers(m *moment.Set, by string, i int) (all drafts) {
	kind := func(i int) string { return m.Changes[i].Key.Type() + " " + string(m.Changes[i].Op) }
	done := map[string]bool{kind(i): true}
	last := moment.Start
	var actions []*build.Action
	var words []string
	for _, k := range m.Writes[by] {
		if done[kind(k)] || facts.IsCustom(m.Changes[k].Key.Type()) {
			continue
		}
		write, rule := m.BeforeWriteAfter(last, k)
		if rule != "" {
			continue
		}
		done[kind(k)], last = true, write.Occurrence
		actions = append(actions, refuse(m, k, write))
		words = append(words, m.Describe(k))
	}
	if len(actions) > 0 {
		all.add(by+" refused others", fmt.Sprintf("if one write of each kind of %s is refused (%s)", by,
			strings.Join(words, "; ")), actions...)
	}
	return all
}

// firstWrite is a controller's first write of something else than custom resources that a trigger can name, preferably
// the first creation: a controller reports its errors in the status of a custom resource. It is false if there is none.
func firstWrite(m *moment.Set, by string) (i int, write moment.Moment, ok bool) {
	writes := slices.DeleteFunc(slices.Clone(m.Writes[by]), func(i int) bool {
		return facts.IsCustom(m.Changes[i].Key.Type())
	})
	slices.SortStableFunc(writes, func(a, b int) int {
		return first(m.Changes[a].Event == record.Created, m.Changes[b].Event == record.Created)
	})
	for _, i := range writes {
		if write, rule := m.BeforeWrite(i); rule == "" {
			return i, write, true
		}
	}
	return 0, moment.Moment{}, false
}
