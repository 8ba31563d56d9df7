package manager

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// TestRollout: a new version of a workload is disrupted, whoever was away when it came; the first one is not, nor is
// another number of pods, nor a version that comes while the disruption of the last one lasts.
func TestRollout(t *testing.T) {
	stop := start(t, account.Config(t), options())
	f := newFixture(t)
	f.processes(1)
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "web:1"}}},
			},
		},
	}
	o := f.rollout("web", hangs(nil))
	if err := f.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	status := func(what string, ok func(s *chaos.DisruptionRolloutStatus) bool) {
		t.Helper()
		clustertest.Eventually(t, func(ctx context.Context) error {
			err := f.Get(ctx, client.ObjectKeyFromObject(o), o)
			if err == nil && !ok(&o.Status) {
				err = fmt.Errorf("not %s: %+v", what, o.Status)
			}
			return err
		})
	}
	change := func(do func(*appsv1.DeploymentSpec)) {
		t.Helper()
		if err := f.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment); err != nil {
			t.Fatal(err)
		}
		patch := client.MergeFrom(deployment.DeepCopy())
		do(&deployment.Spec)
		if err := f.Patch(t.Context(), deployment, patch); err != nil {
			t.Fatal(err)
		}
	}
	image := func(name string) func(*appsv1.DeploymentSpec) {
		return func(s *appsv1.DeploymentSpec) { s.Template.Spec.Containers[0].Image = name }
	}
	count := func(want int) {
		t.Helper()
		var list chaos.DisruptionList
		if err := f.List(t.Context(), &list, client.InNamespace(f.namespace)); err != nil || len(list.Items) != want {
			t.Errorf("%d disruptions, want %d (%v)", len(list.Items), want, err)
		}
	}
	status("without a target", func(s *chaos.DisruptionRolloutStatus) bool {
		return s.Message == "there is no Deployment web"
	})
	if err := f.Create(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	status("at its first version", func(s *chaos.DisruptionRolloutStatus) bool {
		return s.Version != "" && s.Message == "" && s.Changes == 0
	})
	change(func(s *appsv1.DeploymentSpec) { two := int32(2); s.Replicas = &two })
	stop()
	change(image("web:2"))
	start(t, account.Config(t), options())
	status("disrupted", func(s *chaos.DisruptionRolloutStatus) bool {
		return s.Changes == 1 && s.LastDisruption == "web-1"
	})
	d := f.disruption("web-1", chaos.DisruptionSpec{})
	f.phase(d, chaos.Injected)
	if !metav1.IsControlledBy(d, o) {
		t.Errorf("%+v", d.OwnerReferences)
	}
	change(image("web:3"))
	status("skipped", func(s *chaos.DisruptionRolloutStatus) bool {
		return s.Changes == 2 && s.Message == "disruption web-1 has not ended" && s.LastDisruption == "web-1"
	})
	f.event(o, "Skipped")
	count(1)
	f.end(d)
	change(image("web:2")) // back
	status("disrupted again", func(s *chaos.DisruptionRolloutStatus) bool {
		return s.Changes == 3 && s.LastDisruption == "web-3" && s.Message == ""
	})
	d = f.disruption("web-3", chaos.DisruptionSpec{})
	f.phase(d, chaos.Injected)
	count(1)
	f.end(d)
	other := f.disrupt("web-4", hangs(nil))
	change(image("web:4"))
	status("skipped because of the name", func(s *chaos.DisruptionRolloutStatus) bool {
		return s.Changes == 4 && s.Message == "there is another disruption web-4" && s.LastDisruption == "web-3"
	})
	f.end(other)
	change(image("web:5"))
	status("disrupted once more", func(s *chaos.DisruptionRolloutStatus) bool {
		return s.Changes == 5 && s.LastDisruption == "web-5" && s.Message == ""
	})
	d = f.disruption("web-5", chaos.DisruptionSpec{})
	f.phase(d, chaos.Injected)
	if err := f.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	f.gone(d)
}
