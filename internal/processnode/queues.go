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

// queueDir is the directory in which processes with hooks keep the tables of their work queues.
func (n *Node) queueDir() string { return filepath.Join(n.config.Dir, "queues") }

func (n *Node) queueFile(pid int) string { return filepath.Join(n.queueDir(), strconv.Itoa(pid)) }

// Queues implements cluster.QueueReader.
func (n *Node) Queues(_ context.Context, name string) (all []wire.Queue, known bool, err error) {
	n.mu.Lock()
	var pids []int
	for _, c := range n.runningLocked(name) {
		pids = append(pids, c.current.process.PID())
	}
	n.mu.Unlock()
	for _, pid := range pids {
		queues, err := wire.ReadQueues(n.queueFile(pid))
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

// forgetQueues removes the table of a process that has exited.
func (n *Node) forgetQueues(pid int) { _ = os.Remove(n.queueFile(pid)) }
