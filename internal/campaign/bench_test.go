package campaign_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/testing/cputime"
	"github.com/trommel-dev/trommel/plan"
)

// databaseCampaign returns a campaign with one workload of the database operator, with everything built, on as
// many clusters as fit. The operator's bugs are fixed, so that no plan is run again to confirm a finding.
func databaseCampaign(b *testing.B) campaign.Config {
	b.Helper()
	if testing.Short() {
		b.Skip("starts control planes")
	}
	ctx := context.Background()
	suite, err := plan.LoadSuite(filepath.Join("..", "..", "examples", "database-operator", plan.SuiteFile))
	if err == nil {
		suite, err = run.Choose(suite, "fixed")
	}
	n := 0
	if err == nil {
		n, err = campaign.Parallel(0)
	}
	if err != nil {
		b.Fatal(err)
	}
	config := campaign.Config{
		Settings: result.Settings{SuiteFile: suite.File, Workloads: []string{"create"}, Baselines: b.TempDir()},
		Suite:    suite, Dir: b.TempDir(),
	}
	var options run.Options
	for range n {
		session, err := run.Open(ctx, suite, options)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := session.Close(ctx); err != nil {
				b.Error(err)
			}
		})
		if err := session.Start(ctx); err != nil {
			b.Fatal(err)
		}
		options.Binaries, options.ControlPlane = session.Built()
		config.Runners = append(config.Runners, session)
	}
	config.Binaries, config.ControlPlane = options.Binaries, options.ControlPlane
	return config
}

func mustLearn(b *testing.B, config campaign.Config) {
	b.Helper()
	if all, err := campaign.Learn(context.Background(), config); err != nil || all[0].Err != nil {
		b.Fatal(err, all)
	}
}

// BenchmarkCampaign runs a campaign with everything learned, on as many clusters as fit. It reports how many plans it
// does in an hour, and how much processor time a plan takes: in all, and by program. The processes that end meanwhile
// are the controllers'.
func BenchmarkCampaign(b *testing.B) {
	config := databaseCampaign(b)
	mustLearn(b, config)
	plans := 0
	var took time.Duration
	spent := map[string]time.Duration{}
	for b.Loop() {
		config.Dir = b.TempDir()
		began, before := time.Now(), processorTime(b)
		r, err := campaign.Run(context.Background(), config)
		if err != nil || len(r.With(result.Failed)) > 0 {
			b.Fatal(err, r.With(result.Failed))
		}
		if found := r.With(result.Bug); len(found) > 0 {
			b.Error(found)
		}
		took += time.Since(began)
		plans += len(r.Outcomes)
		for name, after := range processorTime(b) {
			spent[name] += after - before[name]
		}
	}
	b.ReportMetric(float64(plans)/took.Hours(), "plans/h")
	var sum time.Duration
	for name, d := range spent {
		sum += d
		b.ReportMetric(d.Seconds()*1000/float64(plans), "CPU-ms/plan-"+name)
	}
	b.ReportMetric(sum.Seconds()*1000/float64(plans), "CPU-ms/plan")
}

// processorTime is how much processor time this process and what it has started have used so far, by program; that of
// processes that have ended is "ended".
func processorTime(b *testing.B) map[string]time.Duration {
	b.Helper()
	var ended syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &ended); err != nil {
		b.Fatal(err)
	}
	all := map[string]time.Duration{"ended": time.Duration(ended.Utime.Nano() + ended.Stime.Nano())}
	pids, err := cputime.Descendants()
	if errors.Is(err, cputime.ErrUnknown) {
		return nil
	}
	if err != nil {
		b.Fatal(err)
	}
	pids[os.Getpid()] = "trommel"
	for pid, name := range pids {
		if spent, err := cputime.Of(pid); err == nil { // else it has just ended
			all[name] += spent
		}
	}
	return all
}

// BenchmarkLearn learns a workload on as many clusters as fit. It reports how many times longer that takes than a run
// of the workload: until plans can be made, and from all runs. The same is reported of processor time.
func BenchmarkLearn(b *testing.B) {
	config := databaseCampaign(b)
	config.Anew = true
	mustLearn(b, config) // the clusters get the suite's manifests
	p := &plan.Plan{TestName: "create", Workload: "create"}
	p.Complete(config.Suite)
	var one, first, all cost
	for b.Loop() {
		one.add(b, func() {
			if _, err := config.Runners[0].RunWith(context.Background(), p, filepath.Join(b.TempDir(), "run"),
				run.RunOptions{}); err != nil {
				b.Fatal(err)
			}
		})
		first.add(b, func() {
			if _, r, err := campaign.Generate(context.Background(), config); err != nil || len(r.Unlearned) > 0 {
				b.Fatal(err, r.Unlearned)
			}
		})
		all.add(b, func() { mustLearn(b, config) })
	}
	b.ReportMetric(first.took.Seconds()/one.took.Seconds(), "runs")
	b.ReportMetric(first.spent.Seconds()/one.spent.Seconds(), "CPU-runs")
	b.ReportMetric(all.took.Seconds()/one.took.Seconds(), "whole-runs")
	b.ReportMetric(all.spent.Seconds()/one.spent.Seconds(), "CPU-whole-runs")
}

// cost is how long something took, and how much processor time.
type cost struct{ took, spent time.Duration }

func (c *cost) add(b *testing.B, what func()) {
	b.Helper()
	began, before := time.Now(), sum(processorTime(b))
	what()
	c.took += time.Since(began)
	c.spent += sum(processorTime(b)) - before
}

func sum(all map[string]time.Duration) (d time.Duration) {
	for _, one := range all {
		d += one
	}
	return d
}
