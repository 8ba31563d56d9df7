package helm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/controller/manager"
	"github.com/trommel-dev/trommel/chaos/controller/remote"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// startParent runs the controllers of a parent that installs, with the rights of its manifests, until the end of the
// test, or until stop is called. wrap is for connections to other clusters; nil: none.
func startParent(t testing.TB, near *side, wrap func(http.RoundTripper) http.RoundTripper) (stop func()) {
	t.Helper()
	mgr, err := manager.New(near.account, manager.Options{
		Config: controller.Config{
			Namespace: "trommel-chaos", Image: "trommel-injector", Mode: controller.ModeParent,
			Remote: controller.Remote{
				WithoutAuthorization: true, WithoutLocal: true, Look: 300 * time.Millisecond, Installer: must(New()),
				Wrap: wrap,
			},
		},
		Logger: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return clustertest.RunManager(t, mgr.Start, mgr.GetCache().WaitForCacheSync)
}

// remoteCluster creates a RemoteCluster with its Secret. Nothing of it is left in the parent after the test.
func (s *side) remoteCluster(t testing.TB, name string, kubeconfig []byte, override string) *chaos.RemoteCluster {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "trommel-chaos", Name: name},
		Data:       map[string][]byte{"kubeconfig": kubeconfig},
	}
	rc := &chaos.RemoteCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: chaos.RemoteClusterSpec{
			KubeConfig: chaos.KubeConfig{SecretRef: chaos.SecretKey{Name: name}}, Install: true,
		},
	}
	if override != "" {
		rc.Spec.ConfigOverride = &runtime.RawExtension{Raw: []byte(override)}
	}
	for _, o := range []client.Object{secret, rc} {
		if err := s.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx := context.Background()
			_ = s.Delete(ctx, o)
			_ = s.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		})
	}
	return rc
}

// await waits for a state of a RemoteCluster.
func (s *side) await(t testing.TB, rc *chaos.RemoteCluster, what string, ok func(*chaos.RemoteCluster) bool) {
	t.Helper()
	clustertest.Eventually(t, func(ctx context.Context) error {
		if err := s.Get(ctx, client.ObjectKeyFromObject(rc), rc); err != nil {
			return err
		}
		if !ok(rc) {
			return fmt.Errorf("RemoteCluster %s is not %s: %+v", rc.Name, what, rc.Status)
		}
		return nil
	})
}

// gone waits until a RemoteCluster that is being deleted has gone.
func (s *side) gone(t testing.TB, rc *chaos.RemoteCluster) {
	t.Helper()
	clustertest.Eventually(t, func(ctx context.Context) error {
		if err := s.Get(ctx, client.ObjectKeyFromObject(rc), rc); err != nil {
			return notFound(err)
		}
		return fmt.Errorf("RemoteCluster %s is still there: %+v", rc.Name, rc.Status)
	})
}

// override changes the values of a RemoteCluster.
func (s *side) override(t testing.TB, rc *chaos.RemoteCluster, values string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"configOverride":null}}`)
	if err := s.Patch(t.Context(), rc, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	patch = fmt.Appendf(nil, `{"spec":{"configOverride":%s}}`, values)
	if err := s.Patch(t.Context(), rc, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// isInstalled reports whether a RemoteCluster is installed as its spec wants it, and ready.
func isInstalled(rc *chaos.RemoteCluster) bool {
	return reason(rc, chaos.ConditionInstalled) == "Installed" && rc.Status.ObservedGeneration == rc.Generation &&
		meta.IsStatusConditionTrue(rc.Status.Conditions, chaos.ConditionInstalled) &&
		meta.IsStatusConditionTrue(rc.Status.Conditions, chaos.ConditionReady) && rc.Status.Message == ""
}

func reason(rc *chaos.RemoteCluster, kind string) string {
	if c := meta.FindStatusCondition(rc.Status.Conditions, kind); c != nil {
		return c.Reason
	}
	return ""
}

// deployment waits for a state of the controllers' Deployment.
func (s *side) deployment(t testing.TB, what string, ok func(*appsv1.Deployment, []string) bool) {
	t.Helper()
	d := &appsv1.Deployment{}
	clustertest.Eventually(t, func(ctx context.Context) error {
		err := s.Get(ctx, client.ObjectKey{Namespace: "trommel-chaos", Name: "disruption-controllers"}, d)
		if err != nil {
			return err
		}
		if args := d.Spec.Template.Spec.Containers[0].Args; !ok(d, args) {
			return fmt.Errorf("no %s: %d replicas, %v", what, *d.Spec.Replicas, args)
		}
		return nil
	})
}

// own makes the releases of a parent's RemoteCluster those that the methods of a child's side look for.
func (s *side) own(t testing.TB, near *side) {
	t.Helper()
	system := &corev1.Namespace{}
	if err := near.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		t.Fatal(err)
	}
	before := s.id
	s.id = string(system.UID)
	t.Cleanup(func() {
		s.clean(t)
		s.id = before
	})
}

// documentedOverride is the configOverride that docs/remote-disruptions.md shows.
func documentedOverride(t testing.TB) string {
	t.Helper()
	const page = "../../docs/remote-disruptions.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
		rc := &chaos.RemoteCluster{}
		if err := yaml.Unmarshal([]byte(block[1]), rc); err != nil {
			t.Fatal(err)
		}
		if rc.Kind == "RemoteCluster" && rc.Spec.Install {
			return string(rc.Spec.ConfigOverride.Raw)
		}
	}
	t.Fatalf("%s shows no RemoteCluster that is installed", page)
	return ""
}

// TestInstall has the controllers of a RemoteCluster installed, upgraded for new values of it and of all, and
// uninstalled when nothing uses them any more.
//
// It must be the first test in which the chart is installed: an API server (1.36) that has lost all admission policies
// with parameters does not find the parameters of those that come after, and then refuses all disruptions.
func TestInstall(t *testing.T) {
	near, far := parentSide(t), childSide(t)
	far.own(t, near)
	startParent(t, near, nil)
	rc := near.remoteCluster(t, "west", far.kubeconfig(), documentedOverride(t))
	near.await(t, rc, "installed", isInstalled)
	if rc.Status.CurrentVersion != version() || rc.Status.ClusterID == "" {
		t.Errorf("%+v", rc.Status)
	}
	far.deployment(t, "two replicas", func(d *appsv1.Deployment, args []string) bool {
		return *d.Spec.Replicas == 2 && slices.Contains(args, "--mode=child") &&
			slices.Contains(args, "--max-duration=1h")
	})
	if n := len(far.revisions(t)); n != 1 {
		t.Errorf("%d revisions", n)
	}
	// Values for all clusters, under those of this one.
	all := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "trommel-chaos", Name: remote.ChildValues},
		Data:       map[string]string{remote.ChildValuesKey: "args: [--keep=1h]\nreplicas: 5\n"},
	}
	if err := near.Create(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Delete(context.Background(), all) })
	far.deployment(t, "--keep", func(d *appsv1.Deployment, args []string) bool {
		return *d.Spec.Replicas == 2 && slices.Contains(args, "--keep=1h")
	})
	near.override(t, rc, `{"safetyNets": {"deleteOnly": true}}`)
	near.await(t, rc, "upgraded", isInstalled)
	far.deployment(t, "--delete-only", func(d *appsv1.Deployment, args []string) bool {
		return *d.Spec.Replicas == 5 && slices.Contains(args, "--delete-only") && slices.Contains(args, "--keep=1h")
	})
	// What cannot be installed is refused in words, and leaves what is there.
	for _, tt := range []struct{ values, reason, message string }{
		{`{"mode": "parent"}`, "InvalidValues", "configOverride: mode: must be child, or left out: the controllers " +
			"there are a child's"},
		{`{"replicass": 1}`, "UpgradeFailed",
			"values that chart trommel-chaos does not have: replicass (it has args, "},
		{`{"replicas": -1}`, "UpgradeFailed", "must be greater than or equal to 0"},
	} {
		near.override(t, rc, tt.values)
		near.await(t, rc, tt.reason, func(rc *chaos.RemoteCluster) bool {
			return reason(rc, chaos.ConditionInstalled) == tt.reason &&
				strings.Contains(rc.Status.Message, tt.message) &&
				meta.IsStatusConditionTrue(rc.Status.Conditions, chaos.ConditionReady) &&
				rc.Status.ObservedGeneration == rc.Generation
		})
	}
	// However often it fails, what is there is known to be there.
	before := far.revisions(t)
	clustertest.Eventually(t, func(context.Context) error {
		if n := far.revisions(t); n[len(n)-1].Version < before[len(before)-1].Version+maxHistory {
			return fmt.Errorf("revision %d", n[len(n)-1].Version)
		}
		return nil
	})
	if versionOf(far.revisions(t)) != version() {
		t.Error("the last whole revision has gone")
	}
	near.override(t, rc, `{"replicas": 1}`)
	near.await(t, rc, "installed again", isInstalled)
	far.deployment(t, "one replica", func(d *appsv1.Deployment, _ []string) bool { return *d.Spec.Replicas == 1 })
	// A deleted object is created again.
	if err := far.Delete(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "trommel-chaos", Name: "disruption-controllers",
	}}); err != nil {
		t.Fatal(err)
	}
	far.deployment(t, "one replica", func(d *appsv1.Deployment, _ []string) bool { return *d.Spec.Replicas == 1 })
	near.await(t, rc, "installed once more", isInstalled)
	// Moving it would leave the controllers where they are.
	moved := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"namespace":"elsewhere"}}`))
	if err := near.Patch(t.Context(), rc.DeepCopy(), moved); err == nil ||
		!strings.Contains(err.Error(), "namespace cannot be changed while install is true") {
		t.Error(err)
	}
	// While there are disruptions, even those of others, the controllers stay.
	d := &chaos.Disruption{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "of-others"}}
	spec := `{"selector":{"a":"b"},"duration":"1m","apiFault":{"verbs":["update"],"status":500}}`
	if err := json.Unmarshal([]byte(spec), &d.Spec); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error { return far.Create(ctx, d) })
	if err := near.Delete(t.Context(), rc); err != nil {
		t.Fatal(err)
	}
	near.await(t, rc, "held up", func(rc *chaos.RemoteCluster) bool {
		return reason(rc, chaos.ConditionRemovable) == "InUse" &&
			strings.HasPrefix(rc.Status.Message, "disruption default/of-others is still in that cluster")
	})
	if n := len(far.revisions(t)); n == 0 {
		t.Error("they are uninstalled")
	}
	if err := far.Delete(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	near.gone(t, rc)
	if left := far.owned(t); len(left) > 0 || len(far.revisions(t)) > 0 {
		t.Errorf("%d objects and %d revisions are left", len(left), len(far.revisions(t)))
	}
	if err := far.List(t.Context(), &chaos.DisruptionList{}); err != nil {
		t.Errorf("the definitions have gone: %v", err)
	}
}

// A parent that is stopped while it installs is followed by one that brings it to its end. An installation by hand
// stays, and the status says so; without install, the installer is not looked for.
func TestParentStopped(t *testing.T) {
	near, far := parentSide(t), childSide(t)
	far.own(t, near)
	far.clean(t)
	half := make(chan struct{})
	reached := sync.OnceFunc(func() { close(half) })
	stop := startParent(t, near, func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/clusterrolebindings") {
				reached() // the API server does not answer
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return base.RoundTrip(r)
		})
	})
	rc := near.remoteCluster(t, "stopped", far.kubeconfig(), "")
	select {
	case <-half:
	case <-time.After(time.Minute):
		t.Fatal("nothing is installed")
	}
	stop()
	if all := far.revisions(t); len(all) != 1 || !all[0].Info.Status.IsPending() {
		t.Errorf("%d revisions", len(all))
	}
	if err := near.Get(t.Context(), client.ObjectKeyFromObject(rc), rc); err != nil ||
		meta.IsStatusConditionTrue(rc.Status.Conditions, chaos.ConditionInstalled) {
		t.Errorf("%v, %+v", err, rc.Status)
	}
	startParent(t, near, nil)
	near.await(t, rc, "installed", isInstalled)

	// Another RemoteCluster does not take it.
	other := near.remoteCluster(t, "other", far.kubeconfig(), `{"replicas": 3}`)
	near.await(t, other, "told of the other", func(rc *chaos.RemoteCluster) bool {
		return reason(rc, chaos.ConditionInstalled) == "InstalledByHand" &&
			meta.IsStatusConditionTrue(rc.Status.Conditions, chaos.ConditionReady) &&
			rc.Status.Message == "release trommel-chaos in namespace trommel-chaos belongs to RemoteCluster stopped"
	})
	if err := near.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	near.gone(t, other)
	far.deployment(t, "one replica", func(d *appsv1.Deployment, _ []string) bool { return *d.Spec.Replicas == 1 })

	// A cluster that cannot be asked keeps the RemoteCluster, and the annotation lets it go.
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "trommel-chaos", Name: "stopped"}}
	wrong := fmt.Appendf(nil, `{"stringData":{"kubeconfig":%q}}`,
		strings.Replace(string(far.kubeconfig()), far.account.Host, "https://127.0.0.1:1", 1))
	if err := near.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, wrong)); err != nil {
		t.Fatal(err)
	}
	near.await(t, rc, "unreachable", func(rc *chaos.RemoteCluster) bool {
		return reason(rc, chaos.ConditionReachable) == "Unreachable"
	})
	if err := near.Delete(t.Context(), rc); err != nil {
		t.Fatal(err)
	}
	near.await(t, rc, "held up", func(rc *chaos.RemoteCluster) bool {
		return reason(rc, chaos.ConditionRemovable) == "Unreachable" &&
			strings.Contains(rc.Status.Message, chaos.AnnotationForceRemoval)
	})
	force := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, chaos.AnnotationForceRemoval)
	if err := near.Patch(t.Context(), rc, client.RawPatch(types.MergePatchType, force)); err != nil {
		t.Fatal(err)
	}
	near.gone(t, rc)
	if len(far.revisions(t)) == 0 {
		t.Error("it was uninstalled")
	}
	// Made again, it takes over what it has left.
	if err := near.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	rc = near.remoteCluster(t, "stopped", far.kubeconfig(), `{"replicas": 2}`)
	near.await(t, rc, "installed", isInstalled)
	far.deployment(t, "two replicas", func(d *appsv1.Deployment, _ []string) bool { return *d.Spec.Replicas == 2 })
	if err := near.Delete(t.Context(), rc); err != nil {
		t.Fatal(err)
	}
	near.gone(t, rc)
	if len(far.revisions(t)) > 0 {
		t.Error("it was not uninstalled")
	}
}
