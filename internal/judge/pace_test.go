package judge

import (
	"slices"
	"testing"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Without pauses between the steps of a workload nearly everything may differ from runs with pauses, but no data is
// lost.
func TestDifferencesOfAWorkloadWithoutPauses(t *testing.T) {
	const claim, pod, secret, service = facts.Key("persistentvolumeclaim/default/c"),
		facts.Key("pod/default/p"), facts.Key("secret/default/s"), facts.Key("service/default/v")
	run := func(claims, pods int, more ...string) *record.Run {
		var all []string
		for key, times := range map[facts.Key]int{claim: claims, pod: pods} {
			once := []string{"1 created " + string(key) + " {}", "2 deleted " + string(key) + " {}"}
			all = append(all, slices.Repeat(once, times)...)
			all = append(all[:len(all)-1], "3 updated "+string(key)+` {"data": "1"}`)
		}
		return tale(t, append(all, more...)...)
	}
	usual := []*record.Run{run(1, 2, `1 created secret/default/s {"data": "1"}`, `1 created service/default/v {}`)}
	follower, err := facts.Follow(run(2, 3, `1 created secret/default/s {"data": "2"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name           string
		baseline, plan plan.Pace
		want           []facts.Key
	}{
		{"both paced", plan.PaceRest, plan.PaceRest, []facts.Key{claim, secret, service}},
		{"neither paced", plan.PaceNone, plan.PaceNone, []facts.Key{claim, secret, service}},
		{"the baseline paced", plan.PaceRest, plan.PaceNone, []facts.Key{claim}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ref, err := baseline.Learn("w", append(usual, usual...))
			if err != nil {
				t.Fatal(err)
			}
			ref.Pace = tt.baseline
			var got []facts.Key
			for _, d := range Differences(ref, &plan.Plan{Pace: tt.plan}, follower) {
				got = append(got, d.Key)
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("differences of %v, want %v", got, tt.want)
			}
		})
	}
}
