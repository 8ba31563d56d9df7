package pattern

import (
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// A streaming list shows nothing old: the plans switch it off where they can, and otherwise there is none.
func TestStalePlansSwitchStreamingListsOff(t *testing.T) {
	changes := []facts.Change{
		change("", "", db, record.Updated, spec(2), marked(spec(2))),
		change("op", wire.Create, key, record.Created, nil, object{}),
		change("", "", db, record.Deleted, marked(spec(2)), nil),
		change("", "", db, record.Created, nil, spec(2)),
		change("op", wire.Create, key, record.Created, nil, object{}),
	}
	on, off := true, false
	for _, tt := range []struct {
		name      string
		streaming []string
		suite     *bool
		want      string // whose streaming lists the plans switch off
		dropped   string
	}{
		{name: "an old client-go"},
		{name: "a new client-go", streaming: []string{"op"}, want: "op"},
		{name: "off in the suite", suite: &off},
		{name: "on in the suite", streaming: []string{"op"}, suite: &on,
			dropped: "the suite says watchList: true for op, and a streaming list shows nothing old"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := suite(t)
			s.Controllers[0].WatchList = tt.suite
			ref := baselines(changes, changes)
			ref.Streaming = tt.streaming
			all := Generate(s, ref, "stale")
			made := slices.ContainsFunc(all, func(c Candidate) bool { return c.Plan != nil })
			if made == (tt.dropped != "") {
				t.Errorf("there are plans: %t", made)
			}
			for _, c := range all {
				if c.Plan == nil {
					if tt.dropped != "" && c.Dropped != tt.dropped {
						t.Errorf("dropped: %s, want %s", c.Dropped, tt.dropped)
					}
					continue
				}
				got := ""
				if off := plan.EffectOf[*plan.NoStreaming](&c.Plan.Actions[1]); off != nil {
					got = off.Controller
				}
				if got != tt.want {
					t.Errorf("the streaming lists of %q are off, want %q", got, tt.want)
				}
			}
		})
	}
}

// What a controller has deleted because of a state may be made again by others, such as a claim by the StatefulSet
// controller. It is at risk from then on if the controller is shown that state, although nothing has undone it.
func TestStaleWhenOthersMakeAgainWhatWasDeleted(t *testing.T) {
	const claim = facts.Key("persistentvolumeclaim/default/data-db-1")
	scaled := []facts.Change{
		change("", "", claim, record.Created, nil, spec(1)),
		change("", "", set, record.Updated, ready(1, 2), ready(1, 1)),
		change("op", wire.Delete, claim, record.Deleted, spec(1), nil),
		change("op", wire.Update, set, record.Updated, spec(1), spec(2)),
		change("", "", claim, record.Created, nil, spec(1)),
	}
	const again = "stops at: statefulset.apps/default/db changes (status.ready). What op has deleted because of this " +
		"is there again: persistentvolumeclaim/default/data-db-1 is created"
	for _, tt := range []struct {
		name    string
		changes []facts.Change
		want    bool
	}{
		{"made again", scaled, true},
		{"not made again", scaled[:4], false},
		{"the state is still present", slices.Concat(scaled[:3], scaled[4:]), false},
		{
			"deleted because of something else",
			slices.Insert(slices.Clone(scaled), 2, change("", "", db, record.Updated, spec(2), spec(1))), false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := Generate(suite(t), baselines(tt.changes, tt.changes), "stale")
			if got := slices.ContainsFunc(all, func(c Candidate) bool {
				return c.Plan != nil && strings.HasSuffix(c.Why, again)
			}); got != tt.want {
				t.Errorf("there is such a plan: %t\n%s", got, strings.Join(plans(all), "\n"))
			}
		})
	}
}
