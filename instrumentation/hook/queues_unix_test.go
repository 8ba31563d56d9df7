//go:build linux || darwin || freebsd
// +build linux darwin freebsd

package hook

import (
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
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
		if len(got) == 1 && (len(got[0].Classes) > 0) == (got[0].Delayed > 0) {
			got[0].Classes = nil // see TestDelayClasses
		}
		if !reflect.DeepEqual(got, []wire.Queue{step.want}) {
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
	began := time.Now()
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
			due += began.UnixNano() + int64(time.Hour)<<uint(random.Intn(3)) // of several lengths
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
		var latest time.Time
		for _, c := range got.Classes {
			if c.Shortest <= 0 || c.Longest < c.Shortest || c.Longest > time.Since(began)+5*time.Hour {
				t.Fatalf("change %d: %+v", i, c)
			}
			if c.Latest.After(latest) {
				latest = c.Latest
			}
		}
		if !latest.Equal(want.Latest) {
			t.Fatalf("change %d: the classes end at %s, want %s", i, latest, want.Latest)
		}
		want.Name, want.Gets, want.Delays, want.Classes = got.Name, got.Gets, got.Delays, got.Classes
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("change %d: %+v, want %+v", i, got, want)
		}
		items := 0
		for _, c := range q.classes {
			items += c.dues.Len()
		}
		if items != want.Delayed || q.dues.Len() != want.Delayed {
			t.Fatalf("change %d: %d and %d items instead of %d", i, q.dues.Len(), items, want.Delayed)
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
	last := got[len(got)-1]
	if len(last.Classes) != 1 || !last.Classes[0].Latest.Equal(want.Latest) {
		t.Errorf("%+v", last.Classes)
	}
	want.Classes = last.Classes
	if !reflect.DeepEqual(last, want) {
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

// BenchmarkQueue measures what one item costs a queue in addition, from Add to Done, and when it is delayed.
func BenchmarkQueue(b *testing.B) {
	for _, observed := range []bool{false, true} {
		for _, delayed := range []bool{false, true} {
			b.Run(fmt.Sprintf("observed=%t/delayed=%t", observed, delayed), func(b *testing.B) {
				if observed {
					table, _ := newTableForTest(b)
					atomic.StorePointer(&queues, unsafe.Pointer(table))
					defer atomic.StorePointer(&queues, nil)
				}
				q := NewQueue("x")
				var key interface{} = "default/name"
				due := time.Now().Add(time.Minute)
				for i := 0; i < 100; i++ {
					q.Delay(i, due.Add(time.Duration(i)*time.Second))
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := 0; i < b.N; i++ {
					if delayed {
						q.Delay(key, due)
						q.Due(key)
					} else {
						q.Ready(key)
					}
					q.Taken(key)
					q.Done(key)
				}
			})
		}
	}
}

// A table tells for each length of delay until when items are delayed. An item counts with the shortest of its delays,
// as long as it is delayed.
func TestDelayClasses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1")
	m, err := mapQueueTable(path)
	if err != nil {
		t.Fatal(err)
	}
	q := newQueueTable(m).add("q")
	in := func(d time.Duration) time.Time { return time.Now().Add(d) }
	type delays []time.Duration
	const (
		s  = time.Second
		m1 = 62 * time.Second
		h  = time.Hour
	)
	for _, step := range []struct {
		name     string
		do       func()
		shortest delays
		longest  delays
		latest   delays
	}{
		{"one", func() { q.Delay("a", in(h)) }, delays{h}, delays{h}, delays{h}},
		{"a shorter one", func() { q.Delay("b", in(m1)) }, delays{m1, h}, delays{m1, h}, delays{m1, h}},
		{"a longer one", func() { q.Delay("c", in(2*h)) }, delays{m1, h, 2 * h}, delays{m1, h, 2 * h},
			delays{m1, h, 2 * h}},
		{"about as long", func() { q.Delay("d", in(66*s)) }, delays{m1, h, 2 * h}, delays{66 * s, h, 2 * h},
			delays{66 * s, h, 2 * h}},
		{"added", func() { q.Added("d") }, delays{m1, h, 2 * h}, delays{66 * s, h, 2 * h}, delays{m1, h, 2 * h}},
		{"the other one, too", func() { q.Added("b") }, delays{h, 2 * h}, delays{h, 2 * h}, delays{h, 2 * h}},
		{"sooner", func() { q.Delay("a", in(s)) }, delays{s, 2 * h}, delays{s, 2 * h}, delays{s, 2 * h}},
		{"due", func() { q.Due("a") }, delays{2 * h}, delays{2 * h}, delays{2 * h}},
		{"another time", func() { at := in(3 * m1); q.Wait("c", &at) }, delays{3 * m1}, delays{3 * m1}, delays{3 * m1}},
		{"none", func() { q.Due("c") }, nil, nil, nil},
		{"many", func() {
			for i, length := 0, s; i < 12; i, length = i+1, 2*length {
				q.Delay(i, in(length))
			}
		}, delays{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s},
			delays{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 2048 * s},
			delays{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 2048 * s}},
		{"the first of many", func() { q.Due(0) },
			delays{2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 256 * s},
			delays{2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 2048 * s},
			delays{2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 2048 * s}},
		{"shut down", func() { q.ShutDown() }, nil, nil, nil},
	} {
		step.do()
		now := time.Now()
		var shortest, longest, latest delays
		for _, c := range readForTest(t, path)[0].Classes {
			shortest, longest = append(shortest, c.Shortest), append(longest, c.Longest)
			latest = append(latest, c.Latest.Sub(now))
		}
		same := func(got, want delays) bool {
			if len(got) != len(want) {
				return false
			}
			for i := range got {
				if off := want[i] - got[i]; off < 0 || off > time.Second/2 {
					return false
				}
			}
			return true
		}
		if !same(shortest, step.shortest) || !same(longest, step.longest) || !same(latest, step.latest) {
			t.Errorf("%s: %s to %s, due in %s, want %s to %s, due in %s", step.name, shortest, longest, latest,
				step.shortest, step.longest, step.latest)
		}
	}
}
