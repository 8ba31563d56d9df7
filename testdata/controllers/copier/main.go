// Command copier is a small controller on client-go alone, for tests of Trommel: it keeps for every ConfigMap labelled
// copy=true a ConfigMap <name>-copy with the same data.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
)

func main() {
	exit := flag.Bool("exit", false, "exit with code 3 at once")
	elect := flag.Bool("leader-elect", false, "lead by a lease of 7 s, default/copier")
	kubeconfig := flag.String("kubeconfig", "",
		"file to read the cluster's configuration from instead of the pod's service account")
	panicOn := flag.String("panic-on", "", "panic when a ConfigMap of this name is to be copied")
	flag.Parse()
	if *exit {
		fmt.Fprintln(os.Stderr, "copier: told to exit")
		os.Exit(3)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := start(ctx, *kubeconfig, *panicOn, *elect); err != nil {
		fmt.Fprintln(os.Stderr, "copier:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, kubeconfig, panicOn string, elect bool) error {
	config, err := restConfig(kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if !elect {
		return run(ctx, client, panicOn)
	}
	identity, err := os.Hostname()
	if err != nil {
		return err
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "default", "copier", client.CoreV1(),
		client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: fmt.Sprintf("%s-%d", identity, os.Getpid())})
	if err != nil {
		return err
	}
	var failed error
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 7 * time.Second, RenewDeadline: 6 * time.Second, RetryPeriod: time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				if err := run(ctx, client, panicOn); err != nil {
					fmt.Fprintln(os.Stderr, "copier:", err)
					os.Exit(1)
				}
			},
			OnStoppedLeading: func() { failed = errors.New("leader election lost") },
		},
	})
	if ctx.Err() != nil {
		return nil // the order to end
	}
	return failed
}

func run(ctx context.Context, client kubernetes.Interface, panicOn string) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().ConfigMaps()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	enqueue := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			queue.Add(key)
		}
	}
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, obj any) { enqueue(obj) },
		DeleteFunc: enqueue,
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced) {
		return ctx.Err()
	}
	go func() { <-ctx.Done(); queue.ShutDown() }()
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return nil
		}
		if err := copyOne(ctx, client, informer.Lister(), key, panicOn); err != nil {
			fmt.Fprintln(os.Stderr, "copier:", err)
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", kubeconfig)
}

func copyOne(ctx context.Context, client kubernetes.Interface, lister listers.ConfigMapLister, key,
	panicOn string) error {
	namespace, name, _ := strings.Cut(key, "/")
	source, err := lister.ConfigMaps(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || source.Labels["copy"] != "true" {
		return err
	}
	if name == panicOn {
		panic("told to panic on " + name)
	}
	maps := client.CoreV1().ConfigMaps(namespace)
	want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name + "-copy", Namespace: namespace},
		Data: source.Data}
	_, err = maps.Create(ctx, want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = maps.Update(ctx, want, metav1.UpdateOptions{})
	}
	return err
}
