package addons

import (
	"context"
	"errors"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
)

// serve runs a manager until the run ends. It returns when the manager's cache is filled.
func serve(ctx context.Context, what string, mgr ctrl.Manager, later func(undo)) error {
	serve, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- mgr.Start(serve) }()
	later(func(context.Context) error {
		stop()
		// It ends in any case; what was still going on has no effect on the run.
		if err := <-served; err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	return nil
}
