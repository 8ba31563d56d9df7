// Command elected is a small controller of the year 2020, for tests of Trommel: it is elected leader by a lock that
// client-go has given up since, and keeps for every ConfigMap labelled copy=true a ConfigMap <name>-copy with the same
// data.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
)

func main() {
	lock := flag.String("lock", resourcelock.ConfigMapsResourceLock,
		"configmaps, endpoints, configmapsleases or endpointsleases")
	flag.Parse()
	if err := elect(*lock); err != nil {
		fmt.Fprintln(os.Stderr, "elected:", err)
		os.Exit(1)
	}
}

// elect runs the controller as long as it leads, with the times that client-go's documentation proposes.
func elect(kind string) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	lock, err := resourcelock.New(kind, "default", "elected", client.CoreV1(), client.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: fmt.Sprintf("elected-%d", os.Getpid())})
	if err != nil {
		return err
	}
	leaderelection.RunOrDie(context.Background(), leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { run(ctx, client) },
			OnStoppedLeading: func() {},
		},
	})
	return fmt.Errorf("leader election lost")
}

func run(ctx context.Context, client kubernetes.Interface) {
	factory := informers.NewSharedInformerFactory(client, 0)
	maps := factory.Core().V1().ConfigMaps()
	queue := workqueue.NewRateLimitingQueue(workqueue.DefaultControllerRateLimiter())
	enqueue := func(obj interface{}) {
		if m := obj.(*corev1.ConfigMap); m.Labels["copy"] == "true" {
			queue.Add(cache.ExplicitKey(m.Namespace + "/" + m.Name))
		}
	}
	maps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, obj interface{}) { enqueue(obj) },
	})
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), maps.Informer().HasSynced) {
		return
	}
	for {
		item, shutdown := queue.Get()
		if shutdown {
			return
		}
		namespace, name, err := cache.SplitMetaNamespaceKey(string(item.(cache.ExplicitKey)))
		if err == nil {
			err = copyOne(ctx, client, namespace, name)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "elected:", err)
			queue.AddRateLimited(item)
		} else {
			queue.Forget(item)
		}
		queue.Done(item)
	}
}

func copyOne(ctx context.Context, client kubernetes.Interface, namespace, name string) error {
	maps := client.CoreV1().ConfigMaps(namespace)
	source, err := maps.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name + "-copy"}, Data: source.Data}
	if _, err = maps.Create(ctx, made, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		_, err = maps.Update(ctx, made, metav1.UpdateOptions{})
	}
	return err
}
