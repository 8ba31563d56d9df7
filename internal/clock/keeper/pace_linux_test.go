//go:build amd64 || arm64

package keeper

import (
	"os"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/testing/cputime"
)

func TestPace(t *testing.T) {
	const ms, whole = int64(time.Millisecond), int64(clock.Whole)
	p := newPace()
	for i, tt := range []struct {
		computed, waited int64 // in milliseconds
		want             int64 // the speed
		others           float64
	}{
		{20, 0, whole, 1},
		{1, 0, whole, 1},
		{0, 0, whole, 1},
		{100, 300, whole, 0},      // its threads wait for one another
		{100, 100, whole / 16, 2}, // it makes up for the time that it did not know about
		{100, 100, whole * 7 / 16, 2},
		{100, 300, whole / 2, 1},
		{10, 50, whole / 2, 2}, // more threads wait at once, but not longer
		{0, 10, whole * 9 / 10, 2},
		{30, 0, whole, 2},
		{1, 1000, whole / 16, 2},
	} {
		p.others = tt.others
		p.slow = p.next(used{tt.computed * ms, tt.waited * ms}, 100*time.Millisecond)
		if got := whole - p.slow; got < tt.want-1 || tt.want+1 < got {
			t.Errorf("%d: speed %d, want %d", i, got, tt.want)
		}
	}
	p.forget()
	if p.slow != 0 || p.debt != 0 {
		t.Error("not forgotten")
	}
}

// TestLook looks at a process that computes.
func TestLook(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("this kernel does not tell what threads wait for processors")
	}
	pid := cputime.Burn(t)
	p := newPace()
	began := time.Now()
	if u := p.look([]int{pid, 1 << 22}); u != (used{}) {
		t.Errorf("the first look: %+v", u)
	}
	// It computes or waits all the time, but the kernel counts a wait only when it is over.
	var u used
	for u.computed+u.waited < int64(time.Since(began))/2 {
		if time.Since(began) > time.Minute {
			t.Fatalf("in a minute: %+v", u)
		}
		time.Sleep(50 * time.Millisecond)
		more := p.look([]int{pid})
		u.computed, u.waited = u.computed+more.computed, u.waited+more.waited
	}
	if took := time.Since(began); u.computed > int64(took) {
		t.Errorf("in %s: %+v", took, u)
	}
	if p.look(nil); len(p.processes) != 0 || p.budget != newPace().budget {
		t.Errorf("%v, %d", p.processes, p.budget)
	}
	p.budget = 1
	if u := p.look([]int{pid}); u != (used{}) || p.budget != 0 {
		t.Errorf("without files: %+v, %d", u, p.budget)
	}
	p.close()
}

func TestParseMachineTime(t *testing.T) {
	for text, want := range map[string]int64{
		"cpu  10 2 30 400 5\ncpu0 1 2 3 4": 420e6, "": 0, "cpu 1 2": 0, "cpu 1 x 2 3": 0, "cpu0 1 2 3 4": 0,
	} {
		if got, ok := parseMachineTime(text); got != want || ok != (want != 0) {
			t.Errorf("%q: %d, %t", text, got, ok)
		}
	}
	if ns, ok := machineTime(); !ok || ns < int64(processTime()) {
		t.Errorf("%d, %t", ns, ok)
	}
}

func TestParseUsed(t *testing.T) {
	for text, want := range map[string]used{"12 345 6\n": {12, 345}, "": {}, "1": {}, "1 2": {}, "x 2 3": {}} {
		if got, ok := parseUsed(text); got != want || ok != (want != used{}) {
			t.Errorf("%q: %+v, %t", text, got, ok)
		}
	}
}
