// Command guard is a small controller of 2021, for tests of Trommel: it keeps for every ConfigMap labelled guard=true a
// PodDisruptionBudget of policy/v1beta1 and an Ingress of extensions/v1beta1, which no Kubernetes of today serves.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "guard:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	budgets := factory.Policy().V1beta1().PodDisruptionBudgets()
	ingresses := factory.Extensions().V1beta1().Ingresses()
	changed := make(chan string, 100)
	factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj interface{}) {
			if m := obj.(*corev1.ConfigMap); m.Labels["guard"] == "true" {
				changed <- m.Name
			}
		},
	})
	synced := []cache.InformerSynced{budgets.Informer().HasSynced, ingresses.Informer().HasSynced}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return ctx.Err()
	}
	for name := range changed {
		meta := metav1.ObjectMeta{Name: name, Namespace: "default"}
		one := intstr.FromInt(1)
		_, err := client.PolicyV1beta1().PodDisruptionBudgets("default").Create(ctx, &policyv1beta1.PodDisruptionBudget{
			ObjectMeta: meta, Spec: policyv1beta1.PodDisruptionBudgetSpec{MinAvailable: &one,
				Selector: &metav1.LabelSelector{}},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		_, err = client.ExtensionsV1beta1().Ingresses("default").Create(ctx, &extensionsv1beta1.Ingress{
			ObjectMeta: meta, Spec: extensionsv1beta1.IngressSpec{
				Backend: &extensionsv1beta1.IngressBackend{ServiceName: name, ServicePort: intstr.FromInt(80)},
			},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		// The informers see what was made.
		for {
			_, budgetErr := budgets.Lister().PodDisruptionBudgets("default").Get(name)
			_, ingressErr := ingresses.Lister().Ingresses("default").Get(name)
			if budgetErr == nil && ingressErr == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-guarded", Namespace: "default"},
		}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}
