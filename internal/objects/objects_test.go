package objects

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trommel-dev/trommel/plan"
)

func TestDecode(t *testing.T) {
	for _, test := range []struct {
		name string
		text string
		want string // kind/name of each
		err  string
	}{
		{"nothing", "", "", ""},
		{"comments and empty documents", "# one\n---\n\n---\n# two\n--- # three\n", "", ""},
		{
			"documents",
			"apiVersion: v1\nkind: A\nmetadata: {name: x}\n---\napiVersion: v1\nkind: B\nmetadata:\n  name: yy\n--- " +
				"{apiVersion: v1, kind: C, metadata: {name: z}}\n",
			"A/x B/yy C/z", "",
		},
		{"CRLF line ends", "apiVersion: v1\r\nkind: A\r\n---\r\napiVersion: v1\r\nkind: B\r\n", "A/ B/", ""},
		{"dashes that are not a document marker",
			"apiVersion: v1\nkind: A\ndata: |\n  ---\n  x\nmetadata: {name: nn}\n", "A/nn",
			""},
		{"list",
			"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A, metadata: {name: x}}\n- {apiVersion: " +
				"v1, kind: B, metadata: {name: yy}}\n", "A/x B/yy", ""},
		{"JSON", `{"apiVersion": "v1", "kind": "A", "metadata": {"name": "x"}}`, "A/x", ""},
		{"no kind, no apiVersion", "apiVersion: v1\n---\nkind: A\n", "",
			"f.yaml:1: the object has no kind\nf.yaml:2: the object has no apiVersion"},
		{"no mapping", "- a\n", "", "f.yaml:1: not a Kubernetes object: no mapping with apiVersion and kind"},
		{"broken YAML", "# one\n---\nb: 1\nc: [\n", "", "f.yaml:4: did not find expected node content"},
		{"a duplicate key", "---\napiVersion: v1\nkind: A\nkind: B\n", "", "f.yaml:4: key \"kind\" already set in map"},
	} {
		t.Run(test.name, func(t *testing.T) {
			list, err := Decode([]byte(test.text), "f.yaml")
			if test.err != "" || err != nil {
				if err == nil || err.Error() != test.err {
					t.Fatalf("got %v, want %s", err, test.err)
				}
				return
			}
			var got []string
			for _, u := range list {
				got = append(got, u.GetKind()+"/"+u.GetName())
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// yaml.v3 decodes to int, which unstructured objects cannot hold.
func TestFromMapTakesAnyNumber(t *testing.T) {
	m := map[string]any{"apiVersion": "v1", "kind": "A",
		"spec": map[string]any{"replicas": 3, "share": 0.5, "big": uint8(7)}}
	u, err := FromMap(m)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%T %v", u.Object["spec"].(map[string]any)["replicas"],
		u.DeepCopy().Object["spec"]); got != "int64 map[big:7 replicas:3 share:0.5]" {
		t.Error(got)
	}
	u.Object["spec"].(map[string]any)["replicas"] = int64(9)
	if m["spec"].(map[string]any)["replicas"] != 3 {
		t.Error("the mapping is shared")
	}
}

func typ(gvk, resource string, preferred bool) Type {
	gv, kind, _ := strings.Cut(gvk, " ")
	parsed, _ := schema.ParseGroupVersion(gv)
	return Type{Kind: parsed.WithKind(kind), Resource: parsed.WithResource(resource), Singular: strings.ToLower(kind),
		preferred: preferred}
}

func TestResolve(t *testing.T) {
	all := []Type{
		typ("v1 Pod", "pods", true),
		typ("v1 Event", "events", true),
		typ("events.k8s.io/v1 Event", "events", true),
		typ("apps/v1 StatefulSet", "statefulsets", true),
		typ("networking.k8s.io/v1 Ingress", "ingresses", true),
		typ("traefik.io/v1 Ingress", "ingresses", true),
		typ("a.example.com/v1alpha1 Database", "databases", false),
		typ("a.example.com/v1 Database", "databases", true),
		typ("b.example.com/v1 Cluster", "clusters", true),
		typ("c.example.com/v1 Cluster", "clusters", true),
	}
	for _, test := range []struct{ key, want, err string }{
		{"pod", "/v1, Resource=pods", ""},
		{"event", "/v1, Resource=events", ""},
		{"event.events.k8s.io", "events.k8s.io/v1, Resource=events", ""},
		{"ingress", "networking.k8s.io/v1, Resource=ingresses", ""},
		{"ingress.traefik.io", "traefik.io/v1, Resource=ingresses", ""},
		{"database", "a.example.com/v1, Resource=databases", ""},
		{"databases", "a.example.com/v1, Resource=databases", ""},
		{"cluster", "",
			`the cluster serves no type "cluster" without a group: several groups have one; write ` +
				`cluster.b.example.com or cluster.c.example.com`},
		{"stateful", "", `the cluster serves no type "stateful"; did you mean "statefulset"?`},
		{"databse", "", `the cluster serves no type "databse"; did you mean "database"?`},
		{"database.example.com", "",
			`the cluster serves no type "database.example.com"; did you mean "database.a.example.com"?`},
		{"zebra", "",
			`the cluster serves no type "zebra"; is its CustomResourceDefinition among the suite's manifests?`},
	} {
		key := plan.ResourceKey{}
		key.Type, key.Group, _ = strings.Cut(test.key, ".")
		got, err := FindKey(all, key)
		if test.err != "" {
			if err == nil || err.Error() != test.err || !errors.Is(err, ErrNotServed) {
				t.Errorf("%s: got %v, want %s", test.key, err, test.err)
			}
			continue
		}
		if err != nil || got.Resource.String() != test.want {
			t.Errorf("%s: got %s, %v; want %s", test.key, got.Resource, err, test.want)
		}
	}
	for _, test := range []struct{ kind, err string }{
		{"apps/v1 StatefulSet", ""},
		{"apps/v1beta1 StatefulSet",
			`the cluster serves no type "apps/v1beta1 StatefulSet" (it serves StatefulSet in apps/v1)`},
		{"v1 Database",
			`the cluster serves no type "v1 Database" (it serves a Database in a.example.com/v1alpha1, ` +
				`a.example.com/v1)`},
		{"v1 Podd", `the cluster serves no type "v1 Podd"; did you mean "pod"?`},
	} {
		_, err := FindKind(all, typ(test.kind, "", false).Kind)
		if (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%s: got %v, want %s", test.kind, err, test.err)
		}
	}
}

func TestTransient(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("something else"), false},
		{apierrors.NewNotFound(pods, "a"), false},
		{apierrors.NewGenericServerResponse(404, "get", pods, "a", "", 0, true), false}, // the type is not found
		{apierrors.NewConflict(pods, "a", errors.New("x")), true},
		{apierrors.NewInternalError(errors.New("failed calling webhook")), true},
		{apierrors.NewServiceUnavailable("x"), true},
		{apierrors.NewForbidden(pods, "a", errors.New("no")), false},
		{apierrors.NewForbidden(pods, "a",
			errors.New("error looking up service account ns/default: serviceaccount \"default\" not found")), true},
		{fmt.Errorf("get: %w", apierrors.NewTimeoutError("x", 1)), true},
		{&NotServedError{}, false},
	} {
		if got := Transient(test.err); got != test.want {
			t.Errorf("%v: %v", test.err, got)
		}
	}
}

// A type that a manifest defines is found and suggested before the cluster serves it.
func TestDefined(t *testing.T) {
	list, err := Decode([]byte(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: databases.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Database, plural: databases, singular: db}
  versions: [{name: v1}, {name: v1beta1}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
`), "crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	types := Defined(list)
	if len(types) != 2 {
		t.Errorf("got %d types, want one a version: %v", len(types), types)
	}
	for key, want := range map[string]string{
		"database": "", "databases": "", "db": "", "database.example.com": "",
		"database.example.org": `the cluster serves no type "database.example.org"; did you mean ` +
			`"database.example.com"?`,
		"databse": `the cluster serves no type "databse"; did you mean "database"?`,
	} {
		k := plan.ResourceKey{}
		k.Type, k.Group, _ = strings.Cut(key, ".")
		if _, err := FindKey(types, k); want == "" && err != nil ||
			want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: got %v, want %s", key, err, want)
		}
	}
}

// Definitions can be megabytes, and many ask which types they define.
func TestDefinedDoesNotCopySchemas(t *testing.T) {
	allocated := func(fields int) float64 {
		properties := map[string]any{}
		for i := range fields {
			properties[fmt.Sprint("field", i)] = map[string]any{"type": "string"}
		}
		list := []*unstructured.Unstructured{{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"spec": map[string]any{"versions": []any{map[string]any{
				"name": "v1", "schema": map[string]any{"openAPIV3Schema": map[string]any{"properties": properties}},
			}}},
		}}}
		return testing.AllocsPerRun(10, func() { Defined(list) })
	}
	if small, large := allocated(1), allocated(1000); large > small {
		t.Errorf("%v allocations for a schema with one field, %v for one with 1,000", small, large)
	}
}
