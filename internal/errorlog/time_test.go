package errorlog

import (
	"testing"
	"time"
)

func TestTime(t *testing.T) {
	near := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	for line, want := range map[string]string{
		`E1231 23:59:58.500000       1 a.go:1] no`:                 "2025-12-31T23:59:58.5Z",
		`E0102 03:04:05.000001       1 a.go:1] no`:                 "2026-01-02T03:04:05.000001Z",
		"2026-01-02T03:04:05Z\tERROR\tno":                          "2026-01-02T03:04:05Z",
		"2026-01-02T03:04:05.123+0100\tERROR\tno":                  "2026-01-02T02:04:05.123Z",
		`time=2026-01-02T03:04:05.5+01:00 level=ERROR msg=no`:      "2026-01-02T02:04:05.5Z",
		`{"level":"error","ts":1767322800.25,"msg":"no"}`:          "2026-01-02T03:00:00.25Z",
		`{"level":"error","ts":"2026-01-02T03:04:05Z","msg":"no"}`: "2026-01-02T03:04:05Z",
		`{"level":"error","ts":1.76732280025e9,"msg":"no"}`:        "2026-01-02T03:00:00.25Z",
		`ERROR no`: "",
	} {
		got, known := Time(line, near)
		text := ""
		if known {
			text = got.UTC().Format(time.RFC3339Nano)
		}
		if text != want {
			t.Errorf("%s: got %q, want %q", line, text, want)
		}
	}
}
