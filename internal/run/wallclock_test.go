package run

import (
	"testing"
	"time"
)

func TestStepOf(t *testing.T) {
	for _, tt := range []struct{ shown, passed, want time.Duration }{
		{time.Minute, time.Minute, 0},
		{61*time.Second - 1, time.Minute, 0},
		{time.Hour + 4*time.Second, time.Hour, 0}, // sped up
		{-59 * time.Minute, time.Minute, -time.Hour},
		{2 * time.Hour, time.Hour, time.Hour},
	} {
		if got := stepOf(tt.shown, tt.passed); got != tt.want {
			t.Errorf("%s shown, %s passed: %s, want %s", tt.shown, tt.passed, got, tt.want)
		}
	}
	if step := (wallClock{time.Now()}).step(); step != 0 {
		t.Errorf("set by %s", step)
	}
}
