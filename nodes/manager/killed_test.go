package manager

import (
	"fmt"
	"net/http"
	"os"
	"testing"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

func long() bool { return os.Getenv("TROMMEL_TEST_LONG") != "" }

// TestKilledAtEveryWrite lets the controllers die at each write and each provider call of a cycle (which is a write of the
// simulated provider), before it is sent and after it was answered; then others go on. Unless the long tests run, it does
// so with two nodes, at each seventh moment.
func TestKilledAtEveryWrite(t *testing.T) {
	cycles := []struct {
		size        int
		concurrency int64
	}{{2, 1}}
	step := 7
	if long() {
		step = 1
		cycles = nil
		for _, size := range []int{2, 5, 20} {
			for _, concurrency := range []int64{1, 2, 0} {
				cycles = append(cycles, struct {
					size        int
					concurrency int64
				}{size, concurrency})
			}
		}
	}
	for _, c := range cycles {
		spec := func(s *nodes.CycleNodeRequestSpec) {
			s.CycleSettings.Concurrency, s.CycleSettings.LabelsToRemove = c.concurrency, []string{"app"}
		}
		f := newFixture(t, c.size, nil)
		f.drainable()
		p := f.start(limits(), false, nil)
		f.ends(f.request("whole", spec), nodes.RequestSuccessful)
		p.stop()
		writes := p.count()
		if writes < 12*c.size { // all at once share some
			t.Errorf("a cycle of %d nodes has only %d writes", c.size, writes)
		}
		var moments []subtest
		for n := 1; n <= writes; n += step {
			for _, after := range []bool{false, true} {
				moments = append(moments, subtest{fmt.Sprintf("%d after %t", n, after), func(t *testing.T) {
					f := newFixture(t, c.size, nil)
					f.drainable()
					p := f.start(limits(), after, func(write int, _ *http.Request, _ []byte) bool { return write == n })
					q := f.request("killed", spec)
					f.diesOrEnds(p, q)
					p.stop()
					p = f.start(limits(), false, nil)
					f.ends(q, nodes.RequestSuccessful)
					p.stop()
				}})
			}
		}
		t.Run(fmt.Sprintf("%d nodes, %d at a time, %d writes", c.size, c.concurrency, writes), func(t *testing.T) {
			atOnce(t, moments)
		})
	}
}
