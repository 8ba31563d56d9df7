package protection

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/trommel-dev/trommel/internal/controllers"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
)

// A Node stays protected while the request goes on, in whatever namespace that is, and no longer.
func TestReconcile(t *testing.T) {
	for name, tt := range map[string]struct {
		phase nodes.RequestPhase
		uid   types.UID
		stays bool
	}{
		"it goes on":                    {nodes.RequestScalingUp, "q", true},
		"it heals":                      {nodes.RequestHealing, "q", true},
		"it is Successful":              {nodes.RequestSuccessful, "q", false},
		"it has failed":                 {nodes.RequestFailed, "q", false},
		"it is gone, and another there": {nodes.RequestScalingUp, "other", false},
	} {
		t.Run(name, func(t *testing.T) {
			scheme, err := controllers.Scheme(nodes.AddToScheme)
			if err != nil {
				t.Fatal(err)
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
				controller.AnnotationScaleDownDisabled: "true", controller.AnnotationScaleDownDisabledBy: "q",
				controller.AnnotationDoNotDisrupt: "true",
			}}}
			q := &nodes.CycleNodeRequest{
				ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "q", UID: tt.uid},
				Status:     nodes.CycleNodeRequestStatus{Phase: tt.phase},
			}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(node, q).Build()
			r := &Reconciler{&controller.Env{Client: c, Reader: c}}
			if _, err := r.Reconcile(t.Context(),
				ctrl.Request{NamespacedName: client.ObjectKeyFromObject(node)}); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
				t.Fatal(err)
			}
			if _, there := node.Annotations[controller.AnnotationScaleDownDisabled]; there != tt.stays {
				t.Errorf("protected: %t", there)
			}
			if node.Annotations[controller.AnnotationDoNotDisrupt] != "true" {
				t.Error("a user's annotation was removed")
			}
			woken := r.protectedBy(t.Context(), &nodes.CycleNodeRequest{ObjectMeta: metav1.ObjectMeta{UID: "q"}})
			if (len(woken) == 1) != tt.stays {
				t.Errorf("woken: %v", woken)
			}
		})
	}
}
