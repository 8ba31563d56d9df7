package campaign

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// sameBuilds are builds that have the suite's own source. The first time, it takes a while to make them.
type sameBuilds struct {
	config *Config
	takes  time.Duration
	made   bool
}

func (b *sameBuilds) Get(context.Context, string) (*builds.Build, error) {
	if !b.made {
		time.Sleep(b.takes)
		b.made = true
	}
	return &builds.Build{Suite: b.config.Suite, Binaries: b.config.Binaries}, nil
}

// addBuild adds a build with the name old, which takes that long to make.
func addBuild(t *testing.T, c *Config, takes time.Duration) {
	t.Helper()
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
	c.Builds = &sameBuilds{config: c, takes: takes}
}

// The budget begins when all builds are made, also those to upgrade from.
func TestTheBudgetDoesNotPayForOtherBuilds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := config(t, lasting(2*time.Second, 2*time.Second), "w")
		addBuild(t, &c, 5*time.Minute)
		c.Patterns, c.Budget = []string{"upgrade"}, time.Minute
		r := mustRun(t, c)
		said := c.Progress.(*heard).String()
		if len(r.Outcomes) == 0 || !strings.Contains(said, "of which learning took 16 s") {
			t.Errorf("%v\n%s", statuses(r), said)
		}
		if strings.Contains(said, ": 0 plans") || !strings.Contains(said, "w-upgrade-old-at-rest: 1 plan\n") {
			t.Errorf("plans:\n%s", said)
		}
	})
}

// What a former build leaves for good is a finding of the upgrade at rest. Other plans of upgrades have it, too: only
// what they find besides counts. And it excuses nothing in plans without an upgrade.
func TestWhatAFormerBuildLeavesIsFoundOnce(t *testing.T) {
	f := &fake{}
	c := config(t, f, "w")
	addBuild(t, &c, 0)
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
	r := mustRun(t, c)
	got := map[string]string{}
	for _, o := range r.Outcomes {
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
		if o.Status != result.Bug {
			subjects = nil
			if !strings.Contains(o.Reason, "after the same upgrade at rest") {
				t.Errorf("%s is passed over: %s", how, o.Reason)
			}
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
