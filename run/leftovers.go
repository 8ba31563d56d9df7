package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/trommel-dev/trommel/objects"
	"github.com/trommel-dev/trommel/plan"
)

// A cluster that outlives the run must be left as it was found. What was there is noted in a file of the cluster's before
// anything is created; at the end everything else is deleted. A run that was killed leaves the file, and the next run on that cluster
// begins by finishing the job.

// baselineFile lies in the cluster's state folder while a run is under way.
const baselineFile = "baseline.json"

// leftoverTimeout bounds the wait for deleted objects to be gone.
const leftoverTimeout = 20 * time.Second

func (r *runner) cleanLeftovers(ctx context.Context) error {
	if r.cluster.StateDir() == "" {
		return nil
	}
	file := filepath.Join(r.cluster.StateDir(), baselineFile)
	data, err := os.ReadFile(file)
	switch {
	case err == nil:
		r.Console.Info("a run before this one was killed: removing what it left in the cluster")
		baseline := map[types.UID]bool{}
		if err := json.Unmarshal(data, &baseline); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if err := r.restore(ctx, baseline); err != nil {
			return fmt.Errorf("remove what an earlier run left: %w", err)
		}
		if node := r.cluster.Processes(); node != nil {
			if err := node.Reset(ctx); err != nil {
				return fmt.Errorf("reset process node: %w", err)
			}
		}
		for _, name := range r.cluster.APIServers() {
			if err := r.cluster.StartAPIServer(ctx, name); err != nil {
				return fmt.Errorf("start %s: %w", name, err)
			}
		}
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	all, err := r.everything(ctx)
	if err != nil {
		return fmt.Errorf("note what is in the cluster: %w", err)
	}
	baseline := map[types.UID]bool{}
	for _, o := range all {
		baseline[o.uid] = true
	}
	if data, err = json.Marshal(baseline); err != nil {
		return err
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return fmt.Errorf("note what is in the cluster: %w", err)
	}
	r.later(func(ctx context.Context) error {
		if err := r.restore(ctx, baseline); err != nil {
			return fmt.Errorf("remove what the run created: %w", err)
		}
		if node := r.cluster.Processes(); node != nil {
			if err := node.Reset(ctx); err != nil {
				return err
			}
		}
		return os.Remove(file)
	})
	return nil
}

type clusterObject struct {
	resource   schema.GroupVersionResource
	namespace  string
	name       string
	uid        types.UID
	finalizers []string
}

// transient are types that the cluster writes by itself all the time and that no run depends on.
var transient = map[string]bool{
	"events": true, "leases": true, "nodes": true, "csinodes": true, "componentstatuses": true, "endpointslices": true, "endpoints": true,
	"flowschemas": true, "prioritylevelconfigurations": true, "controllerrevisions": false,
	"ipaddresses": true, "servicecidrs": true, "storageversions": true,
}

// autoManaged labels the APIServices that an API server makes for itself and for each definition.
const autoManaged = "kube-aggregator.kubernetes.io/automanaged"

// everything lists the cluster's objects, but for transient types and kube-system.
func (r *runner) everything(ctx context.Context) ([]clusterObject, error) {
	config, err := r.cluster.RESTConfig(r.steadyAPIServer())
	if err != nil {
		return nil, err
	}
	unthrottle(config)
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := disco.ServerPreferredResources()
	if err != nil && len(lists) == 0 {
		return nil, err
	}
	var all []clusterObject
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, res := range list.APIResources {
			if transient[res.Name] || strings.Contains(res.Name, "/") || !slices.Contains(res.Verbs, "list") || !slices.Contains(res.Verbs, "delete") {
				continue
			}
			gvr := gv.WithResource(res.Name)
			items, err := client.Resource(gvr).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", res.Name, err)
			}
			for i := range items.Items {
				o := &items.Items[i]
				if strings.HasPrefix(o.Namespace, "kube-") || o.Name == "kube-root-ca.crt" || res.Name == "apiservices" && o.Labels[autoManaged] != "" {
					continue
				}
				all = append(all, clusterObject{gvr, o.Namespace, o.Name, o.UID, o.Finalizers})
			}
		}
	}
	return all, nil
}

// restore deletes everything that is not in the baseline and returns when it is gone. Controllers go first, so that nobody makes
// new objects meanwhile; finalizers whose controllers are gone are taken off.
func (r *runner) restore(ctx context.Context, baseline map[types.UID]bool) error {
	config, err := r.cluster.RESTConfig(r.steadyAPIServer())
	if err != nil {
		return err
	}
	unthrottle(config)
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, leftoverTimeout)
	defer cancel()
	if err := r.disarm(ctx, client, baseline); err != nil {
		return err
	}
	for {
		extra, err := r.removeOnce(ctx, client, baseline)
		// A conversion that was called off a moment ago may not be everywhere yet.
		if err != nil && !objects.WebhookFailed(err) || err == nil && len(extra) == 0 {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			if err != nil {
				return err
			}
			return fmt.Errorf("%d objects are still there, the first is %s %s/%s", len(extra), extra[0].resource.Resource, extra[0].namespace, extra[0].name)
		}
	}
}

// disarm calls off what the API servers would ask of the controllers that go: with them gone, objects could be neither read nor deleted.
func (r *runner) disarm(ctx context.Context, client metadata.Interface, baseline map[types.UID]bool) error {
	for _, resource := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
		hooks := client.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource})
		list, err := hooks.List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list %s: %w", resource, err)
		}
		for _, o := range list.Items {
			if baseline[o.UID] {
				continue
			}
			if err := hooks.Delete(ctx, o.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("delete %s %s: %w", resource, o.Name, err)
			}
		}
	}
	definitions, err := r.objects.List(ctx, plan.ResourceKey{Type: "customresourcedefinition", Group: "apiextensions.k8s.io", Name: "*"})
	if err != nil {
		return fmt.Errorf("list definitions: %w", err)
	}
	for _, u := range definitions {
		if strategy, _, _ := unstructured.NestedString(u.Object, "spec", "conversion", "strategy"); baseline[u.GetUID()] || strategy != "Webhook" {
			continue
		}
		none := map[string]any{"spec": map[string]any{"conversion": map[string]any{"strategy": "None", "webhook": nil}}}
		key := plan.ResourceKey{Type: "customresourcedefinition", Group: "apiextensions.k8s.io", Name: u.GetName()}
		if _, err := r.objects.Patch(ctx, key, "merge", none, ""); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("call off the conversion of %s: %w", u.GetName(), err)
		}
	}
	return nil
}

// removeOnce deletes what is not in the baseline and returns what that was.
func (r *runner) removeOnce(ctx context.Context, client metadata.Interface, baseline map[types.UID]bool) ([]clusterObject, error) {
	all, err := r.everything(ctx)
	if err != nil {
		return nil, err
	}
	var extra []clusterObject
	for _, o := range all {
		if !baseline[o.uid] && (o.resource.Resource != "serviceaccounts" || o.name != "default") {
			extra = append(extra, o)
		}
	}
	sort.SliceStable(extra, func(i, j int) bool { return deletionRank(extra[i]) < deletionRank(extra[j]) })
	now := int64(0)
	for _, o := range extra {
		c := client.Resource(o.resource).Namespace(o.namespace)
		if len(o.finalizers) > 0 && o.resource.Resource != "namespaces" {
			_, err := c.Patch(ctx, o.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return nil, fmt.Errorf("take finalizers off %s %s/%s: %w", o.resource.Resource, o.namespace, o.name, err)
			}
		}
		background := metav1.DeletePropagationBackground
		err := c.Delete(ctx, o.name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &o.uid},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return nil, fmt.Errorf("delete %s %s/%s: %w", o.resource.Resource, o.namespace, o.name, err)
		}
	}
	return extra, nil
}

func deletionRank(o clusterObject) int {
	switch o.resource.Resource {
	case "deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "cronjobs":
		return 0
	case "pods":
		return 1
	case "customresourcedefinitions":
		return 3
	case "namespaces":
		return 4
	}
	return 2
}
