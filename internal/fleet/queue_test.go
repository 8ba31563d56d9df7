package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const testLease = 12 * time.Second

// doing has a job done in the background. The channel receives its result.
func doing(ctx context.Context, q *Queue, name string) <-chan Result {
	done := make(chan Result, 1)
	go func() {
		r, err := q.Do(ctx, Job{Name: name})
		if err != nil {
			r = Result{Error: "do: " + err.Error()}
		}
		done <- r
	}()
	synctest.Wait()
	return done
}

func mustTake(t *testing.T, q *Queue, worker, want string) Job {
	t.Helper()
	job, err := q.Take(t.Context(), worker)
	if err != nil || job.Name != want {
		t.Fatalf("%s takes %q, %v; want %q", worker, job.Name, err, want)
	}
	return job
}

func mustGet(t *testing.T, done <-chan Result, want string) {
	t.Helper()
	synctest.Wait()
	select {
	case r := <-done:
		if r.Record+r.Error != want {
			t.Errorf("the result is %+v, want %q", r, want)
		}
	default:
		t.Errorf("there is no result, want %q", want)
	}
}

func none(t *testing.T, done <-chan Result) {
	t.Helper()
	synctest.Wait()
	select {
	case r := <-done:
		t.Errorf("there is a result: %+v", r)
	default:
	}
}

func TestOlderRunsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(testLease)
		defer q.Close()
		a, b := doing(t.Context(), q, "a"), doing(t.Context(), q, "b")
		first := mustTake(t, q, "one", "a")
		second := mustTake(t, q, "two", "b")
		q.Return(first.Lease)
		c := doing(t.Context(), q, "c")
		again := mustTake(t, q, "three", "a") // before c
		for _, end := range []struct {
			job Job
			as  string
		}{{second, "B"}, {again, "A"}, {mustTake(t, q, "four", "c"), "C"}} {
			if err := q.Finish(end.job.Lease, Result{Record: end.as}); err != nil {
				t.Error(err)
			}
		}
		mustGet(t, a, "A")
		mustGet(t, b, "B")
		mustGet(t, c, "C")
		if c := q.Counts(); c.Done != 3 || c.Returned != 1 || c.Lost+c.Late+c.GivenUp+c.Running+c.Waiting != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// A worker that is gone loses its run to another one. What it sends later is dropped.
func TestLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(testLease)
		defer q.Close()
		a := doing(t.Context(), q, "a")
		gone := mustTake(t, q, "one", "a")
		for range 10 { // it is at it for longer than a lease
			time.Sleep(testLease / 3)
			if err := q.Beat(gone.Lease); err != nil {
				t.Fatal(err)
			}
		}
		took := make(chan Job)
		go func() { took <- mustTake(t, q, "two", "a") }()
		began := time.Now()
		job := <-took
		if waited := time.Since(began); waited < testLease || waited > 2*testLease {
			t.Errorf("the run was handed on after %s", waited)
		}
		if job.Attempt != 2 {
			t.Errorf("attempt %d", job.Attempt)
		}
		if err := q.Beat(gone.Lease); !errors.Is(err, errNoLease) {
			t.Errorf("who has lost a run is told %v", err)
		}
		none(t, a)
		if err := q.Finish(job.Lease, Result{Record: "second"}); err != nil {
			t.Error(err)
		}
		mustGet(t, a, "second")
		if err := q.Finish(gone.Lease, Result{Record: "late"}); !errors.Is(err, errNoLease) {
			t.Errorf("a late result: %v", err)
		}
		if c := q.Counts(); c.Lost != 1 || c.Late != 1 || c.Done != 1 {
			t.Errorf("%+v", c)
		}
	})
}

// The first result counts, even if it comes from the worker that was given up.
func TestLateResultCountsIfThereIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(testLease)
		defer q.Close()
		a := doing(t.Context(), q, "a")
		slow := mustTake(t, q, "one", "a")
		time.Sleep(2 * testLease)
		second := mustTake(t, q, "two", "a")
		if err := q.Finish(slow.Lease, Result{Record: "slow"}); err != nil {
			t.Error(err)
		}
		mustGet(t, a, "slow")
		if err := q.Beat(second.Lease); !errors.Is(err, errNoLease) {
			t.Errorf("who makes a run that is done is told %v", err)
		}
		if err := q.Finish(second.Lease, Result{Record: "second"}); !errors.Is(err, errNoLease) {
			t.Errorf("a second result: %v", err)
		}
	})
}

// A run that takes its workers with it is given up, and others go on.
func TestRunThatKillsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(testLease)
		defer q.Close()
		bad, good := doing(t.Context(), q, "bad"), doing(t.Context(), q, "good")
		mustTake(t, q, "one", "bad")
		time.Sleep(2 * testLease)
		mustTake(t, q, "two", "bad")
		time.Sleep(2 * testLease)
		mustGet(t, bad, "it was given up after 2 attempts: worker one was not heard of any more; "+
			"worker two was not heard of any more")
		if err := q.Finish(mustTake(t, q, "three", "good").Lease, Result{Record: "fine"}); err != nil {
			t.Error(err)
		}
		mustGet(t, good, "fine")
		if c := q.Counts(); c.GivenUp != 1 || c.Lost != 2 || c.Done != 2 {
			t.Errorf("%+v", c)
		}
	})
}

// A run that fails goes to another worker once; a mistake of the user's is the same everywhere.
func TestRunThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(testLease)
		defer q.Close()
		a := doing(t.Context(), q, "a")
		other := make(chan Job)
		go func() { // it asks for work already
			job, _ := q.Take(t.Context(), "two")
			other <- job
		}()
		job := <-other
		b := doing(t.Context(), q, "b")
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = q.Take(gone, "one") // it is there
		if err := q.Finish(job.Lease, Result{Error: "disk full"}); err != nil {
			t.Error(err)
		}
		none(t, a)
		go func() { // who has failed does not get it again while there is another worker
			job, _ := q.Take(t.Context(), "two")
			other <- job
		}()
		again := mustTake(t, q, "one", "a")
		if got := <-other; got.Name != "b" {
			t.Errorf("%q", got.Name)
		} else if err := q.Finish(got.Lease, Result{Error: "wrong", User: true}); err != nil {
			t.Error(err)
		}
		mustGet(t, b, "wrong")
		if err := q.Finish(again.Lease, Result{Record: "fine"}); err != nil {
			t.Error(err)
		}
		mustGet(t, a, "fine")
	})
}

// A single worker gets a run again that it has failed on.
func TestFailedRunWithOneWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(testLease)
		defer q.Close()
		a := doing(t.Context(), q, "a")
		for _, text := range []string{"disk full", "disk full again"} {
			if err := q.Finish(mustTake(t, q, "one", "a").Lease, Result{Error: text}); err != nil {
				t.Error(err)
			}
		}
		mustGet(t, a, "it was given up after 2 attempts: disk full; disk full again")
	})
}

func TestCampaignThatIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(testLease)
		ctx, cancel := context.WithCancel(t.Context())
		a := doing(ctx, q, "a")
		job := mustTake(t, q, "one", "a")
		cancel()
		mustGet(t, a, "do: context canceled")
		if err := q.Beat(job.Lease); !errors.Is(err, errNoLease) {
			t.Errorf("who makes a run that nobody waits for is told %v", err)
		}
		asks := make(chan error)
		go func() {
			_, err := q.Take(t.Context(), "one")
			asks <- err
		}()
		synctest.Wait()
		q.Close()
		if err := <-asks; !errors.Is(err, errOver) {
			t.Errorf("who asks is told %v", err)
		}
		if q.Counts().Workers != 0 {
			t.Error("the worker is still there")
		}
	})
}

func TestAwaitWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(testLease)
		defer q.Close()
		ready := make(chan error, 1)
		go func() { ready <- q.AwaitWorkers(t.Context(), 2) }()
		ctx, cancel := context.WithCancel(t.Context())
		for _, name := range []string{"one", "one", "two"} {
			synctest.Wait()
			select {
			case err := <-ready:
				t.Fatalf("ready: %v", err)
			default:
			}
			go func() { _, _ = q.Take(ctx, name) }()
		}
		if err := <-ready; err != nil {
			t.Error(err)
		}
		cancel()
		time.Sleep(3 * testLease)
		if n := q.Counts().Workers; n != 0 {
			t.Errorf("%d workers are there that are gone", n)
		}
	})
}

// A worker that asks again has not heard of the run that it was given: that is not the run's fault.
func TestAnswerThatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(testLease)
		defer q.Close()
		a := doing(t.Context(), q, "a")
		for range 2 * maxLost {
			mustTake(t, q, "one", "a")
		}
		if err := q.Finish(mustTake(t, q, "one", "a").Lease, Result{Record: "fine"}); err != nil {
			t.Error(err)
		}
		mustGet(t, a, "fine")
		if c := q.Counts(); c.Lost > 0 || c.Returned != 2*maxLost {
			t.Errorf("%+v", c)
		}
	})
}

// Many workers, of which some disappear, some give back, and some are late: each run has one result.
func TestEachRunHasOneResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(testLease)
		const runs, workers = 300, 20
		var all, crew sync.WaitGroup
		var mu sync.Mutex
		counted := map[string]int{}
		for i := range workers {
			crew.Go(func() {
				generation := 0
				for n := i; ; n += 7 {
					job, err := q.Take(t.Context(), fmt.Sprintf("worker %d.%d", i, generation))
					if err != nil {
						return
					}
					time.Sleep(time.Duration(n%5) * time.Second)
					if job.Attempt == 1 { // later ones are well
						switch n % 11 {
						case 3:
							time.Sleep(3 * testLease) // late
						case 5:
							q.Return(job.Lease)
							continue
						case 8:
							generation++ // gone, and another one comes
							continue
						}
					}
					if q.Finish(job.Lease, Result{Record: job.Name}) == nil {
						mu.Lock()
						counted[job.Name]++
						mu.Unlock()
					}
				}
			})
		}
		for i := range runs {
			all.Go(func() {
				name := fmt.Sprint(i)
				if r, err := q.Do(t.Context(), Job{Name: name}); err != nil || r.Record != name {
					t.Errorf("%s: %+v, %v", name, r, err)
				}
			})
		}
		all.Wait()
		q.Close()
		crew.Wait()
		if len(counted) != runs {
			t.Errorf("%d runs have a result", len(counted))
		}
		for name, n := range counted {
			if n != 1 {
				t.Errorf("%s has %d results that count", name, n)
			}
		}
		c := q.Counts()
		if c.Done != runs || c.Lost == 0 || c.Returned == 0 || c.Late == 0 || c.GivenUp != 0 {
			t.Errorf("%+v", c)
		}
		if text := c.String(); !slices.Contains(strings.Split(text, ", "), "300 runs made by workers") {
			t.Error(text)
		}
	})
}

// A worker that stops in the moment in which it asks for a run does not know that it was given one.
func TestWorkerThatLeavesHasNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(testLease)
		done := doing(t.Context(), q, "run")
		mustTake(t, q, "a", "run")
		q.Leave("a")
		if c := q.Counts(); c.Workers != 0 || c.Returned != 1 || c.Lost != 0 {
			t.Errorf("%+v", c)
		}
		job := mustTake(t, q, "b", "run")
		if err := q.Finish(job.Lease, Result{Record: "b"}); err != nil {
			t.Error(err)
		}
		mustGet(t, done, "b")
		q.Close()
	})
}
