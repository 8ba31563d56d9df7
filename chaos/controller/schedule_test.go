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
		// The schedule was not written while the controllers were away.
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

// A pause changes neither the end nor the pulses.
func TestPause(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	began := metav1.NewMicroTime(start)
	minute, ten := chaos.DurationOf(time.Minute), chaos.DurationOf(10*time.Second)
	d := &chaos.Disruption{Spec: chaos.DisruptionSpec{
		Duration: &minute, Pulse: &chaos.Pulse{ActiveDuration: ten, DormantDuration: ten},
	}}
	d.Status.Schedule.StartedAt = &began
	for _, step := range []struct {
		at     time.Duration
		paused bool
		active bool
		since  time.Duration
		runs   int32
		next   time.Duration
	}{
		{at: 1, active: true, runs: 1, next: 10},
		{at: 3, paused: true, since: 3, runs: 1, next: 10},
		{at: 4, active: true, since: 4, runs: 1, next: 10},
		{at: 6, paused: true, since: 6, runs: 1, next: 10},
		{at: 12, paused: true, since: 6, runs: 1, next: 20},
		{at: 25, paused: true, since: 6, runs: 2, next: 30},
		{at: 26, active: true, since: 26, runs: 2, next: 30},
		{at: 31, since: 30, runs: 2, next: 40},
		{at: 33, paused: true, since: 30, runs: 2, next: 40},
		{at: 35, since: 30, runs: 2, next: 40},
		{at: 36, paused: true, since: 30, runs: 2, next: 40},
		{at: 60, paused: true, since: 60, runs: 4},
	} {
		d.Annotations = map[string]string{chaos.AnnotationPaused: map[bool]string{true: "true"}[step.paused]}
		now := start.Add(step.at * time.Second)
		soon := Active(d, now)
		s, next := AdvanceOf(d, now)
		since, change := metav1.NewMicroTime(start.Add(step.since*time.Second)), start.Add(step.next*time.Second)
		if s.Active != step.active || s.Runs != step.runs || !s.Since.Equal(&since) ||
			step.next > 0 && !next.Equal(change) {
			t.Errorf("after %d s: %+v, next %v", step.at, s, next)
		}
		if s.Paused != (step.paused && !s.Over) || s.Over != (step.at == 60) {
			t.Errorf("after %d s: %+v", step.at, s)
		}
		if d.Status.Schedule = s; Active(d, now) != step.active || step.paused && soon {
			t.Errorf("after %d s: active %t", step.at, Active(d, now))
		}
	}
}
