package objects

import (
	"context"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/trommel-dev/trommel/internal/clock"
)

// Transient reports whether the same call may succeed a moment later: the API server is down or busy, a webhook is not
// up yet, or another client wrote at the same time.
func Transient(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	switch {
	case utilnet.IsConnectionRefused(err), utilnet.IsConnectionReset(err), utilnet.IsProbableEOF(err),
		utilnet.IsHTTP2ConnectionLost(err), utilnet.IsTimeout(err):
		return true
	case apierrors.IsConflict(err), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err),
		apierrors.IsTooManyRequests(err),
		apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err):
		return true
	case apierrors.IsForbidden(err):
		// Admission still lacks something: the service account of a new namespace, or the RBAC informers of an API
		// server that has just started.
		text := err.Error()
		return strings.Contains(text, "error looking up service account") ||
			strings.Contains(text, "not yet ready to handle request")
	}
	// Any answer of a proxy or of an API server that is still starting.
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Code >= 500 {
		return true
	}
	text := err.Error()
	return strings.Contains(text, "http2: client connection") || strings.Contains(text, "connection refused") ||
		strings.Contains(text, "use of closed network connection") ||
		strings.Contains(text, "server is currently unable")
}

// WebhookFailed reports whether a write failed because an admission or conversion webhook could not be called: it was
// not reached, or gave no usable answer. A webhook that denies the request has not failed.
func WebhookFailed(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return false
	}
	text := status.Status().Message
	return strings.Contains(text, "failed calling webhook ") ||
		strings.Contains(text, "conversion webhook for ") && strings.Contains(text, " failed: ")
}

// NotServedYet reports whether the API server does not know a type or a subresource. It may know it a moment later, if
// a definition was just applied, perhaps through another API server. More often the name is wrong.
func NotServedYet(err error) bool {
	return errors.Is(err, ErrNotServed) || apierrors.IsNotFound(err) &&
		strings.Contains(err.Error(), "could not find the requested resource")
}

// Retry calls f until it succeeds, fails with an error that is not [Transient], or ctx ends; it returns f's last error.
// Waits grow from 20 ms to 1 s.
func Retry(ctx context.Context, f func(context.Context) error) error {
	backoff := wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.6, Jitter: 0.1, Steps: 9, Cap: time.Second}
	for {
		err := f(ctx)
		if err == nil || !Transient(err) {
			return err
		}
		if clock.Sleep(ctx, backoff.Step()) != nil {
			return err
		}
	}
}
