package controller

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// Active reports whether a disruption is active: as its schedule says. If an older version has written only its start,
// the rest follows from that. After its end it is not active, whatever the schedule says: the controllers may not have
// run for a while.
func Active(d *chaos.Disruption, now time.Time) bool {
	s := d.Status.Schedule
	if Paused(d) {
		return false
	}
	if s.Paused { // and no longer: that is still to be written
		s, _ = Advance(&d.Spec, s, now)
		return s.Active
	}
	if s.StartedAt == nil || s.Since != nil {
		return s.Active && (s.StartedAt == nil || now.Before(End(&d.Spec, s)))
	}
	s, _ = Advance(&d.Spec, s, now)
	return s.Active
}

// Paused reports whether a user has paused a disruption.
func Paused(d *chaos.Disruption) bool { return d.Annotations[chaos.AnnotationPaused] == "true" }

func durationOf(spec *chaos.DisruptionSpec) time.Duration {
	if spec.Duration == nil {
		return time.Hour
	}
	return spec.Duration.Duration()
}

// End is when a disruption that has started is over at the latest.
func End(spec *chaos.DisruptionSpec, s chaos.Schedule) time.Time {
	return s.StartedAt.Add(durationOf(spec))
}

// NotBefore is when targets are chosen: when the disruption is created, or as its triggers say.
func NotBefore(d *chaos.Disruption) time.Time {
	switch t := d.Spec.Triggers; {
	case t == nil:
	case t.Inject.NotBefore != nil:
		return t.Inject.NotBefore.Time
	case t.Inject.Offset != nil:
		return d.CreationTimestamp.Add(t.Inject.Offset.Duration())
	}
	return d.CreationTimestamp.Time
}

// Deadline is when a disruption that has not had any target is over: its users do not expect it later than it would
// have ended.
func Deadline(d *chaos.Disruption) time.Time {
	from := NotBefore(d)
	if from.Before(d.CreationTimestamp.Time) {
		from = d.CreationTimestamp.Time
	}
	return from.Add(durationOf(&d.Spec))
}

// AdvanceOf is Advance for a disruption that may be paused: its end and its pulses stay where they are in time, so that
// a pause makes nothing longer.
func AdvanceOf(d *chaos.Disruption, now time.Time) (chaos.Schedule, time.Time) {
	before := d.Status.Schedule
	s, next := Advance(&d.Spec, before, now)
	s.Paused = Paused(d) && !s.Over
	if !s.Paused && !before.Paused || s.Over {
		return s, next
	}
	if s.Active = s.Active && !s.Paused; s.Active == before.Active && before.Since != nil {
		s.Since = before.Since
	} else {
		at := metav1.NewMicroTime(now.Truncate(time.Microsecond))
		s.Since = &at
	}
	return s, next
}

// Advance returns the schedule at a time, and when it changes next (zero: not any more). It knows nothing of pauses.
func Advance(spec *chaos.DisruptionSpec, s chaos.Schedule, now time.Time) (chaos.Schedule, time.Time) {
	// The API server keeps microseconds.
	now = now.Truncate(time.Microsecond)
	if s.StartedAt == nil {
		started := metav1.NewMicroTime(now)
		s.StartedAt = &started
	}
	if s.Since == nil {
		s.Since = s.StartedAt
	}
	start, end := s.StartedAt.Time, End(spec, s)
	active, runs, since, next := true, int32(1), start, end
	if p := spec.Pulse; p != nil {
		if p.InitialDelay != nil {
			start = start.Add(p.InitialDelay.Duration())
		}
		cycle := p.ActiveDuration.Duration() + p.DormantDuration.Duration()
		switch elapsed := now.Sub(start); {
		case elapsed < 0:
			active, runs, next = false, 0, start
		default:
			n := elapsed / cycle
			runs = int32(n) + 1
			since = start.Add(n * cycle)
			next = since.Add(p.ActiveDuration.Duration())
			if !now.Before(next) {
				active, since, next = false, next, since.Add(cycle)
			}
		}
		if spec.MaxRuns != nil && (runs > *spec.MaxRuns || runs == *spec.MaxRuns && !active) {
			runs = *spec.MaxRuns
			end = start.Add(time.Duration(runs-1)*cycle + p.ActiveDuration.Duration())
		}
	}
	if !now.Before(end) {
		active, since, next = false, end, time.Time{}
		s.Over = true
	} else if next.After(end) {
		next = end
	}
	if s.Active != active || s.Over || s.Runs != runs {
		at := metav1.NewMicroTime(since)
		s.Since = &at
	}
	s.Active, s.Runs = active, runs
	return s, next
}
