package baseline

import (
	"testing"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// What a controller needs to be shown the past is known from a run without faults, and from the suite.
func TestStaleBy(t *testing.T) {
	first, second := story(t), story(t)
	first.Meta.Controllers = []record.Controller{
		{Name: "new", Hooks: true, WatchList: true}, {Name: "old", Hooks: true},
	}
	ref, err := Learn("w", []*record.Run{first, second})
	if err != nil {
		t.Fatal(err)
	}
	on, off := true, false
	for _, tt := range []struct {
		name, controller string
		suite            *bool
		off              bool
		why              string
	}{
		{name: "streaming lists, as its client-go says", controller: "new", off: true},
		{name: "streaming lists, as the suite says", controller: "new", suite: &on,
			why: "the suite says watchList: true for new, and a streaming list shows nothing old"},
		{name: "none", controller: "old"},
		{name: "none, as the suite says", controller: "old", suite: &off},
	} {
		t.Run(tt.name, func(t *testing.T) {
			suite := &plan.Suite{Controllers: []plan.Controller{{Name: tt.controller, WatchList: tt.suite}}}
			if off, why := ref.StaleBy(suite, tt.controller); off != tt.off || why != tt.why {
				t.Errorf("off %t, %q; want %t, %q", off, why, tt.off, tt.why)
			}
		})
	}
}
