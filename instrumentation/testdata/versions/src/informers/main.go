// Command informers does what the controller beside it does on client-go alone: informers, a workqueue and clients.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
)

type copier struct {
	client     kubernetes.Interface
	configMaps listers.ConfigMapLister
	secrets    cache.Indexer
	queue      workqueue.RateLimitingInterface
}

func (c *copier) enqueue(object interface{}) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		c.queue.Add(key)
	}
}

func (c *copier) work(ctx context.Context) {
	for {
		key, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		if err := c.sync(ctx, key.(string)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			c.queue.AddRateLimited(key)
		} else {
			c.queue.Forget(key)
		}
		c.queue.Done(key)
	}
}

func (c *copier) sync(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	m, err := c.configMaps.ConfigMaps(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || m.Labels["copy"] != os.Getenv("COPIER") {
		return err
	}
	if _, _, err := c.secrets.GetByKey(key); err != nil {
		return err
	}
	client := c.client.CoreV1().ConfigMaps(namespace)
	if err := get(ctx, client, name+"-copy"); err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	to := &corev1.ConfigMap{}
	to.Namespace, to.Name = namespace, name+"-copy"
	return create(ctx, client, to)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		panic(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	factory := informers.NewSharedInformerFactory(client, 10*time.Hour)
	secrets := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "secrets", "default", fields.Everything())
	indexer, controller := cache.NewIndexerInformer(secrets, &corev1.Secret{}, 0, cache.ResourceEventHandlerFuncs{},
		cache.Indexers{})
	c := &copier{
		client: client, configMaps: factory.Core().V1().ConfigMaps().Lister(), secrets: indexer,
		queue: workqueue.NewRateLimitingQueue(workqueue.DefaultControllerRateLimiter()),
	}
	informer := factory.Core().V1().ConfigMaps().Informer()
	informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.enqueue, UpdateFunc: func(_, object interface{}) { c.enqueue(object) }, DeleteFunc: c.enqueue,
	})
	factory.Start(ctx.Done())
	go controller.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced, controller.HasSynced) {
		return
	}
	serve(c, informer.HasSynced)
	go c.work(ctx)
	<-ctx.Done()
	c.queue.ShutDown()
}
