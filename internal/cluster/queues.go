package cluster

import (
	"context"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// QueueReader is a process node that knows what is in its controllers' work queues.
type QueueReader interface {
	// Queues returns the work queues of the controller's running processes, as they are now. known is false if one of
	// the processes does not tell: it has no hooks in its queues, or has only just started.
	Queues(ctx context.Context, controller string) (queues []wire.Queue, known bool, err error)
}
