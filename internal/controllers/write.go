package controllers

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// again is the time before another look at what somebody else has changed at the same moment.
const again = 20 * time.Millisecond

// Result turns an error into the result of a reconcile: after a conflict, or an error that wraps one of outdated, it is
// tried again soon, without being told as an error.
func Result(err error, outdated ...error) (ctrl.Result, error) {
	soon := apierrors.IsConflict(err)
	for _, o := range outdated {
		soon = soon || errors.Is(err, o)
	}
	if soon {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	return ctrl.Result{}, err
}

// Delete deletes this very object, and not a later one of its name. It does nothing if the object has gone.
func Delete(ctx context.Context, c client.Writer, o client.Object) error {
	uid := o.GetUID()
	return client.IgnoreNotFound(c.Delete(ctx, o, client.Preconditions{UID: &uid}))
}
