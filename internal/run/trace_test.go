package run_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// quiet returns a plan without actions.
func quiet(tb testing.TB, suite *plan.Suite, workload string) *plan.Plan {
	tb.Helper()
	p, err := plan.Parse(fmt.Appendf(nil, "testName: quiet-%s\nworkload: %s\nactions: []\n", workload, workload),
		suite.File)
	if err != nil {
		tb.Fatal(err)
	}
	if err := p.Validate(suite); err != nil {
		tb.Fatal(err)
	}
	return p
}

// BenchmarkTrace compares how long the examples' workloads take with everything traced and with nothing. The two
// alternate, each on its own cluster.
func BenchmarkTrace(b *testing.B) {
	if testing.Short() {
		b.Skip("starts control planes")
	}
	for _, e := range examples(b) {
		traced, plain := open(b, e, run.Options{Trace: true}), open(b, e, run.Options{})
		for workload := range e.suite.Workloads {
			p := quiet(b, e.suite, workload)
			b.Run(e.suite.Controllers[0].Name+"/"+workload, func(b *testing.B) {
				var with, without time.Duration
				events := 0
				for b.Loop() {
					for s, took := range map[*run.Session]*time.Duration{traced: &with, plain: &without} {
						meta, _, r := runRecorded(b, s, p)
						if meta.Verdict != record.Pass {
							b.Fatalf("%s: %s", meta.Verdict, meta.Reason)
						}
						*took += meta.WorkloadEnd.Sub(meta.WorkloadStart)
						if s == traced {
							events += len(r.Events)
						}
					}
				}
				b.ReportMetric(with.Seconds()/without.Seconds(), "traced/plain")
				b.ReportMetric(float64(events)/float64(b.N), "events")
				b.ReportMetric(without.Seconds()/float64(b.N), "s-plain")
			})
		}
	}
}
