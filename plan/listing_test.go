package plan

import (
	"maps"
	"reflect"
	"testing"
)

// An action can switch a controller's streaming lists off, for the whole run. The suite, by which objects are made,
// does not say so: they are the same in all runs.
func TestPlanSwitchesStreamingListsOff(t *testing.T) {
	s := &Suite{Controllers: []Controller{{Name: "a"}, {Name: "b"}}}
	off := false
	p := &Plan{Workload: "w", CheckCaches: true, History: []ResourceKey{{Type: "pod"}}, Actions: []Action{
		{Type: RestartController, Target: "a"},
		{Type: ReconnectController, Target: "b", Reconnecting: Reconnecting{WatchList: &off}},
		{Type: StartController, Target: "b", Reconnecting: Reconnecting{WatchList: &off}},
	}}
	if got := p.Listing(); !maps.Equal(got, map[string]int{"b": 2}) {
		t.Errorf("streaming lists are off because of %v", got)
	}
	merged, workload := p.Within(s)
	if workload != "w" || !reflect.DeepEqual(merged.Controllers, s.Controllers) || len(merged.History) != 1 {
		t.Errorf("workload %s, suite %+v", workload, merged)
	}
}
