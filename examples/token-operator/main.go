// Command token-operator is an example's operator: it keeps a Secret with a token for each Service that asks for one by
// an annotation.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// audience is the annotation of a Service that gets a token. Its value is repeated in the Secret.
	audience = "example.trommel.dev/token-audience"
	// rotateEvery is the annotation of a Service whose token is replaced after that time.
	rotateEvery = "example.trommel.dev/rotate-every"
	// made is when the token of a Secret was made.
	made = "example.trommel.dev/made"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "token-operator: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	r := reconciler{known: map[client.ObjectKey]time.Time{}}
	flag.BoolVar(&r.fixUnreadable, "fix-unreadable", false, "make no token while the Secret cannot be read")
	flag.BoolVar(&r.fixRotation, "fix-rotation", false, "count a token's age from when it was made")
	trim := flag.Bool("trim", false, "take no notice of spaces around an audience")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	r.Client, r.secrets = mgr.GetClient(), mgr.GetAPIReader()
	b := ctrl.NewControllerManagedBy(mgr).For(&corev1.Service{})
	if *trim {
		b.WithEventFilter(predicate.NewPredicateFuncs(trimmed))
	}
	if err := b.Complete(&r); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

// trimmed takes the spaces around an audience away.
func trimmed(o client.Object) bool {
	if all := o.GetAnnotations(); all[audience] != "" {
		all[audience] = strings.TrimSpace(all[audience]) // the bug: this is the map of the object in the cache
	}
	return true
}

type reconciler struct {
	client.Client
	secrets       client.Reader // without a cache: the operator may not list the Secrets of a cluster
	fixUnreadable bool
	fixRotation   bool
	known         map[client.ObjectKey]time.Time // Secrets: since when this process knows their tokens
}

// Reconcile writes the Secret of a Service.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var service corev1.Service
	if err := r.Get(ctx, req.NamespacedName, &service); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if service.Annotations[audience] == "" || service.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	var lifetime time.Duration // without an end
	if text := service.Annotations[rotateEvery]; text != "" {
		var err error
		if lifetime, err = time.ParseDuration(text); err != nil {
			return ctrl.Result{}, reconcile.TerminalError(err)
		}
	}
	key := client.ObjectKey{Namespace: service.Namespace, Name: service.Name + "-token"}
	token, since, err := r.token(ctx, key)
	if err != nil {
		return ctrl.Result{}, err
	}
	if lifetime > 0 && r.age(key, since) >= lifetime {
		log.FromContext(ctx).Info("Rotating the token")
		token, since = rand.Text(), time.Now()
		r.known[key] = since
	}
	owner := metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("Service").
		WithName(service.Name).WithUID(service.UID)
	secret := corev1ac.Secret(key.Name, key.Namespace).WithOwnerReferences(owner).
		WithAnnotations(map[string]string{audience: service.Annotations[audience]}).
		WithStringData(map[string]string{"token": token})
	if lifetime > 0 {
		secret.WithAnnotations(map[string]string{
			rotateEvery: service.Annotations[rotateEvery], made: since.Format(time.RFC3339),
		})
	}
	if err := r.Apply(ctx, secret, client.FieldOwner("token-operator"), client.ForceOwnership); err != nil {
		return ctrl.Result{}, err
	}
	if lifetime == 0 {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(lifetime-r.age(key, since), time.Second)}, nil
}

// age is how old a token is.
func (r *reconciler) age(key client.ObjectKey, since time.Time) time.Duration {
	if r.fixRotation {
		return time.Since(since)
	}
	// The bug: a token is older than this process if the process was started again.
	if r.known[key].IsZero() {
		r.known[key] = time.Now()
	}
	return time.Since(r.known[key])
}

// token returns the token that the Service's clients have, or the first one, and when it was made.
func (r *reconciler) token(ctx context.Context, key client.ObjectKey) (string, time.Time, error) {
	var secret corev1.Secret
	err := r.secrets.Get(ctx, key, &secret)
	if err == nil {
		since, err := time.Parse(time.RFC3339, secret.Annotations[made])
		if err != nil {
			since = secret.CreationTimestamp.Time
		}
		return string(secret.Data["token"]), since, nil
	}
	if r.fixUnreadable && !apierrors.IsNotFound(err) {
		return "", time.Time{}, fmt.Errorf("read the token: %w", err)
	}
	// The bug: there may be a token that cannot be read just now.
	log.FromContext(ctx).Info("Making a token")
	return rand.Text(), time.Now(), nil
}
