package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/testing/golden"
)

// TestServed converts one object of each type and compares with golden files. TestRemovedAPIs in package embedded
// checks on a cluster that Kubernetes' own conversions give the same result.
func TestServed(t *testing.T) {
	files, err := filepath.Glob("testdata/removed/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	covered := map[string]bool{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			before, err := Read(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range before {
				covered[u.GetAPIVersion()+" "+u.GetKind()] = true
			}
			after, notes, err := ReadServed(file)
			if err != nil {
				t.Fatal(err)
			}
			text, err := objects.Encode(after)
			if err != nil {
				t.Fatal(err)
			}
			got := "# " + strings.Join(notes, "\n# ") + "\n" + string(text)
			golden.Compare(t, strings.TrimSuffix(file, ".yaml")+".golden", []byte(got))

			checker, err := NewChecker(after, "v1.36.3")
			if err != nil {
				t.Error(err)
			}
			for _, u := range after {
				if err := checker.Check(u); err != nil {
					t.Errorf("the converted object is invalid: %v", err)
				}
			}
			again, notes, err := Served(after)
			if err != nil || len(notes) > 0 {
				t.Errorf("a converted object is converted again: %q, %v", notes, err)
			}
			if diff := cmp.Diff(after, again); diff != "" {
				t.Error(diff)
			}
			unchanged, err := Read(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := Served(before); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(unchanged, before); diff != "" {
				t.Errorf("the input was changed: %s", diff)
			}
		})
	}
	for version, kinds := range removals {
		for kind, r := range kinds {
			if name := version + " " + kind; !covered[name] && r.change != nil {
				t.Errorf("no file has a %s", name)
			}
		}
	}
}

// TestServedTakesWhatIsMalformed: Served never panics; mistakes are reported when the object is checked or applied.
func TestServedTakesWhatIsMalformed(t *testing.T) {
	values := []any{nil, "text", int64(1), []any{}, []any{"text"}, []any{nil}, map[string]any{},
		map[string]any{"a": int64(1)}}
	fields := []string{"spec", "webhooks", "subjects", "endpoints"}
	for version, kinds := range removals {
		for kind := range kinds {
			for _, name := range fields {
				for i, value := range values {
					u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind,
						"metadata": map[string]any{"name": "x"}, name: value}}
					t.Run(fmt.Sprintf("%s %s %s %d", version, kind, name, i), func(*testing.T) {
						_, _, _ = Served([]*unstructured.Unstructured{u})
					})
				}
			}
			for _, name := range []string{"template", "selector", "strategy", "updateStrategy", "backend", "rules",
				"metrics"} {
				for _, value := range values {
					u := &unstructured.Unstructured{Object: map[string]any{
						"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": "x"},
						"spec": map[string]any{name: value},
					}}
					_, _, _ = Served([]*unstructured.Unstructured{u})
				}
			}
		}
	}
}

// Objects that a plan or suite holds may have numbers of any Go type.
func TestServedTakesEveryNumber(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": map[string]any{"name": "x"},
		"spec": map[string]any{"minAvailable": 1},
	}}
	list, _, err := Served([]*unstructured.Unstructured{u})
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	if n, _, _ := unstructured.NestedInt64(list[0].Object, "spec", "minAvailable"); n != 1 {
		t.Errorf("got %v", list[0].Object)
	}
}

func TestServedRefuses(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{
			"a signing request without a signer",
			"# a comment\n\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n\napiVersion: " +
				"certificates.k8s.io/v1beta1\n" +
				"kind: CertificateSigningRequest\nmetadata: {name: csr}\nspec: {request: YQ==}\n",
			"FILE:8: certificates.k8s.io/v1beta1 CertificateSigningRequest csr cannot be applied as v1: " +
				"spec.signerName must name a signer; v1 has no legacy signer",
		},
		{
			"a definition of another form",
			"apiVersion: apiextensions.k8s.io/v1beta1\nkind: CustomResourceDefinition\nmetadata: {name: " +
				"a.example.com}\nspec: {names: a}\n",
			"FILE:1: apiextensions.k8s.io/v1beta1 CustomResourceDefinition a.example.com cannot be applied as v1: " +
				"cannot restore struct from: string",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "a.yaml")
			if err := os.WriteFile(file, []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			list, _, err := ReadServed(file)
			if err == nil {
				t.Fatalf("no error, but %v", list)
			}
			if got := strings.ReplaceAll(err.Error(), file, "FILE"); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
