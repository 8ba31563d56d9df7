package pattern

import (
	"slices"
	"testing"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/reference"
	"github.com/trommel-dev/trommel/record"
)

// A streaming list shows nothing old: the plans switch it off where they can, and otherwise there is none.
func TestStalePlansSwitchStreamingListsOff(t *testing.T) {
	changes := []reference.Change{
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
			ref := references(changes, changes)
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
				if got := c.Plan.Actions[1].Effects().Lists; got != tt.want {
					t.Errorf("the streaming lists of %q are off, want %q", got, tt.want)
				}
			}
		})
	}
}
