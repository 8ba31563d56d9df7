package clock

import (
	"testing"
	"time"
)

// TestSlow: a clock that is slow goes by a part of the time, and never back.
func TestSlow(t *testing.T) {
	var drawn []Line
	c := Drawn(func(l Line) { drawn = append(drawn, l) })
	c.Advance(time.Hour)
	for _, parts := range []int64{Whole / 2, Whole / 2, Whole * 15 / 16, 0} {
		before := c.Now()
		c.Slow(parts)
		for range 10000 {
			now := c.Now()
			if now.Before(before) {
				t.Fatalf("from %v back to %v", before, now)
			}
			before = now
		}
	}
	if len(drawn) != 4 { // one of them twice
		t.Fatalf("%+v", drawn)
	}
	for i, l := range drawn[1:] {
		before := drawn[i]
		for _, tt := range []struct {
			name      string
			of        Line
			from, to  int64
			went, per int64
		}{
			{"before it begins", l, l.Base - 1e6, l.Base, Whole - before.Slow, Whole},
			{"after it has begun", l, l.Base, l.Base + 1e9, Whole - l.Slow, Whole},
		} {
			went := tt.to + tt.of.At(tt.to) - tt.from - tt.of.At(tt.from)
			if want := (tt.to - tt.from) * tt.went / tt.per; went < want-1 || want+1 < went {
				t.Errorf("%s line %d: %d, want %d", tt.name, i+1, went, want)
			}
		}
		if d := l.At(l.Base-1) - before.At(l.Base-1); d < -1 || d > 1 { // one is rounded
			t.Errorf("line %d does not follow the one before: %+v, %+v", i+1, before, l)
		}
	}
	if ahead := c.Offset(); ahead > time.Hour || ahead < time.Hour-time.Second {
		t.Errorf("ahead by %s", ahead)
	}
}
