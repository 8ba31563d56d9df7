package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

func TestActive(t *testing.T) {
	start := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	minute, second := chaos.DurationOf(time.Minute), chaos.DurationOf(time.Second)
	for _, tt := range []struct {
		name     string
		pulse    *chaos.Pulse
		schedule chaos.Schedule
		after    time.Duration
		want     bool
	}{
		{name: "not started"},
		{name: "started", schedule: chaos.Schedule{StartedAt: &start}, want: true},
		{name: "started long ago", schedule: chaos.Schedule{StartedAt: &start}, after: 2 * time.Minute},
		{name: "a delay at the start", schedule: chaos.Schedule{StartedAt: &start},
			pulse: &chaos.Pulse{InitialDelay: &second, ActiveDuration: second, DormantDuration: second}},
		{name: "a delay is over", schedule: chaos.Schedule{StartedAt: &start}, after: time.Second, want: true,
			pulse: &chaos.Pulse{InitialDelay: &second, ActiveDuration: second, DormantDuration: second}},
		{name: "the schedule says it", schedule: chaos.Schedule{StartedAt: &start, Since: &start, Active: true},
			after: 30 * time.Second, want: true},
		// Nobody has written the schedule while the controllers were away.
		{name: "the schedule still says it after the end",
			schedule: chaos.Schedule{StartedAt: &start, Since: &start, Active: true}, after: 2 * time.Minute},
		{name: "the schedule says that it is not", schedule: chaos.Schedule{StartedAt: &start, Since: &start}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &chaos.Disruption{Spec: chaos.DisruptionSpec{Duration: &minute, Pulse: tt.pulse}}
			d.Status.Schedule = tt.schedule
			if got := Active(d, start.Add(tt.after)); got != tt.want {
				t.Errorf("%t", got)
			}
			if tt.schedule.StartedAt == nil || tt.schedule.Since != nil {
				return
			}
			// The schedule that is written then says the same.
			if s, _ := Advance(&d.Spec, d.Status.Schedule, start.Add(tt.after)); s.Active != tt.want || s.Since == nil {
				t.Errorf("written: %+v", s)
			}
		})
	}
}
