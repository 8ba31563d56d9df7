// Package objects reads, writes and follows Kubernetes objects of any type, by the resource keys of plans and suites.
// Package manifests below it reads what suites apply: files, kustomizations and charts.
package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// DefaultFieldManager owns the fields that a Client applies.
const DefaultFieldManager = record.PlanManager

// Client reads and writes objects through one API server. It is safe for concurrent use. Its methods make one attempt
// each; see [Retry] for API servers that are temporarily not available.
type Client struct {
	dynamic  dynamic.Interface
	metadata dynamic.Interface // receives only the objects' metadata
	served   *served
	manager  string
}

// New makes a client for the API server in config. It does not connect yet.
func New(config *rest.Config) (*Client, error) {
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	m, err := metadataOnly(config)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Client{
		dynamic: d, metadata: m, served: &served{discovery: disco}, manager: DefaultFieldManager,
	}, nil
}

// WithFieldManager returns a copy of the client that applies as another field manager.
func (c *Client) WithFieldManager(name string) *Client {
	other := *c
	other.manager = name
	return &other
}

// Resource returns the client for a type. The namespace is ignored for a cluster-scoped type; "" and "*" mean all
// namespaces.
func (c *Client) Resource(t Type, namespace string) dynamic.ResourceInterface {
	r := c.dynamic.Resource(t.Resource)
	if !t.Namespaced || namespace == "" || namespace == "*" {
		return r
	}
	return r.Namespace(namespace)
}

// Apply applies the object server-side, with force, and returns the API server's answer. A namespaced object without a
// namespace goes to default; one that has only a generateName is created. After a CustomResourceDefinition, Apply waits
// until its type is served.
func (c *Client) Apply(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	u, err := FromMap(u.Object) // a copy, with the number types that the client requires
	if err != nil {
		return nil, err
	}
	t, err := c.ResolveKind(ctx, u.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	if t.Namespaced && u.GetNamespace() == "" {
		u.SetNamespace(metav1.NamespaceDefault)
	} else if !t.Namespaced {
		u.SetNamespace("")
	}
	u.SetManagedFields(nil)
	resource := c.Resource(t, u.GetNamespace())
	if u.GetName() == "" && u.GetGenerateName() != "" {
		return resource.Create(ctx, u, metav1.CreateOptions{FieldManager: c.manager})
	}
	if u.GetName() == "" {
		return nil, fmt.Errorf("the %s has no name", u.GetKind())
	}
	applied, err := resource.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: c.manager, Force: true})
	if err != nil {
		return nil, err
	}
	if u.GetKind() == "CustomResourceDefinition" {
		if err := c.awaitDefinition(ctx, u); err != nil {
			return applied, err
		}
	}
	return applied, nil
}

// Update replaces an object, if it still has the resource version that u has.
func (c *Client) Update(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	t, err := c.ResolveKind(ctx, u.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	return c.Resource(t, u.GetNamespace()).Update(ctx, u, metav1.UpdateOptions{FieldManager: c.manager})
}

// DeleteOptions say how to delete.
type DeleteOptions struct {
	GracePeriod *time.Duration // nil: the type's default
	Propagation string         // Background (default), Foreground, Orphan
}

// Delete deletes one object. It does not wait until the object is gone.
func (c *Client) Delete(ctx context.Context, key plan.ResourceKey, o DeleteOptions) error {
	resource, err := c.one(ctx, key)
	if err != nil {
		return err
	}
	propagation := metav1.DeletePropagationBackground
	if o.Propagation != "" {
		propagation = metav1.DeletionPropagation(o.Propagation)
	}
	options := metav1.DeleteOptions{PropagationPolicy: &propagation}
	if o.GracePeriod != nil {
		seconds := int64(o.GracePeriod.Round(time.Second) / time.Second)
		if *o.GracePeriod > 0 && seconds == 0 {
			seconds = 1 // zero would delete it at once, without waiting for the node
		}
		options.GracePeriodSeconds = &seconds
	}
	return resource.Delete(ctx, key.Name, options)
}

var patchTypes = map[string]types.PatchType{
	"": types.MergePatchType, "merge": types.MergePatchType, "json": types.JSONPatchType,
	"strategic": types.StrategicMergePatchType,
}

// Patch patches one object and returns the API server's answer. The patch type is merge (the default, ""), json or
// strategic; patch is any value that encodes to the patch's JSON.
func (c *Client) Patch(ctx context.Context, key plan.ResourceKey, patchType string, patch any,
	subresource string) (*unstructured.Unstructured, error) {
	pt, ok := patchTypes[patchType]
	if !ok {
		return nil, fmt.Errorf("unknown patch type %q (known: merge, json, strategic)", patchType)
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	resource, err := c.one(ctx, key)
	if err != nil {
		return nil, err
	}
	var subresources []string
	if subresource != "" {
		subresources = append(subresources, subresource)
	}
	return resource.Patch(ctx, key.Name, pt, data, metav1.PatchOptions{FieldManager: c.manager}, subresources...)
}

// Get reads the newest state of one object (a consistent read).
func (c *Client) Get(ctx context.Context, key plan.ResourceKey) (*unstructured.Unstructured, error) {
	resource, err := c.one(ctx, key)
	if err != nil {
		return nil, err
	}
	return resource.Get(ctx, key.Name, metav1.GetOptions{})
}

// List reads the newest state of all objects that the key stands for (a consistent read), ordered by namespace and
// name.
func (c *Client) List(ctx context.Context, key plan.ResourceKey) ([]*unstructured.Unstructured, error) {
	t, err := c.Resolve(ctx, key)
	if err != nil {
		return nil, err
	}
	list, err := c.Resource(t, key.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for i := range list.Items {
		if u := &list.Items[i]; t.Matches(key, u.GetNamespace(), u.GetName()) {
			all = append(all, u)
		}
	}
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return all, nil
}

// one resolves a key that must name a single object.
func (c *Client) one(ctx context.Context, key plan.ResourceKey) (dynamic.ResourceInterface, error) {
	if strings.Contains(key.Name, "*") || key.Namespace == "*" || key.Name == "" {
		return nil, fmt.Errorf("%s does not name one object", key)
	}
	t, err := c.Resolve(ctx, key)
	if err != nil {
		return nil, err
	}
	if t.Namespaced && key.Namespace == "" {
		return nil, fmt.Errorf("%s: a %s lives in a namespace", key, t.Singular)
	}
	return c.Resource(t, key.Namespace), nil
}

const (
	// definitionLooks is how often the API server may answer that it does not serve the type of an applied
	// CustomResourceDefinition yet, before that counts as a failure. Answers are counted, not seconds, because an API
	// server on a busy machine takes longer both to answer and to serve the type.
	definitionLooks = 20
	// definitionTimeout limits the whole wait, for an API server that does not answer at all.
	definitionTimeout = 3 * time.Minute
	// definitionLook is the interval at which a definition is read while its type is not served. A definition can be a
	// megabyte, and API servers that send it again and again take longer to serve it.
	definitionLook = time.Second
)

// awaitDefinition returns when the API server serves the type that was just defined, in all its served versions.
func (c *Client) awaitDefinition(ctx context.Context, u *unstructured.Unstructured) error {
	ctx, cancel := clock.WithTimeout(ctx, definitionTimeout)
	defer cancel()
	definitions, err := c.ResolveKind(ctx, u.GroupVersionKind())
	if err != nil {
		return err
	}
	reason := "it is not established"
	looked, looks := clock.Now(ctx), 0
	for {
		left, err := c.unserved(ctx, u)
		switch {
		case err == nil && left == "":
			return nil
		case err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !Transient(err):
			return fmt.Errorf("CustomResourceDefinition %s: %w", u.GetName(), err)
		case clock.Since(ctx, looked) >= definitionLook || ctx.Err() != nil:
			// The deadline may have passed, but one more request finds out the reason.
			look, cancel := clock.WithTimeout(context.WithoutCancel(ctx), 10*definitionLook)
			current, err := c.Resource(definitions, "").Get(look, u.GetName(), metav1.GetOptions{})
			cancel()
			looked = clock.Now(ctx)
			if err == nil {
				looks++
				if reason = notEstablished(current); reason == "" {
					reason = "it is established, but the API server does not serve it"
				}
			} else if !apierrors.IsTimeout(err) {
				reason = err.Error()
			}
		}
		if ctx.Err() != nil || looks >= definitionLooks {
			return fmt.Errorf("CustomResourceDefinition %s is not served: %s", u.GetName(), reason)
		}
		_ = clock.Sleep(ctx, 20*time.Millisecond) // the next round looks at ctx
	}
}

// unserved names a version of the defined type that the API server does not serve yet, or is empty when it serves all.
func (c *Client) unserved(ctx context.Context, definition *unstructured.Unstructured) (string, error) {
	var all []Type
	for _, t := range Defined([]*unstructured.Unstructured{definition}) {
		if t.Unserved {
			continue
		}
		list, err := c.served.resources(ctx, t.Kind.GroupVersion())
		if apierrors.IsNotFound(err) {
			return t.Kind.Version, nil
		}
		if err != nil {
			return t.Kind.Version, err
		}
		i := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool {
			return r.Name == t.Resource.Resource
		})
		if i < 0 {
			return t.Kind.Version, nil
		}
		t.Verbs, t.Subresources = list.APIResources[i].Verbs, subresources(list)[t.Resource.Resource]
		if _, err := c.Resource(t, "").List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return t.Kind.Version, err
		}
		all = append(all, t)
	}
	if len(all) > 0 {
		best := slices.MaxFunc(all, func(a, b Type) int {
			return version.CompareKubeAwareVersionStrings(a.Kind.Version, b.Kind.Version)
		})
		for i := range all {
			all[i].preferred = all[i].Kind == best.Kind
		}
	}
	c.served.add(all)
	return "", nil
}

// notEstablished says why a definition is not established, or is empty when it is.
func notEstablished(definition *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	reason := "it is not established"
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		switch {
		case condition["type"] == "Established" && condition["status"] == "True":
			return ""
		case condition["type"] == "NamesAccepted" && condition["status"] == "False",
			condition["type"] == "NonStructuralSchema" && condition["status"] == "True":
			reason = fmt.Sprint(condition["message"])
		}
	}
	return reason
}
