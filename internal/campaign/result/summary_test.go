package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/testing/golden"
	"github.com/trommel-dev/trommel/record"
)

func finding(subject, text string) record.Finding {
	return record.Finding{
		Severity: record.SeverityBug, Judge: record.JudgeBaseline, Subject: subject,
		Title: subject + " differs from the runs without faults: " + text,
	}
}

// compare compares what write writes with a golden file.
func compare(t *testing.T, name string, write func(io.Writer) error) {
	t.Helper()
	var got bytes.Buffer
	if err := write(&got); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, filepath.Join("testdata", name), got.Bytes())
}

// result has something of everything.
func result() *Result {
	never := finding("service/default/db", "never created; without faults: exists at the end")
	never2 := finding("service/default/db2", "never created; without faults: exists at the end")
	invariant := record.Finding{
		Severity: record.SeverityBug, Judge: record.JudgeInvariant, Subject: "every-database-has-a-service",
		Title: "invariant every-database-has-a-service: a Database has no Service",
	}
	field := finding("secret/default/db", `data.user is "a"; without faults: "b"`)
	plan := func(name string, s Status, actions, came int, findings ...record.Finding) Outcome {
		return Outcome{
			Plan: name, File: "trommel-runs/test/plans/" + name + ".yaml", Workload: "create", Pattern: "intermediate",
			Why: "op is killed right after its own write: " + name, Actions: actions, Triggers: actions, Status: s,
			Confirmation: Confirmation{Came: came, Of: 3}, Findings: findings, Judged: true, Took: 20 * time.Second,
			Record: "runs/" + name + "/1", Key: "k",
		}
	}
	one := plan("create-stale-1", Bug, 3, 3, invariant, never)
	two := plan("create-intermediate-2", Bug, 1, 3, never2)
	three := plan("create-drift-3", Bug, 2, 3, never)
	alone := plan("create-drift-4", Bug, 1, 3, field)
	for _, o := range []*Outcome{&one, &two, &three} {
		o.Cause = findings.Interrupted
	}
	three.Like, three.Came, three.Of = "create-stale-1", 1, 1
	alone.Smaller = "trommel-runs/test/smaller/it's small.yaml"
	rare := plan("create-drift-5", Unconfirmed, 1, 1, field)
	own := plan("own", OfWorkload, 1, 3, invariant)
	own.Pattern, own.File, own.Judged = "", "plans/own.yaml", false
	upgrade := plan("create-upgrade-v1-3", OfWorkload, 1, 1, never)
	upgrade.Pattern = pattern.Upgrade
	idle := plan("create-unobserved-6", Inconclusive, 2, 0)
	idle.Of, idle.Reason = 0, "1 of 2 actions fired: nothing has happened\naction 2 waits for <pod/default/a>\nand more"
	failed := plan("create-unobserved-7", Failed, 2, 0)
	failed.Of, failed.Reason, failed.Record = 0, "could not start the cluster: disk full", ""
	pending := plan("create-unobserved-8", Unconfirmed, 2, 1, never)
	pending.Of, pending.Pending, pending.Reason = 1, true, "the budget ended before it was confirmed"
	passed := plan("create-skew-8", Passed, 2, 0)
	passed.Of = 0
	return &Result{
		Settings: Settings{
			SuiteFile: "db/trommel.yaml", Variant: "fixed", Baselines: "trommel-runs/baselines/db-fixed", Learn: 3,
			Repeat: 3,
		},
		Outcomes: []Outcome{one, two, three, alone, rare, own, upgrade, idle, failed, pending, passed},
		NotRun:   []string{"create-skew-9", "create-skew-10", "own-11"}, Stopped: "the budget of 10m was used up",
		Next: []Unrun{
			{
				Plan: "create-skew-9", File: "trommel-runs/test/plans/create-skew-9.yaml", Workload: "create",
				Pattern: "skew", Why: "op hears nothing of objects of type pod",
			},
			{Plan: "create-skew-10", File: "trommel-runs/test/plans/create-skew-10.yaml", Workload: "create"},
		},
		GoOn: "trommel test --resume trommel-runs/test --budget 10m", Elsewhere: 4,
		Unlearned: []Unlearned{
			{"scale", "learn workload \"scale\": it ends differently\n  pod/default/a: gone"},
			{"own", "learn workload \"own\": a webhook did not respond\nthe end of op's log:\nE1129 no\n  a stack"},
		},
		Dropped: map[string]int{"there are 3 plans like it": 5, "it changes no field": 1},
		Skipped: []Skipped{{At: "db/trommel.yaml:40", What: "pattern drift, type db: by design", Plans: 3},
			{At: "db/trommel.yaml:41", What: "name x-*"}},
		Empty: []string{"zombie"}, Unreached: map[string][]string{"op": {"annotatedCall backup", "reconcile"}},
		Suggested: []Suggestion{
			{Pattern: "stale", Lacks: "no workload deletes a db", Command: "trommel propose -c db --write"},
			{Pattern: "unobserved", Lacks: "no workload changes a db", Workloads: []string{"resize", "scale"}},
		},
		Took: 9*time.Minute + 40*time.Second,
	}
}

func TestSummary(t *testing.T) {
	r := result()
	compare(t, "summary.txt", r.Text)
	compare(t, "summary.md", r.Markdown)
	compare(t, "summary.json", r.JSON)
	compare(t, "nothing.txt", (&Result{}).Text)
	var back Result
	data, err := os.ReadFile(filepath.Join("testdata", "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, &back); diff != "" {
		t.Error(diff)
	}
}

// The headline of a finding fits into a terminal's line, and nothing of it is lost. A file has it whole.
func TestHeadlinesOfASummaryFitIntoTheTerminal(t *testing.T) {
	r := result()
	for _, width := range []int{0, 60} {
		var b strings.Builder
		r.groups(&b, width, "bugs", r.With(Bug))
		var whole strings.Builder
		for i, g := range Groups(r.With(Bug)) {
			lines := strings.Split(b.String(), "\n")
			number := fmt.Sprintf("  %d. ", i+1)
			at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, number) })
			head := strings.TrimPrefix(lines[at], number)
			if width > 0 && ansi.StringWidth(lines[at]) > width {
				t.Errorf("%d cells: %s", ansi.StringWidth(lines[at]), lines[at])
			}
			if cut, ok := strings.CutSuffix(head, "…"); ok {
				head = cut + " " + strings.TrimSpace(lines[at+1])
			}
			if head != g.title() {
				t.Errorf("%q, want %q", head, g.title())
			}
			whole.WriteString(lines[at])
		}
		if got := strings.Contains(whole.String(), "…"); got != (width > 0) {
			t.Errorf("width %d: cut %v\n%s", width, got, b.String())
		}
	}
}
