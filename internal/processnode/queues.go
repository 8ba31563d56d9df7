package processnode

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/cluster"
)

var _ cluster.QueueReader = (*Node)(nil)

// queues is the directory in which processes with hooks keep the tables of their work queues.
type queues string

func (q queues) file(pid int) string { return filepath.Join(string(q), strconv.Itoa(pid)) }

// forget removes the table of a process that has exited.
func (q queues) forget(pid int) { _ = os.Remove(q.file(pid)) }

// Queues implements cluster.QueueReader.
func (n *Node) Queues(_ context.Context, name string) (all []wire.Queue, known bool, err error) {
	n.mu.Lock()
	var pids []int
	for _, c := range n.runningLocked(name) {
		pids = append(pids, c.current.process.PID())
	}
	n.mu.Unlock()
	for _, pid := range pids {
		queues, err := wire.ReadQueues(n.queues.file(pid))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, wire.ErrQueuesNotReady) {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		all = append(all, queues...)
	}
	return all, true, nil
}
