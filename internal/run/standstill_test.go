package run

import (
	"slices"
	"testing"
	"time"
)

func TestStandstills(t *testing.T) {
	at := func(seconds float64) time.Time {
		return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
	}
	const why = ": it was stopped, or the machine was busy with something else. " +
		"A controller may have lost its leader election because of that"
	tests := []struct {
		name  string
		ticks []float64
		ahead time.Duration // the run's clock is ahead
		slow  float64       // and goes slower
		want  []string
	}{
		{name: "on time", ticks: []float64{0, 0.5, 1, 1.5}},
		{name: "late on a busy machine", ticks: []float64{0, 0.5, 5.4, 10.3}},
		{
			name: "stopped twice", ticks: []float64{0, 0.5, 14.54, 15, 15.5, 20.5},
			want: []string{
				"trommel itself did not run for 14s, until 12:00:14" + why,
				"trommel itself did not run for 5s, until 12:00:20" + why,
			},
		},
		{
			name: "stopped in a run that is ahead", ticks: []float64{0, 0.5, 14.54}, ahead: time.Hour,
			want: []string{"trommel itself did not run for 14s, until 13:00:14" + why},
		},
		{name: "as slow as the run", ticks: []float64{0, 0.5, 14.54}, slow: 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var now time.Time
			s := standstills{now: func() time.Time {
				if tt.slow > 0 {
					return at(now.Sub(at(0)).Seconds() / tt.slow)
				}
				return now.Add(tt.ahead)
			}}
			for _, tick := range tt.ticks {
				now = at(tick)
				s.tick(now)
			}
			if !slices.Equal(s.notes, tt.want) {
				t.Errorf("noted %q, want %q", s.notes, tt.want)
			}
			s.last, s.lastOwn = time.Now(), s.now()
			if first := s.first(); len(tt.want) > 0 && first != tt.want[0] || len(tt.want) == 0 && first != "" {
				t.Errorf("the first is %q", first)
			}
		})
	}
}
