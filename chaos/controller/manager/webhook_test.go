package manager

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller/remote"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// labelWebhook is on the namespaces in which the parent's webhook is called.
const labelWebhook = "test-webhook"

// webhook installs the webhook's manifests, and returns the account of controllers that may serve it, and their
// address. API servers call it through its Service, at the address of a process pod, where the test listens in the
// pod's place. The webhook is called for the fixture's namespace, and nothing of it is left after the test.
func (f *fixture) webhook() (*clustertest.Account, string) {
	f.t.Helper()
	ctx, admin := f.t.Context(), must(shared.RESTConfig(""))
	if _, err := parentAccount(); err != nil {
		f.t.Fatal(err)
	}
	if err := apply(ctx, admin, "parent/webhook.yaml"); err != nil {
		f.t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "trommel-chaos", Name: "webhook", Labels: map[string]string{"app": "disruption-controllers"},
		},
		Spec: corev1.PodSpec{
			NodeName: shared.Processes().NodeName(), TerminationGracePeriodSeconds: new(int64),
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "c", Image: "sleep", Command: []string{"sleep", "100000"},
				Ports: []corev1.ContainerPort{{Name: "webhook", ContainerPort: 9443}},
			}},
		},
	}
	if err := f.Create(ctx, pod); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		for _, o := range []client.Object{pod, hooks()} {
			if err := client.IgnoreNotFound(f.Delete(context.Background(), o)); err != nil {
				f.t.Error(err)
			}
		}
	})
	f.running(pod)
	f.label(labelWebhook)
	account, err := clustertest.NewAccount(ctx, admin, "trommel-chaos", "disruption-controllers",
		authorizationv1.ResourceAttributes{
			Verb: "patch", Group: admissionregistrationv1.GroupName, Resource: "validatingwebhookconfigurations",
			Name: hooks().Name,
		},
		authorizationv1.ResourceAttributes{
			Verb: "update", Resource: "secrets", Namespace: "trommel-chaos", Name: "disruption-webhook",
		})
	if err != nil {
		f.t.Fatal(err)
	}
	return account, net.JoinHostPort(pod.Status.PodIP, "9443")
}

// freeAddress is an address of this machine where nothing listens.
func freeAddress() string {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return l.Addr().String()
}

// servedAt is the certificate that is served at an address.
func servedAt(t *testing.T, address string) *x509.Certificate {
	t.Helper()
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0]
}

func hooks() *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "remote.chaos.trommel.dev"},
	}
}

// label gives the fixture's namespace a label.
func (f *fixture) label(name string) {
	f.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, name)
	if err := f.Patch(f.t.Context(), ns, client.RawPatch(types.MergePatchType, patch)); err != nil {
		f.t.Fatal(err)
	}
}

// mayDisrupt lets a user and a group create disruptions in a namespace of the child.
func (f *fixture) mayDisrupt(user, group string) {
	f.t.Helper()
	name := metav1.ObjectMeta{Namespace: f.namespace, Name: "disrupt"}
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{chaos.GroupVersion.Group}, Verbs: []string{"create"},
			Resources: []string{"disruptions"},
		}}},
		&rbacv1.RoleBinding{
			ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name.Name},
			Subjects: []rbacv1.Subject{
				{APIGroup: rbacv1.GroupName, Kind: "User", Name: user},
				{APIGroup: rbacv1.GroupName, Kind: "Group", Name: group},
			},
		},
	} {
		if err := f.Create(f.t.Context(), o); err != nil {
			f.t.Fatal(err)
		}
	}
}

// TestRemoteRefusedAtCreation has the API server ask the parent's webhook when users create objects with remoteCluster,
// and when they change them.
func TestRemoteRefusedAtCreation(t *testing.T) {
	far := childCluster(t)
	f, there := newFixture(t), far.fixture(t)
	far.targets(there, 1)
	account, address := f.webhook()
	o := parentOptions()
	o.Remote.WithoutAuthorization, o.Remote.Webhook, o.KeepFor = false, address, time.Hour
	// All replicas serve the webhook. The API servers call one that does not lead.
	o.LeaderElection = true
	leading := o
	leading.Remote.Webhook = freeAddress()
	stopLeader := start(t, account.Config(t), leading)
	clustertest.Eventually(t, func(ctx context.Context) error {
		lease := &coordinationv1.Lease{}
		key := client.ObjectKey{Namespace: "trommel-chaos", Name: "disruptions.chaos.trommel.dev"}
		if err := f.Get(ctx, key, lease); err != nil || lease.Spec.HolderIdentity == nil ||
			*lease.Spec.HolderIdentity == "" {
			return fmt.Errorf("no replica leads (%w)", err)
		}
		return nil
	})
	stop := start(t, account.Config(t), o)
	f.cluster(f.remoteCluster("west-1", far.kubeconfig), "ready", isReady)
	f.deadCluster("dead")
	there.mayDisrupt("chaos-alice", "breakers")
	names := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "trommel-chaos", Name: remote.UserMap},
		Data: map[string]string{
			remote.UserMapKey: `[{originalName: user-alice, cluster: "west-*", name: chaos-alice}]`,
		},
	}
	if err := f.Create(t.Context(), names); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Delete(context.Background(), names) })
	nobody, alice := f.as("nobody"), f.as("alice")
	f.as("bob")
	grouped := rest.CopyConfig(must(shared.RESTConfig("")))
	grouped.Impersonate = rest.ImpersonationConfig{UserName: "user-bob", Groups: []string{"others", "breakers"}}
	bob := must(client.New(grouped, client.Options{Scheme: newScheme()}))

	denied := func(err error, words string) error {
		if !apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(),
			`admission webhook "remote.chaos.trommel.dev" denied the request: `+words) {
			return fmt.Errorf("want it denied with %q: %w", words, err)
		}
		return nil
	}
	mustNot := "user user-nobody must not create disruptions in namespace " + there.namespace + " of cluster west-1"
	clustertest.Eventually(t, func(ctx context.Context) error { // it gets its certificate
		return denied(nobody.Create(ctx, f.disruption("x", to("west-1", there, nil)), client.DryRunAll), mustNot)
	})
	nodes := func(s *chaos.DisruptionSpec) {
		s.Level, s.Kinds = chaos.LevelNode, chaos.Kinds{CPUPressure: &chaos.CPUPressure{}}
	}
	for _, tt := range []struct {
		name   string
		as     client.Client
		spec   chaos.DisruptionSpec
		denied string // empty: it is let through
	}{
		{"without rights", nobody, to("west-1", there, nil), mustNot},
		{"another name there", alice, to("west-1", there, nil), ""},
		{"a group", bob, to("west-1", there, nil), ""},
		{"another namespace", alice, to("west-1", &fixture{namespace: "elsewhere"}, nil),
			"user user-alice (there chaos-alice) must not create disruptions in namespace elsewhere of cluster west-1"},
		{"a wider fault", alice, to("west-1", there, nodes),
			"user user-alice (there chaos-alice) must not patch nodes of cluster west-1"},
		{"no cluster", alice, to("nowhere", there, nil), "there is no RemoteCluster nowhere"},
		{"this cluster", nobody, hangs(nil), ""},
	} {
		for _, o := range f.each(tt.spec) {
			err := tt.as.Create(t.Context(), o, client.DryRunAll)
			if tt.denied != "" {
				err = denied(err, tt.denied)
			}
			if err != nil {
				t.Errorf("%s: %T: %v", tt.name, o, err)
			}
		}
	}
	// No connection to the cluster is left of a request.
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(must(far.RESTConfig("")).Host, "https://"))
	connections := connectionsTo(t, port)
	for range 20 {
		err := nobody.Create(t.Context(), f.disruption("x", to("west-1", there, nil)), client.DryRunAll)
		if err := denied(err, mustNot); err != nil {
			t.Error(err)
		}
	}
	clustertest.Eventually(t, func(context.Context) error {
		if n := connectionsTo(t, port); n > connections {
			return fmt.Errorf("%d connections; there were %d", n, connections)
		}
		return nil
	})
	t.Run("a cluster that does not answer", func(t *testing.T) {
		const words = "cluster dead does not answer, so it is unknown whether user user-alice may create the " +
			"disruption there: "
		began := time.Now()
		err := alice.Create(t.Context(), f.cron("x", to("dead", there, nil)), client.DryRunAll)
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), words) {
			t.Error(err)
		}
		if took := time.Since(began); took > 9*time.Second { // the API server does not wait longer than ten
			t.Errorf("it took %s", took)
		}
	})
	t.Run("changes", func(t *testing.T) {
		cron := f.cron("changed", hangs(nil))
		if err := f.Create(t.Context(), cron); err != nil {
			t.Fatal(err)
		}
		change := func(with client.Client) error {
			patch := fmt.Appendf(nil, `{"spec":{"disruption":{"remoteCluster":{"cluster":"west-1","namespace":%q}}}}`,
				there.namespace)
			return with.Patch(t.Context(), cron.DeepCopy(), client.RawPatch(types.MergePatchType, patch),
				client.DryRunAll)
		}
		if err := denied(change(nobody), mustNot); err != nil {
			t.Error(err)
		}
		if err := change(alice); err != nil {
			t.Error(err)
		}
	})
	// The controllers create the disruptions of crons: it was asked for the user's when the cron was created.
	controllers := f.impersonate("system:serviceaccount:trommel-chaos:disruption-controllers")
	if err := controllers.Create(t.Context(), f.disruption("x", to("dead", there, nil)), client.DryRunAll); err != nil {
		t.Errorf("the controllers: %v", err)
	}
	if a, b := servedAt(t, address), servedAt(t, leading.Remote.Webhook); !a.Equal(b) {
		t.Errorf("the replicas have the certificates %s and %s", a.SerialNumber, b.SerialNumber)
	}
	// A client takes the authority away: it comes back. Who applies the manifests again leaves it.
	before := hooks()
	if err := f.Get(t.Context(), client.ObjectKeyFromObject(before), before); err != nil {
		t.Fatal(err)
	}
	without := []byte(`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`)
	if err := f.Patch(t.Context(), hooks(), client.RawPatch(types.JSONPatchType, without)); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		after := hooks()
		if err := f.Get(ctx, client.ObjectKeyFromObject(after), after); err != nil {
			return err
		}
		if string(after.Webhooks[0].ClientConfig.CABundle) != string(before.Webhooks[0].ClientConfig.CABundle) {
			return fmt.Errorf("caBundle %q", after.Webhooks[0].ClientConfig.CABundle)
		}
		return nil
	})

	if err := apply(t.Context(), must(shared.RESTConfig("")), "parent/webhook.yaml"); err != nil {
		t.Fatal(err)
	}
	after := hooks()
	if err := f.Get(t.Context(), client.ObjectKeyFromObject(after), after); err != nil ||
		string(after.Webhooks[0].ClientConfig.CABundle) != string(before.Webhooks[0].ClientConfig.CABundle) {
		t.Errorf("applied again: %v, %+v", err, after.Webhooks)
	}

	d := f.disruption("life", to("west-1", there, nil))
	clustertest.Eventually(t, func(ctx context.Context) error { return alice.Create(ctx, d) })
	f.phase(d, chaos.Injected)
	// Without controllers, what they cannot check is refused. All else goes on.
	stopLeader()
	stop()
	err := alice.Create(t.Context(), f.disruption("x", to("west-1", there, nil)), client.DryRunAll)
	if !objects.WebhookFailed(err) {
		t.Errorf("without controllers: %v", err)
	}
	if err := alice.Create(t.Context(), f.disruption("x", hangs(nil)), client.DryRunAll); err != nil {
		t.Errorf("without controllers, in this cluster: %v", err)
	}
	pause := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, chaos.AnnotationPaused)
	if err := alice.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, pause)); err != nil {
		t.Errorf("a pause without controllers: %v", err)
	}
	if err := f.Delete(t.Context(), d); err != nil {
		t.Errorf("a deletion without controllers: %v", err)
	}
	// Another replica takes the certificate over. Without the webhook, the controllers still check.
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: "trommel-chaos", Name: "disruption-webhook"}
	if err := f.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	start(t, account.Config(t), o)
	clustertest.Eventually(t, func(ctx context.Context) error {
		return denied(nobody.Create(ctx, f.disruption("x", to("west-1", there, nil)), client.DryRunAll), mustNot)
	})
	again := &corev1.Secret{}
	if err := f.Get(t.Context(), key, again); err != nil || again.ResourceVersion != secret.ResourceVersion {
		t.Errorf("the Secret was written again (%v)", err)
	}
	f.ended(d)
	if err := f.Delete(t.Context(), hooks()); err != nil {
		t.Fatal(err)
	}
	d = f.disruption("unasked", to("west-1", there, nil))
	clustertest.Eventually(t, func(ctx context.Context) error { return nobody.Create(ctx, d) })
	f.await(d, "refused", func(d *chaos.Disruption) bool {
		return d.Status.Message == mustNot && d.Status.Schedule.Over
	})
	f.ended(d)
	there.noChildren()
}
