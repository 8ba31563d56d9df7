package hook

import (
	"container/heap"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// queues is the process's *queueTable, nil if nobody asked for one.
var queues unsafe.Pointer

// QueuesObserved reports whether somebody wants to know what the process's work queues contain.
func QueuesObserved() bool { return atomic.LoadPointer(&queues) != nil }

// queueTable writes the table of the process's queues, see wire.QueueTable.
type queueTable struct {
	mu      sync.Mutex
	table   *wire.QueueTable
	created int      // queues so far
	used    []*Queue // by record, without the last one
	others  map[*Queue]bool
}

func newQueueTable(table *wire.QueueTable) *queueTable {
	t := &queueTable{table: table, used: make([]*Queue, wire.MaxQueues-1), others: map[*Queue]bool{}}
	atomic.StoreUint64(&table.Magic, wire.QueueTableMagic)
	return t
}

// Queue is what the table says about one work queue. Its methods may be called for nil, which does nothing, and by any
// goroutine. They take keys, and ignore what they know already, because queues do not always tell exactly once.
type Queue struct {
	table   *queueTable
	index   int // of the record
	record  wire.QueueRecord
	queued  map[interface{}]struct{}
	working map[interface{}]struct{}
	pending int                     // items on their way into the queue
	delayed map[interface{}][]int64 // when each is due; one that was delayed again is known several times
	first   dues
	last    dues
	lengths map[interface{}][]int64 // of the delayed: the shortest of each item's delays
	short   dues                    // by these
	closed  bool
	gone    bool // closed, and nobody works on its items
}

// NewQueue adds a queue to the table. It returns nil if nobody wants to know. A queue without a name is called by its
// number.
func NewQueue(name string) *Queue {
	t := (*queueTable)(atomic.LoadPointer(&queues))
	if t == nil {
		return nil
	}
	return t.add(name)
}

func (t *queueTable) add(name string) *Queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.created++
	if name == "" {
		name = fmt.Sprintf("#%d", t.created)
	}
	q := &Queue{
		table: t, index: len(t.used), queued: map[interface{}]struct{}{}, working: map[interface{}]struct{}{},
		delayed: map[interface{}][]int64{}, last: dues{latest: true}, lengths: map[interface{}][]int64{},
	}
	for i, other := range t.used {
		if other == nil {
			q.index, t.used[i] = i, q
			break
		}
	}
	if q.index == len(t.used) {
		name = wire.OtherQueues
		t.others[q] = true
	}
	r := &t.table.Queues[q.index]
	t.table.Begin()
	copy(r.Name[:], make([]byte, len(r.Name)))
	copy(r.Name[:len(r.Name)-1], name)
	t.table.End()
	return q
}

// change writes the record after a change of the queue.
func (q *Queue) change(do func()) {
	if q == nil {
		return
	}
	defer IgnorePanic()
	t := q.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.gone {
		return
	}
	do()
	r := &q.record
	if q.closed {
		q.queued, q.pending = map[interface{}]struct{}{}, 0
		q.dropDelayed()
	}
	r.Queued, r.Working = uint32(len(q.queued)+q.pending), uint32(len(q.working))
	r.Delayed = uint32(len(q.delayed))
	r.Earliest, r.Latest, r.Shortest = q.first.top(q.delayed), q.last.top(q.delayed), q.short.top(q.lengths)
	shown := *r
	if q.index == len(t.used) {
		shown = t.sumOfOthers()
	}
	t.table.Begin()
	t.table.Queues[q.index].Set(&shown)
	t.table.End()
	if q.closed && r.Working == 0 {
		q.gone = true // its record can be read until another queue needs it
		if q.index < len(t.used) {
			t.used[q.index] = nil
		} else {
			delete(t.others, q)
		}
	}
}

func (t *queueTable) sumOfOthers() (sum wire.QueueRecord) {
	for q := range t.others {
		r := &q.record
		sum.Queued += r.Queued
		sum.Working += r.Working
		sum.Delayed += r.Delayed
		sum.Gets += r.Gets
		sum.Delays += r.Delays
		if r.Delayed > 0 && (sum.Earliest == 0 || r.Earliest < sum.Earliest) {
			sum.Earliest = r.Earliest
		}
		if r.Delayed > 0 && r.Latest > sum.Latest {
			sum.Latest = r.Latest
		}
		if r.Delayed > 0 && (sum.Shortest == 0 || r.Shortest < sum.Shortest) {
			sum.Shortest = r.Shortest
		}
	}
	return sum
}

// Ready says that an item waits to be taken.
func (q *Queue) Ready(key interface{}) {
	q.change(func() { q.queued[key] = struct{}{} })
}

// Due says that an item whose delay is over waits to be taken.
func (q *Queue) Due(key interface{}) {
	q.change(func() {
		q.queued[key] = struct{}{}
		q.setDues(key, nil)
	})
}

// Taken says that a worker has an item.
func (q *Queue) Taken(key interface{}) {
	q.change(func() {
		delete(q.queued, key)
		q.working[key] = struct{}{}
		q.record.Gets++
	})
}

// Done says that a worker is done with an item.
func (q *Queue) Done(key interface{}) {
	q.change(func() { delete(q.working, key) })
}

// Pending counts items that are on their way into the queue; a negative number says that they are there.
func (q *Queue) Pending(n int) {
	q.change(func() { q.pending += n })
}

// Delay says that an item is to be added at due. It may be delayed already.
func (q *Queue) Delay(key interface{}, due time.Time) {
	q.change(func() {
		q.record.Delays++
		q.setDues(key, append(q.delayed[key], due.UnixNano()))
		q.setLength(key, due)
	})
}

// Added says that one delay of an item is over and that it was added: the earliest.
func (q *Queue) Added(key interface{}) {
	q.change(func() {
		list := q.delayed[key]
		q.setDues(key, without(list, earliest(list)))
	})
}

// Merged says that one delay of an item is dropped, in favor of an earlier one.
func (q *Queue) Merged(key interface{}, due time.Time) {
	q.change(func() { q.setDues(key, without(q.delayed[key], due.UnixNano())) })
}

// Wait says when an item is due of which the queue knows one delay only; nil: it is not delayed.
func (q *Queue) Wait(key interface{}, due *time.Time) {
	q.change(func() {
		_, queued := q.queued[key]
		if due == nil || queued {
			q.setDues(key, nil)
			return
		}
		if known := q.delayed[key]; len(known) == 1 && known[0] == due.UnixNano() {
			return
		}
		q.record.Delays++
		q.setDues(key, []int64{due.UnixNano()})
		delete(q.lengths, key)
		q.setLength(key, *due)
	})
}

// DropDelayed says that nobody will add the delayed items.
func (q *Queue) DropDelayed() {
	q.change(q.dropDelayed)
}

func (q *Queue) dropDelayed() {
	q.delayed, q.first.list, q.last.list = map[interface{}][]int64{}, nil, nil
	q.lengths, q.short.list = map[interface{}][]int64{}, nil
}

// setLength takes the delay of an item that is due then. The shortest counts as long as the item is delayed.
func (q *Queue) setLength(key interface{}, due time.Time) {
	length := int64(time.Until(due))
	if length < 1 {
		length = 1
	}
	if list, ok := q.lengths[key]; ok && list[0] <= length {
		return
	}
	q.lengths[key] = []int64{length}
	q.short.push(key, length, q.lengths)
}

// ShutDown says that the queue takes no more items. What is still in it counts no longer, unless somebody works on it.
func (q *Queue) ShutDown() {
	q.change(func() { q.closed = true })
}

func (q *Queue) setDues(key interface{}, list []int64) {
	if len(list) == 0 {
		delete(q.delayed, key)
		delete(q.lengths, key)
		return
	}
	q.delayed[key] = list
	q.first.push(key, earliest(list), q.delayed)
	q.last.push(key, earliest(list), q.delayed)
}

func earliest(list []int64) (min int64) {
	for i, due := range list {
		if i == 0 || due < min {
			min = due
		}
	}
	return min
}

// without removes one element.
func without(list []int64, due int64) []int64 {
	for i := range list {
		if list[i] == due {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}

// dues finds the earliest or the latest of the delayed items. An entry that is no longer true is dropped when it is
// found at the top.
type dues struct {
	latest bool
	list   []dueItem
}

type dueItem struct {
	key interface{}
	due int64
}

func (d *dues) Len() int { return len(d.list) }
func (d *dues) Less(i, j int) bool {
	return d.list[i].due != d.list[j].due && d.list[i].due < d.list[j].due != d.latest
}
func (d *dues) Swap(i, j int)      { d.list[i], d.list[j] = d.list[j], d.list[i] }
func (d *dues) Push(x interface{}) { d.list = append(d.list, x.(dueItem)) }
func (d *dues) Pop() (x interface{}) {
	n := len(d.list) - 1
	x, d.list = d.list[n], d.list[:n]
	return x
}

func (d *dues) push(key interface{}, due int64, delayed map[interface{}][]int64) {
	if len(d.list) > 2*len(delayed)+16 {
		d.list = d.list[:0] // mostly entries that are no longer true
		for key, list := range delayed {
			d.list = append(d.list, dueItem{key, earliest(list)})
		}
		heap.Init(d)
		return
	}
	heap.Push(d, dueItem{key, due})
}

// top returns 0 if nothing is delayed.
func (d *dues) top(delayed map[interface{}][]int64) int64 {
	for len(d.list) > 0 {
		top := d.list[0]
		if list, ok := delayed[top.key]; ok && earliest(list) == top.due {
			return top.due
		}
		heap.Pop(d)
	}
	return 0
}
