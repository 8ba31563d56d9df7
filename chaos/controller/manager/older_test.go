package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// TestStartThatWasMissed: the controllers were away from the choice of targets until after the disruption's end. It
// does not begin later than it would have ended.
func TestStartThatWasMissed(t *testing.T) {
	f := newFixture(t)
	pods := f.processes(1)
	d := f.disrupt("missed", hangs(func(s *chaos.DisruptionSpec) { s.Duration = duration(time.Second) }))
	d.Status = chaos.DisruptionStatus{
		SpecHash: must(controller.SpecHash(&d.Spec)),
		Targets:  []chaos.Target{{UID: pods[0].UID, Name: pods[0].Name, Node: pods[0].Spec.NodeName}},
	}
	if err := f.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(d.CreationTimestamp.Add(3 * time.Second)))
	o := options()
	o.KeepFor = time.Hour
	start(t, account.Config(t), o)
	f.phase(d, chaos.PreviouslyNotInjected)
	if !d.Status.Schedule.Over || d.Status.Schedule.StartedAt != nil {
		t.Errorf("%+v", d.Status.Schedule)
	}
	f.end(d)
}

// TestStatusOfAnOlderVersion: versions before the parts of Accepted wrote only Accepted, and only if it was false. The
// start was written with the first targets.
func TestStatusOfAnOlderVersion(t *testing.T) {
	f := newFixture(t)
	pods := f.processes(1)
	now := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now(),
		}
	}
	// written creates a disruption with the status that an older version has written into it.
	written := func(name string, spec chaos.DisruptionSpec, set func(*chaos.DisruptionStatus)) *chaos.Disruption {
		t.Helper()
		d := f.disrupt(name, spec)
		d.Status = chaos.DisruptionStatus{SpecHash: must(controller.SpecHash(&d.Spec)), Kinds: "apiFault"}
		set(&d.Status)
		if err := f.Status().Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	other := func(s *chaos.DisruptionSpec) { s.Selector = map[string]string{"app": "other"} }
	f.running(f.labelled("other", shared.Processes().NodeName(), "other"))
	refused := written("refused", hangs(nil), func(s *chaos.DisruptionStatus) {
		s.Conditions = []metav1.Condition{
			condition(chaos.ConditionAccepted, metav1.ConditionFalse, "SafetyNet", "too many"),
		}
	})
	mode := written("mode", to("x", f, nil), func(s *chaos.DisruptionStatus) {
		s.Phase, s.Message, s.Schedule.Over, s.Schedule.Since = chaos.PreviouslyNotInjected, "no parent", true, &now
		s.Conditions = []metav1.Condition{
			condition(chaos.ConditionAccepted, metav1.ConditionFalse, "Mode", "no parent"),
		}
	})
	started := written("started", hangs(nil), func(s *chaos.DisruptionStatus) {
		s.Targets = []chaos.Target{{UID: pods[0].UID, Name: pods[0].Name, Node: pods[0].Spec.NodeName}}
		s.Counts = chaos.Counts{Matching: 1, Desired: 1, Selected: 1}
		s.Schedule.StartedAt = &now
		s.Conditions = []metav1.Condition{condition(chaos.ConditionTargetsFound, metav1.ConditionTrue, "Found", "")}
	})
	unstarted := written("new", hangs(other), func(*chaos.DisruptionStatus) {})

	o := options()
	o.KeepFor = time.Hour
	start(t, account.Config(t), o)
	for _, d := range []*chaos.Disruption{started, unstarted} {
		f.await(d, "accepted", func(d *chaos.Disruption) bool {
			return d.Status.Phase == chaos.Injected &&
				controller.Condition(&d.Status, chaos.ConditionAccepted).Status == metav1.ConditionTrue
		})
	}
	if at := started.Status.Schedule.StartedAt; !at.Time.Equal(now.Time) {
		t.Errorf("it has started at %v, and not at %v", at, now)
	}
	f.await(refused, "over", func(d *chaos.Disruption) bool {
		return d.Status.Phase == chaos.PreviouslyNotInjected && d.Status.Message == "too many" && d.Status.Schedule.Over
	})
	for d, message := range map[*chaos.Disruption]string{refused: "too many", mode: "no parent"} {
		if err := f.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
			t.Fatal(err)
		}
		c := controller.Condition(&d.Status, chaos.ConditionAccepted)
		if c.Status != metav1.ConditionFalse || c.Message != message || len(d.Status.Targets) > 0 ||
			d.Status.Message != message || d.Status.Phase != chaos.PreviouslyNotInjected {
			t.Errorf("%+v", d.Status)
		}
	}
	for _, d := range []*chaos.Disruption{refused, mode, started, unstarted} {
		f.end(d)
	}
}

// TestDefinitionOfAnOlderVersion: Helm upgrades the controllers, but not the definitions. That of an older version
// requires all counts of a status at once.
func TestDefinitionOfAnOlderVersion(t *testing.T) {
	f := newFixture(t)
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	definition.SetName("disruptions." + chaos.GroupVersion.Group)
	patch := func(ctx context.Context, operation controller.Operation) error {
		operation.Path = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/counts/required"
		text := must(json.Marshal([]controller.Operation{operation}))
		return f.Patch(ctx, definition.DeepCopy(), client.RawPatch(types.JSONPatchType, text))
	}
	counts := []string{"matching", "ignored", "desired", "selected", "injected"}
	if err := patch(t.Context(), controller.Operation{Op: "add", Value: counts}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := patch(context.Background(), controller.Operation{Op: "remove"}); err != nil {
			t.Error(err)
		}
	})
	clustertest.Eventually(t, func(ctx context.Context) error { // the API server takes it over after a while
		d := f.disruption("required", hangs(nil))
		if err := f.Create(ctx, d); err != nil {
			return err
		}
		empty := client.RawPatch(types.MergePatchType, []byte(`{"status":{"counts":{}}}`))
		err := f.Status().Patch(ctx, d, empty)
		if err := f.Delete(ctx, d); err != nil {
			return err
		}
		if !apierrors.IsInvalid(err) {
			return fmt.Errorf("a status without counts: %w", err)
		}
		return nil
	})
	start(t, account.Config(t), options())
	f.processes(1)
	d := f.disrupt("life", hangs(nil))
	f.phase(d, chaos.Injected)
	if d.Status.Counts.Injected != 1 || d.Status.Counts.Matching != 1 {
		t.Errorf("%+v", d.Status.Counts)
	}
	f.end(d)
}
