package targets

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// named makes targets whose UIDs are their names; "a2" has the name a.
func named(names ...string) []chaos.Target {
	var all []chaos.Target
	for _, n := range names {
		t := chaos.Target{Name: n, UID: types.UID(n)}
		if len(n) > 1 {
			t.Name, t.UID = n[:1], types.UID(n)
		}
		all = append(all, t)
	}
	return all
}

func TestTargetsThatTheDisruptionItselfTakesAway(t *testing.T) {
	nodeFailure := chaos.Kinds{NodeFailure: &chaos.NodeFailure{}}
	nodeGone := chaos.Kinds{NodeFailure: &chaos.NodeFailure{Mode: "gone"}}
	replacement := chaos.Kinds{PodReplacement: &chaos.PodReplacement{}}
	fault := chaos.Kinds{APIFault: &chaos.APIFault{}}
	for _, tt := range []struct {
		name                        string
		level                       chaos.Level
		kinds                       chaos.Kinds
		static, inactive, started   bool
		count                       *intstr.IntOrString
		current, healthy, unhealthy []chaos.Target
		want                        []string
	}{
		{name: "a failed node is not ready", level: chaos.LevelNode, kinds: nodeFailure, current: named("a"),
			healthy: named("b"), unhealthy: named("a"), want: []string{"a", "b"}},
		{name: "half of the nodes fail, and no other half afterwards", level: chaos.LevelNode, kinds: nodeFailure,
			count: percent("50%"), current: named("a", "b"), healthy: named("c", "d"), unhealthy: named("a", "b"),
			want: []string{"a", "b"}},
		{name: "a failed node is gone", level: chaos.LevelNode, kinds: nodeGone, count: percent("50%"),
			current: named("a"), healthy: named("b"), want: []string{"a"}},
		{name: "a node that is not ready was deleted by somebody", level: chaos.LevelNode, kinds: nodeFailure,
			current: named("a"), healthy: named("b"), want: []string{"b"}},
		{name: "a failed node was created again", level: chaos.LevelNode, kinds: nodeGone, current: named("a"),
			healthy: named("a2", "b"), want: []string{"a2", "b"}},
		{name: "a node whose network is disturbed is not ready", level: chaos.LevelNode, kinds: fault,
			current: named("a"), unhealthy: named("a"), want: []string{"a"}},
		{name: "a node is gone", level: chaos.LevelNode, kinds: fault, current: named("a"), healthy: named("b"),
			want: []string{"b"}},
		{name: "another node is not ready", level: chaos.LevelNode, kinds: nodeFailure, healthy: named("b"),
			unhealthy: named("a"), want: []string{"b"}},
		{name: "between two pulses a node is not ready", level: chaos.LevelNode, kinds: nodeFailure, inactive: true,
			started: true, current: named("a"), healthy: named("b"), unhealthy: named("a"), want: []string{"b"}},
		{name: "a replaced pod is replaced once", level: chaos.LevelPod, kinds: replacement, current: named("a"),
			healthy: named("a2"), want: []string{"a"}},
		{name: "between two pulses the replacement is the target", level: chaos.LevelPod, kinds: replacement,
			inactive: true, started: true, current: named("a"), healthy: named("a2"), want: []string{"a2"}},
		{name: "a pod on a failed node is evicted", level: chaos.LevelPod, kinds: nodeFailure, current: named("a"),
			healthy: named("b"), want: []string{"a"}},
		{name: "a pod is replaced by somebody else", level: chaos.LevelPod, kinds: fault, current: named("a"),
			healthy: named("a2"), want: []string{"a2"}},
		{name: "a pod does not run", level: chaos.LevelPod, kinds: fault, current: named("a"), unhealthy: named("a"),
			want: nil},
		{name: "static targets are gone", level: chaos.LevelPod, kinds: fault, static: true, started: true,
			healthy: named("b"), want: nil},
		{name: "static targets are chosen once", level: chaos.LevelPod, kinds: fault, static: true, inactive: true,
			healthy: named("b"), want: []string{"b"}},
		{name: "count makes them fewer", level: chaos.LevelPod, kinds: replacement, count: percent("0%"),
			current: named("a"), healthy: named("a2"), want: nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &chaos.Disruption{}
			d.UID = "d"
			d.Spec.Level, d.Spec.Kinds, d.Spec.StaticTargeting, d.Spec.Count = tt.level, tt.kinds, tt.static, tt.count
			d.Status.Targets, d.Status.Schedule.Active = tt.current, !tt.inactive
			if tt.started || !tt.inactive {
				now := metav1.NowMicro()
				d.Status.Schedule.StartedAt = &now
			}
			got := choose(d, !tt.inactive, &candidates{tt.healthy, tt.unhealthy}, nil)
			var uids []string
			for _, target := range got.targets {
				uids = append(uids, string(target.UID))
			}
			if !slices.Equal(uids, tt.want) {
				t.Errorf("targets %v, want %v", uids, tt.want)
			}
			if int(got.desired) != len(tt.want) {
				t.Errorf("%d desired", got.desired)
			}
		})
	}
}

func percent(s string) *intstr.IntOrString {
	p := intstr.FromString(s)
	return &p
}

// A disruption that is on fewer targets than its count says why.
func TestWhyThereAreFewer(t *testing.T) {
	for _, tt := range []struct {
		name             string
		static           bool
		count            *intstr.IntOrString
		current, healthy []chaos.Target
		want             string
	}{
		{"all of them", false, nil, nil, named("a"), "Found: "},
		{"five of two", false, number(5), nil, named("a", "b"),
			"TooFew: 2 of 5 targets found: there are no more healthy matches"},
		{"none", false, number(0), nil, named("a"), "NoneWanted: count is 0 targets"},
		{"static targets have gone", true, nil, named("a"), named("b"),
			"TargetsGone: the targets have gone, and no others are chosen (staticTargeting)"},
		{"they have gone long ago", true, nil, nil, named("b"),
			"TargetsGone: the targets have gone, and no others are chosen (staticTargeting)"},
	} {
		d := &chaos.Disruption{}
		d.Spec.Level, d.Spec.Count, d.Spec.StaticTargeting = chaos.LevelPod, tt.count, tt.static
		now := metav1.NowMicro()
		d.Status.Targets, d.Status.Schedule.StartedAt = tt.current, &now
		choice := choose(d, true, &candidates{healthy: tt.healthy}, nil)
		if reason, message := choice.found(); reason+": "+message != tt.want {
			t.Errorf("%s: %s: %s, want %s", tt.name, reason, message, tt.want)
		}
	}
}

// TestReservations: a disruption counts the targets that others are about to have.
func TestReservations(t *testing.T) {
	d := func(uid types.UID, targets ...chaos.Target) chaos.Disruption {
		d := chaos.Disruption{}
		d.UID, d.Namespace, d.Status.Targets = uid, "default", targets
		return d
	}
	r := &reservations{reserved: map[types.UID][]chaos.Target{"other": named("a", "b"), "gone": named("c")}}
	this := d("this")
	for _, tt := range []struct {
		name  string
		other chaos.Disruption
		want  int
	}{
		{"the cache shows none of them", d("other"), 2},
		{"it shows an older choice", d("other", named("a")...), 2},
		{"it shows them", d("other", named("a", "b")...), 2},
		{"and what has changed since", d("other", named("a")...), 1},
	} {
		if namespace, cluster := r.others(&this, []chaos.Disruption{this, tt.other}); namespace != tt.want ||
			cluster != tt.want {
			t.Errorf("%s: %d, %d, want %d", tt.name, namespace, cluster, tt.want)
		}
	}
	if len(r.reserved) > 0 {
		t.Errorf("still reserved: %v", r.reserved)
	}
}

func number(n int32) *intstr.IntOrString {
	i := intstr.FromInt32(n)
	return &i
}

// The choice depends on the seed and on the names of the candidates, and on nothing else: neither on their order, nor
// on the disruption. Other seeds choose others.
func TestTheChoiceIsThatOfTheSeed(t *testing.T) {
	all := named("a", "b", "c", "d", "e", "f", "g", "h")
	chosen := func(uid types.UID, seed *int64, candidatesUID string) string {
		d := &chaos.Disruption{}
		d.UID, d.Spec.Level, d.Spec.Count, d.Status.Seed = uid, chaos.LevelPod, number(3), seed
		healthy := slices.Clone(all)
		for i := range healthy {
			healthy[i].UID = types.UID(candidatesUID + healthy[i].Name)
		}
		var names []string
		for _, target := range choose(d, false, &candidates{healthy: healthy}, nil).targets {
			names = append(names, target.Name)
		}
		slices.Sort(names)
		return strings.Join(names, "")
	}
	distinct, hit := map[string]bool{}, map[rune]int{}
	for seed := range int64(200) {
		first := chosen("d", &seed, "1")
		slices.Reverse(all)
		if again := chosen("other", &seed, "2"); again != first {
			t.Errorf("seed %d: %s, and then %s", seed, first, again)
		}
		distinct[first] = true
		for _, name := range first {
			hit[name]++
		}
	}
	if len(distinct) < 40 { // of 56
		t.Errorf("only %d choices", len(distinct))
	}
	for name, n := range hit {
		if n < 45 || n > 105 { // of 75
			t.Errorf("%c was chosen %d times", name, n)
		}
	}
	// A disruption of an earlier version has no seed.
	if chosen("d", nil, "1") == chosen("other", nil, "1") && chosen("d", nil, "1") == chosen("third", nil, "1") {
		t.Error("without a seed it must be the choice of the disruption")
	}
}
