package remote

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
)

func parent(name string, uid types.UID) *chaos.Disruption {
	return &chaos.Disruption{
		ObjectMeta: metav1.ObjectMeta{Namespace: "here", Name: name, UID: uid},
		Spec:       chaos.DisruptionSpec{RemoteCluster: &chaos.RemoteTarget{Cluster: "west", Namespace: "there"}},
	}
}

// A child's name is always the same, and no other's.
func TestChildName(t *testing.T) {
	seen := map[string]string{}
	for _, cluster := range []string{"a", "b"} {
		for _, name := range []string{"x", strings.Repeat("x", 39) + ".y", strings.Repeat("long", 60)} {
			for _, uid := range []types.UID{"1", "2"} {
				d := parent(name, uid)
				got := childName(cluster, d)
				if problems := validation.IsDNS1123Subdomain(got); len(problems) > 0 || got != childName(cluster, d) {
					t.Errorf("%s: %v", got, problems)
				}
				whose := fmt.Sprint(cluster, name, uid)
				if other := seen[got]; other != "" {
					t.Errorf("%s and %s are both called %s", other, whose, got)
				}
				seen[got] = whose
			}
		}
	}
}

// The spec goes down without the cluster, and only the parent itself takes the child for its own.
func TestNewChild(t *testing.T) {
	d := parent("x", "1")
	d.Spec.Selector = map[string]string{"app": "a"}
	d.Annotations = map[string]string{chaos.AnnotationPaused: "true", chaos.AnnotationUser: "alice", "other": "x"}
	child := newChild("parent-id", d)
	if child.Namespace != "there" || child.Spec.RemoteCluster != nil || child.Spec.Selector["app"] != "a" ||
		!controller.Paused(child) || child.Annotations["other"] != "" || d.Spec.RemoteCluster == nil {
		t.Errorf("%+v", child)
	}
	if key := parentOf(child); key.String() != "here/x" {
		t.Errorf("its parent is %s", key)
	}
	if !isChild("parent-id", d, child) || isChild("other-id", d, child) ||
		isChild("parent-id", parent("x", "2"), child) {
		t.Error("it is somebody else's child")
	}
}

// The status is the child's, but for what the parent's controllers have said.
func TestCopied(t *testing.T) {
	d, child := parent("x", "1"), newChild("parent-id", parent("x", "1"))
	d.Status = chaos.DisruptionStatus{SpecHash: "parent", Kinds: "apiFault", Message: "old"}
	controller.SetCondition(&d.Status, chaos.ConditionSpecUnchanged, false, "Changed", "parent")
	controller.SetCondition(&d.Status, chaos.ConditionRemovable, false, "Unreachable", "old")
	child.UID = "child"
	child.Status = chaos.DisruptionStatus{SpecHash: "child", Phase: chaos.Injected, Message: "new"}
	controller.SetCondition(&child.Status, chaos.ConditionTargetsFound, true, "Found", "")
	events := []chaos.RemoteEvent{{Reason: "Injected"}}
	got := copied(d, child, events)
	want := &chaos.RemoteStatus{
		Cluster: "west", Namespace: "there", Name: child.Name, UID: "child", Events: events,
	}
	if diff := cmp.Diff(want, got.Remote); diff != "" {
		t.Error(diff)
	}
	if got.SpecHash != "parent" || got.Kinds != "apiFault" || got.Phase != chaos.Injected || got.Message != "new" {
		t.Errorf("%+v", got)
	}
	for kind, want := range map[string]metav1.ConditionStatus{
		chaos.ConditionSpecUnchanged: metav1.ConditionFalse, chaos.ConditionTargetsFound: metav1.ConditionTrue,
		chaos.ConditionRemote: metav1.ConditionTrue, chaos.ConditionRemovable: "",
	} {
		status := metav1.ConditionStatus("")
		if c := meta.FindStatusCondition(got.Conditions, kind); c != nil {
			status = c.Status
		}
		if status != want {
			t.Errorf("condition %s is %q, want %q", kind, status, want)
		}
	}
	if len(child.Status.Conditions) != 1 || len(d.Status.Conditions) != 2 {
		t.Error("the originals have changed")
	}
}

// What the child says about its acceptance is the parent's AcceptedRemotely. The parent's own parts stay.
func TestCopiedAcceptance(t *testing.T) {
	now := metav1.NowMicro()
	refuse := func(kind string) func(*chaos.DisruptionStatus) {
		return func(s *chaos.DisruptionStatus) { controller.SetCondition(s, kind, false, "SafetyNet", "too many") }
	}
	for _, tt := range []struct {
		name  string
		child func(*chaos.DisruptionStatus)
		want  metav1.ConditionStatus
	}{
		{"it has said nothing", func(*chaos.DisruptionStatus) {}, ""},
		{"its controllers refuse its spec", refuse(chaos.ConditionSpecAccepted), metav1.ConditionFalse},
		{"they refuse its targets", refuse(chaos.ConditionWithinSafetyNets), metav1.ConditionFalse},
		{"they are of an older version and refuse it", refuse(chaos.ConditionAccepted), metav1.ConditionFalse},
		{"they accept it", func(s *chaos.DisruptionStatus) {
			controller.SetCondition(s, chaos.ConditionSpecAccepted, true, "Accepted", "")
			controller.SetCondition(s, chaos.ConditionWithinSafetyNets, true, "Within", "")
		}, metav1.ConditionTrue},
		{"they are of an older version and have started it", func(s *chaos.DisruptionStatus) {
			s.Schedule.StartedAt = &now
		}, metav1.ConditionTrue},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, child := parent("x", "1"), newChild("parent-id", parent("x", "1"))
			controller.SetCondition(&d.Status, chaos.ConditionSpecAccepted, true, "Accepted", "by the parent")
			tt.child(&child.Status)
			got := copied(d, child, nil)
			if c := controller.Condition(&got, chaos.ConditionSpecAccepted); c.Message != "by the parent" {
				t.Errorf("%+v", c)
			}
			for _, kind := range []string{chaos.ConditionAcceptedRemotely, chaos.ConditionAccepted} {
				c := controller.Condition(&got, kind)
				if c.Status != tt.want || tt.want == metav1.ConditionFalse && c.Message != "too many" {
					t.Errorf("%+v, want %q", c, tt.want)
				}
			}
			d.Status = got
			if again := copied(d, child, nil); !equality.Semantic.DeepEqual(got, again) {
				t.Errorf("it changes: %s", cmp.Diff(got, again))
			}
		})
	}
}

// The user needs what the API server there would ask for.
func TestRights(t *testing.T) {
	words := func(change func(*chaos.DisruptionSpec)) string {
		d := parent("x", "1")
		change(&d.Spec)
		var all []string
		for _, r := range rights(&d.Spec) {
			all = append(all, r.words)
		}
		return strings.Join(all, ", ")
	}
	const create = "create disruptions in namespace there"
	for _, tt := range []struct {
		name, want string
		change     func(*chaos.DisruptionSpec)
	}{
		{"pods", create, func(s *chaos.DisruptionSpec) { s.APIFault = &chaos.APIFault{} }},
		{"nodes", create + ", patch nodes", func(s *chaos.DisruptionSpec) { s.Level = chaos.LevelNode }},
		{"nodeFailure", create + ", patch nodes",
			func(s *chaos.DisruptionSpec) { s.NodeFailure = &chaos.NodeFailure{} }},
		{"a node that is gone", create + ", patch nodes, delete nodes, create nodes",
			func(s *chaos.DisruptionSpec) { s.NodeFailure = &chaos.NodeFailure{Mode: "gone"} }},
		{"podReplacement", create + ", patch nodes, delete pods in namespace there",
			func(s *chaos.DisruptionSpec) { s.PodReplacement = &chaos.PodReplacement{} }},
		{"with claims", create + ", patch nodes, delete pods in namespace there, " +
			"delete persistentvolumeclaims in namespace there",
			func(s *chaos.DisruptionSpec) { s.PodReplacement = &chaos.PodReplacement{DeleteClaims: true} }},
	} {
		if got := words(tt.change); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestEventTimes(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, e := range []*corev1.Event{
		{LastTimestamp: metav1.NewTime(at)}, {EventTime: metav1.NewMicroTime(at)},
		{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at)}},
		{EventTime: metav1.NewMicroTime(at.Add(-time.Hour)),
			Series: &corev1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(at)}},
	} {
		if got := timeOf(e); !got.Equal(at) {
			t.Errorf("%+v: %s", e, got)
		}
	}
}

// The version is what an image's name ends with.
func TestVersion(t *testing.T) {
	for image, want := range map[string]string{
		"ghcr.io/x/y:v1": "v1", "registry:5000/x": "latest", "registry:5000/x:v2": "v2", "x/y@sha256:ab": "sha256:ab",
	} {
		d := &appsv1.Deployment{}
		d.Spec.Template.Spec.Containers = []corev1.Container{{Image: image}}
		if got := versionOf(d); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}
