package controllers

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Result turns an error into the result of a reconcile: after a conflict, or an error that wraps one of outdated, it
// retries without reporting an error, at first soon and then more and more seldom. Any other error is reported, also if
// it is joined with a conflict.
func Result(err error, outdated ...error) (ctrl.Result, error) {
	if err == nil || !Passing(err, outdated...) {
		return ctrl.Result{}, err
	}
	return ctrl.Result{Requeue: true}, nil //nolint:staticcheck // nothing else asks the rate limiter without an error
}

// Passing reports whether an error says nothing but that another client has changed something at the same moment: a
// conflict, or an error that wraps one of outdated, or several of them.
func Passing(err error, outdated ...error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if !Passing(e, outdated...) {
				return false
			}
		}
		return true
	}
	return apierrors.IsConflict(err) || slices.ContainsFunc(outdated, func(o error) bool { return errors.Is(err, o) })
}

// Delete deletes this very object, and not a later one of its name. It does nothing if the object has gone.
func Delete(ctx context.Context, c client.Writer, o client.Object) error {
	uid := o.GetUID()
	return client.IgnoreNotFound(c.Delete(ctx, o, client.Preconditions{UID: &uid}))
}
