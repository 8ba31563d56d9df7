package wording

import "testing"

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
