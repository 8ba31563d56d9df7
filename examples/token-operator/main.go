// Command token-operator is an example's operator: it keeps a Secret with a token for each Service that asks for one by
// an annotation.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// audience is the annotation of a Service that gets a token. Its value is repeated in the Secret.
const audience = "example.trommel.dev/token-audience"

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "token-operator: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	var r reconciler
	flag.BoolVar(&r.fixUnreadable, "fix-unreadable", false, "make no token while the Secret cannot be read")
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
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.Service{}).Complete(&r); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

type reconciler struct {
	client.Client
	secrets       client.Reader // without a cache: the operator may not list the Secrets of a cluster
	fixUnreadable bool
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
	key := client.ObjectKey{Namespace: service.Namespace, Name: service.Name + "-token"}
	token, err := r.token(ctx, key)
	if err != nil {
		return ctrl.Result{}, err
	}
	owner := metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("Service").
		WithName(service.Name).WithUID(service.UID)
	secret := corev1ac.Secret(key.Name, key.Namespace).WithOwnerReferences(owner).
		WithAnnotations(map[string]string{audience: service.Annotations[audience]}).
		WithStringData(map[string]string{"token": token})
	return ctrl.Result{}, r.Apply(ctx, secret, client.FieldOwner("token-operator"), client.ForceOwnership)
}

// token returns the token that the Service's clients have, or the first one.
func (r *reconciler) token(ctx context.Context, key client.ObjectKey) (string, error) {
	var secret corev1.Secret
	err := r.secrets.Get(ctx, key, &secret)
	if err == nil {
		return string(secret.Data["token"]), nil
	}
	if r.fixUnreadable && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("read the token: %w", err)
	}
	// The bug: there may be a token that cannot be read just now.
	log.FromContext(ctx).Info("Making a token")
	return rand.Text(), nil
}
