package manager

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/internal/objects"
)

// TestRemoteClusterOfTheRFC creates the RemoteCluster that Chaos Mesh's RFC 44 shows, and connects to one whose key is
// where that one has it.
func TestRemoteClusterOfTheRFC(t *testing.T) {
	far := childCluster(t)
	startParent(t, parentOptions())
	f := newFixture(t)
	const file = "../../../testdata/originals/chaos-mesh/remotecluster.yaml"
	shown := must(objects.Decode(must(os.ReadFile(file)), file))
	if len(shown) != 1 {
		t.Fatalf("%d objects", len(shown))
	}
	shown[0].SetAPIVersion(chaos.GroupVersion.String())
	if err := f.Create(t.Context(), shown[0], client.DryRunAll, client.FieldValidation("Strict")); err != nil {
		t.Error(err)
	}
	rc := f.remoteCluster("rfc", nil)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "trommel-chaos", Name: "rfc"}}
	merge := func(o client.Object, patch string) error {
		return f.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	if err := merge(secret, fmt.Sprintf(`{"stringData":{"xxx":%q}}`, far.kubeconfig)); err != nil {
		t.Fatal(err)
	}
	if err := merge(rc, `{"spec":{"kubeConfig":{"key":"xxx"}}}`); err != nil {
		t.Fatal(err)
	}
	f.cluster(rc, "ready", isReady)
	if err := merge(rc, `{"spec":{"kubeConfig":{"secretRef":{"key":"kubeconfig"}}}}`); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "key and secretRef.key are the same: give one of them") {
		t.Errorf("two keys: %v", err)
	}
	if err := merge(rc, `{"spec":{"kubeConfig":{"key":null,"secretRef":{"key":"other"}}}}`); err != nil {
		t.Fatal(err)
	}
	f.cluster(rc, "without a kubeconfig", func(rc *chaos.RemoteCluster) bool {
		return rc.Status.Message == `Secret trommel-chaos/rfc has no key "other"`
	})
}
