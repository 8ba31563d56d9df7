package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"
)

// QueuesVariable names the environment variable that holds a directory. A process with hooks keeps a table of its work
// queues there, in a file named by its process ID. The hook creates the file before main runs, so that a file also says
// that the executable has the hook.
const QueuesVariable = "TROMMEL_QUEUES"

const (
	// QueueTableMagic says that a file is such a table, of this layout.
	QueueTableMagic uint64 = 0x3251_6c65_6d6d_7254
	// QueueTableBytes is the length of the file.
	QueueTableBytes = 40 << 10
	// MaxQueues is the number of records. If a process has more queues, the last record is the sum of the rest.
	MaxQueues = 120
	// OtherQueues is the name of that record.
	OtherQueues = "(other queues)"
	// MaxDelayClasses is how many classes of delays a record has.
	MaxDelayClasses = 8

	queueTableHead = QueueTableBytes - MaxQueues*320
)

// QueueRecord is one queue, in the machine's byte order.
type QueueRecord struct {
	Name             [64]byte // ends at a zero byte; empty: the record is not in use
	Queued           uint32   // items that wait to be taken, without those that are delayed
	Working          uint32   // items that were taken and are not done; one added again meanwhile is also queued
	Delayed          uint32   // items with a delay that have not been added yet
	_                uint32
	Earliest, Latest int64  // when delayed items are due, Unix nanoseconds of the process's clock; 0: none is delayed
	Gets             uint64 // items ever taken
	Delays           uint64 // items ever added with a delay
	// Classes are the delayed items by the length of their delay, shorter ones first. Unused ones are zero.
	Classes [MaxDelayClasses]DelayClassRecord
	_       [16]byte
}

// DelayClassRecord is the delayed items of a queue whose delays are about equally long, within a fourth.
// The last one of a record has all longer delays, too.
type DelayClassRecord struct {
	Shortest, Longest int64 // delays since the queue had none of this class, in nanoseconds
	Latest            int64 // when the last of the items is due, Unix nanoseconds of the process's clock
}

// QueueTable is what the file contains. Its process changes it in memory.
//
// Changes is odd while records are written. All queues of the process are written under one mutex, so a reader that
// finds the same even number before and after has a copy of one moment. The file needs no lock that a process could die
// with.
type QueueTable struct {
	Magic   uint64 // written last when the file is created
	Changes uint64
	_       [queueTableHead - 16]byte
	Queues  [MaxQueues]QueueRecord
}

// The file has this length: one of these does not compile if the table has another.
var (
	_ [QueueTableBytes - unsafe.Sizeof(QueueTable{})]byte
	_ [unsafe.Sizeof(QueueTable{}) - QueueTableBytes]byte
)

// Queue is a work queue of a process.
type Queue struct {
	Name                     string
	Queued, Working, Delayed int          // see QueueRecord
	Earliest, Latest         time.Time    // when delayed items are due by the process's clock; zero: none is delayed
	Classes                  []DelayClass // of the delayed items, shorter delays first
	Gets, Delays             uint64
}

// DelayClass is delayed items with delays of about the same length, see DelayClassRecord.
type DelayClass struct {
	Shortest, Longest time.Duration
	Latest            time.Time // when the last of them is due by the process's clock
}

// Busy reports whether the queue has an item that is not delayed.
func (q Queue) Busy() bool { return q.Queued > 0 || q.Working > 0 }

// Empty reports whether the queue has no items at all.
func (q Queue) Empty() bool { return !q.Busy() && q.Delayed == 0 }

// ErrQueuesNotReady says that a process has not completed its table of queues.
var ErrQueuesNotReady = errors.New("the table of queues is not complete yet")

// readAttempts limits how often a table is read that changes meanwhile. A copy takes a few microseconds, so that a busy
// process does not get in the way that often.
const readAttempts = 10000

// ReadQueues reads the queues of a process at one moment. It costs the process nothing. If the process is gone, the
// queues are those at its end. ReadQueues fails with ErrQueuesNotReady for a file that is not complete, and also for
// one that its process was changing when it ended or was stopped. It does not block.
func ReadQueues(path string) ([]Queue, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t := new(QueueTable)
	for i := 0; i < readAttempts; i++ {
		settled, err := t.read(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if settled {
			return t.queues(), nil
		}
		runtime.Gosched()
	}
	return nil, fmt.Errorf("%s: %w", path, ErrQueuesNotReady)
}

// read copies the table, and reports whether it is that of one moment. It reads with system calls, as the file's memory
// is not the reader's: nothing faults if the file is shorter, and the kernel orders the three reads.
func (t *QueueTable) read(f io.ReaderAt) (settled bool, err error) {
	whole := (*[QueueTableBytes]byte)(unsafe.Pointer(t))[:]
	var before, after [16]byte // Magic and Changes
	for _, part := range [][]byte{before[:], whole, after[:]} {
		if _, err := f.ReadAt(part, 0); errors.Is(err, io.EOF) {
			return false, ErrQueuesNotReady
		} else if err != nil {
			return false, err
		}
	}
	switch t.Magic {
	case QueueTableMagic:
	case 0:
		return false, ErrQueuesNotReady
	default:
		return false, fmt.Errorf("it is not a table of queues that this version reads")
	}
	return t.Changes%2 == 0 && bytes.Equal(before[:], after[:]) && bytes.Equal(before[:], whole[:16]), nil
}

func (t *QueueTable) queues() []Queue {
	var list []Queue
	for i := range t.Queues {
		r := &t.Queues[i]
		if r.Name[0] == 0 {
			continue
		}
		name := r.Name[:]
		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}
		q := Queue{
			Name: string(name), Queued: int(r.Queued), Working: int(r.Working), Delayed: int(r.Delayed),
			Gets: r.Gets, Delays: r.Delays,
		}
		if r.Delayed > 0 {
			q.Earliest, q.Latest = time.Unix(0, r.Earliest), time.Unix(0, r.Latest)
		}
		for _, c := range r.Classes {
			if c.Shortest > 0 {
				q.Classes = append(q.Classes, DelayClass{
					Shortest: time.Duration(c.Shortest), Longest: time.Duration(c.Longest),
					Latest: time.Unix(0, c.Latest),
				})
			}
		}
		list = append(list, q)
	}
	return list
}

// Begin and End enclose changes of records; one goroutine at a time may make them.
func (t *QueueTable) Begin() { atomic.AddUint64(&t.Changes, 1) }

// End makes the changes since Begin visible.
func (t *QueueTable) End() { atomic.AddUint64(&t.Changes, 1) }

// Set changes a record between Begin and End, but for its name.
func (r *QueueRecord) Set(by *QueueRecord) {
	atomic.StoreUint32(&r.Queued, by.Queued)
	atomic.StoreUint32(&r.Working, by.Working)
	atomic.StoreUint32(&r.Delayed, by.Delayed)
	atomic.StoreInt64(&r.Earliest, by.Earliest)
	atomic.StoreInt64(&r.Latest, by.Latest)
	atomic.StoreUint64(&r.Gets, by.Gets)
	atomic.StoreUint64(&r.Delays, by.Delays)
	for i := range r.Classes {
		if r.Classes[i] == by.Classes[i] {
			continue // mostly; nobody else writes it
		}
		atomic.StoreInt64(&r.Classes[i].Shortest, by.Classes[i].Shortest)
		atomic.StoreInt64(&r.Classes[i].Longest, by.Classes[i].Longest)
		atomic.StoreInt64(&r.Classes[i].Latest, by.Classes[i].Latest)
	}
}
