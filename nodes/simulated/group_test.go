package simulated

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

// settled is a group of two instances that are in service, at the time 0.
func settled(t *testing.T) *group {
	t.Helper()
	g := &group{
		SimulatedNodeGroup: &nodes.SimulatedNodeGroup{
			ObjectMeta: metav1.ObjectMeta{Name: "g"},
			Spec:       nodes.SimulatedNodeGroupSpec{DesiredCapacity: 2, MaxSize: 3},
		},
		now: time.Unix(0, 0), retry: time.Second,
	}
	g.advance()
	g.advance()
	if g.members() != 2 || g.states()[0] != "i-0001 InService" {
		t.Fatalf("the instances are %v", g.states())
	}
	return g
}

func (g *group) states() []string {
	var list []string
	for _, i := range g.Status.Instances {
		list = append(list, i.ProviderID[len(ProviderID(g.Name, "")):]+" "+string(i.State))
	}
	return list
}

func callOf(uid types.UID, call nodes.Call, instance string) *nodes.ProviderCall {
	return &nodes.ProviderCall{
		ObjectMeta: metav1.ObjectMeta{UID: uid},
		Spec:       nodes.ProviderCallSpec{Call: call, NodeGroupName: "g", ProviderID: ProviderID("g", instance)},
	}
}

func TestAGroupThatIsTooLargeTerminatesWhatIsOutOfDateFirst(t *testing.T) {
	g := settled(t)
	g.Spec.Template.Version, g.Spec.DesiredCapacity = "v2", 3
	g.advance()
	g.advance() // i-0003 is of the new template
	g.Spec.DesiredCapacity = 1
	g.advance()
	want := []string{"i-0001 Terminating", "i-0002 Terminating", "i-0003 InService"}
	if !slices.Equal(g.states(), want) {
		t.Errorf("the instances are %v, want %v", g.states(), want)
	}
	g = settled(t)
	g.Spec.Template.Version = "v2"
	g.Status.Instances[0].TemplateHash = templateHash(&g.Spec.Template)
	g.Spec.DesiredCapacity = 1
	g.advance()
	if want := []string{"i-0001 InService", "i-0002 Terminating"}; !slices.Equal(g.states(), want) {
		t.Errorf("the instances are %v, want %v", g.states(), want)
	}
}

// The desired capacity is increased before the instance is in the group. What dies in between begins here.
func TestHalfDoneAttach(t *testing.T) {
	g := settled(t)
	g.carryOut(callOf("1", nodes.CallDetach, "i-0001"))
	g.advance() // it is Running, and i-0003 starts
	g.advance()
	attach := callOf("2", nodes.CallAttach, "i-0001")
	g.Spec.DesiredCapacity, g.Annotations = 3, map[string]string{AnnotationAttached: "2"}
	g.Spec.Faults = []nodes.SimulatedFault{{Name: "busy", Type: nodes.FaultThrottled}} // too late
	if g.advance(); g.members() != 2 || g.Status.Started != 3 {
		t.Errorf("a group with a half-done attach has started instances: %v", g.states())
	}
	answer, more := g.carryOut(attach)
	if answer.Result != nodes.CallDone || !answer.Changed || more != 0 || g.halfDone() != "" || g.members() != 3 {
		t.Errorf("the answer is %+v (increase again: %d), the instances are %v", answer, more, g.states())
	}
	if g.advance(); g.Status.Started != 3 {
		t.Errorf("instances were started: %v", g.states())
	}
}

// The desired capacity is decreased before the instance is out of the group: nothing else is terminated in between.
func TestHalfDoneRemove(t *testing.T) {
	g := settled(t)
	remove := callOf("1", nodes.CallRemove, "i-0002")
	g.Spec.DesiredCapacity, g.Annotations = 1, map[string]string{AnnotationAttached: "1", AnnotationBefore: "2"}
	if n := capacity(g.SimulatedNodeGroup); n != 2 { // as long as it has two instances
		t.Errorf("a group with a half-done removal tells a capacity of %d", n)
	}
	g.Spec.Faults = []nodes.SimulatedFault{{Name: "busy", Type: nodes.FaultThrottled}} // too late
	if g.advance(); g.members() != 2 {
		t.Errorf("a group with a half-done removal has terminated instances: %v", g.states())
	}
	answer, more := g.carryOut(remove)
	if answer.Result != nodes.CallDone || !answer.Changed || more != 0 || g.halfDone() != "" {
		t.Errorf("the answer is %+v (decrease again: %d)", answer, more)
	}
	if n := capacity(g.SimulatedNodeGroup); n != 1 {
		t.Errorf("afterwards it tells a capacity of %d", n)
	}
	g.advance()
	want := []string{"i-0001 InService", "i-0002 Running"}
	if !slices.Equal(g.states(), want) || g.Status.Started != 2 {
		t.Errorf("the instances are %v, want %v", g.states(), want)
	}
	g.Spec.Faults, g.Spec.MinSize = nil, 1
	if answer, more := g.carryOut(callOf("2", nodes.CallRemove, "i-0001")); answer.Result != nodes.CallConflict ||
		more != 0 || g.members() != 1 {
		t.Errorf("a group of minimal size: %+v, %d", answer, more)
	}
}

func TestFaultsAreCounted(t *testing.T) {
	g := settled(t)
	g.Spec.Faults = []nodes.SimulatedFault{
		{Name: "other", Type: nodes.FaultError, ProviderID: ProviderID("g", "i-0002")},
		{Name: "attach", Type: nodes.FaultError, Calls: []nodes.Call{nodes.CallAttach}},
		{Name: "once", Type: nodes.FaultThrottled, Times: 1, RetryAfter: "3s"},
	}
	detach := callOf("1", nodes.CallDetach, "i-0001")
	answer, _ := g.carryOut(detach)
	if answer.Result != nodes.CallThrottled || answer.RetryAfter != "3s" || answer.Fault != "once" || answer.Changed {
		t.Errorf("the first answer is %+v", answer)
	}
	if answer, _ := g.carryOut(detach); answer.Result != nodes.CallDone || !answer.Changed {
		t.Errorf("the second answer is %+v", answer)
	}
	if answer, _ := g.carryOut(callOf("2", nodes.CallDetach, "i-0002")); answer.Result != nodes.CallError ||
		answer.Fault != "other" {
		t.Errorf("the answer about the other instance is %+v", answer)
	}
	g.advance()
	want := []nodes.FaultCount{{Name: "once", Times: 1}, {Name: "other", Times: 1}}
	if !slices.Equal(g.Status.Faults, want) {
		t.Errorf("the counts are %v, want %v", g.Status.Faults, want)
	}
	g.Spec.Faults = nil
	if g.advance(); len(g.Status.Faults) != 0 {
		t.Errorf("faults that are gone are counted: %v", g.Status.Faults)
	}
}

func TestTimeOfTheNextLook(t *testing.T) {
	g := settled(t)
	if next, ended := g.advance(); !next.IsZero() || ended != nil {
		t.Errorf("a settled group is looked at again at %v; ended: %v", next, ended)
	}
	g.Spec.Delays = nodes.SimulatedDelays{Launch: "5s", Detach: "2s", Terminate: "1s"}
	g.carryOut(callOf("1", nodes.CallDetach, "i-0001"))
	for _, tt := range []struct{ at, next int64 }{{0, 2}, {1, 2}, {2, 5}, {5, 0}} {
		g.now = time.Unix(tt.at, 0)
		next, _ := g.advance()
		if tt.next == 0 && !next.IsZero() || tt.next > 0 && !next.Equal(time.Unix(tt.next, 0)) {
			t.Errorf("at %ds, the next look is at %v, want %ds", tt.at, next, tt.next)
		}
	}
	g.carryOut(callOf("2", nodes.CallTerminate, "i-0001"))
	if _, ended := g.advance(); len(ended) != 0 {
		t.Errorf("ended before its time: %v", ended)
	}
	g.now = time.Unix(6, 0)
	if _, ended := g.advance(); !slices.Equal(ended, []string{ProviderID("g", "i-0001")}) {
		t.Errorf("ended: %v", ended)
	}
}
