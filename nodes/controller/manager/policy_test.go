package manager

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/config"
	"github.com/trommel-dev/trommel/nodes/controller"
)

// as is a client of a user; empty: of the cluster's administrator.
func as(user string, groups ...string) client.Client {
	to := rest.CopyConfig(must(shared.RESTConfig("")))
	to.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return must(client.New(to, client.Options{Scheme: newScheme()}))
}

// setLimits changes what the admission policies allow, until the end of the test.
func setLimits(t *testing.T, change map[string]string) {
	t.Helper()
	c := as("")
	write := func(ctx context.Context, change map[string]string) error {
		m := &corev1.ConfigMap{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: "trommel-nodes", Name: limitsName}, m); err != nil {
			return err
		}
		for key, value := range openLimits() {
			m.Data[key] = value.(string)
		}
		for key, value := range change {
			m.Data[key] = value
		}
		return c.Update(ctx, m)
	}
	if err := write(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := write(context.Background(), nil); err != nil {
			t.Error(err)
		}
		// The tests that follow need it.
		clustertest.Eventually(t, func(ctx context.Context) error {
			return c.Create(ctx, policyRequest(nil), client.DryRunAll)
		})
	})
}

func policyRequest(change func(*nodes.CycleNodeRequest)) *nodes.CycleNodeRequest {
	q := &nodes.CycleNodeRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "policy"},
		Spec: nodes.CycleNodeRequestSpec{
			NodeGroupName: "workers", Selector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "x"}},
		},
	}
	if change != nil {
		change(q)
	}
	return q
}

// answered fails the test unless the answer is the expected one: a part of the error, or empty.
func answered(err error, want string) error {
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		return fmt.Errorf("%v, want %q", err, want)
	}
	return nil
}

// inForce lets the API server judge until it has taken the policies and their limits over, some time after they were
// written.
func inForce(t *testing.T, judge func(context.Context) error) {
	t.Helper()
	clustertest.Within(t, 30*time.Second, judge)
}

// TestRequestPolicy lets the API server judge requests by the policies of the manifests.
func TestRequestPolicy(t *testing.T) {
	check := func(endpoint string) func(*nodes.CycleNodeRequest) {
		return func(q *nodes.CycleNodeRequest) { q.Spec.HealthChecks = []nodes.HealthCheck{{Endpoint: endpoint}} }
	}
	preTermination := func(endpoint, health string) func(*nodes.CycleNodeRequest) {
		return func(q *nodes.CycleNodeRequest) {
			q.Spec.PreTerminationChecks = []nodes.PreTerminationCheck{{
				Endpoint: endpoint, HealthCheck: nodes.HealthCheck{Endpoint: health},
			}}
		}
	}
	const refused, notURL = "checks may ask only the nodes, pods", "endpoints of checks must be URLs without '..'"
	some := map[string]string{"checkEndpoints": "https://checks.example/ok/, http://svc.ops.svc:8080"}
	for _, tt := range []struct {
		limits map[string]string
		rows   rows
	}{
		{map[string]string{"namespaces": "trommel-nodes", "maxConcurrency": "2", "protectedGroups": "a,b"}, rows{
			"another namespace": {func(q *nodes.CycleNodeRequest) { q.Spec.CycleSettings.Concurrency = 1 },
				"requests are carried out only in these namespaces: trommel-nodes"},
			"the own namespace": {func(q *nodes.CycleNodeRequest) {
				q.Namespace, q.Spec.CycleSettings.Concurrency = "trommel-nodes", 2
			}, ""},
			"too many at a time": {func(q *nodes.CycleNodeRequest) {
				q.Namespace, q.Spec.CycleSettings.Concurrency = "trommel-nodes", 3
			}, "cycleSettings.concurrency must be 1 to 2"},
			"all at a time": {func(q *nodes.CycleNodeRequest) { q.Namespace = "trommel-nodes" },
				"cycleSettings.concurrency must be 1 to 2"},
			"a protected group": {func(q *nodes.CycleNodeRequest) {
				q.Namespace, q.Spec.CycleSettings.Concurrency = "trommel-nodes", 1
				q.Spec.NodeGroupsList = []string{"b"}
			}, "these node groups are protected: a,b"},
		}},
		{map[string]string{"namespaces": "ops, default"}, rows{
			"one of several namespaces": {nil, ""},
			"none of them": {func(q *nodes.CycleNodeRequest) { q.Namespace = "kube-system" },
				"requests are carried out only in these namespaces: ops, default"},
		}},
		{map[string]string{"checkEndpoints": ""}, rows{
			"a node":                   {check("http://{{ .NodeIP }}:10256/healthz"), ""},
			"a node, otherwise":        {check("https://{{.NodeIP}}/x"), ""},
			"a pod":                    {check("http://10.1.2.3:8080/ready"), ""},
			"a pod by IPv6":            {check("http://[fd00::1]:8080/ready"), ""},
			"a name":                   {check("http://checks.example/ok"), refused},
			"a metadata service":       {check("http://169.254.169.254/latest/meta-data"), refused},
			"the same by IPv6":         {check("http://[fe80::1]/latest"), refused},
			"the controllers":          {check("http://127.0.0.1:8080/metrics"), refused},
			"a name with a node in it": {check("http://{{ .NodeIP }}.evil.example/"), refused},
			"a path with a node in it": {check("http://evil.example/{{ .NodeIP }}"), refused},
			"an address as a number":   {check("http://2130706433/"), refused},
			"another template":         {check("http://{{ .Name }}/"), notURL},
			"a POST request":           {preTermination("http://evil.example/", "http://{{ .NodeIP }}/"), refused},
			"its health check":         {preTermination("http://{{ .NodeIP }}/", "http://evil.example/"), refused},
			"both at the node":         {preTermination("http://{{ .NodeIP }}/", "http://{{ .NodeIP }}/"), ""},
		}},
		{some, rows{
			"the same":               {check("https://checks.example/ok"), ""},
			"below":                  {check("https://checks.example/ok/{{ .NodeIP }}"), ""},
			"beside":                 {check("https://checks.example/okay"), refused},
			"above":                  {check("https://checks.example/"), refused},
			"another scheme":         {check("http://checks.example/ok"), refused},
			"another port":           {check("https://checks.example:8443/ok"), refused},
			"a longer name":          {check("https://checks.example.evil/ok"), refused},
			"a user name":            {check("https://checks.example@evil.example/ok"), refused},
			"a way out":              {check("https://checks.example/ok/../admin"), notURL},
			"the second one":         {check("http://svc.ops.svc:8080/any/path"), ""},
			"not the second's other": {check("http://svc.ops.svc/any/path"), refused},
		}},
		{map[string]string{"checkEndpoints": "*"}, rows{"any": {check("http://169.254.169.254/"), ""}}},
	} {
		setLimits(t, tt.limits)
		c := as("")
		inForce(t, func(ctx context.Context) error {
			for name, row := range tt.rows {
				err := answered(c.Create(ctx, policyRequest(row.change), client.DryRunAll), row.want)
				if err != nil {
					return fmt.Errorf("%v, %s: %w", tt.limits, name, err)
				}
			}
			return nil
		})
	}
}

// rows are requests, by what is special about them, with the expected answer: a part of the error, or empty.
type rows map[string]struct {
	change func(*nodes.CycleNodeRequest)
	want   string
}

// TestStatusPolicy is about who may say what is terminated.
func TestStatusPolicy(t *testing.T) {
	const refused = "only the controllers make CycleNodeStatuses, and write the status of requests"
	admin, controllers := as(""), controllersClient(t)
	q := policyRequest(func(q *nodes.CycleNodeRequest) { q.Name = "status-policy" })
	if err := admin.Create(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	ref := nodes.NodeRef{Name: "n", UID: "u", ProviderID: "simulated:///x/i-1", NodeGroupName: "x"}
	made := func(name string) *nodes.CycleNodeStatus {
		return &nodes.CycleNodeStatus{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       nodes.CycleNodeStatusSpec{Request: q.Name, RequestUID: q.UID, Node: ref},
		}
	}
	s := made("status-policy")
	if err := controllers.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, o := range []client.Object{q, s} {
			if err := admin.Delete(context.Background(), o); err != nil {
				t.Error(err)
			}
		}
	})
	g := policyGroup(func(g *nodes.NodeGroup) { g.Name = "status-policy" })
	if err := admin.Create(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := admin.Delete(context.Background(), g); err != nil {
			t.Error(err)
		}
	})
	g.Status.Message = "x"
	q.Status = nodes.CycleNodeRequestStatus{Phase: nodes.RequestHealing, NodesToTerminate: []nodes.CycleNodeRequestNode{
		{NodeRef: ref, State: nodes.NodeAttaching},
	}}
	s.Status.Phase = nodes.StatusTerminatingNode
	rows := []struct {
		name string
		do   func(c client.Client) error
	}{
		{"a CycleNodeStatus", func(c client.Client) error {
			return c.Create(t.Context(), made("another"), client.DryRunAll)
		}},
		{"the status of a request", func(c client.Client) error {
			return c.Status().Update(t.Context(), q.DeepCopy(), client.DryRunAll)
		}},
		{"the status of a CycleNodeStatus", func(c client.Client) error {
			return c.Status().Update(t.Context(), s.DeepCopy(), client.DryRunAll)
		}},
	}
	inForce(t, func(context.Context) error {
		// The controllers have no right to it here.
		if err := answered(admin.Status().Update(t.Context(), g.DeepCopy(), client.DryRunAll), refused); err != nil {
			return fmt.Errorf("the status of a NodeGroup: %w", err)
		}
		for _, row := range rows {
			for who, c := range map[string]client.Client{
				"the administrator": admin, "another account": as("system:serviceaccount:default:x", "system:masters"),
			} {
				if err := answered(row.do(c), refused); err != nil {
					return fmt.Errorf("%s by %s: %w", row.name, who, err)
				}
			}
			if err := row.do(controllers); err != nil {
				return fmt.Errorf("%s by the controllers: %w", row.name, err)
			}
		}
		return nil
	})
}

// TestTokenPolicy is about what the controllers' token is good for, if an attacker has it.
func TestTokenPolicy(t *testing.T) {
	admin, controllers := as(""), controllersOf(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "token-policy", Labels: map[string]string{"app": "x", "serve": "yes"},
			Annotations: map[string]string{"a": "b"},
		},
		Spec: corev1.PodSpec{
			NodeName: "nowhere", Containers: []corev1.Container{{Name: "c", Image: "good"}},
		},
	}
	node := func(name, providerID string, ready corev1.ConditionStatus, cordoned bool) *corev1.Node {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"role": "x"},
				Annotations: map[string]string{"a": "b"}},
			Spec: corev1.NodeSpec{ProviderID: providerID, Unschedulable: cordoned},
		}
		if cordoned {
			n.Annotations[controller.AnnotationDoNotDisrupt] = "true"
			n.Annotations[controller.AnnotationScaleDownDisabled] = "true"
			n.Annotations[controller.AnnotationScaleDownDisabledBy] = "x"
		}
		if err := admin.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := admin.Delete(context.Background(), n); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		})
		before := n.DeepCopy() // other controllers write it, too
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		if err := admin.Status().Patch(t.Context(), n, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		return n
	}
	clustertest.Eventually(t, func(ctx context.Context) error { return admin.Create(ctx, pod) })
	t.Cleanup(func() {
		if err := admin.Delete(context.Background(), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Error(err)
		}
	})
	ready, lost := node("policy-ready", "test:///1", corev1.ConditionTrue, false),
		node("policy-lost", "test:///2", corev1.ConditionUnknown, false)
	cordoned := node("policy-cordoned", "test:///3", corev1.ConditionTrue, true)
	cloud := node("policy-cloud", "simulated:///policy/i-1", corev1.ConditionTrue, false)
	const (
		onlyLabels = "may only remove labels from pods"
		onlyCordon = "may only cordon Nodes"
		noMaking   = "make no Nodes but simulated ones"
		noDelete   = "may not delete Nodes that are Ready and not cordoned"
	)
	patchPod := func(change func(*corev1.Pod)) func() error {
		return func() error {
			changed := pod.DeepCopy()
			change(changed)
			return controllers.Patch(t.Context(), changed, client.MergeFrom(pod), client.DryRunAll)
		}
	}
	patchNode := func(n *corev1.Node, change func(*corev1.Node)) func() error {
		return func() error {
			changed := n.DeepCopy()
			change(changed)
			return controllers.Patch(t.Context(), changed, client.MergeFrom(n), client.DryRunAll)
		}
	}
	deleteNode := func(n *corev1.Node) func() error {
		return func() error { return controllers.Delete(t.Context(), n.DeepCopy(), client.DryRunAll) }
	}
	makeNode := func(providerID string) func() error {
		return func() error {
			return controllers.Create(t.Context(), &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "policy-made"}, Spec: corev1.NodeSpec{ProviderID: providerID},
			}, client.DryRunAll)
		}
	}
	rows := []struct {
		name string
		do   func() error
		want string
	}{
		{"a label is removed", patchPod(func(p *corev1.Pod) { delete(p.Labels, "serve") }), ""},
		{"all labels are removed", patchPod(func(p *corev1.Pod) { p.Labels = nil }), ""},
		{"a label is added", patchPod(func(p *corev1.Pod) { p.Labels["new"] = "x" }), onlyLabels},
		{"a label is changed", patchPod(func(p *corev1.Pod) { p.Labels["app"] = "y" }), onlyLabels},
		{"an image is changed", patchPod(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "evil" }), onlyLabels},
		{"both", patchPod(func(p *corev1.Pod) {
			delete(p.Labels, "serve")
			p.Spec.Containers[0].Image = "evil"
		}), onlyLabels},
		{"a toleration is added", patchPod(func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations,
				corev1.Toleration{Key: "x", Operator: corev1.TolerationOpExists})
		}), onlyLabels},
		{"an annotation is added", patchPod(func(p *corev1.Pod) { p.Annotations["x"] = "y" }), onlyLabels},
		{"an annotation is removed", patchPod(func(p *corev1.Pod) { p.Annotations = nil }), onlyLabels},
		{"a finalizer is added", patchPod(func(p *corev1.Pod) { p.Finalizers = []string{"x/y"} }), onlyLabels},
		{"a Node is cordoned", patchNode(ready, func(n *corev1.Node) {
			n.Spec.Unschedulable = true
			n.Annotations[controller.AnnotationCordoned] = "x"
		}), ""},
		{"a Node is protected", patchNode(ready, func(n *corev1.Node) {
			n.Annotations[controller.AnnotationDoNotDisrupt] = "true"
			n.Annotations[controller.AnnotationDoNotDisruptBy] = "x"
		}), ""},
		{"a Node is given up", patchNode(ready, func(n *corev1.Node) {
			n.Annotations[controller.AnnotationScaleDownDisabled] = "false"
		}), onlyCordon},
		{"a user's protection is removed", patchNode(cordoned, func(n *corev1.Node) {
			delete(n.Annotations, controller.AnnotationDoNotDisrupt)
		}), onlyCordon},
		{"a user's protection is changed", patchNode(cordoned, func(n *corev1.Node) {
			n.Annotations[controller.AnnotationDoNotDisrupt] = "false"
		}), onlyCordon},
		{"the controllers' protection is removed", patchNode(cordoned, func(n *corev1.Node) {
			delete(n.Annotations, controller.AnnotationScaleDownDisabled)
			delete(n.Annotations, controller.AnnotationScaleDownDisabledBy)
		}), ""},
		{"another annotation of a Node", patchNode(ready, func(n *corev1.Node) { n.Annotations["x"] = "y" }),
			onlyCordon},
		{"an annotation of a Node is removed", patchNode(ready, func(n *corev1.Node) { n.Annotations = nil }),
			onlyCordon},
		{"a Node's label", patchNode(ready, func(n *corev1.Node) { n.Labels["role"] = "control-plane" }), onlyCordon},
		{"a Node's taint", patchNode(ready, func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute}}
		}), onlyCordon},
		{"a simulated Node's annotation", patchNode(cloud, func(n *corev1.Node) { n.Annotations["x"] = "y" }), ""},
		{"a simulated Node is made", makeNode("simulated:///x/i-1"), ""},
		{"another Node is made", makeNode("test:///x"), noMaking},
		{"a Node without provider ID is made", makeNode(""), noMaking},
		{"a Node that is Ready is deleted", deleteNode(ready), noDelete},
		{"a Node that is cordoned is deleted", deleteNode(cordoned), ""},
		{"a Node that is lost is deleted", deleteNode(lost), ""},
		{"a simulated Node is deleted", deleteNode(cloud), ""},
		{"a pod is made", func() error {
			p := pod.DeepCopy()
			p.Name, p.ResourceVersion, p.UID = "made", "", ""
			return controllers.Create(t.Context(), p, client.DryRunAll)
		}, "cannot create resource"},
		{"a pod is deleted without asking a PodDisruptionBudget", func() error {
			return controllers.Delete(t.Context(), pod.DeepCopy(), client.DryRunAll)
		}, "cannot delete resource"},
		{"a pod is evicted", func() error {
			return controllers.SubResource("eviction").Create(t.Context(), pod.DeepCopy(), &policyv1.Eviction{
				ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
				DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
			})
		}, ""},
		{"a request is made", func() error {
			return controllers.Create(t.Context(), policyRequest(func(q *nodes.CycleNodeRequest) {
				q.Namespace = "trommel-nodes"
			}), client.DryRunAll)
		}, ""},
		{"a request is made elsewhere", func() error {
			return controllers.Create(t.Context(), policyRequest(nil), client.DryRunAll)
		}, "cannot create resource"},
		{"secrets are read", func() error { return controllers.List(t.Context(), &corev1.SecretList{}) },
			"cannot list resource"},
	}
	inForce(t, func(context.Context) error {
		for _, row := range rows {
			if err := answered(row.do(), row.want); err != nil {
				return fmt.Errorf("%s: %w", row.name, err)
			}
		}
		return nil
	})
	// Others may do all that, whatever becomes of the limits.
	changed := pod.DeepCopy()
	changed.Annotations["x"] = "y"
	if err := admin.Patch(t.Context(), changed, client.MergeFrom(pod), client.DryRunAll); err != nil {
		t.Error(err)
	}
}

// TestDeletionPolicy is about which requests the controllers' token can delete.
func TestDeletionPolicy(t *testing.T) {
	const refused = "may only delete requests that have ended and have ttlAfterFinished"
	admin, controllers := as(""), controllersOf(t)
	rows := map[string]struct {
		ttl   string
		phase nodes.RequestPhase
		want  string
	}{
		"ttl-successful": {"1h", nodes.RequestSuccessful, ""},
		"ttl-failed":     {"1h", nodes.RequestFailed, ""},
		"ttl-goes-on":    {"1h", nodes.RequestScalingUp, refused},
		"ttl-new":        {"1h", "", refused},
		"ttl-without":    {"", nodes.RequestSuccessful, refused},
	}
	for name, row := range rows {
		q := policyRequest(func(q *nodes.CycleNodeRequest) {
			q.Name, q.Spec.TTLAfterFinished = name, chaos.Duration(row.ttl)
		})
		if err := admin.Create(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := admin.Delete(context.Background(), q); err != nil {
				t.Error(err)
			}
		})
		if q.Status.Phase = row.phase; row.phase != "" {
			if err := controllersClient(t).Status().Update(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
	}
	inForce(t, func(ctx context.Context) error {
		for name, row := range rows {
			q := policyRequest(func(q *nodes.CycleNodeRequest) { q.Name = name })
			if err := answered(controllers.Delete(ctx, q, client.DryRunAll), row.want); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := admin.Delete(ctx, q, client.DryRunAll); err != nil {
				return fmt.Errorf("%s, by a user: %w", name, err)
			}
		}
		return nil
	})
}

// controllersOf has the rights of the controllers, and may be refused.
func controllersOf(t *testing.T) client.Client {
	t.Helper()
	to, _ := account.Recorded()
	return must(client.New(to, client.Options{Scheme: newScheme()}))
}

// TestPodSecurity lets the API server judge the controllers' pod by the Pod Security standard of its namespace.
func TestPodSecurity(t *testing.T) {
	data := must(config.Files.ReadFile("manager/manager.yaml"))
	var d appsv1.Deployment
	if err := yaml.Unmarshal([]byte(strings.Split(string(data), "\n---\n")[0]), &d); err != nil {
		t.Fatal(err)
	}
	const violates = `violates PodSecurity "restricted`
	c := as("")
	pod := func(change func(*corev1.PodSpec)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: "pod-security"}}
		p.Spec = *d.Spec.Template.Spec.DeepCopy()
		change(&p.Spec)
		return p
	}
	for _, tt := range []struct {
		name   string
		change func(*corev1.PodSpec)
		want   string
	}{
		{"as it is", func(*corev1.PodSpec) {}, ""},
		{"without seccomp", func(s *corev1.PodSpec) { s.SecurityContext = nil }, violates},
		{"in the host's network", func(s *corev1.PodSpec) { s.HostNetwork = true }, violates},
	} {
		if err := answered(c.Create(t.Context(), pod(tt.change), client.DryRunAll), tt.want); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		if address, ok := strings.CutPrefix(arg, "--metrics="); ok && !strings.HasPrefix(address, "127.0.0.1:") {
			t.Errorf("anybody can read the metrics at %s", address)
		}
	}
}
