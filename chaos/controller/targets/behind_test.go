package targets

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
)

// pods answers for a cache or an API server.
type pods struct {
	client.Client
	by map[string]*corev1.Pod
}

func (p pods) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	found := p.by[key.Name]
	if found == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
	}
	found.DeepCopyInto(o.(*corev1.Pod))
	return nil
}

// A target is not given up because the cache shows the past, in which the pod is not there yet or does not run yet.
func TestBehind(t *testing.T) {
	pod := func(uid string, phase corev1.PodPhase, app string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "a", UID: types.UID(uid), Labels: map[string]string{"app": app}},
			Status:     corev1.PodStatus{Phase: phase},
		}
	}
	marked := pod("1", corev1.PodRunning, "x")
	marked.DeletionTimestamp = &metav1.Time{}
	running := pod("1", corev1.PodRunning, "x")
	for _, tt := range []struct {
		name           string
		cached, latest *corev1.Pod
		want           bool
	}{
		{"it is not there yet", nil, running, true},
		{"its namesake is there yet", pod("0", corev1.PodRunning, "x"), running, true},
		{"it does not run yet", pod("1", corev1.PodPending, "x"), running, true},
		{"it is to be another one's target", running, running, false},
		{"it is gone", nil, nil, false},
		{"it is about to go", marked, marked, false},
		{"it is gone, and the cache does not know", marked, nil, false},
		{"it has ended", pod("1", corev1.PodFailed, "x"), pod("1", corev1.PodFailed, "x"), false},
		{"it has other labels", pod("1", corev1.PodRunning, "y"), pod("1", corev1.PodRunning, "y"), false},
		{"a namesake has its place", pod("2", corev1.PodRunning, "x"), pod("2", corev1.PodRunning, "x"), false},
	} {
		r := &Reconciler{Env: &controller.Env{
			Client: pods{by: map[string]*corev1.Pod{"a": tt.cached}},
			Reader: pods{by: map[string]*corev1.Pod{"a": tt.latest}},
		}}
		d := &chaos.Disruption{
			Spec:   chaos.DisruptionSpec{Level: chaos.LevelPod, Selector: map[string]string{"app": "x"}},
			Status: chaos.DisruptionStatus{Targets: []chaos.Target{{UID: "1", Name: "a"}}},
		}
		if got, err := r.behind(t.Context(), d, nil); got != tt.want || err != nil {
			t.Errorf("%s: %t, %v", tt.name, got, err)
		}
		if got, err := r.behind(t.Context(), d, d.Status.Targets); got || err != nil {
			t.Errorf("%s, and it is kept: %t, %v", tt.name, got, err)
		}
	}
}
