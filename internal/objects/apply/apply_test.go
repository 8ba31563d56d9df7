package apply

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trommel-dev/trommel/internal/mistake"
)

func objectOf(kind, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name},
	}}
}

// applied is an API server that accepts everything, and keeps the kinds in their order.
type applied struct {
	mu    sync.Mutex
	kinds []string
	err   func(times int) error // of the call with that number; nil: none
}

func (a *applied) apply(_ context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kinds = append(a.kinds, u.GetKind())
	if a.err != nil {
		return nil, a.err(len(a.kinds))
	}
	return u, nil
}

func TestApplierAppliesFirstWhatOthersNeed(t *testing.T) {
	to := new(applied)
	a := &Applier{Apply: to.apply, Timeout: time.Second}
	files := fstest.MapFS{"all.yaml": {Data: []byte(
		"{apiVersion: v1, kind: APIService, metadata: {name: a}}\n---\n" +
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n---\n" +
			"{apiVersion: v1, kind: Role, metadata: {name: a}}\n---\n" +
			"{apiVersion: v1, kind: CustomResourceDefinition, metadata: {name: a}}\n---\n" +
			"{apiVersion: v1, kind: Namespace, metadata: {name: a}}\n")}}
	if err := a.Files(t.Context(), files, []string{"all.yaml"}); err != nil {
		t.Fatal(err)
	}
	want := []string{"Namespace", "CustomResourceDefinition", "Role", "ConfigMap", "APIService"}
	if !slices.Equal(to.kinds, want) {
		t.Errorf("%q, want %q", to.kinds, want)
	}
}

func TestApplierTriesAgain(t *testing.T) {
	unavailable := apierrors.NewServiceUnavailable("not yet")
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "s", nil)
	for _, test := range []struct {
		name  string
		err   func(times int) error
		want  error // nil: applied
		users bool  // the mistake is the user's
		once  bool
	}{
		{name: "unavailable at first", err: func(times int) error {
			if times < 3 {
				return unavailable
			}
			return nil
		}},
		{name: "unavailable for ever", err: func(int) error { return unavailable }, want: unavailable},
		{name: "invalid", err: func(int) error { return invalid }, want: invalid, users: true, once: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := &applied{err: test.err}
				a := &Applier{Apply: to.apply, Timeout: 10 * time.Second}
				err := a.One(t.Context(), objectOf("Secret", "s"))
				var users *mistake.Error
				if !errors.Is(err, test.want) || errors.As(err, &users) != test.users ||
					(len(to.kinds) == 1) != test.once {
					t.Errorf("%v after %d calls", err, len(to.kinds))
				}
			})
		})
	}
}
