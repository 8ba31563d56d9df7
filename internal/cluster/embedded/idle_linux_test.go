package embedded_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	"github.com/trommel-dev/trommel/internal/testing/cputime"
)

// BenchmarkIdle measures what a second of its own time costs a cluster in which nothing happens but what timers do. An
// operation is such a second.
func BenchmarkIdle(b *testing.B) {
	if testing.Short() {
		b.Skip("starts a control plane")
	}
	if err := shared.Close(context.Background()); err != nil { // it would affect the measurement
		b.Fatal(err)
	}
	for _, servers := range []int{1, 3} {
		c := clustertest.Start(b, embedded.Config{APIServers: servers, OwnTime: true})
		if c.Clock() == nil {
			b.Skip("no clock of its own on this system")
		}
		// Without a coordinator, the hooks would look for one.
		address, token := c.Rendezvous()
		m, err := monitor.Listen(monitor.Config{Address: address, Token: token})
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = m.Close() }()
		for range servers {
			<-m.Events()
		}
		// What the start has begun comes to an end.
		if err := clock.Sleep(clock.With(b.Context(), c.Clock()), 5*time.Minute); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("%d-API-servers", servers), func(b *testing.B) { benchmarkIdle(b, c) })
		if err := c.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkIdle(b *testing.B, c *embedded.Cluster) {
	pids := embedded.PIDs(c)
	pids["trommel"] = os.Getpid()
	began, before, from := time.Now(), embedded.ClockState(c), c.Clock().Now()
	spent := cpuTimes(b, pids)
	b.ResetTimer()
	if err := clock.Sleep(clock.With(b.Context(), c.Clock()), time.Duration(b.N)*time.Second); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	after, seconds := embedded.ClockState(c), c.Clock().Since(from).Seconds()
	sum := 0.0
	for name, end := range cpuTimes(b, pids) {
		spent[name] = end - spent[name]
		sum += spent[name].Seconds()
	}
	for _, name := range slices.Sorted(maps.Keys(pids)) {
		if b.N == 1 {
			break // a trial
		}
		pid := pids[name]
		if name == "trommel" {
			pid = 0
		}
		b.Logf("%-24s %6.3f CPU-ms/s, steps for it %5.2f/s, woke %5.2f/s", name, 1000*spent[name].Seconds()/seconds,
			float64(after.Causes[pid]-before.Causes[pid])/seconds, float64(after.Wakes[pid]-before.Wakes[pid])/seconds)
	}
	b.ReportMetric(1000*sum/seconds, "CPU-ms/own-s")
	b.ReportMetric(float64(after.Steps-before.Steps)/seconds, "steps/own-s")
	b.ReportMetric(seconds/time.Since(began).Seconds(), "own-s/s")
}

// cpuTimes are the processor times of processes.
func cpuTimes(b *testing.B, pids map[string]int) map[string]time.Duration {
	b.Helper()
	all := map[string]time.Duration{}
	for name, pid := range pids {
		spent, err := cputime.Of(pid)
		if err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		all[name] = spent
	}
	return all
}
