package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/internal/wording"
)

// maxLost is how many workers a run may lose, or fail on, until it is given up.
const maxLost = 2

// Queue hands out runs to workers. Its methods may be called concurrently.
type Queue struct {
	lease time.Duration

	mu      sync.Mutex
	number  int               // of runs so far
	waiting []*item           // without a worker, the oldest first
	leases  map[string]*lease // of runs that have no result, also those that have ended
	workers map[string]*worker
	changed chan struct{} // closed when there may be something new to do
	over    bool
	timer   *time.Timer // of the first lease that ends
	counts  Counts
}

// Counts is what a queue has seen.
type Counts struct {
	Workers  int // that are there
	Waiting  int // runs without a worker
	Running  int
	Done     int // runs with a result, also those that were given up
	Lost     int // leases that ended because their worker was not heard of
	Returned int // runs that a worker gave back because it had to leave
	Late     int // results that came when there was one already
	GivenUp  int // runs that have lost too many workers
}

// worker is one that was heard of.
type worker struct {
	heard time.Time
	asks  int // requests for work that are open
	has   int // leases
}

// item is a run.
type item struct {
	number int
	job    Job
	lost   []string // why, by those that have not ended it
	avoid  string   // the worker that it was lost on
	now    *lease   // nil: no worker has it
	all    []string // IDs of its leases
	result chan Result
}

// lease is a run in the hands of a worker.
type lease struct {
	id     string
	of     *item
	worker string
	ends   time.Time
	ended  bool
}

// NewQueue returns a queue without workers. A worker that is not heard of for as long as a lease is gone.
func NewQueue(leaseFor time.Duration) *Queue {
	return &Queue{
		lease: leaseFor, leases: map[string]*lease{}, workers: map[string]*worker{}, changed: make(chan struct{}),
	}
}

// Errors of leases, and of a queue that is closed.
var (
	errNoLease = errors.New("the lease has ended, or there is a result already")
	errOver    = errors.New("the campaign is over")
)

// Do has a job run by a worker, and waits for its result. Older jobs go first. The error is that of ctx; no worker runs
// the job any longer then.
func (q *Queue) Do(ctx context.Context, job Job) (Result, error) {
	q.mu.Lock()
	q.number++
	it := &item{number: q.number, job: job, result: make(chan Result, 1)}
	q.waiting = append(q.waiting, it)
	q.wake()
	q.mu.Unlock()
	select {
	case r := <-it.result:
		return r, nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forget(it)
	return Result{}, context.Cause(ctx)
}

// wake lets those look again that wait. The caller holds the lock.
func (q *Queue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// forget takes a run out of the queue. The caller holds the lock.
func (q *Queue) forget(it *item) {
	q.waiting = slices.DeleteFunc(q.waiting, func(w *item) bool { return w == it })
	for _, id := range it.all {
		q.endLease(q.leases[id])
		delete(q.leases, id)
	}
	it.all = nil
}

// endLease notes that a worker has nothing to do with its run any more. The caller holds the lock.
func (q *Queue) endLease(l *lease) {
	if l == nil || l.ended {
		return
	}
	l.ended = true
	if w := q.workers[l.worker]; w != nil {
		w.has--
	}
	if l.of.now == l {
		l.of.now = nil
	}
}

// Take waits until there is a run for the worker, and hands it out. The error is errOver, or that of ctx.
func (q *Queue) Take(ctx context.Context, name string) (Job, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.hear(name)
	q.takeBackAll(name) // it has not heard of the run that it was given: it makes one at a time
	w.asks++
	defer func() {
		w.asks--
		w.heard = time.Now()
	}()
	for {
		if q.over {
			delete(q.workers, name) // it will not come again
			return Job{}, errOver
		}
		if err := ctx.Err(); err != nil {
			return Job{}, context.Cause(ctx)
		}
		if q.workers[name] != w {
			return Job{}, errOver // it has left meanwhile
		}
		if it := q.next(name); it != nil {
			return q.give(it, name), nil
		}
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		q.mu.Lock()
	}
}

// hear notes that a worker is there. The caller holds the lock.
func (q *Queue) hear(name string) *worker {
	w := q.workers[name]
	if w == nil {
		w = &worker{}
		q.workers[name] = w
		q.wake()
	}
	w.heard = time.Now()
	q.schedule()
	return w
}

// next takes the oldest run that the worker may have. A run that was lost goes to another worker, if there is one. The
// caller holds the lock.
func (q *Queue) next(name string) *item {
	i := slices.IndexFunc(q.waiting, func(it *item) bool { return it.avoid != name || len(q.workers) == 1 })
	if i < 0 {
		return nil
	}
	it := q.waiting[i]
	q.waiting = slices.Delete(q.waiting, i, i+1)
	return it
}

// give makes a lease. The caller holds the lock.
func (q *Queue) give(it *item, name string) Job {
	l := &lease{id: rand.Text(), of: it, worker: name, ends: time.Now().Add(q.lease)}
	it.now = l
	it.all = append(it.all, l.id)
	q.leases[l.id] = l
	q.hear(name).has++
	job := it.job
	job.Lease, job.Attempt = l.id, len(it.all)
	return job
}

// schedule arms the timer for the first lease or worker that ends. The caller holds the lock.
func (q *Queue) schedule() {
	if q.timer == nil && !q.over {
		q.timer = time.AfterFunc(q.lease/4, q.expire)
	}
}

// expire ends leases and forgets workers that have not been heard of.
func (q *Queue) expire() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timer = nil
	now := time.Now()
	ended := slices.SortedFunc(maps.Values(q.leases), func(a, b *lease) int {
		return cmp.Compare(a.of.number, b.of.number)
	})
	for _, l := range ended {
		if !l.ended && now.After(l.ends) {
			q.counts.Lost++
			q.lose(l, fmt.Sprintf("worker %s was not heard of any more", l.worker))
		}
	}
	for name, w := range q.workers {
		if w.has == 0 && w.asks == 0 && now.Sub(w.heard) > q.lease {
			delete(q.workers, name)
			q.wake() // what avoids another worker may have only that one
		}
	}
	if len(q.workers) > 0 || len(q.leases) > 0 {
		q.schedule()
	}
}

// lose takes a run from a worker and puts it back, or gives it up. The caller holds the lock.
func (q *Queue) lose(l *lease, why string) {
	q.endLease(l)
	it := l.of
	it.lost, it.avoid = append(it.lost, why), l.worker
	if len(it.lost) >= maxLost {
		q.counts.GivenUp++
		q.end(it, Result{Error: fmt.Sprintf("it was given up after %d attempts: %s; %s", len(it.lost), it.lost[0],
			it.lost[len(it.lost)-1])})
		return
	}
	q.putBack(it)
}

// putBack lets another worker have a run, before younger ones. The caller holds the lock.
func (q *Queue) putBack(it *item) {
	i, _ := slices.BinarySearchFunc(q.waiting, it, func(a, b *item) int { return cmp.Compare(a.number, b.number) })
	q.waiting = slices.Insert(q.waiting, i, it)
	q.wake()
}

// end gives a run its result. The caller holds the lock.
func (q *Queue) end(it *item, r Result) {
	q.counts.Done++
	it.result <- r
	q.forget(it)
}

// Beat says that a worker is still at a run. The error is errNoLease if it is not its any more.
func (q *Queue) Beat(id string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.leases[id]
	if l == nil || l.ended {
		return errNoLease
	}
	l.ends = time.Now().Add(q.lease)
	q.hear(l.worker)
	return nil
}

// knows reports whether the result of a lease would count.
func (q *Queue) knows(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.leases[id] != nil
}

// Finish takes a worker's result. It counts if there is none yet, even if the lease has ended: then no other worker
// needs to run it any more. A run that failed for a reason that may be the worker's own is tried on another one. The
// error is errNoLease if the result does not count.
func (q *Queue) Finish(id string, r Result) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.leases[id]
	if l == nil {
		q.counts.Late++
		return errNoLease
	}
	q.hear(l.worker)
	if r.Error != "" && !r.User {
		if l.ended {
			return errNoLease // another one is at it
		}
		q.lose(l, r.Error)
		return nil
	}
	q.end(l.of, r)
	return nil
}

// Return gives a run back that its worker cannot end, through no fault of the run's. It does nothing if the lease has
// ended.
func (q *Queue) Return(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.leases[id]; l != nil && !l.ended {
		q.takeBack(l)
	}
}

// takeBack ends a lease through no fault of the run's. The caller holds the lock.
func (q *Queue) takeBack(l *lease) {
	q.counts.Returned++
	q.endLease(l)
	q.putBack(l.of)
}

// takeBackAll is takeBack for all that a worker has. The caller holds the lock.
func (q *Queue) takeBackAll(name string) {
	if w := q.workers[name]; w == nil || w.has == 0 {
		return
	}
	for _, l := range q.leases {
		if l.worker == name && !l.ended {
			q.takeBack(l)
		}
	}
}

// Leave forgets a worker. It gives back what the worker has: a run of which it may not have heard, since it has stopped
// in the moment in which it asked for one.
func (q *Queue) Leave(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.takeBackAll(name)
	if q.workers[name] != nil {
		delete(q.workers, name)
		q.wake()
	}
}

// AwaitWorkers waits until at least n workers are there. The error is that of ctx.
func (q *Queue) AwaitWorkers(ctx context.Context, n int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.workers) < n {
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		q.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// Counts returns what the queue has seen.
func (q *Queue) Counts() Counts {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.counts
	c.Workers, c.Waiting = len(q.workers), len(q.waiting)
	for _, l := range q.leases {
		if !l.ended {
			c.Running++
		}
	}
	return c
}

// Close lets workers know that there is nothing to do any more.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = true
	if q.timer != nil {
		q.timer.Stop()
	}
	q.wake()
}

// awaitGone waits until no worker asks for work or has a run. The error is that of ctx.
func (q *Queue) awaitGone(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		q.mu.Lock()
		here := 0
		for _, w := range q.workers {
			if time.Since(w.heard) <= q.lease {
				here++
			}
		}
		q.mu.Unlock()
		if here == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// String says in a line what became of the runs.
func (c Counts) String() string {
	text := wording.Count(c.Done, "run") + " made by workers"
	for _, n := range []struct {
		n    int
		text string
	}{
		{c.Lost, "lost with their worker"}, {c.Returned, "given back"}, {c.Late, "too late"}, {c.GivenUp, "given up"},
	} {
		if n.n > 0 {
			text += fmt.Sprintf(", %d %s", n.n, n.text)
		}
	}
	return text
}
