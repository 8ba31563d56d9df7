// Package certificates does for the objects of a running cluster what cert-manager's CA injector does: it puts the
// certificate authority into objects that ask for it by an annotation. Many controllers write the configurations of
// their webhooks themselves, with such an annotation and without a caBundle.
package certificates

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// FieldManager owns the caBundles that are injected. It is the name that cert-manager's CA injector has.
const FieldManager = "cert-manager-cainjector"

// Issuer knows what to inject; see deploy.Issuer.
type Issuer interface {
	// Injects reports whether an object with these annotations is injected.
	Injects(annotations map[string]string) bool
	// Inject returns the injected object; nil: there is nothing to change.
	Inject(u *unstructured.Unstructured) *unstructured.Unstructured
}

// Injector follows the objects of one cluster that can have a caBundle.
type Injector struct {
	Issuer  Issuer
	Objects *objects.Client
	Logger  *slog.Logger
}

// injected are the types of objects that can have a caBundle, beside CustomResourceDefinitions.
var injected = []plan.ResourceKey{
	{Type: "mutatingwebhookconfiguration", Group: "admissionregistration.k8s.io"},
	{Type: "validatingwebhookconfiguration", Group: "admissionregistration.k8s.io"},
	{Type: "apiservice", Group: "apiregistration.k8s.io"},
}

// Start follows the objects, those that are there already included, until stop is called. It uses the values of the
// context, but does not end with it.
func (i *Injector) Start(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var tasks sync.WaitGroup
	stop = func() {
		cancel()
		tasks.Wait()
	}
	follow := func(t objects.Type, as *objects.Client) {
		tasks.Go(func() { _ = as.Follow(ctx, t, "", "", &follower{Injector: i, ctx: ctx, t: t}) })
	}
	for _, key := range injected {
		t, err := i.Objects.Resolve(ctx, key)
		if errors.Is(err, objects.ErrNotServed) {
			continue
		}
		if err != nil {
			stop()
			return nil, err
		}
		follow(t, i.Objects)
	}
	t, metadata, ok, err := i.Objects.Definitions(ctx)
	if err != nil {
		stop()
		return nil, err
	}
	if ok {
		follow(t, metadata)
	}
	return stop, nil
}

// follower injects the objects of one type. What it is shown may be their metadata only.
type follower struct {
	*Injector
	ctx context.Context
	t   objects.Type
}

// Listed implements objects.Follower.
func (f *follower) Listed(all []*unstructured.Unstructured, _ string) bool {
	for _, u := range all {
		f.see(u)
	}
	return false
}

// Changed implements objects.Follower.
func (f *follower) Changed(event watch.EventType, u *unstructured.Unstructured) bool {
	if event != watch.Deleted {
		f.see(u)
	}
	return false
}

// Broken implements objects.Follower. On a cluster that is not the run's own, the user may lack the right.
func (f *follower) Broken(err error) bool { return apierrors.IsForbidden(err) }

func (f *follower) see(u *unstructured.Unstructured) {
	if !f.Issuer.Injects(u.GetAnnotations()) {
		return
	}
	err := objects.Retry(f.ctx, func(ctx context.Context) error { return f.inject(ctx, u.GetName()) })
	if err != nil && f.ctx.Err() == nil {
		f.Logger.Warn("inject the certificate authority", "type", f.t.Singular, "name", u.GetName(), "error", err)
	}
}

// attemptTimeout is for a request to an API server that does not answer.
const attemptTimeout = 10 * time.Second

// inject writes the object as it is now, if there is something to change.
func (f *follower) inject(ctx context.Context, name string) error {
	release := clock.Hold(ctx) // the run must not go far before
	defer release()
	ctx, cancel := clock.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	u, err := f.Objects.Resource(f.t, "").Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if u = f.Issuer.Inject(u); u == nil {
		return nil
	}
	_, err = f.Objects.WithFieldManager(FieldManager).Update(ctx, u)
	return err
}
