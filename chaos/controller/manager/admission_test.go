package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/config"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// labelled namespaces have the policies that would refuse what other tests do.
const labelPolicies = "test-policies"

// apply applies a file of the manifests. Policies about disruptions hold in labelled namespaces only, and so does the
// webhook.
func apply(ctx context.Context, admin *rest.Config, file string) error {
	c, err := objects.New(admin)
	if err != nil {
		return err
	}
	list, err := objects.Decode(must(config.Files.ReadFile(file)), file)
	if err != nil {
		return err
	}
	for _, u := range list {
		everywhere := []string{"injectors.chaos.trommel.dev", "remote.chaos.trommel.dev"}
		if u.GetKind() == "ValidatingAdmissionPolicyBinding" && !slices.Contains(everywhere, u.GetName()) {
			err := unstructured.SetNestedStringMap(u.Object, map[string]string{labelPolicies: "true"},
				"spec", "matchResources", "namespaceSelector", "matchLabels")
			if err != nil {
				return err
			}
		}
		if u.GetKind() == "ValidatingWebhookConfiguration" {
			for _, hook := range u.Object["webhooks"].([]any) {
				hook.(map[string]any)["namespaceSelector"] = map[string]any{
					"matchLabels": map[string]any{labelWebhook: "true"},
				}
			}
		}
		if err := objects.Retry(ctx, func(ctx context.Context) error {
			_, err := c.Apply(ctx, u)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// as is a client of a user with these rights in the whole cluster, beside those on disruptions.
func (f *fixture) as(user string, rules ...rbacv1.PolicyRule) client.Client {
	f.t.Helper()
	f.grant(user, append(rules, rbacv1.PolicyRule{
		APIGroups: []string{chaos.GroupVersion.Group}, Verbs: []string{"get", "create", "update", "patch"},
		Resources: []string{"disruptions", "disruptioncrons", "disruptionrollouts"},
	})...)
	c := f.impersonate("user-" + user)
	clustertest.Eventually(f.t, func(ctx context.Context) error { // roles are taken over after a while
		return c.Create(ctx, f.disruption("allowed", hangs(nil)), client.DryRunAll)
	})
	return c
}

func (f *fixture) grant(user string, rules ...rbacv1.PolicyRule) {
	f.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: f.namespace + "-" + user}, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "user-" + user}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := f.Create(f.t.Context(), o); err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() {
			if err := f.Delete(context.Background(), o); err != nil {
				f.t.Error(err)
			}
		})
	}
}

// impersonate is a client of a user.
func (f *fixture) impersonate(user string) client.Client {
	f.t.Helper()
	to := rest.CopyConfig(must(shared.RESTConfig("")))
	to.Impersonate.UserName = user
	return must(client.New(to, client.Options{Scheme: newScheme()}))
}

func (f *fixture) disruption(name string, spec chaos.DisruptionSpec) *chaos.Disruption {
	return &chaos.Disruption{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name}, Spec: spec}
}

func (f *fixture) cron(name string, spec chaos.DisruptionSpec) *chaos.DisruptionCron {
	return &chaos.DisruptionCron{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
		Spec:       chaos.DisruptionCronSpec{Schedule: "0 3 * * *", Suspend: true, Disruption: spec},
	}
}

func (f *fixture) rollout(name string, spec chaos.DisruptionSpec) *chaos.DisruptionRollout {
	return &chaos.DisruptionRollout{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name},
		Spec: chaos.DisruptionRolloutSpec{
			Target: chaos.Workload{Kind: "Deployment", Name: name}, Disruption: spec,
		},
	}
}

// each has an object of each type that disrupts.
func (f *fixture) each(spec chaos.DisruptionSpec) []client.Object {
	return []client.Object{f.disruption("x", spec), f.cron("x", spec), f.rollout("x", spec)}
}

// policies makes the policies of a file hold in the fixture's namespace, and waits until they refuse an object.
func (f *fixture) policies(file string, c client.Client, object client.Object, reason string) {
	f.t.Helper()
	if err := apply(f.t.Context(), must(shared.RESTConfig("")), file); err != nil {
		f.t.Fatal(err)
	}
	f.label(labelPolicies)
	clustertest.Eventually(f.t, func(ctx context.Context) error {
		if err := c.Create(ctx, object, client.DryRunAll); !refusedBy(err) || !strings.Contains(err.Error(), reason) {
			return fmt.Errorf("not refused yet: %w", err)
		}
		return nil
	})
}

// refusedBy reports whether an admission policy has refused a request.
func refusedBy(err error) bool {
	return (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) &&
		strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
}

func nodeLevel(change func(*chaos.DisruptionSpec)) chaos.DisruptionSpec {
	spec := chaos.DisruptionSpec{
		Level: chaos.LevelNode, Selector: map[string]string{"app": "x"}, Duration: duration(1e9),
		Kinds: chaos.Kinds{CPUPressure: &chaos.CPUPressure{}},
	}
	if change != nil {
		change(&spec)
	}
	return spec
}

func only(kinds chaos.Kinds) chaos.DisruptionSpec {
	return chaos.DisruptionSpec{Selector: map[string]string{"app": "x"}, Kinds: kinds}
}

func core(resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: verbs}
}

// TestDisruptionMayOnlyDoWhatItsUserMayDo lets users with more and fewer rights create disruptions and crons.
func TestDisruptionMayOnlyDoWhatItsUserMayDo(t *testing.T) {
	f := newFixture(t)
	nobody := f.as("nobody")
	f.policies("admission/authorization.yaml", nobody, f.disruption("x", nodeLevel(nil)), "must not patch nodes")
	patchNodes, deletePods := core("nodes", "patch"), core("pods", "delete")
	gone := only(chaos.Kinds{NodeFailure: &chaos.NodeFailure{Mode: "gone"}})
	replaced := only(chaos.Kinds{PodReplacement: &chaos.PodReplacement{}})
	claims := only(chaos.Kinds{PodReplacement: &chaos.PodReplacement{DeleteClaims: true}})
	for i, tt := range []struct {
		name   string
		spec   chaos.DisruptionSpec
		lacks  []rbacv1.PolicyRule
		with   rbacv1.PolicyRule // what is missing
		reason string
	}{
		{"level node", nodeLevel(nil), nil, patchNodes, "must not patch nodes"},
		{"nodeFailure", only(chaos.Kinds{NodeFailure: &chaos.NodeFailure{}}), nil, patchNodes, "must not patch nodes"},
		{"a node that is gone", gone, []rbacv1.PolicyRule{patchNodes}, core("nodes", "delete", "create"),
			"must not delete and create nodes"},
		{"podReplacement, which cordons", replaced, []rbacv1.PolicyRule{deletePods}, patchNodes,
			"must not patch nodes"},
		{"podReplacement", replaced, []rbacv1.PolicyRule{patchNodes}, deletePods, "must not delete pods"},
		{"podReplacement with claims", claims, []rbacv1.PolicyRule{patchNodes, deletePods},
			core("persistentvolumeclaims", "delete"), "must not delete persistentvolumeclaims"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			few := f.as(fmt.Sprintf("few-%d", i), tt.lacks...)
			enough := f.as(fmt.Sprintf("enough-%d", i), append(tt.lacks, tt.with)...)
			for _, o := range f.each(tt.spec) {
				err := few.Create(t.Context(), o.DeepCopyObject().(client.Object), client.DryRunAll)
				if !refusedBy(err) || !strings.Contains(err.Error(), tt.reason) {
					t.Errorf("%T of a user without the right: %v", o, err)
				}
				if err := enough.Create(t.Context(), o, client.DryRunAll); err != nil {
					t.Errorf("%T of a user with the right: %v", o, err)
				}
			}
		})
	}
	// What is there already can be changed only by those who could create it; the controllers remove finalizers.
	d, c := f.disruption("there", nodeLevel(nil)), f.cron("there", hangs(nil))
	if err := errors.Join(f.Create(t.Context(), d), f.Create(t.Context(), c)); err != nil {
		t.Fatal(err)
	}
	change := func(o client.Object, with client.Client, do func()) error {
		patch := client.MergeFrom(o.DeepCopyObject().(client.Object))
		do()
		return with.Patch(t.Context(), o, patch, client.DryRunAll)
	}
	if err := change(d.DeepCopy(), nobody, func() {}); err != nil {
		t.Errorf("nothing: %v", err)
	}
	two, again := intstr.FromString("2%"), d.DeepCopy()
	if err := change(again, nobody, func() { again.Spec.Count = &two }); !refusedBy(err) {
		t.Errorf("the count: %v", err)
	}
	again = d.DeepCopy()
	if err := change(again, nobody, func() { again.Finalizers = []string{"test/x"} }); err != nil {
		t.Errorf("a finalizer: %v", err)
	}
	if err := change(c, nobody, func() { c.Spec.Disruption = nodeLevel(nil) }); !refusedBy(err) {
		t.Errorf("a cron that becomes one of nodes: %v", err)
	}
	controllers := f.impersonate("system:serviceaccount:trommel-chaos:disruption-controllers")
	if err := controllers.Create(t.Context(), f.disruption("of-cron", nodeLevel(nil)), client.DryRunAll); err != nil {
		t.Errorf("the controllers, for a cron: %v", err)
	}
	f.end(d)
}

// TestSafetyNetsOfTheAPIServer has a row for each safety net: refused, and let through.
func TestSafetyNetsOfTheAPIServer(t *testing.T) {
	f := newFixture(t)
	f.policies("admission/policy.yaml", f.Client, f.disruption("x", nodeLevel(nil)), "nodes are protected")
	all := chaos.Percentage(10)
	for _, tt := range []struct {
		name            string
		refused, passes chaos.DisruptionSpec
		reason          string
	}{
		{"nodes", nodeLevel(nil), hangs(nil), "nodes are protected"},
		{"nodes of pods", only(chaos.Kinds{NodeFailure: &chaos.NodeFailure{}}), hangs(nil), "nodes are protected"},
		{"duration", hangs(func(s *chaos.DisruptionSpec) { s.Duration = duration(25 * 3600e9) }),
			hangs(func(s *chaos.DisruptionSpec) { s.Duration = duration(24 * 3600e9) }), "is longer than 24h"},
		{"network", only(chaos.Kinds{Network: &chaos.Network{Drop: &all}}),
			only(chaos.Kinds{Network: &chaos.Network{Drop: &all, Hosts: []chaos.NetworkHost{{Host: "10.0.0.1"}}}}),
			"network needs hosts or services"},
		{"disk", only(chaos.Kinds{DiskFailure: &chaos.DiskFailure{Paths: []string{"/"}}}),
			only(chaos.Kinds{DiskFailure: &chaos.DiskFailure{Paths: []string{"/data"}}}),
			"root directory is protected"},
	} {
		for _, o := range f.each(tt.refused) {
			err := f.Create(t.Context(), o, client.DryRunAll)
			if !refusedBy(err) || !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("%s: %T: %v", tt.name, o, err)
			}
		}
		for _, o := range f.each(tt.passes) {
			if err := f.Create(t.Context(), o, client.DryRunAll); err != nil {
				t.Errorf("%s, let through: %T: %v", tt.name, o, err)
			}
		}
	}
	// Those of the ConfigMap itself.
	for _, tt := range []struct{ key, value, reason string }{
		{"deleteOnly", "true", "accept no new disruptions"},
		{"protectedNamespaces", "a," + f.namespace, "the namespace " + f.namespace + " is protected"},
	} {
		nets := &corev1.ConfigMap{}
		nets.Namespace, nets.Name = "trommel-chaos", "disruption-safety-nets"
		if err := f.Get(t.Context(), client.ObjectKeyFromObject(nets), nets); err != nil {
			t.Fatal(err)
		}
		before := nets.DeepCopy()
		nets.Data[tt.key] = tt.value
		if err := f.Patch(t.Context(), nets, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		clustertest.Eventually(t, func(ctx context.Context) error {
			err := f.Create(ctx, f.disruption("x", hangs(nil)), client.DryRunAll)
			if !refusedBy(err) || !strings.Contains(err.Error(), tt.reason) {
				return fmt.Errorf("%s: %w", tt.key, err)
			}
			return nil
		})
		after := nets.DeepCopy()
		nets.Data = before.Data
		if err := f.Patch(t.Context(), nets, client.MergeFrom(after)); err != nil {
			t.Fatal(err)
		}
		clustertest.Eventually(t, func(ctx context.Context) error {
			return f.Create(ctx, f.disruption("x", hangs(nil)), client.DryRunAll)
		})
	}
}

// TestWhatAnInjectorMayDo uses the rights of both accounts of injectors, as an attacker with their tokens would.
func TestWhatAnInjectorMayDo(t *testing.T) {
	f := newFixture(t)
	const prefix = "system:serviceaccount:trommel-chaos:"
	api, none := f.impersonate(prefix+"disruption-api-injector"), f.impersonate(prefix+"disruption-injector")
	node := func(name string, annotations map[string]string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.namespace + name, Annotations: annotations}}
		return n
	}
	genuine, simulated := node("-real", nil), node("-simulated", map[string]string{fault.AnnotationSimulated: "fake"})
	pod := f.labelled("p", genuine.Name, "x")
	for _, n := range []*corev1.Node{genuine, simulated} {
		if err := f.Create(t.Context(), n.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.Delete(context.Background(), n.DeepCopy()); err != nil {
				t.Error(err)
			}
		})
	}
	system := pod.DeepCopy()
	system.ObjectMeta = metav1.ObjectMeta{Namespace: "kube-system", Name: f.namespace}
	system.Spec.ServiceAccountName, system.Spec.Volumes = "", nil
	system.Spec.Containers[0].VolumeMounts = nil
	if err := f.Create(t.Context(), system); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Delete(context.Background(), system); err != nil {
			t.Error(err)
		}
	})
	merge := func(patch string) client.Patch { return client.RawPatch("application/merge-patch+json", []byte(patch)) }
	kwok := `{"metadata":{"annotations":{"` + fault.AnnotationSimulated + `":"fake"}}}`
	notReady := `{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`
	for _, tt := range []struct {
		name string
		do   func(client.Client) error
		want string // why the policy refuses it; empty: it is let through
	}{
		{"cordon", patches(genuine, merge(`{"spec":{"unschedulable":true}}`)), ""},
		{"take a real node from its owner", patches(genuine, merge(kwok)), "does not make a node a simulated one"},
		{"taint a node", patches(genuine, merge(`{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`)),
			"changes nothing of a node but"},
		{"label a node", patches(genuine, merge(`{"metadata":{"labels":{"a":"b"}}}`)), "changes nothing of a node but"},
		{"annotate a node", patches(genuine, merge(`{"metadata":{"annotations":{"a":"b"}}}`)), "no other annotations"},
		{"delete a real node", deletes(genuine), "deletes nodes only that KWOK simulates"},
		{"create a real node", creates(node("-other", nil)), "creates nodes only that KWOK simulates"},
		{"fail a real node", patchesStatus(genuine, merge(notReady)), "the status only of nodes that KWOK simulates"},
		{"take a node from KWOK", patches(simulated, merge(`{"metadata":{"annotations":{"`+fault.AnnotationSimulated+
			`":null,"chaos.trommel.dev/failing-simulated":"x"}}}`)), ""},
		{"fail a simulated node", patchesStatus(simulated, merge(notReady)), ""},
		{"delete a simulated node", deletes(simulated), ""},
		{"create a simulated node", creates(node("-new", map[string]string{fault.AnnotationSimulated: "fake"})), ""},
		{"delete a pod", deletes(pod), ""},
		{"delete a pod of the system", deletes(system), "deletes nothing in this namespace"},
		{"say that a pod is not ready", patchesStatus(pod, merge(`{"status":{"conditions":[]}}`)), ""},
		{"say that a pod has failed", patchesStatus(pod, merge(`{"status":{"phase":"Failed"}}`)), "but its conditions"},
		{"label a pod by its status", patchesStatus(pod, merge(`{"metadata":{"labels":{"a":"b"}}}`)),
			"but its conditions"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.do(none); !apierrors.IsForbidden(err) || refusedBy(err) {
				t.Errorf("the account without rights: %v", err)
			}
			err := tt.do(api)
			if tt.want == "" && err != nil ||
				tt.want != "" && (!refusedBy(err) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("the account of kinds that use the API: %v, want %q", err, tt.want)
			}
		})
	}
	// Neither reaches what would make it more.
	for _, c := range []client.Client{api, none} {
		for name, err := range map[string]error{
			"patch a pod's image": c.Patch(t.Context(), pod.DeepCopy(),
				merge(`{"spec":{"containers":[{"name":"c","image":"evil"}]}}`), client.DryRunAll),
			"create a pod":  c.Create(t.Context(), f.disguised(), client.DryRunAll),
			"list secrets":  c.List(t.Context(), &corev1.SecretList{}),
			"disrupt":       c.Create(t.Context(), f.disruption("x", hangs(nil)), client.DryRunAll),
			"create claims": c.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: pod.ObjectMeta}),
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// disguised is a pod in the namespace of chaos pods.
func (f *fixture) disguised() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "trommel-chaos", Name: "x"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "evil"}}}}
}

func patches(o client.Object, p client.Patch) func(client.Client) error {
	return func(c client.Client) error {
		return c.Patch(context.Background(), o.DeepCopyObject().(client.Object), p, client.DryRunAll)
	}
}

func patchesStatus(o client.Object, p client.Patch) func(client.Client) error {
	return func(c client.Client) error {
		return c.Status().Patch(context.Background(), o.DeepCopyObject().(client.Object), p, client.DryRunAll)
	}
}

func deletes(o client.Object) func(client.Client) error {
	return func(c client.Client) error {
		return c.Delete(context.Background(), o.DeepCopyObject().(client.Object), client.DryRunAll)
	}
}

func creates(o client.Object) func(client.Client) error {
	return func(c client.Client) error {
		return c.Create(context.Background(), o.DeepCopyObject().(client.Object), client.DryRunAll)
	}
}

// TestControllersArePodsThatPodSecurityLets runs the Deployment's pod in a namespace that restricts pods.
func TestControllersArePodsThatPodSecurityLets(t *testing.T) {
	f := newFixture(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	patch := client.MergeFrom(ns.DeepCopy())
	ns.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	if err := f.Patch(t.Context(), ns, patch); err != nil {
		t.Fatal(err)
	}
	list := must(objects.Decode(must(config.Files.ReadFile(config.Deployment)), config.Deployment))
	deployment := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list[0].Object, deployment); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "x"},
		Spec: deployment.Spec.Template.Spec}
	pod.Spec.ServiceAccountName = ""
	if err := f.Create(t.Context(), pod.DeepCopy(), client.DryRunAll); err != nil {
		t.Error(err)
	}
	pod.Spec.SecurityContext = nil
	if err := f.Create(t.Context(), pod, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("a pod without it is not restricted: %v", err)
	}
	for _, c := range deployment.Spec.Template.Spec.Containers {
		if strings.HasSuffix(c.Image, ":latest") || !slices.Contains(c.Args, "--metrics=127.0.0.1:8080") {
			t.Errorf("image %s, arguments %q", c.Image, c.Args)
		}
	}
	c := must(objects.New(must(shared.RESTConfig(""))))
	for _, u := range must(objects.Decode(must(config.Files.ReadFile("manager/network.yaml")), "network.yaml")) {
		if _, err := c.Apply(t.Context(), u); err != nil {
			t.Error(err)
		}
	}
}
