package report

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// An ordered run says how long its late steps were held, and while how many others went on. With seeds it names the
// steps that waited the longest.
func TestHeldSteps(t *testing.T) {
	choice := func(n int, stream string, step, event int, enabled ...string) record.Event {
		return record.Event{Time: at(time.Duration(n) * time.Second), Choice: &record.Choice{
			Number: n, Stream: stream, Step: step, What: "op's " + stream, Event: event, Enabled: enabled,
		}}
	}
	seen := func(seq, second int) record.Event {
		return record.Event{Seq: seq, Time: at(time.Duration(second) * time.Second), Observation: &record.Observation{}}
	}
	r := &record.Run{Events: []record.Event{
		seen(1, 0), seen(2, 0),
		choice(1, "b", 1, 2, "a", "b"),
		seen(3, 1),
		choice(2, record.TimeStream, 0, 0, "a", "b"),
		choice(3, "b", 2, 3, "a", "b", "workload"),
		choice(4, "workload", 1, 0, "a", "workload"),
		choice(5, "a", 1, 1, "a"),
	}}
	r.Meta.WorkloadStart = at(0)
	for _, tt := range []struct {
		schedule *plan.Schedule
		want     string
	}{
		{nil, ""},
		{&plan.Schedule{Strategy: plan.Swarm}, "op's a was held from +0s to +5s, while 3 other steps went on"},
		{&plan.Schedule{Late: []plan.LateStep{{Stream: "a"}, {Stream: "b", Step: 2}, {Stream: "c", Step: 4}}},
			"op's a was held from +0s to +5s, while 3 other steps went on\n" +
				"op's b was held from +1s to +3s, while 0 other steps went on\n" +
				`step 4 of the stream "c" did not come`},
	} {
		got := strings.Join(HeldSteps(r, &plan.Plan{Schedule: tt.schedule}), "\n")
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%+v:\n%s", tt.schedule, diff)
		}
	}
	if lines := HeldSteps(r, nil); lines != nil {
		t.Errorf("without a plan: %q", lines)
	}
}
