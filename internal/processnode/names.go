package processnode

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
)

// names are those of the cluster's Services.
type names struct{ client kubernetes.Interface }

// lookup finds service, namespace or host, service, namespace. It returns an empty answer if there is no such name.
func (n names) lookup(ctx context.Context, parts []string) (string, error) {
	host := ""
	if len(parts) == 3 {
		host, parts = parts[0], parts[1:]
	}
	if len(parts) != 2 || slices.Contains(parts, "") || strings.ContainsAny(strings.Join(parts, ""), "_/*") {
		return "", nil
	}
	service, err := n.client.CoreV1().Services(parts[1]).Get(ctx, parts[0], metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", err
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		if host != "" {
			return "", nil
		}
		return "host " + service.Spec.ExternalName, nil
	case service.Spec.ClusterIP != corev1.ClusterIPNone:
		if host != "" {
			return "", nil
		}
		return service.Spec.ClusterIP, nil
	}
	ips, err := n.headless(ctx, service, host)
	return strings.Join(ips, " "), err
}

// headless lists the addresses of the pods of a headless Service, or only that of the pod with the given host name.
func (n names) headless(ctx context.Context, service *corev1.Service, host string) ([]string, error) {
	var ips []string
	if len(service.Spec.Selector) == 0 {
		slices, err := n.client.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx,
			metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name})
		if err != nil {
			return nil, err
		}
		for _, s := range slices.Items {
			for _, e := range s.Endpoints {
				if e.Conditions.Ready != nil && !*e.Conditions.Ready ||
					host != "" && (e.Hostname == nil || *e.Hostname != host) {
					continue
				}
				ips = append(ips, e.Addresses...)
			}
		}
		return ips, nil
	}
	pods, err := n.client.CoreV1().Pods(service.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: labels.SelectorFromSet(service.Spec.Selector).String()})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		switch {
		case pod.Status.PodIP == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		case !service.Spec.PublishNotReadyAddresses &&
			(pod.DeletionTimestamp != nil || !conditionTrue(pod, corev1.PodReady)):
		case host != "" && (pod.Spec.Hostname != host || pod.Spec.Subdomain != service.Name):
		default:
			ips = append(ips, pod.Status.PodIP)
		}
	}
	slices.Sort(ips)
	return ips, nil
}
