package wording

import (
	"testing"
	"time"
)

func TestFirstLine(t *testing.T) {
	for text, want := range map[string]string{"": "", "a": "a", "a\nb": "a", "a\n": "a", "\nb": ""} {
		if got := FirstLine(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 plans", 1: "1 plan", 2: "2 plans", -1: "-1 plans"} {
		if got := Count(n, "plan"); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}

func TestRoughly(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1540 * time.Millisecond: "1.5 s", 61 * time.Second: "61 s", 9*time.Minute + 40*time.Second: "10 min",
		150 * time.Minute: "2.5 h",
	} {
		if got := Roughly(d); got != want {
			t.Errorf("%s is %s, want %s", d, got, want)
		}
	}
}
