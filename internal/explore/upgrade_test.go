package explore

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// sameBuilds are builds that have the suite's own source.
type sameBuilds struct{ config *Config }

func (b sameBuilds) Get(context.Context, string) (*run.Build, error) {
	return &run.Build{Suite: b.config.Suite, Binaries: b.config.Binaries}, nil
}

// What a former build leaves for good is a finding of the upgrade at rest. Other plans of upgrades have it, too: only
// what they find besides counts. And it excuses nothing in plans without an upgrade.
func TestWhatAFormerBuildLeavesIsFoundOnce(t *testing.T) {
	f := &fake{}
	c := config(t, f, "w")
	text, err := os.ReadFile(c.Suite.File)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.Suite.File, append(text, "builds: {old: {}}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if c.Suite, err = plan.LoadSuite(c.Suite.File); err != nil {
		t.Fatal(err)
	}
	c.Builds = sameBuilds{&c}
	c.Patterns = []string{"upgrade", "intermediate"}
	f.answer = func(
		p *plan.Plan, _ int, meta *record.Meta, found *[]record.Finding, history *[]string,
	) error {
		left := func(key string) {
			*history = append(*history, "op "+key)
			*found = append(*found, finding(key, "exists at the end"))
			meta.Verdict = record.Bug
		}
		switch {
		case p.Build == "old" && !p.Upgrades(): // it is right for the old build
			*history = append(*history, "op secret/default/old")
		case p.Build == "old":
			left("secret/default/old")
			if !p.Actions[0].Async && strings.Contains(p.Description, "right after its own write: secret/default/a") {
				left("secret/default/half")
			}
		case len(p.Actions) > 0:
			left("secret/default/old") // the suite's own build makes it after a crash
		}
		return nil
	}
	result := mustRun(t, c)
	got := map[string]string{}
	for _, o := range result.Outcomes {
		var subjects []string
		for _, f := range o.Findings {
			subjects = append(subjects, f.Subject)
		}
		how := "at a write"
		switch {
		case strings.Contains(o.Why, "has done all"):
			how = "at rest"
		case o.Pattern == "intermediate":
			how = "intermediate"
		case strings.Contains(o.Why, "right after its own write: secret/default/a"):
			how = "at the first write"
		}
		if strings.Contains(o.Why, "rolling") {
			how += ", rolling"
		}
		if o.Status != Bug {
			subjects = nil
		}
		got[how] = string(o.Status) + " " + strings.Join(subjects, " ")
	}
	want := map[string]string{
		"intermediate":        "bug secret/default/old",
		"at rest":             "bug secret/default/old",
		"at rest, rolling":    "workload ",
		"at the first write":  "bug secret/default/half",
		"at a write":          "workload ",
		"at a write, rolling": "workload ",
	}
	for how, want := range want {
		if got[how] != want {
			t.Errorf("%s: %q, want %q", how, got[how], want)
		}
	}
	if len(got) != len(want) {
		t.Errorf("outcomes: %v", got)
	}
	if !slices.Contains(f.all, "w@old-without-faults") || !slices.Contains(f.all, "w-without-faults") {
		t.Errorf("runs: %v", f.all)
	}
}
