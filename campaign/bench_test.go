package campaign_test

import (
	"context"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/campaign"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/run"
)

// BenchmarkCampaign runs a campaign with one workload of the database operator, with everything built and learned, on
// as many clusters as there are cores, but at most two. It reports how many plans it does in an hour. The operator's
// bugs are fixed, so that no plan is run again to confirm a finding.
func BenchmarkCampaign(b *testing.B) {
	if testing.Short() {
		b.Skip("starts control planes")
	}
	ctx := context.Background()
	suite, err := plan.LoadSuite(filepath.Join("..", "examples", "database-operator", plan.SuiteFile))
	if err == nil {
		suite, err = run.Choose(suite, "fixed")
	}
	if err != nil {
		b.Fatal(err)
	}
	config := campaign.Config{
		Settings: campaign.Settings{SuiteFile: suite.File, Workloads: []string{"create"}, References: b.TempDir()},
		Suite:    suite, Dir: b.TempDir(),
	}
	var options run.Options
	for range min(2, runtime.GOMAXPROCS(0)) {
		session, err := run.Open(ctx, suite, options)
		if err != nil {
			b.Fatal(err)
		}
		defer func() {
			if err := session.Close(ctx); err != nil {
				b.Error(err)
			}
		}()
		options.Binaries, options.ControlPlane = session.Built()
		config.Runners = append(config.Runners, session)
	}
	config.Binaries, config.ControlPlane = options.Binaries, options.ControlPlane
	if all, err := campaign.Learn(ctx, config); err != nil || all[0].Err != nil {
		b.Fatal(err, all)
	}
	plans := 0
	var took time.Duration
	for b.Loop() {
		config.Dir = b.TempDir()
		began := time.Now()
		result, err := campaign.Run(ctx, config)
		if err != nil || len(result.With(campaign.Failed)) > 0 {
			b.Fatal(err, result.With(campaign.Failed))
		}
		took += time.Since(began)
		plans += len(result.Outcomes)
	}
	b.ReportMetric(float64(plans)/took.Hours(), "plans/h")
}
