package judge

import (
	"slices"
	"testing"

	"github.com/trommel-dev/trommel/internal/reference"
	"github.com/trommel-dev/trommel/plan"
)

// Without pauses between the steps of a workload nearly everything may differ from runs with pauses, but no data is
// lost.
func TestDifferencesOfAWorkloadWithoutPauses(t *testing.T) {
	object := func(made int, end map[string]any) *reference.Object {
		return &reference.Object{Made: made, MostMade: made, End: end}
	}
	there := map[string]any{"data": "1"}
	const claim, pod, secret, service = reference.Key("persistentvolumeclaim/default/c"),
		reference.Key("pod/default/p"), reference.Key("secret/default/s"), reference.Key("service/default/v")
	usual := map[reference.Key]*reference.Object{
		claim: object(1, there), pod: object(2, there), secret: object(2, there), service: object(1, there),
	}
	run := map[reference.Key]*reference.Object{
		claim: object(2, there), pod: object(3, there), secret: object(1, map[string]any{"data": "2"}),
	}
	for _, tt := range []struct {
		name            string
		reference, plan plan.Pace
		want            []reference.Key
	}{
		{"both paced", plan.PaceRest, plan.PaceRest, []reference.Key{claim, secret, service}},
		{"neither paced", plan.PaceNone, plan.PaceNone, []reference.Key{claim, secret, service}},
		{"the reference paced", plan.PaceRest, plan.PaceNone, []reference.Key{claim}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ref := &reference.Reference{Objects: usual, Pace: tt.reference}
			var got []reference.Key
			for _, d := range Differences(ref, &plan.Plan{Pace: tt.plan}, run) {
				got = append(got, d.Key)
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("differences of %v, want %v", got, tt.want)
			}
		})
	}
}
