package campaign

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// A baseline is learned once, and again when something changes that it was made from.
func TestBaselinesAreKept(t *testing.T) {
	f := &fake{}
	c := config(t, f, "w", "other")
	c.Workloads = []string{"w"}
	write := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Dir(c.Suite.File)
	for _, step := range []struct {
		name   string
		change func()
		says   string // why it is learned again; empty: it is kept
		anew   bool
	}{
		{"at first", func() {}, "w: learning what it does without faults", true},
		{"nothing", func() {}, "", false},
		{"the executable", func() { write(filepath.Join(dir, "op"), "another") }, "op's executable changed", true},
		{"its time only", func() { write(filepath.Join(dir, "op"), "another") }, "", false},
		{
			"a manifest", func() {
				write(filepath.Join(dir, "manifests", "a.yaml"),
					"{apiVersion: v1, kind: ConfigMap, metadata: {name: m}}")
			}, "the suite changed", true,
		},
		{"another workload", func() { c.Suite.Workloads["other"] = plan.Workload{} }, "", false},
		{
			"the number of runs and Trommel", func() { c.Learn, c.Version = 2, "v2" },
			"the version of Trommel and the number of runs changed", true,
		},
		{"any number of runs will do", func() { c.Learn = 0 }, "", false},
		{
			"a broken file", func() { write(learn.BaselineFile(c.Baselines, "w"), "{") },
			"the baseline cannot be read", true,
		},
		{"it is asked for", func() { c.Anew = true }, "w: learning", true},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.change()
			said := &heard{}
			c.Progress = said
			all, err := Learn(t.Context(), c)
			if err != nil || len(all) != 1 || all[0].Err != nil || all[0].Anew != step.anew {
				t.Fatalf("%+v, %v", all, err)
			}
			if !strings.Contains(said.String(), step.says) || step.says == "" && said.String() != "" {
				t.Errorf("says %q, want %q", said, step.says)
			}
			kept, err := baseline.Read(all[0].File)
			if err != nil {
				t.Fatal(err)
			}
			written, err := json.Marshal(all[0].Baseline)
			again, againErr := json.Marshal(kept)
			if err != nil || againErr != nil || !bytes.Equal(written, again) {
				t.Errorf("what is kept is another baseline: %v, %v", err, againErr)
			}
		})
	}
	if want := 4 + 4 + 4 + 3 + 4 + 4; len(f.all) != want {
		t.Errorf("%d runs, want %d", len(f.all), want)
	}
}

// The entries that people add to the file of masks count, also after the workload was learned again. It may change what
// a plan finds, so that plans are run again.
func TestEditedMasks(t *testing.T) {
	f := &fake{}
	c := config(t, f, "w")
	first := mustRun(t, c)
	file := learn.MaskFile(c.Baselines, "w")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	edited := string(text) + "- {type: secret, path: data.token, reason: random}\n"
	if err := os.WriteFile(file, []byte(edited), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c.Anew = range []bool{false, true} {
		all, err := Learn(t.Context(), c)
		if err != nil || all[0].Err != nil || !slices.ContainsFunc(all[0].Baseline.Given, func(m baseline.Mask) bool {
			return m == baseline.Mask{Type: "secret", Path: "data.token", Reason: "random"}
		}) {
			t.Errorf("%+v, %v", all, err)
		}
	}
	c.Anew = false
	f.all = nil
	if mustRun(t, c); len(f.all) != len(first.Outcomes) {
		t.Errorf("%d runs with other masks, want %d", len(f.all), len(first.Outcomes))
	}
	if err := os.WriteFile(file, []byte("- {type: secret}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := Learn(t.Context(), c); err != nil || all[0].Err == nil ||
		!strings.Contains(all[0].Err.Error(), "masks.yaml:1:3: path is missing") {
		t.Errorf("%+v, %v", all, err)
	}
}

// A workload that cannot be compared is said at once: it is not run more often than it takes to see that.
func TestUnstableWorkload(t *testing.T) {
	odd := 3
	f := &fake{answer: func(_ *plan.Plan, n int, _ *record.Meta, _ *[]record.Finding, history *[]string) error {
		if n == odd {
			*history = (*history)[:1]
		}
		return nil
	}}
	c := config(t, f, "w")
	c.Learn = 5
	all, err := Learn(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var unstable *baseline.UnstableError
	if !errors.As(all[0].Err, &unstable) || !strings.Contains(c.Progress.(*heard).String(), "secret/default/a") {
		t.Errorf("%v; says %s", all[0].Err, c.Progress)
	}
	if len(f.all) != 3 {
		t.Errorf("%d runs", len(f.all))
	}
	if _, err := os.Stat(all[0].File); err == nil {
		t.Error("there is a baseline")
	}
	f.runs, odd = nil, 2 // a campaign begins with two runs
	if r := mustRun(t, c); len(r.Unlearned) != 1 || len(r.Empty) > 0 {
		t.Errorf("not learned %v; patterns without a plan %q", r.Unlearned, r.Empty)
	}
}

// A workload that ends differently although nothing was done, and although the controllers were at rest, shows a bug of
// theirs. There are no plans for it.
func TestUnsteadyWorkload(t *testing.T) {
	const owned = `op secret/default/a {"metadata": {"ownerReferences": [{"kind": "ConfigMap", "apiVersion": "v1", ` +
		`"name": "a", "uid": "u"}]}}`
	for _, tt := range []struct {
		name   string
		pace   plan.Pace
		rested bool
		odd    int // the run that ends differently
		ends   []string
		title  string // empty: there is no finding
		harm   record.Harm
	}{
		{
			"missing", "", true, 2, []string{"configmap/default/a"},
			"without any fault, in 1 of 3 runs: secret default/a of ConfigMap default/a is missing: never created; " +
				"in " +
				"other runs: exists at the end", record.HarmMissing,
		},
		{
			"left", "", true, 2, []string{"configmap/default/a", owned, "op pod/default/p"},
			"without any fault, in 1 of 3 runs: pod default/p should never have been created: exists at the end; in " +
				"other runs: never created", record.HarmLeft,
		},
		{"not at rest", "", false, 2, []string{"configmap/default/a"}, "", ""},
		{"not paced", plan.PaceNone, true, 2, []string{"configmap/default/a"}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &fake{answer: func(
				p *plan.Plan, n int, meta *record.Meta, _ *[]record.Finding, history *[]string,
			) error {
				meta.Rested = tt.rested
				if *history = []string{"configmap/default/a", owned}; n == tt.odd {
					*history = tt.ends
				}
				return nil
			}}
			c := config(t, f, "w")
			c.Suite.Pace = tt.pace
			r := mustRun(t, c)
			if len(r.Unlearned) != 1 {
				t.Fatalf("not learned: %v", r.Unlearned)
			}
			if tt.title == "" {
				if len(r.Outcomes) > 0 {
					t.Errorf("%+v", r.Outcomes)
				}
				return
			}
			if len(r.Outcomes) != 1 || r.Outcomes[0].Status != result.Bug || len(r.Outcomes[0].Findings) != 1 {
				t.Fatalf("%+v", r.Outcomes)
			}
			o := r.Outcomes[0]
			if f := o.Findings[0]; f.Title != tt.title || f.Harm != tt.harm || o.Came != 1 || o.Of != 3 {
				t.Errorf("%s (%s), %d of %d", f.Title, f.Harm, o.Came, o.Of)
			}
			for _, number := range []string{"1", "2", "3"} {
				if dir := filepath.Join(c.Dir, "runs", "w-without-faults",
					number); !strings.Contains(o.Findings[0].Detail, dir) {
					t.Errorf("nothing of %s in %s", dir, o.Findings[0].Detail)
				}
			}
			want := "trommel learn -c " + r.SuiteFile + " --workload w --baseline " + r.Baselines + " --anew"
			if got := r.Show(&o); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// If the first run waits for rest until its timeout, the others know what the controllers look at again and again.
func TestOnlyTheFirstRunHasMuchPatience(t *testing.T) {
	for _, rested := range []bool{true, false} {
		polls := []record.Poll{{Controller: "op", Queue: "q", Delay: 10}}
		f := &fake{answer: func(_ *plan.Plan, _ int, m *record.Meta, _ *[]record.Finding, _ *[]string) error {
			m.Rested, m.Polls = rested, polls
			return nil
		}}
		c := config(t, f, "w")
		c.Patterns = []string{"intermediate"}
		if _, err := Learn(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		for i, got := range f.polls {
			if want := i > 0 && !rested; want != (len(got) > 0) {
				t.Errorf("rested %t: run %d does not wait for %v", rested, i+1, got)
			}
		}
	}
}
