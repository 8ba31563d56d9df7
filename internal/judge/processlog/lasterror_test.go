package processlog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/record"
)

func TestLastError(t *testing.T) {
	for _, test := range []struct {
		name  string
		logs  []string
		want  string
		times int
	}{
		{"nothing", []string{"started\nready\n"}, "", 0},
		{"no log", nil, "", 0},
		{"klog, three times except for numbers", []string{
			"I1121 10:00:00.1 1 a.go:1] ok\nE1121 10:00:00.2 1 a.go:2] sync default/db: conflict 17\n" +
				"E1121 10:00:01.3 1 a.go:2] sync default/db: conflict 18\nE1121 10:00:02.4 1 a.go:2] sync " +
				"default/db: conflict 19\n",
		}, "E1121 10:00:02.4 1 a.go:2] sync default/db: conflict 19", 3},
		{"zap in JSON",
			[]string{`{"level":"error","msg":"a"}` + "\n" + `{"level":"info","msg":"failed before"}` + "\n"},
			`{"level":"error","msg":"a"}`, 1},
		{"zap on a console", []string{"2026-11-21T10:00:00Z\tERROR\tReconciler error\t{}\n"},
			"2026-11-21T10:00:00Z\tERROR\tReconciler error\t{}", 1},
		{"slog", []string{"time=1 level=ERROR msg=x\ntime=2 level=INFO msg=y\n"}, "time=1 level=ERROR msg=x", 1},
		{"a program's own words", []string{"copier: secrets is forbidden\ncopier: going on\n"},
			"copier: secrets is forbidden", 1},
		{"the later process", []string{"E1121 1 a\n", "E1121 2 b\n"}, "E1121 2 b", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var processes []record.Process
			for i, log := range test.logs {
				file := filepath.Join(t.TempDir(), string(rune('a'+i)))
				if err := os.WriteFile(file, []byte(log), 0o600); err != nil {
					t.Fatal(err)
				}
				// A container that was started twice.
				processes = append(processes, record.Process{LogFile: file}, record.Process{LogFile: file})
			}
			got, ok := LastError(processes)
			if got.Text != test.want || got.Times != test.times || ok != (test.want != "") {
				t.Errorf("%q %d times, want %q %d times", got.Text, got.Times, test.want, test.times)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "long")
	if err := os.WriteFile(file, []byte("error "+strings.Repeat("é", 100000)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := LastError([]record.Process{{LogFile: file}}); len(got.Text) > maxErrorLine+4 {
		t.Errorf("%d bytes", len(got.Text))
	}
}
