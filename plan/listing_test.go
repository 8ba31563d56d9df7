package plan

import (
	"maps"
	"testing"
)

// An action can switch a controller's streaming lists off, for the whole run: the suite of the run says so.
func TestPlanSwitchesStreamingListsOff(t *testing.T) {
	s := &Suite{Controllers: []Controller{{Name: "a"}, {Name: "b"}}}
	off := false
	p := &Plan{Workload: "w", Actions: []Action{
		{Type: RestartController, Target: "a"},
		{Type: ReconnectController, Target: "b", Reconnecting: Reconnecting{WatchList: &off}},
		{Type: StartController, Target: "b", Reconnecting: Reconnecting{WatchList: &off}},
	}}
	if got := p.Listing(); !maps.Equal(got, map[string]int{"b": 2}) {
		t.Errorf("streaming lists are off because of %v", got)
	}
	merged, workload := p.Within(s)
	if c := merged.Controllers; workload != "w" || c[0].WatchList != nil || c[1].WatchList == nil || *c[1].WatchList {
		t.Errorf("workload %s, controllers %+v", workload, c)
	}
	if s.Controllers[1].WatchList != nil {
		t.Error("the suite itself has changed")
	}
}
