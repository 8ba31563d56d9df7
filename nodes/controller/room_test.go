package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func cpu(quantity string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}
}

// rooms are the Node that is left, with the pod p, and another one with a CPU, of which half is taken.
type rooms struct {
	leaving, other *corev1.Node
	p              *corev1.Pod
	more           []client.Object
}

func podOn(name, node, requested string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{
			{Name: "c", Resources: corev1.ResourceRequirements{Requests: cpu(requested)}},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func TestWithoutRoom(t *testing.T) {
	machine := func(name string) *corev1.Node {
		allocatable := cpu("1")
		allocatable[corev1.ResourcePods] = resource.MustParse("3")
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": "z1"}},
			Status: corev1.NodeStatus{Allocatable: allocatable, Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			}},
		}
	}
	const none = "no other node has room"
	affinity := func(a corev1.Affinity) func(*rooms) { return func(r *rooms) { r.p.Spec.Affinity = &a } }
	terms := []corev1.PodAffinityTerm{{
		TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
	}}
	zone := func(value string) func(*rooms) {
		return affinity(corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{value}},
				}}},
			},
		}})
	}
	tainted := func(effect corev1.TaintEffect) func(*rooms) {
		return func(r *rooms) { r.other.Spec.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: effect}} }
	}
	request := func(quantity string) func(*rooms) {
		return func(r *rooms) { r.p.Spec.Containers[0].Resources.Requests = cpu(quantity) }
	}
	for _, tt := range []struct {
		name  string
		given func(*rooms)
		want  string // why the pod has no room; empty: it has
	}{
		{name: "it fits", given: func(*rooms) {}},
		{name: "exactly", given: request("500m")},
		{name: "it is too large", given: request("501m"), want: none},
		{name: "nobody has that resource", want: none, given: func(r *rooms) {
			r.p.Spec.Containers[0].Resources.Requests["example.com/gpu"] = resource.MustParse("1")
		}},
		{name: "there are too many pods", want: none, given: func(r *rooms) {
			r.more = append(r.more, podOn("x", "other", "0"), podOn("y", "other", "0"))
		}},
		{name: "what has ended takes no room", given: func(r *rooms) {
			for _, name := range []string{"x", "y"} {
				ended := podOn(name, "other", "500m")
				ended.Status.Phase = corev1.PodSucceeded
				r.more = append(r.more, ended)
			}
		}},
		{name: "what ends takes room until it has ended", want: none, given: func(r *rooms) {
			ending := podOn("x", "other", "500m")
			at := metav1.Now()
			ending.DeletionTimestamp, ending.Finalizers = &at, []string{"x/y"}
			r.more = append(r.more, ending)
		}},
		{name: "a pod that waits for a node takes its place", want: none, given: func(r *rooms) {
			r.more = append(r.more, podOn("evicted", "", "450m"))
		}},
		{name: "a pod that has no place anyhow takes none", given: func(r *rooms) {
			r.more = append(r.more, podOn("huge", "", "450"))
		}},
		{name: "the other node is cordoned", want: none,
			given: func(r *rooms) { r.other.Spec.Unschedulable = true }},
		{name: "the other node is not Ready", want: none,
			given: func(r *rooms) { r.other.Status.Conditions[0].Status = corev1.ConditionUnknown }},
		{name: "a label that it has", given: func(r *rooms) {
			r.p.Spec.NodeSelector = map[string]string{"zone": "z1"}
		}},
		{name: "a label that it has not", want: none, given: func(r *rooms) {
			r.p.Spec.NodeSelector = map[string]string{"zone": "z2"}
		}},
		{name: "affinity to the node", given: zone("z1")},
		{name: "affinity to none", given: zone("z2"), want: none},
		{name: "NoSchedule", given: tainted(corev1.TaintEffectNoSchedule), want: none},
		{name: "NoExecute", given: tainted(corev1.TaintEffectNoExecute), want: none},
		{name: "PreferNoSchedule", given: tainted(corev1.TaintEffectPreferNoSchedule)},
		{name: "a taint that it tolerates", given: func(r *rooms) {
			tainted(corev1.TaintEffectNoSchedule)(r)
			r.p.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
		}},
		{name: "affinity to pods", want: "its place depends on other pods", given: affinity(corev1.Affinity{
			PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}})},
		{name: "anti-affinity", want: "its place depends on other pods", given: affinity(corev1.Affinity{
			PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}})},
		{name: "a preference only", given: affinity(corev1.Affinity{
			PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.
				WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: terms[0]}}}})},
		{name: "another pod's anti-affinity", want: "pod apps/x refuses to be beside it", given: func(r *rooms) {
			r.p.Labels = map[string]string{"app": "x"}
			x := podOn("x", "other", "0")
			x.Spec.Affinity = &corev1.Affinity{
				PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
			r.more = append(r.more, x)
		}},
		{name: "topology", want: "its place depends on other pods", given: func(r *rooms) {
			r.p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
				{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule}}
		}},
		{name: "a claim", want: "its place depends on its volumes", given: func(r *rooms) {
			r.p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		}},
		{name: "a resource claim", want: "its place depends on its resource claims", given: func(r *rooms) {
			r.p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "r"}}
		}},
		{name: "a port of the node", want: "it needs a port of its node", given: func(r *rooms) {
			r.p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 1, HostPort: 80}}
		}},
		{name: "another scheduler", want: "scheduler mine decides on its place",
			given: func(r *rooms) { r.p.Spec.SchedulerName = "mine" }},
		{name: "of a DaemonSet", given: func(r *rooms) {
			request("2")(r)
			yes := true
			r.p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: &yes}}
		}},
		{name: "it is leaving already", given: func(r *rooms) {
			request("2")(r)
			at := metav1.Now()
			r.p.DeletionTimestamp, r.p.Finalizers = &at, []string{"x/y"}
		}},
	} {
		r := &rooms{leaving: machine("leaving"), other: machine("other"), p: podOn("p", "leaving", "100m")}
		r.more = []client.Object{podOn("there", "other", "500m")}
		tt.given(r)
		c := fake.NewClientBuilder().WithObjects(append(r.more, r.leaving, r.other, r.p)...).Build()
		got, err := (&Env{Reader: c}).WithoutRoom(t.Context(), "leaving")
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if tt.want != "" {
			want = "apps/p (" + tt.want + ")"
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, want %q", tt.name, got, want)
		}
	}
}
