//go:build linux || darwin || freebsd
// +build linux darwin freebsd

package hook

import (
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// newTableForTest returns a table and the path of its file.
func newTableForTest(t testing.TB) (*queueTable, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "1")
	memory, err := mapQueueTable(path)
	if err != nil {
		t.Fatal(err)
	}
	return newQueueTable(memory), path
}

func readForTest(t *testing.T, path string) []wire.Queue {
	t.Helper()
	list, err := wire.ReadQueues(path)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestQueue walks an item through a queue.
func TestQueue(t *testing.T) {
	table, path := newTableForTest(t)
	q := table.add("")
	early, late := time.Unix(100, 1), time.Unix(200, 2)
	for _, step := range []struct {
		name string
		do   func()
		want wire.Queue
	}{
		{"nothing", func() {}, wire.Queue{}},
		{"added", func() { q.Ready("a") }, wire.Queue{Queued: 1}},
		{"taken", func() { q.Taken("a") }, wire.Queue{Working: 1, Gets: 1}},
		{"added again", func() { q.Ready("a") }, wire.Queue{Queued: 1, Working: 1, Gets: 1}},
		{"done", func() { q.Done("a") }, wire.Queue{Queued: 1, Gets: 1}},
		{"done twice", func() { q.Done("a") }, wire.Queue{Queued: 1, Gets: 1}},
		{"taken again", func() { q.Taken("a"); q.Done("a") }, wire.Queue{Gets: 2}},
		{"delayed", func() { q.Delay("a", late) },
			wire.Queue{Gets: 2, Delayed: 1, Delays: 1, Earliest: late, Latest: late}},
		{"another one", func() { q.Delay("b", early) },
			wire.Queue{Gets: 2, Delayed: 2, Delays: 2, Earliest: early, Latest: late}},
		{"moved", func() { q.Delay("a", early) },
			wire.Queue{Gets: 2, Delayed: 2, Delays: 3, Earliest: early, Latest: early}},
		{"merged", func() { q.Merged("a", late) },
			wire.Queue{Gets: 2, Delayed: 2, Delays: 3, Earliest: early, Latest: early}},
		{"due", func() { q.Ready("a"); q.Added("a") },
			wire.Queue{Queued: 1, Gets: 2, Delayed: 1, Delays: 3, Earliest: early, Latest: early}},
		{"on its way", func() { q.Pending(1) },
			wire.Queue{Queued: 2, Gets: 2, Delayed: 1, Delays: 3, Earliest: early, Latest: early}},
		{"shut down", func() { q.Taken("a"); q.ShutDown() }, wire.Queue{Working: 1, Gets: 3, Delays: 3}},
		{"added too late", func() { q.Ready("c"); q.Delay("c", late) }, wire.Queue{Working: 1, Gets: 3, Delays: 4}},
		{"last one done", func() { q.Done("a") }, wire.Queue{Gets: 3, Delays: 4}},
		{"after the end", func() { q.Ready("a") }, wire.Queue{Gets: 3, Delays: 4}},
	} {
		step.do()
		step.want.Name = "#1"
		got := readForTest(t, path)
		if len(got) == 1 && (got[0].Shortest > 0) == (got[0].Delayed > 0) {
			got[0].Shortest = 0 // see TestShortestDelay
		}
		if len(got) != 1 || got[0] != step.want {
			t.Fatalf("%s: %+v, want %+v", step.name, got, step.want)
		}
	}
	if next := table.add("next"); next.index != q.index {
		t.Errorf("the record %d is not used again", q.index)
	}
}

// TestQueuesAgainstModel compares the table with a simple model after each of many random changes.
func TestQueuesAgainstModel(t *testing.T) {
	table, path := newTableForTest(t)
	random := rand.New(rand.NewSource(1))
	q := table.add("model")
	queued, working, delays := map[int]bool{}, map[int]bool{}, map[int][]int64{}
	for i := 0; i < 20000; i++ {
		key, due := random.Intn(40), int64(1+random.Intn(1000))
		switch random.Intn(6) {
		case 0:
			q.Ready(key)
			queued[key] = true
		case 1:
			q.Taken(key)
			delete(queued, key)
			working[key] = true
		case 2:
			q.Done(key)
			delete(working, key)
		case 3:
			q.Delay(key, time.Unix(0, due))
			delays[key] = append(delays[key], due)
		case 4:
			q.Added(key)
			delays[key] = without(delays[key], earliest(delays[key]))
		case 5:
			if n := len(delays[key]); n > 1 {
				due := delays[key][random.Intn(n)]
				q.Merged(key, time.Unix(0, due))
				delays[key] = without(delays[key], due)
			}
		}
		want := wire.Queue{Queued: len(queued), Working: len(working)}
		for _, list := range delays {
			if len(list) == 0 {
				continue
			}
			want.Delayed++
			at := time.Unix(0, earliest(list))
			if want.Earliest.IsZero() || at.Before(want.Earliest) {
				want.Earliest = at
			}
			if at.After(want.Latest) {
				want.Latest = at
			}
		}
		got := readForTest(t, path)[0]
		want.Name, want.Gets, want.Delays, want.Shortest = got.Name, got.Gets, got.Delays, got.Shortest
		if got != want {
			t.Fatalf("change %d: %+v, want %+v", i, got, want)
		}
		if n := len(q.first.list) + len(q.last.list); n > 400 {
			t.Fatalf("%d entries for %d delayed items", n, want.Delayed)
		}
	}
}

// TestReadQueuesAtOneMoment hands an item from queue to queue. A reader never finds none.
func TestReadQueuesAtOneMoment(t *testing.T) {
	table, path := newTableForTest(t)
	const queues = 5
	var list [queues]*Queue
	for i := range list {
		list[i] = table.add(fmt.Sprint("q", i))
	}
	list[0].Ready(1)
	var stop int32
	var group sync.WaitGroup
	group.Add(1)
	go func() {
		defer group.Done()
		for i := 0; atomic.LoadInt32(&stop) == 0; i++ {
			from, to := list[i%queues], list[(i+1)%queues]
			from.Taken(1)
			to.Delay(1, time.Unix(1, 0))
			from.Done(1)
			to.Ready(1)
			to.Added(1)
		}
	}()
	for i := 0; i < 5000; {
		list, err := wire.ReadQueues(path)
		if errors.Is(err, wire.ErrQueuesNotReady) {
			continue // nobody hands items on as fast as this test
		}
		if err != nil {
			t.Fatal(err)
		}
		i++
		items := 0
		for _, q := range list {
			items += q.Queued + q.Working + q.Delayed
		}
		if items < 1 || items > 2 {
			t.Errorf("%d items at one moment", items)
			break
		}
	}
	atomic.StoreInt32(&stop, 1)
	group.Wait()
}

// TestManyQueues checks the record that is the sum of the queues for which there is none.
func TestManyQueues(t *testing.T) {
	table, path := newTableForTest(t)
	var list []*Queue
	for i := 0; i < wire.MaxQueues+5; i++ {
		q := table.add("")
		q.Ready(i)
		q.Delay(i, time.Unix(int64(1000+i), 0))
		list = append(list, q)
	}
	got := readForTest(t, path)
	if len(got) != wire.MaxQueues {
		t.Fatalf("%d queues", len(got))
	}
	want := wire.Queue{Name: wire.OtherQueues, Queued: 6, Delayed: 6, Delays: 6, Earliest: time.Unix(1119, 0),
		Latest: time.Unix(1124, 0)}
	want.Shortest = got[len(got)-1].Shortest
	if last := got[len(got)-1]; last != want {
		t.Errorf("%+v, want %+v", last, want)
	}
	for _, q := range list {
		q.ShutDown()
	}
	for _, q := range readForTest(t, path) {
		if !q.Empty() {
			t.Errorf("%+v is not empty", q)
		}
	}
}

// TestReadQueuesIncomplete reads files that are no tables, or not yet.
func TestReadQueuesIncomplete(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		name, text string
		notReady   bool
	}{
		{"empty", "", true},
		{"short", string(make([]byte, 100)), true},
		{"zero", string(make([]byte, wire.QueueTableBytes)), true},
		{"other", "something" + string(make([]byte, wire.QueueTableBytes)), false},
	} {
		path := filepath.Join(dir, tc.name)
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := wire.ReadQueues(path); err == nil || errors.Is(err, wire.ErrQueuesNotReady) != tc.notReady {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if _, err := wire.ReadQueues(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	table, path := newTableForTest(t)
	table.table.Begin() // as if the process ended here
	if _, err := wire.ReadQueues(path); !errors.Is(err, wire.ErrQueuesNotReady) {
		t.Errorf("while it is written: %v", err)
	}
}

// TestQueuesNotObserved checks that without the variable there is no queue, and that it takes all calls.
func TestQueuesNotObserved(t *testing.T) {
	if q := NewQueue("x"); q != nil || QueuesObserved() {
		t.Fatalf("%v is counted", q)
	}
	var q *Queue
	q.Ready(1)
	q.Delay(1, time.Now())
	q.ShutDown()
}

// BenchmarkQueue measures what one item costs a queue in addition, from Add to Done.
func BenchmarkQueue(b *testing.B) {
	for _, observed := range []bool{false, true} {
		b.Run(fmt.Sprintf("observed=%t", observed), func(b *testing.B) {
			if observed {
				table, _ := newTableForTest(b)
				atomic.StorePointer(&queues, unsafe.Pointer(table))
				defer atomic.StorePointer(&queues, nil)
			}
			q := NewQueue("x")
			var key interface{} = "default/name"
			b.ReportAllocs()
			b.ResetTimer()
			for i := 0; i < b.N; i++ {
				q.Ready(key)
				q.Taken(key)
				q.Done(key)
			}
		})
	}
}

// An item counts with the shortest of its delays, as long as it is delayed.
func TestShortestDelay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1")
	m, err := mapQueueTable(path)
	if err != nil {
		t.Fatal(err)
	}
	q := newQueueTable(m).add("q")
	in := func(d time.Duration) time.Time { return time.Now().Add(d) }
	for _, step := range []struct {
		name string
		do   func()
		want time.Duration
	}{
		{"one", func() { q.Delay("a", in(time.Hour)) }, time.Hour},
		{"a shorter one", func() { q.Delay("b", in(time.Minute)) }, time.Minute},
		{"a longer one", func() { q.Delay("c", in(2*time.Hour)) }, time.Minute},
		{"added", func() { q.Added("b") }, time.Hour},
		{"sooner", func() { q.Delay("a", in(time.Second)) }, time.Second},
		{"due", func() { q.Due("a") }, 2 * time.Hour},
		{"another time", func() { at := in(3 * time.Minute); q.Wait("c", &at) }, 3 * time.Minute},
		{"none", func() { q.Due("c") }, 0},
	} {
		step.do()
		got := readForTest(t, path)[0].Shortest
		if off := step.want - got; off < 0 || off > time.Second || (got == 0) != (step.want == 0) {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
}
