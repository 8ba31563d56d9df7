// Package examples runs the examples' plans on real control planes.
package examples

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Exit codes of trommel.
const (
	pass         = 0
	bug          = 1
	inconclusive = 3
)

// TestPlans runs every plan of the examples, each on its own control plane. The first run builds it, which takes
// minutes.
func TestPlans(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	const (
		database    = "database-operator"
		statefulset = "statefulset-controller"
	)
	tests := []struct {
		example, plan, variant string
		want                   int
		findings               []string // prefixes of their titles, in any order
		reason                 string
	}{
		{example: database, plan: "stale-deletion", want: bug,
			findings: []string{"invariant live-statefulset-is-kept:"}},
		{example: database, plan: "stale-deletion", variant: "fixed", want: pass},
		{example: database, plan: "interrupted-create", want: bug,
			findings: []string{"invariant every-database-has-a-service:"}},
		{example: database, plan: "interrupted-create", variant: "fixed", want: pass},
		{example: database, plan: "missed-scale", want: bug, findings: []string{"invariant new-members-start-empty:"}},
		{example: database, plan: "missed-scale", variant: "fixed", want: pass},

		{example: database, plan: "interrupted-resize", want: pass},
		{example: database, plan: "interrupted-resize", variant: "fixed", want: pass},

		{example: statefulset, plan: "kill-between-creations", want: pass},
		{example: statefulset, plan: "missed-scale", want: pass},
		{example: statefulset, plan: "missed-deletion", want: pass},
		// late-scale is missing: it depends on scheduling whether the worker acts on the first update before the second
		// one is received.
		{example: statefulset, plan: "stale-restart", want: bug, findings: []string{"invariant wanted-pods-are-kept:"},
			reason: "it acts on an old StatefulSet; the mitigation compares with the process's own writes, and this " +
				"one has written nothing"},
		{example: statefulset, plan: "stale-restart", variant: "unmitigated", want: bug,
			findings: []string{"invariant wanted-pods-are-kept:"}},
		{example: statefulset, plan: "stale-restart", variant: "as-shipped", want: inconclusive,
			findings: []string{"no controller was shown stale state: statefulset-controller was started at " +
				"apiserver-3"},
			reason: "a streaming list from a stale API server fails, so nothing old is seen"},
		{example: statefulset, plan: "stale-cut", want: inconclusive,
			findings: []string{"no controller was shown stale state: statefulset-controller was"},
			reason:   "client-go asks for nothing older than what it has seen"},
		{example: statefulset, plan: "stale-cut", variant: "unmitigated", want: inconclusive,
			findings: []string{"no controller was shown stale state: statefulset-controller was"}},
	}

	trommel := filepath.Join(t.TempDir(), "trommel")
	build := exec.Command("go", "build", "-o", trommel, "./cmd/trommel")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build trommel: %v\n%s", err, out)
	}

	for _, tt := range tests {
		name := tt.example + "/" + tt.plan
		if tt.variant != "" {
			name += "/" + tt.variant
		}
		t.Run(name, func(t *testing.T) {
			// Long enough for a cold build of the control plane.
			ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
			defer cancel()
			dir := filepath.Join(t.TempDir(), "record")
			args := []string{"-p", filepath.Join(tt.example, "plans", tt.plan+".yaml"), "--record", dir}
			if tt.variant != "" {
				args = append(args, "--variant", tt.variant)
			}
			cmd := exec.CommandContext(ctx, trommel, args...)
			cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it stops its control plane
			cmd.WaitDelay = time.Minute
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.ExitCode(); got != tt.want {
				t.Fatalf("exit code %d, not %d (%s)\n%s", got, tt.want, tt.reason, out)
			}
			checkFindings(t, dir, tt.findings)
			if t.Failed() {
				t.Logf("%s", out)
			}
		})
	}
}

// checkFindings compares the findings' titles: a bug with another reason is not the example's bug.
func checkFindings(t *testing.T, dir string, want []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "findings.json"))
	if err != nil {
		t.Fatal(err)
	}
	var findings []struct{ Title string }
	if err := json.Unmarshal(data, &findings); err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, w := range want {
		missing[w] = true
	}
	for _, f := range findings {
		known := false
		for _, w := range want {
			if strings.HasPrefix(f.Title, w) {
				known = true
				delete(missing, w)
			}
		}
		if !known {
			t.Errorf("unexpected finding: %s", f.Title)
		}
	}
	for w := range missing {
		t.Errorf("no finding %q", w)
	}
}
