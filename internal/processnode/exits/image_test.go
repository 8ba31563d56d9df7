package exits

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/processnode/volumes"
)

// Regression: Crossplane "exits at once", because its first container applies definitions that are in its image.
func TestExplainImage(t *testing.T) {
	dir := t.TempDir()
	files := volumes.NewFiles(filepath.Join(dir, "root"))
	files.Add("/tmp", filepath.Join(dir, "tmp"))
	files.Add("/proc", "/proc")
	if err := files.Mount("/etc/trommel-none/certs", filepath.Join(dir, "certs")); err != nil {
		t.Fatal(err)
	}
	const stack = "\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:7 +0x1d\n\t/src/a.go:1\n\t/src/b.go:1\n" +
		"\t/src/c.go:1\nexit status 2\n"
	for _, tt := range []struct{ name, log, want string }{
		{"directory", "db: error: cannot init: lstat /trommel-crds: no such file or directory\n",
			"db looks for /trommel-crds, which neither this machine nor a volume of its pod has. If its image has " +
				"it, add to the controller in the suite: files: {/trommel-crds: FILE OR DIRECTORY}"},
		{"file below directories", `{"error":"open /trommel-a/b/c.yaml: no such file or directory"}`,
			"files: {/trommel-a: DIRECTORY}"},
		{"in a panic", "panic: open /trommel-a: no such file or directory" + stack, "files: {/trommel-a: FILE"},
		{"with quotation marks", `open "/etc/trommel-a/b": no such file or directory`,
			"files: {/etc/trommel-a: DIRECTORY}"},
		{"in JSON", `{"error":"stat \"/etc/trommel-a\": no such file or directory"}`, "files: {/etc/trommel-a: FILE"},
		{"the last of two", "open /trommel-a: no such file or directory\nopen /trommel-b: no such file or directory\n",
			"files: {/trommel-b: FILE"},
		{"beside a volume", "open /etc/trommel-none/a: no such file or directory",
			"files: {/etc/trommel-none: DIRECTORY}"},
		{"in a volume", "open /etc/trommel-none/certs/a: no such file or directory", ""},
		{"in /tmp", "open /tmp/a: no such file or directory", ""},
		{"that exists by now", "open " + dir + ": no such file or directory", ""},
		{"relative path", "open charts/a.yaml: no such file or directory", ""},
		{"program", "fork/exec /usr/bin/trommel-none: no such file or directory", ""},
		{"long before the end", "open /trommel-a: no such file or directory\n" + strings.Repeat("working\n", 10), ""},
		{"something else", "exit", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := explainImage("db", tt.log, files)
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q in it", got, tt.want)
			}
		})
	}
	missing := "lstat /trommel-crds: no such file or directory"
	calm := func() bool { return false }
	for _, hooked := range []bool{true, false} {
		p := Process{Hooked: hooked, Files: files, Beginner: "db"}
		if p.MetMachine(missing, calm) == "" {
			t.Errorf("hooks %t: the file that its image has is not explained", hooked)
		}
		if met := p.MetMachine(missing, func() bool { return true }); met != "" {
			t.Errorf("hooks %t, during a fault: %s", hooked, met)
		}
		// It has worked without the file before.
		if p.Beginner = ""; p.MetMachine(missing, calm) != "" {
			t.Errorf("hooks %t: explained after the controller has worked", hooked)
		}
	}
}
