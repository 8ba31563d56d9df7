// Command queue-operator is an example's operator: it makes an account, a Secret with a password, for each user of a
// Queue.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// ofQueue is the label of a Queue's accounts: its name.
const ofQueue = "example.trommel.dev/queue"

// mostAttempts is how often the operator tries what it does not finish.
const mostAttempts = 2

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "queue-operator: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	r := reconciler{known: map[types.UID][]string{}}
	flag.BoolVar(&r.fixAttempts, "fix-attempts", false, "do not give up because processes have died")
	flag.BoolVar(&r.fixLeavers, "fix-leavers", false, "look for the accounts of those who have left")
	flag.BoolVar(&r.fixNamesake, "fix-namesake", false, "write a status to the Queue that it is of")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	addQueues(scheme)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	r.Client, r.live = mgr.GetClient(), mgr.GetAPIReader()
	if err := ctrl.NewControllerManagedBy(mgr).For(&Queue{}).Owns(&corev1.Secret{}).Complete(&r); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

type reconciler struct {
	client.Client
	live client.Reader // without a cache

	fixAttempts, fixLeavers, fixNamesake bool

	known map[types.UID][]string // Queues: the users for whom this process has made accounts
}

// Reconcile makes the accounts of a Queue's users, and deletes those of users who have left.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var queue Queue
	if err := r.Get(ctx, req.NamespacedName, &queue); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if queue.DeletionTimestamp != nil || queue.Status.Phase == failed {
		return ctrl.Result{}, nil
	}
	if !queue.finished() {
		if err := r.attempt(ctx, &queue); err != nil || queue.Status.Phase == failed {
			return ctrl.Result{}, err
		}
	}
	for _, user := range queue.Spec.Users {
		account := newAccount(&queue, user)
		if err := ctrl.SetControllerReference(&queue, account, r.Scheme()); err != nil {
			return ctrl.Result{}, err
		}
		// One that exists stays as it is: the user knows its password.
		if err := r.Create(ctx, account); client.IgnoreAlreadyExists(err) != nil {
			return ctrl.Result{}, fmt.Errorf("make the account of %s: %w", user, err)
		}
	}
	leavers, err := r.leavers(ctx, &queue)
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, user := range leavers {
		log.FromContext(ctx).Info("Deleting the account of a user who has left", "user", user)
		if err := r.Delete(ctx, newAccount(&queue, user)); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("delete the account of %s: %w", user, err)
		}
	}
	r.known[queue.UID] = queue.Spec.Users
	if queue.finished() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.setStatus(ctx, &queue, status{Phase: ready, ObservedGeneration: queue.Generation})
}

// attempt counts an attempt, and gives up after the last one.
func (r *reconciler) attempt(ctx context.Context, queue *Queue) error {
	s := queue.Status
	s.Phase = pending
	s.Attempts++
	// The bug: the operator gives up after a process has died. The next process may succeed.
	if s.Attempts > mostAttempts && !r.fixAttempts {
		s.Phase = failed
	}
	queue.Status = s
	// The version of the cache: what is counted on an old state is refused.
	return r.Status().Update(ctx, queue)
}

// leavers are the users that have accounts although they are none of the Queue's any more.
func (r *reconciler) leavers(ctx context.Context, queue *Queue) ([]string, error) {
	// The bug: those who have left while no process ran are not known.
	users := r.known[queue.UID]
	if r.fixLeavers {
		var accounts corev1.SecretList
		if err := r.List(ctx, &accounts, client.InNamespace(queue.Namespace),
			client.MatchingLabels{ofQueue: queue.Name}); err != nil {
			return nil, err
		}
		users = nil
		for i := range accounts.Items {
			if account := &accounts.Items[i]; metav1.IsControlledBy(account, queue) {
				users = append(users, strings.TrimPrefix(account.Name, queue.Name+"-"))
			}
		}
	}
	var left []string
	for _, user := range users {
		if !slices.Contains(queue.Spec.Users, user) {
			left = append(left, user)
		}
	}
	return left, nil
}

// setStatus writes the status, again and again if the API server does not answer.
func (r *reconciler) setStatus(ctx context.Context, queue *Queue, s status) error {
	again := wait.Backoff{Duration: time.Second, Steps: 5}
	return retry.OnError(again, func(error) bool { return ctx.Err() == nil }, func() error {
		var current Queue
		if err := r.live.Get(ctx, client.ObjectKeyFromObject(queue), &current); err != nil {
			return client.IgnoreNotFound(err)
		}
		// The bug, without fixNamesake: this may be another Queue of that name, which has no accounts yet.
		if r.fixNamesake && current.UID != queue.UID {
			return nil
		}
		current.Status = s
		return r.Status().Update(ctx, &current)
	})
}

func newAccount(queue *Queue, user string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: queue.Namespace, Name: queue.Name + "-" + user, Labels: map[string]string{ofQueue: queue.Name},
		},
		StringData: map[string]string{"password": rand.Text()},
	}
}
