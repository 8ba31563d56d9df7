package objects

import (
	"context"
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/plan"
)

// definitions is the key of all CustomResourceDefinitions.
var definitions = plan.ResourceKey{Type: "customresourcedefinition", Group: "apiextensions.k8s.io", Name: "*"}

// Definitions returns the type of CustomResourceDefinitions and a client that lists and watches only their metadata: a
// definition can be a megabyte. It returns false if the cluster serves no definitions, or the user may not list them.
func (c *Client) Definitions(ctx context.Context) (Type, *Client, bool, error) {
	t, err := c.Resolve(ctx, definitions)
	if errors.Is(err, ErrNotServed) {
		return t, nil, false, nil
	}
	if err != nil {
		return t, nil, false, err
	}
	err = Retry(ctx, func(ctx context.Context) error {
		_, err := c.metadata.Resource(t.Resource).List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
	if apierrors.IsForbidden(err) {
		return t, nil, false, nil
	}
	only := *c
	only.dynamic = c.metadata
	return t, &only, err == nil, err
}

// metadataOnly returns a client that receives only the metadata of the objects that it lists and watches.
func metadataOnly(config *rest.Config) (dynamic.Interface, error) {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return acceptMetadata{next} })
	return dynamic.NewForConfig(config)
}

type acceptMetadata struct{ next http.RoundTripper }

func (a acceptMetadata) RoundTrip(r *http.Request) (*http.Response, error) {
	const only = "g=meta.k8s.io;v=v1"
	r = r.Clone(r.Context())
	as := "PartialObjectMetadataList"
	if r.URL.Query().Has("watch") {
		as = "PartialObjectMetadata"
	}
	r.Header.Set("Accept", "application/json;as="+as+";"+only+",application/json")
	return a.next.RoundTrip(r)
}

// DefinedNow returns the types that a CustomResourceDefinition makes the API server serve, one for each version and the
// newest first. It returns none if the definition does not exist, is not established, or is being deleted. The client
// knows the types from then on, also while the API server's list of types is older.
func (c *Client) DefinedNow(ctx context.Context, name string) ([]Type, error) {
	t, err := c.Resolve(ctx, definitions)
	if err != nil {
		return nil, err
	}
	u, err := c.Resource(t, "").Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if notEstablished(u) != "" || u.GetDeletionTimestamp() != nil {
		return nil, nil
	}
	all := slices.DeleteFunc(Defined([]*unstructured.Unstructured{u}), func(t Type) bool { return t.Unserved })
	slices.SortFunc(all, func(a, b Type) int {
		return -version.CompareKubeAwareVersionStrings(a.Kind.Version, b.Kind.Version)
	})
	for i := range all {
		all[i].preferred = i == 0
	}
	c.served.add(all)
	return all, nil
}

// DefinedBy reports whether a definition of that name defines the type.
func (t Type) DefinedBy(name string) bool { return name == t.Resource.Resource+"."+t.Resource.Group }
