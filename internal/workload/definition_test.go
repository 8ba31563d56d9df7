package workload_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Regression: a definition can be a megabyte. It was read every 20 ms until its type was served, and that load delayed
// the API server.
func TestDefinitionIsNotReadAgainAndAgain(t *testing.T) {
	c := startCluster(t)
	config, err := c.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	var reads atomic.Int32
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet &&
				strings.HasSuffix(r.URL.Path, "/customresourcedefinitions/sieves.read.example.com") {
				reads.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	client, err := objects.New(config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := objects.Decode([]byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sieves.read.example.com}
spec:
  group: read.example.com
  scope: Namespaced
  names: {kind: Sieve, plural: sieves, singular: sieve}
  versions:
  - name: v0
    served: false
    storage: false
    schema: {openAPIV3Schema: &any {type: object, x-kubernetes-preserve-unknown-fields: true}}
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: *any}}
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: *any}}
`), "sieves.yaml")
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if _, err := client.Apply(t.Context(), list[0]); err != nil {
		t.Fatal(err)
	}
	if most := int32(time.Since(begun) / time.Second); reads.Load() > most {
		t.Errorf("the definition was read %d times in %s", reads.Load(), time.Since(begun))
	}
	// Its type is served when Apply returns, in the newest version where none is named.
	got, err := client.Resolve(t.Context(), plan.ResourceKey{Type: "sieve", Namespace: "default", Name: "a"})
	if want := (schema.GroupVersionKind{Group: "read.example.com", Version: "v1", Kind: "Sieve"}); err != nil ||
		got.Kind != want {
		t.Errorf("sieve is %s, %v", got.Kind, err)
	}
	if _, err := client.List(t.Context(), plan.ResourceKey{Type: "sieve", Namespace: "*", Name: "*"}); err != nil {
		t.Error(err)
	}
}
