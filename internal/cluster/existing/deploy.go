package existing

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/processnode/volumes"
)

// annotationReplaced on a Deployment: a run has scaled it to 0. Its value is a replaced.
const annotationReplaced = "trommel.dev/replaced"

// emptyTimeout is how long the pods of a Deployment that is scaled to 0 may take to end.
const emptyTimeout = 2 * time.Minute

// Allow takes the suite's manifests: their cluster-scoped objects may be written. It refuses those in other namespaces,
// webhooks, which could not be called, and what the user may not do: to read what is there already, which a run uses as
// it is, and to create the rest, and to delete it again. Own are the controllers' Deployments, which a run only scales.
func (c *Cluster) Allow(ctx context.Context, manifests, own []*unstructured.Unstructured) error {
	all := slices.Concat(manifests, own)
	types, err := c.typesOf(all)
	if err != nil {
		return err
	}
	var rights []right
	need := func(r right) {
		if !slices.Contains(rights, r) {
			rights = append(rights, r)
		}
	}
	for i, u := range all {
		t, known := types[u.GroupVersionKind().GroupKind()]
		name := fmt.Sprintf("%s %s", u.GetKind(), u.GetName())
		switch {
		case u.GetKind() == "ValidatingWebhookConfiguration" || u.GetKind() == "MutatingWebhookConfiguration" ||
			u.GetKind() == "APIService":
			return refuse("the manifests have %s: the API servers of an existing cluster cannot call what runs on "+
				"this machine; leave it out, or use a cluster of another type", name)
		case !known:
			// A type that other manifests define: its scope is known when it is applied, and the front sees the path.
			c.front.list(u.GroupVersionKind().Group, strings.ToLower(u.GetKind())+"s", u.GetNamespace(), u.GetName(),
				true)
			continue
		case !t.namespaced && u.GetKind() == "Namespace" && !slices.Contains(c.namespaces, u.GetName()):
			return refuse("the manifests have %s: the suite's namespaces are %s", name, strings.Join(c.namespaces,
				", "))
		case t.namespaced && !slices.Contains(c.namespaces, namespaceOf(u)):
			return refuse("the manifests have %s in namespace %s: the suite's namespaces are %s", name, namespaceOf(u),
				strings.Join(c.namespaces, ", "))
		}
		ns := ""
		if t.namespaced {
			ns = namespaceOf(u)
		}
		c.front.list(t.Group, t.Resource, ns, u.GetName(), !t.namespaced)
		need(right{ns, "get", t.Group, t.Resource, ""})
		if i >= len(manifests) {
			continue // everyRun has the right to scale it
		}
		_, err := c.front.get(ctx, t.GroupVersionResource, ns, u.GetName())
		switch {
		case apierrors.IsNotFound(err):
			for _, verb := range []string{"create", "patch", "delete"} {
				need(right{ns, verb, t.Group, t.Resource, ""})
			}
		case err != nil && !apierrors.IsForbidden(err):
			return fmt.Errorf("look for %s: %w", name, err)
		}
	}
	return c.may(ctx, rights)
}

func namespaceOf(u *unstructured.Unstructured) string {
	if u.GetNamespace() == "" {
		return metav1.NamespaceDefault
	}
	return u.GetNamespace()
}

// list lets an object of the manifests be written.
func (f *front) list(group, resource, namespace, name string, clusterScoped bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[listKey(group, resource, namespace, name)] = true
	if clusterScoped {
		f.listed[listKey(group, resource, "", name)] = true
	}
}

type served struct {
	schema.GroupVersionResource
	namespaced bool
}

// typesOf looks up the types of objects; those that the cluster does not serve are left out.
func (c *Cluster) typesOf(all []*unstructured.Unstructured) (map[schema.GroupKind]served, error) {
	groups, err := restmapper.GetAPIGroupResources(c.admin.Discovery())
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("ask %s for its types: %w", c.access, err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	types := map[schema.GroupKind]served{}
	for _, u := range all {
		kind := u.GroupVersionKind()
		if m, err := mapper.RESTMapping(kind.GroupKind(), kind.Version); err == nil {
			types[kind.GroupKind()] = served{m.Resource, m.Scope.Name() == "namespace"}
		}
	}
	return types, nil
}

// Deploy runs a controller as processes of this machine. If the cluster has its Deployment, that is scaled to 0 first.
func (c *Cluster) Deploy(ctx context.Context, controller string, own []*unstructured.Unstructured) error {
	if err := c.journal.add(entry{Running: true}); err != nil {
		return err
	}
	for _, u := range own {
		if u.GetKind() != "Deployment" {
			return refuse("controller %q needs %s %s of its own, and an existing cluster takes only what the "+
				"manifests list: name its Deployment there with deployment:", controller, u.GetKind(), u.GetName())
		}
		d := new(appsv1.Deployment)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d); err != nil {
			return err
		}
		if d.Namespace == "" {
			d.Namespace = metav1.NamespaceDefault
		}
		if !slices.Contains(c.namespaces, d.Namespace) {
			return refuse("the Deployment of controller %q is in namespace %s: the suite's namespaces are %s",
				controller,
				d.Namespace, strings.Join(c.namespaces, ", "))
		}
		if err := c.displace(ctx, d.Namespace, d.Name); err != nil {
			return fmt.Errorf("controller %q: %w", controller, err)
		}
		n := int32(1)
		if d.Spec.Replicas != nil {
			n = *d.Spec.Replicas
		}
		for range n {
			c.node.Run(podOf(d))
		}
	}
	return nil
}

// podOf returns a pod as the Deployment's controllers, and the admission of service accounts, would make it.
func podOf(d *appsv1.Deployment) *corev1.Pod {
	uid := uuid.NewUUID()
	p := &corev1.Pod{ObjectMeta: *d.Spec.Template.ObjectMeta.DeepCopy(), Spec: *d.Spec.Template.Spec.DeepCopy()}
	p.Namespace, p.UID = d.Namespace, uid
	p.Name = d.Name + "-" + string(uid[:8])
	if p.Spec.ServiceAccountName == "" {
		p.Spec.ServiceAccountName = "default"
	}
	if p.Spec.RestartPolicy == "" {
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	if p.Spec.AutomountServiceAccountToken == nil || *p.Spec.AutomountServiceAccountToken {
		const volume = "kube-api-access-trommel"
		mount := corev1.VolumeMount{Name: volume, MountPath: volumes.ServiceAccountMount, ReadOnly: true}
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: volume})
		for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				list[i].VolumeMounts = append(list[i].VolumeMounts, mount)
			}
		}
	}
	return p
}

// displace scales the cluster's own Deployment of a controller to 0 and waits until its pods have ended.
func (c *Cluster) displace(ctx context.Context, namespace, name string) error {
	d, err := c.admin.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	r := &replaced{Namespace: namespace, Name: name, UID: d.UID, Replicas: 1}
	if d.Spec.Replicas != nil {
		r.Replicas = *d.Spec.Replicas
	}
	if r.Replicas == 0 {
		return nil
	}
	if d.Annotations[annotationReplaced] != "" {
		return fmt.Errorf("deployment %s/%s has the annotation %s, of a run that has not put it back", namespace, name,
			annotationReplaced)
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := c.journal.add(entry{Replaced: r}); err != nil {
		return err
	}
	c.progress(fmt.Sprintf("deployment %s/%s of the cluster is scaled from %d to 0 while the controller runs here",
		namespace, name, r.Replicas))
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid": d.UID, "resourceVersion": d.ResourceVersion,
			"annotations": map[string]any{annotationReplaced: string(text)},
		},
		"spec": map[string]any{"replicas": 0},
	})
	if err != nil {
		return err
	}
	if _, err := c.admin.AppsV1().Deployments(namespace).Patch(ctx, name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: manager}); err != nil {
		return fmt.Errorf("scale deployment %s/%s to 0: %w", namespace, name, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, emptyTimeout, fmt.Errorf("not within %s", emptyTimeout))
	defer cancel()
	return cluster.Poll(ctx, pollInterval, func(ctx context.Context) error {
		pods, err := c.admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
		if err != nil {
			return err
		}
		if len(pods.Items) > 0 {
			return fmt.Errorf("%d pods of deployment %s/%s still run", len(pods.Items), namespace, name)
		}
		return nil
	})
}

// manager owns the fields that this package writes.
const manager = "trommel"

// putBack scales a Deployment back, unless another client has changed the number of its pods meanwhile.
func (c *Cluster) putBack(ctx context.Context, r *replaced) error {
	for {
		d, err := c.admin.AppsV1().Deployments(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && (d.UID != r.UID || d.Annotations[annotationReplaced] == "") {
			return nil // gone, or nothing has been replaced
		}
		if err != nil {
			return fmt.Errorf("put back deployment %s/%s: %w", r.Namespace, r.Name, err)
		}
		meta := map[string]any{
			"uid": d.UID, "resourceVersion": d.ResourceVersion, "annotations": map[string]any{annotationReplaced: nil},
		}
		change := map[string]any{"metadata": meta}
		if d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
			change["spec"] = map[string]any{"replicas": r.Replicas}
		} else {
			c.progress(fmt.Sprintf("deployment %s/%s keeps its size: somebody has changed it meanwhile", r.Namespace,
				r.Name))
		}
		patch, err := json.Marshal(change)
		if err != nil {
			return err
		}
		_, err = c.admin.AppsV1().Deployments(r.Namespace).Patch(ctx, r.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: manager})
		if apierrors.IsConflict(err) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return fmt.Errorf("put back deployment %s/%s: %w", r.Namespace, r.Name, err)
		}
		return nil
	}
}

// putBackAnnotated puts back the Deployments of a run that has left only their annotations.
func (c *Cluster) putBackAnnotated(ctx context.Context) error {
	for _, ns := range c.namespaces {
		list, err := c.admin.AppsV1().Deployments(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("look for Deployments that a run has scaled to 0: %w", err)
		}
		for i := range list.Items {
			d := &list.Items[i]
			text := d.Annotations[annotationReplaced]
			if text == "" {
				continue
			}
			r := &replaced{}
			if err := json.Unmarshal([]byte(text), r); err != nil {
				return fmt.Errorf("deployment %s/%s has an invalid annotation %s: %w", ns, d.Name, annotationReplaced,
					err)
			}
			r.Namespace, r.Name, r.UID = ns, d.Name, d.UID
			c.progress(fmt.Sprintf("putting back deployment %s/%s, which an earlier run has scaled to 0", ns, d.Name))
			if err := c.putBack(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}
