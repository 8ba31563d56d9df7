package hook

import (
	"container/heap"
	"fmt"
	"math/bits"
	"sort"
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
	pending int // items on their way into the queue
	delayed map[interface{}]*delayedItem
	dues    dueItems     // all of the delayed
	classes []delayClass // of these, ordered by their numbers; none is empty
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
		delayed: map[interface{}]*delayedItem{},
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
	r.Earliest, r.Latest = q.dues.top(), 0
	for i := range q.classes {
		r.Latest = later(r.Latest, q.classes[i].dues.top())
	}
	setClasses(&r.Classes, q.classes)
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
	var classes []delayClass
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
		sum.Latest = later(sum.Latest, r.Latest)
		classes = append(classes, q.classes...)
	}
	sort.SliceStable(classes, func(i, j int) bool { return classes[i].number < classes[j].number })
	setClasses(&sum.Classes, classes)
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
		var list []int64
		if item := q.delayed[key]; item != nil {
			list = item.list
		}
		q.setDues(key, append(list, due.UnixNano()))
		q.setLength(key, due)
	})
}

// Added says that one delay of an item is over and that it was added: the earliest.
func (q *Queue) Added(key interface{}) {
	q.change(func() {
		if item := q.delayed[key]; item != nil {
			q.setDues(key, without(item.list, item.due))
		}
	})
}

// Merged says that one delay of an item is dropped, in favor of an earlier one.
func (q *Queue) Merged(key interface{}, due time.Time) {
	q.change(func() {
		if item := q.delayed[key]; item != nil {
			q.setDues(key, without(item.list, due.UnixNano()))
		}
	})
}

// Wait says when an item is due of which the queue knows one delay only; nil: it is not delayed.
func (q *Queue) Wait(key interface{}, due *time.Time) {
	q.change(func() {
		_, queued := q.queued[key]
		if due == nil || queued {
			q.setDues(key, nil)
			return
		}
		if item := q.delayed[key]; item != nil && len(item.list) == 1 && item.due == due.UnixNano() {
			return
		}
		q.record.Delays++
		q.setDues(key, nil) // its earlier delay counts no longer
		q.setDues(key, []int64{due.UnixNano()})
		q.setLength(key, *due)
	})
}

// DropDelayed says that nobody will add the delayed items.
func (q *Queue) DropDelayed() {
	q.change(q.dropDelayed)
}

func (q *Queue) dropDelayed() {
	q.delayed, q.dues, q.classes = map[interface{}]*delayedItem{}, dueItems{}, nil
}

// ShutDown says that the queue takes no more items. What is still in it counts no longer, unless somebody works on it.
func (q *Queue) ShutDown() {
	q.change(func() { q.closed = true })
}

// setDues sets when an item is due, in any order. The caller gives a new one its length.
func (q *Queue) setDues(key interface{}, list []int64) {
	item := q.delayed[key]
	switch {
	case len(list) == 0:
		if item != nil {
			delete(q.delayed, key)
			heap.Remove(&q.dues, item.at[0])
			q.leaveClass(item)
		}
		return
	case item == nil:
		item = &delayedItem{list: list, due: earliest(list)}
		q.delayed[key] = item
		heap.Push(&q.dues, item)
		return
	}
	item.list = list
	if due := earliest(list); due != item.due {
		item.due = due
		heap.Fix(&q.dues, item.at[0])
		if class := q.classOf(item.class); class != nil {
			heap.Fix(&class.dues, item.at[1])
		}
	}
}

// setLength takes the delay of an item that is due then. The shortest counts as long as the item is delayed.
func (q *Queue) setLength(key interface{}, due time.Time) {
	item, length := q.delayed[key], int64(time.Until(due))
	if length < 1 {
		length = 1
	}
	if item == nil || item.length > 0 && item.length <= length {
		return
	}
	q.leaveClass(item)
	item.length, item.class = length, delayClassOf(length)
	class := q.classOf(item.class)
	if class == nil {
		i := sort.Search(len(q.classes), func(i int) bool { return q.classes[i].number > item.class })
		q.classes = append(q.classes, delayClass{})
		copy(q.classes[i+1:], q.classes[i:])
		q.classes[i] = delayClass{number: item.class, dues: dueItems{class: true}}
		class = &q.classes[i]
	}
	if class.shortest == 0 || length < class.shortest {
		class.shortest = length
	}
	class.longest = later(class.longest, length)
	heap.Push(&class.dues, item)
}

// leaveClass takes an item from the class of its length, if it is in one.
func (q *Queue) leaveClass(item *delayedItem) {
	class := q.classOf(item.class)
	if item.length == 0 || class == nil {
		return
	}
	heap.Remove(&class.dues, item.at[1])
	if class.dues.Len() == 0 {
		i := sort.Search(len(q.classes), func(i int) bool { return q.classes[i].number >= item.class })
		q.classes = append(q.classes[:i], q.classes[i+1:]...)
	}
}

// classOf returns nil if no item has such a length. The pointer is good until the classes change.
func (q *Queue) classOf(number int) *delayClass {
	for i := range q.classes {
		if q.classes[i].number == number {
			return &q.classes[i]
		}
	}
	return nil
}

// delayClass is the delayed items of about the same length: four classes for each power of two.
type delayClass struct {
	number            int
	shortest, longest int64 // since the class was empty
	dues              dueItems
}

func delayClassOf(length int64) int {
	octave := bits.Len64(uint64(length))
	if octave < 3 {
		return octave * 4
	}
	return octave*4 + int(length>>uint(octave-3))&3
}

// setClasses writes what the table says about classes, which are ordered. Several of one number are one. What does not
// fit is in the last one.
func setClasses(to *[wire.MaxDelayClasses]wire.DelayClassRecord, classes []delayClass) {
	n := 0
	for i := range classes {
		c := &classes[i]
		if n == 0 || n < len(to) && c.number != classes[i-1].number {
			to[n] = wire.DelayClassRecord{Shortest: c.shortest}
			n++
		}
		r := &to[n-1]
		if c.shortest < r.Shortest {
			r.Shortest = c.shortest
		}
		r.Longest, r.Latest = later(r.Longest, c.longest), later(r.Latest, c.dues.top())
	}
	for ; n < len(to) && to[n] != (wire.DelayClassRecord{}); n++ {
		to[n] = wire.DelayClassRecord{}
	}
}

// delayedItem is an item that is delayed.
type delayedItem struct {
	list   []int64 // when it is due; one that was delayed again is known several times
	due    int64   // the earliest of these
	length int64   // the shortest of its delays; 0: it has only just been added
	class  int     // of its length
	at     [2]int  // where it is among all delayed items of the queue, and among those of its class
}

func earliest(list []int64) (min int64) {
	for i, due := range list {
		if i == 0 || due < min {
			min = due
		}
	}
	return min
}

func later(a, b int64) int64 {
	if a > b {
		return a
	}
	return b
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

// dueItems is a heap of delayed items: of all in a queue, with the earliest at the top, or of those of a class, with
// the latest.
type dueItems struct {
	class bool
	list  []*delayedItem
}

func (d *dueItems) place() int {
	if d.class {
		return 1
	}
	return 0
}

func (d *dueItems) Len() int { return len(d.list) }
func (d *dueItems) Less(i, j int) bool {
	return d.list[i].due != d.list[j].due && d.list[i].due < d.list[j].due != d.class
}

func (d *dueItems) Swap(i, j int) {
	d.list[i], d.list[j] = d.list[j], d.list[i]
	d.list[i].at[d.place()], d.list[j].at[d.place()] = i, j
}

func (d *dueItems) Push(x interface{}) {
	item := x.(*delayedItem)
	item.at[d.place()] = len(d.list)
	d.list = append(d.list, item)
}

func (d *dueItems) Pop() (x interface{}) {
	n := len(d.list) - 1
	x, d.list[n] = d.list[n], nil
	d.list = d.list[:n]
	return x
}

// top returns 0 if there is none.
func (d *dueItems) top() int64 {
	if len(d.list) == 0 {
		return 0
	}
	return d.list[0].due
}
