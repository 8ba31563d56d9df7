package manager

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"testing"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

func long() bool { return os.Getenv("TROMMEL_TEST_LONG") != "" }

// TestKilledAtEveryWrite lets the controllers die at each write and each provider call of a cycle (which is a write of
// the simulated provider), before it is sent and after it was answered; then others go on. Unless the long tests run,
// it does so with two nodes, at each seventh moment. A cycle of 20 nodes has 300 to 450 writes: they take half a day,
// so the long tests do each thirteenth (a prime, so that these are different writes of the nodes' cycles, which are
// alike). TROMMEL_TEST_STEP=1 does all of them.
func TestKilledAtEveryWrite(t *testing.T) {
	type cycle struct {
		size        int
		concurrency int64
		step        int
	}
	cycles := []cycle{{2, 1, 7}}
	if long() {
		cycles = nil
		for _, of := range []struct{ size, step int }{{2, 1}, {5, 1}, {20, 13}} {
			if step, err := strconv.Atoi(os.Getenv("TROMMEL_TEST_STEP")); err == nil {
				of.step = max(step, 1)
			}
			for _, concurrency := range []int64{1, 2, 0} {
				cycles = append(cycles, cycle{of.size, concurrency, of.step})
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
		for n := 1; n <= writes; n += c.step {
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
