package errorlog

import (
	"slices"
	"strings"
	"testing"
)

func TestMarked(t *testing.T) {
	for line, want := range map[string]bool{
		`E1122 12:18:20.123456       1 controller.go:324] "Reconciler error" err="no"`:        true,
		`I1122 12:18:20.123456       1 controller.go:324] "it failed"`:                        false,
		`{"level":"error","ts":"2026-11-22T12:00:00Z","msg":"Reconciler error","error":"no"}`: true,
		`{"level":"info","msg":"error"}`:                                                      false,
		"2026-11-22T09:57:23Z\tERROR\tReconciler error\t{\"error\": \"no\"}":                  true,
		`time=2026-11-22T09:57:23Z level=ERROR msg="no"`:                                      true,
		`time="2026-11-22T09:57:23Z" level=error msg="no"`:                                    true,
		`2026/11/22 09:57:23 starting`:                                                        false,
	} {
		if got := Marked(line); got != want {
			t.Errorf("Marked(%q) = %t", line, got)
		}
	}
	if !Sounds("sync failed") || Sounds("unfailing") {
		t.Error("Sounds")
	}
}

// Parts that differ from run to run do not make another shape.
func TestShape(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		lines      []string
	}{
		{
			"klog, structured",
			`controller.go: Reconciler error Operation cannot be fulfilled on pods "…": changed # times`,
			[]string{
				`E1122 12:18:20.123456       1 controller.go:324] "Reconciler error" ` +
					`err="Operation cannot be fulfilled on ` +
					`pods \"a-x2bcd\": changed 3 times" controller="db" namespace="default" reconcileID="1b0c"`,
				`E1122 12:18:29.000001      17 controller.go:399] "Reconciler error" ` +
					`err="Operation cannot be fulfilled on ` +
					`pods \"b-5fghj\": changed 4 times" controller="db" namespace="other" reconcileID="77"`,
			},
		},
		{
			"klog", "queue.go: sync <name>: <id> is not there",
			[]string{
				`E1122 12:18:20.123456       1 queue.go:1] sync default/web: ` +
					`6f1b0c8e-0f0f-4a51-9d8a-1c2d3e4f5a6b is not there`,
				`E1123 02:18:20.123456       1 queue.go:22] sync other/db-0: ` +
					`00000000-0f0f-4a51-9d8a-1c2d3e4f5a6b is not there`,
			},
		},
		{
			"zap console", `database Reconciler error: dial tcp <address>: refused`,
			[]string{
				"2026-11-22T09:57:23Z\tERROR\tdatabase\tReconciler error\t{\"name\":\"db\", \"error\": \"dial tcp " +
					"127.0.0.1:41891: refused\"}",
				"2026-11-22T09:59:23Z\tERROR\tdatabase\tReconciler error\t{\"name\":\"x\", \"error\": \"dial tcp " +
					"10.0.0.1:6443: refused\"}",
			},
		},
		{
			"zap JSON", `Reconciler error: waited # s`,
			[]string{
				`{"level":"error","ts":1.7e9,"msg":"Reconciler error","name":"a","error":"waited 1.5 s",` +
					`"stacktrace":"a\nb"}`,
				`{"level":"error","ts":1.8e9,"msg":"Reconciler error","name":"b","error":"waited 20 s"}`,
			},
		},
		{
			"slog", `sync failed <name> is gone`,
			[]string{
				`time=2026-11-22T09:57:23Z level=ERROR msg="sync failed" object=default/a err="default/a is gone"`,
				`time=2026-11-22T19:57:23Z level=ERROR msg="sync failed" object=default/b err="default/b is gone"`,
			},
		},
		{
			"a generated name", "no pod <name> on node #",
			[]string{"no pod web-7d4b9c6f5d-x2bcd on node 1", "no pod web-7d4b9c6f5d-zz9pk on node 2"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, line := range tt.lines {
				if got := Shape(line); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
			}
		})
	}
	if a, b := Shape("E1122 1:1 1 a.go:1] no such key"), Shape("E1122 1:1 1 a.go:1] no such value"); a == b {
		t.Errorf("two errors look the same: %s", a)
	}
}

func TestLines(t *testing.T) {
	var got []string
	text := "a\r\n\n" + strings.Repeat("x", 3*MaxLine) + "\nend"
	if err := Lines(strings.NewReader(text), func(line string) { got = append(got, line) }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "", strings.Repeat("x", MaxLine), "end"}; !slices.Equal(got, want) {
		t.Errorf("got %d lines", len(got))
	}
}
