package run_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// example is an example's suite with its plans.
type example struct {
	name  string
	suite *plan.Suite
	plans []*plan.Plan
}

func loadExample(tb testing.TB, name string, plans ...string) example {
	tb.Helper()
	dir := filepath.Join("..", "..", "examples", name)
	suite, err := plan.LoadSuite(filepath.Join(dir, plan.SuiteFile))
	if err != nil {
		tb.Fatal(err)
	}
	e := example{name: name, suite: suite}
	for _, p := range plans {
		loaded, err := plan.LoadWith(filepath.Join(dir, "plans", p+".yaml"), suite)
		if err != nil {
			tb.Fatal(err)
		}
		e.plans = append(e.plans, loaded)
	}
	return e
}

// examples returns the plans of the examples that have the same outcome each time.
func examples(tb testing.TB) []example {
	return []example{
		loadExample(tb, "database-operator", "interrupted-create", "interrupted-resize", "missed-scale",
			"stale-deletion"),
		loadExample(tb, "statefulset-controller", "kill-between-creations", "missed-deletion", "missed-scale",
			"stale-restart"),
	}
}

func open(tb testing.TB, e example, options run.Options) *run.Session {
	tb.Helper()
	s, err := run.Open(tb.Context(), e.suite, options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// outcome is the part of a result that must be the same each time a plan runs.
type outcome struct {
	Verdict  record.Verdict
	Actions  []string
	Findings []string
}

func runOnce(tb testing.TB, s *run.Session, p *plan.Plan) (*record.Meta, outcome) {
	tb.Helper()
	meta, o, _ := runRecorded(tb, s, p)
	return meta, o
}

func runRecorded(tb testing.TB, s *run.Session, p *plan.Plan) (*record.Meta, outcome, *record.Run) {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), strconv.Itoa(rand.Int()))
	meta, err := s.Run(tb.Context(), p, dir)
	if err != nil {
		tb.Fatalf("%s: %v", p.TestName, err)
	}
	r, err := record.Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	checkEvidence(tb, r)
	o := outcome{Verdict: meta.Verdict}
	for _, a := range r.Actions {
		o.Actions = append(o.Actions, a.String())
	}
	for _, f := range r.Findings {
		if f.Severity == record.SeverityNote {
			continue // it may depend on timing
		}
		title, _, _ := strings.Cut(f.Title, ":")
		if !slices.Contains(o.Findings, title) { // the rest, how often an invariant was violated, depends on timing
			o.Findings = append(o.Findings, title)
		}
	}
	return meta, o, r
}

// checkEvidence checks that a run of an example has recorded what judges of the history need: what the controllers have
// written, and from when to when nothing disturbed them.
func checkEvidence(tb testing.TB, r *record.Run) {
	tb.Helper()
	hooked := slices.ContainsFunc(r.Meta.Controllers, func(c record.Controller) bool { return c.Hooks })
	if hooked && !slices.ContainsFunc(r.Events, func(e record.Event) bool {
		o := e.Observation
		return o != nil && o.Point == wire.ControllerWrite && o.Phase == wire.After && !o.Election
	}) {
		tb.Errorf("%s: no write of a controller is recorded", r.Meta.Plan)
	}
	changes, err := facts.Changes(r)
	if err != nil {
		tb.Fatal(err)
	}
	if hooked && !slices.ContainsFunc(changes, func(c facts.Change) bool { return c.By != "" }) {
		tb.Errorf("%s: no change is known to be a controller's", r.Meta.Plan)
	}
	failed := slices.ContainsFunc(r.Findings, func(f record.Finding) bool { return f.Judge == record.JudgeWorkload })
	calm := r.Meta.Calm
	if calm.IsZero() != failed || r.Meta.Observed.Before(calm) || calm.Before(r.Meta.WorkloadEnd) && !failed {
		tb.Errorf("%s: the workload ended at %s; calm from %s to %s", r.Meta.Plan, r.Meta.WorkloadEnd, calm,
			r.Meta.Observed)
	}
	for _, p := range r.Processes {
		info, err := os.Stat(filepath.Join(r.Dir, filepath.FromSlash(p.LogFile)))
		if err != nil || p.LogCalm > info.Size() {
			tb.Errorf("%s: %s has %d bytes at the calm: %v", r.Meta.Plan, p.LogFile, p.LogCalm, err)
		}
	}
}

// A plan has the same outcome on a new cluster and on one that other plans have used, in any order.
func TestResetClusterIsLikeAFreshOne(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	rounds, long := 1, os.Getenv("TROMMEL_TEST_LONG") != ""
	if long {
		rounds = 20
	}
	for _, e := range examples(t) {
		if !long { // a kill, and a pause of an API server
			e.plans = []*plan.Plan{e.plans[0], e.plans[len(e.plans)-1]}
		}
		t.Run(e.name, func(t *testing.T) {
			want := map[string]outcome{}
			fresh := open(t, e, run.Options{Fresh: true})
			for _, p := range e.plans {
				meta, o := runOnce(t, fresh, p)
				if meta.Cluster != record.ClusterFresh {
					t.Errorf("%s: on a cluster that is %s", p.TestName, meta.Cluster)
				}
				want[p.TestName] = o
			}
			s := open(t, e, run.Options{})
			random := rand.New(rand.NewPCG(1, 2))
			first := record.ClusterFresh
			for range rounds {
				for _, i := range random.Perm(len(e.plans)) {
					p := e.plans[i]
					meta, got := runOnce(t, s, p)
					if meta.Cluster != first {
						t.Errorf("%s: on a cluster that is %s, want %s", p.TestName, meta.Cluster, first)
					}
					first = record.ClusterReset
					if diff := cmp.Diff(want[p.TestName], got); diff != "" {
						t.Errorf("%s on a %s cluster (-fresh):\n%s", p.TestName, meta.Cluster, diff)
					}
				}
			}
		})
	}
}

// The memory use of a cluster that is reset many times does not keep growing.
func TestMemoryOfASession(t *testing.T) {
	if os.Getenv("TROMMEL_TEST_LONG") == "" {
		t.Skip("takes a quarter of an hour; set TROMMEL_TEST_LONG")
	}
	e := loadExample(t, "database-operator", "interrupted-resize")
	s := open(t, e, run.Options{})
	const plans, warm = 200, 10
	base := 0
	for i := range plans {
		if meta, _ := runOnce(t, s, e.plans[0]); i > 0 && meta.Cluster != record.ClusterReset {
			t.Fatalf("plan %d: on a cluster that is %s", i, meta.Cluster)
		}
		if i != warm && (i+1)%25 != 0 {
			continue
		}
		total, each := clusterMemory(t)
		t.Logf("after %d plans: %d MB (%s)", i+1, total>>20, each)
		if i == warm {
			base = total
		}
		if i == plans-1 && total > base+base/5 {
			t.Errorf("%d MB after %d plans, %d MB after %d", total>>20, i+1, base>>20, warm+1)
		}
	}
}

// clusterMemory returns the resident memory of this process's children, in bytes.
func clusterMemory(t *testing.T) (total int, each string) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Skip("no /proc")
	}
	for _, file := range stats {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		name, rest, _ := strings.Cut(string(data), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 22 || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		pages, _ := strconv.Atoi(fields[21])
		total += pages * os.Getpagesize()
		_, name, _ = strings.Cut(name, "(")
		each += fmt.Sprintf(" %s %d", name, pages*os.Getpagesize()>>20)
	}
	return total, strings.TrimSpace(each)
}

// BenchmarkPlansAnHour runs the examples' plans one after the other, all of a suite in one session, and for comparison
// each on its own cluster. The time includes the start of the clusters, but not builds.
func BenchmarkPlansAnHour(b *testing.B) {
	if testing.Short() {
		b.Skip("starts control planes")
	}
	for _, mode := range []struct {
		name  string
		fresh bool
	}{{"session", false}, {"fresh", true}} {
		b.Run(mode.name, func(b *testing.B) {
			plans := 0
			var spent, cluster time.Duration
			for b.Loop() {
				for _, e := range examples(b) {
					s, err := run.Open(b.Context(), e.suite, run.Options{Fresh: mode.fresh})
					if err != nil {
						b.Fatal(err)
					}
					began := time.Now()
					for _, p := range e.plans {
						meta, _ := runOnce(b, s, p)
						plans++
						cluster += meta.Phases[0].Duration
					}
					if err := s.Close(b.Context()); err != nil {
						b.Fatal(err)
					}
					spent += time.Since(began)
				}
			}
			b.ReportMetric(float64(plans)/spent.Hours(), "plans/h")
			b.ReportMetric(float64(cluster.Milliseconds())/float64(plans), "ms-cluster/plan")
		})
	}
}
