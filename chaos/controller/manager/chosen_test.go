package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// TestWhoIsDisrupted: what matches the selectors and the filter in the namespace, and of that the percentage, rounded
// up. Each target has an event at its beginning and at its end; nothing else has.
func TestWhoIsDisrupted(t *testing.T) {
	start(t, account.Config(t), options())
	f := newFixture(t)
	annotated := map[string]map[string]string{
		"a": {"team": "red"}, "b": {"team": "red", "other": "x"}, "c": {"team": "red"},
		"blue": {"team": "blue"}, "none": nil, "ignored": {"team": "red", controller.AnnotationIgnore: "true"},
		"excluded": {"team": "red"},
	}
	elsewhere := newFixture(t)
	for _, name := range []string{"a", "d"} { // as the others, but of another namespace
		p := elsewhere.pod(name, shared.Processes().NodeName())
		patch := client.MergeFrom(p.DeepCopy())
		p.Annotations = annotated["a"]
		if err := elsewhere.Patch(t.Context(), p, patch); err != nil {
			t.Fatal(err)
		}
		elsewhere.running(p)
	}
	pods := map[string]*corev1.Pod{}
	for name, annotations := range annotated {
		app := "x"
		if name == "excluded" {
			app = "y"
		}
		p := f.labelled(name, shared.Processes().NodeName(), app)
		patch := client.MergeFrom(p.DeepCopy())
		p.Annotations = annotations
		if err := f.Patch(t.Context(), p, patch); err != nil {
			t.Fatal(err)
		}
		pods[name] = p
		f.running(p)
	}
	d := f.disrupt("some", hangs(func(s *chaos.DisruptionSpec) {
		half := intstr.FromString("34%") // of three: 1.02
		s.Count, s.Selector = &half, nil
		s.Filter = &chaos.Filter{Annotations: map[string]string{"team": "red"}}
		s.AdvancedSelector = []chaos.LabelRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"x", "y"}},
			{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"y"}},
			{Key: "missing", Operator: metav1.LabelSelectorOpDoesNotExist},
		}
	}))
	f.phase(d, chaos.Injected)
	if c := d.Status.Counts; c.Matching != 3 || c.Desired != 2 || c.Selected != 2 || c.Injected != 2 {
		t.Errorf("%+v", c)
	}
	var chosen []string
	for _, target := range d.Status.Targets {
		chosen = append(chosen, target.Name)
		if !slices.Contains([]string{"a", "b", "c"}, target.Name) || target.UID != pods[target.Name].UID {
			t.Errorf("%s is a target", target.Name)
		}
		e := f.event(pods[target.Name], "Disrupted")
		if e.Type != corev1.EventTypeWarning || e.Related == nil || e.Related.UID != d.UID ||
			e.Note != fmt.Sprintf("apiFault of disruption %s/some", f.namespace) {
			t.Errorf("%+v", e)
		}
		if e := f.event(pods[target.Name], "Selected"); e.Type != corev1.EventTypeNormal || e.Related == nil ||
			e.Related.UID != d.UID || e.Note != fmt.Sprintf("it is a target of disruption %s/some", f.namespace) {
			t.Errorf("%+v", e)
		}
	}
	f.end(d)
	for _, name := range chosen {
		if e := f.event(pods[name], "NoLongerDisrupted"); e.Type != corev1.EventTypeNormal {
			t.Errorf("%+v", e)
		}
	}
	var list eventsv1.EventList
	if err := f.List(t.Context(), &list, client.InNamespace(f.namespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if slices.Contains([]string{"Selected", "Disrupted", "NoLongerDisrupted"}, e.Reason) &&
			!slices.Contains(chosen, e.Regarding.Name) {
			t.Errorf("event %s of %s", e.Reason, e.Regarding.Name)
		}
	}
}

// TestSelectedTargetsHaveAnEvent: a target has an event when it is chosen, although nothing is injected yet.
func TestSelectedTargetsHaveAnEvent(t *testing.T) {
	start(t, account.Config(t), options())
	f := newFixture(t)
	pod := f.processes(1)[0]
	d := f.disrupt("later", hangs(func(s *chaos.DisruptionSpec) {
		s.Pulse = &chaos.Pulse{
			InitialDelay: duration(time.Hour), ActiveDuration: *duration(time.Minute),
			DormantDuration: *duration(time.Minute),
		}
	}))
	f.event(pod, "Selected")
	var list eventsv1.EventList
	if err := f.List(t.Context(), &list, client.InNamespace(f.namespace)); err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Regarding.UID == pod.UID && e.Reason == "Disrupted" {
			t.Errorf("it is disrupted already: %+v", e)
		}
	}
	f.end(d)
}

// TestSeed: disruptions with a seed have the same targets, and the others have those of a random seed, which their
// status has.
func TestSeed(t *testing.T) {
	start(t, account.Config(t), options())
	f := newFixture(t)
	f.processes(6)
	chosen := func(name string, seed *int64) (int64, string) {
		t.Helper()
		three := intstr.FromInt32(3)
		d := f.disrupt(name, hangs(func(s *chaos.DisruptionSpec) { s.Count, s.Seed, s.DryRun = &three, seed, true }))
		f.phase(d, chaos.Injected)
		var names []string
		for _, target := range d.Status.Targets {
			names = append(names, target.Name)
		}
		slices.Sort(names)
		if d.Status.Seed == nil {
			t.Fatalf("no seed: %+v", d.Status)
		}
		used := *d.Status.Seed
		f.end(d)
		return used, strings.Join(names, " ")
	}
	random, first := chosen("random", nil)
	if used, again := chosen("again", &random); used != random || again != first {
		t.Errorf("seed %d: %s; seed %d: %s", random, first, used, again)
	}
	if other, _ := chosen("other", nil); other == random {
		t.Errorf("twice the seed %d", other)
	}
}

// TestTriggers: targets are chosen, and the duration begins, at the time that the trigger says.
func TestTriggers(t *testing.T) {
	start(t, account.Config(t), options())
	f := newFixture(t)
	f.processes(1)
	f.running(f.labelled("other", shared.Processes().NodeName(), "other"))
	const wait = 4 * time.Second
	offset := f.disrupt("offset", hangs(func(s *chaos.DisruptionSpec) {
		s.Triggers = &chaos.Triggers{Inject: chaos.Trigger{Offset: duration(wait)}}
	}))
	at := metav1.NewTime(time.Now().Add(wait).Truncate(time.Second))
	notBefore := f.disrupt("not-before", hangs(func(s *chaos.DisruptionSpec) {
		s.Selector = map[string]string{"app": "other"}
		s.Triggers = &chaos.Triggers{Inject: chaos.Trigger{NotBefore: &at}}
	}))
	for d, begins := range map[*chaos.Disruption]time.Time{
		offset: offset.CreationTimestamp.Add(wait), notBefore: at.Time,
	} {
		early := false
		clustertest.Eventually(t, func(ctx context.Context) error {
			asked := time.Now()
			if err := f.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
				return err
			}
			early = early || asked.Before(begins) && len(d.Status.Targets) > 0
			if d.Status.Phase != chaos.Injected {
				return fmt.Errorf("%s: %+v", d.Name, d.Status)
			}
			return nil
		})
		if started := d.Status.Schedule.StartedAt; early || started.Time.Before(begins) {
			t.Errorf("%s was to begin at %v, and did at %v (%t)", d.Name, begins, started, early)
		}
		f.end(d)
	}
}

// withoutRules has the API server accept changes of specs, as with a definition whose rules were removed, until restore
// is called.
func withoutRules(f *fixture) (restore func()) {
	f.t.Helper()
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	key := client.ObjectKey{Name: "disruptions." + chaos.GroupVersion.Group}
	if err := f.Get(f.t.Context(), key, definition); err != nil {
		f.t.Fatal(err)
	}
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil {
		f.t.Fatal(err)
	}
	rules, found, err := unstructured.NestedSlice(versions[0].(map[string]any),
		"schema", "openAPIV3Schema", "properties", "spec", "x-kubernetes-validations")
	if err != nil || !found {
		f.t.Fatalf("no rules: %v", err)
	}
	const path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/x-kubernetes-validations"
	patch := func(ctx context.Context, operation controller.Operation) error {
		text := must(json.Marshal([]controller.Operation{operation}))
		return f.Patch(ctx, definition.DeepCopy(), client.RawPatch(types.JSONPatchType, text))
	}
	if err := patch(f.t.Context(), controller.Operation{Op: "remove", Path: path}); err != nil {
		f.t.Fatal(err)
	}
	restore = sync.OnceFunc(func() {
		if err := patch(context.Background(), controller.Operation{Op: "add", Path: path, Value: rules}); err != nil {
			f.t.Error(err)
		}
	})
	f.t.Cleanup(restore)
	return restore
}

// TestChangedSpecHasNoEffect: a spec that was changed, although the API server refuses that, leaves one event for each
// change, and what is injected stays as it is, also in chaos pods and targets that come later.
func TestChangedSpecHasNoEffect(t *testing.T) {
	start(t, account.Config(t), options())
	f := newFixture(t)
	f.processes(2)
	one := intstr.FromInt32(1)
	d := f.disrupt("changed", hangs(func(s *chaos.DisruptionSpec) { s.Count = &one }))
	f.phase(d, chaos.Injected)
	ends := d.Status.EndsAt
	pods, err := podsOf(t.Context(), f, d)
	if err != nil || len(pods) != 1 {
		t.Fatalf("%d chaos pods (%v)", len(pods), err)
	}
	restore := withoutRules(f)
	change := func(spec string) {
		t.Helper()
		clustertest.Eventually(t, func(ctx context.Context) error { // the API server needs a moment for the definition
			return f.Patch(ctx, d, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+spec+`}`)))
		})
	}
	reported := func() (notes []string) {
		var list eventsv1.EventList
		if err := f.List(t.Context(), &list, client.InNamespace(f.namespace)); err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.Regarding.UID == d.UID && e.Reason == "SpecChanged" {
				notes = append(notes, e.Note)
			}
		}
		return notes
	}
	changed := func(want bool) func(*chaos.Disruption) bool {
		return func(d *chaos.Disruption) bool {
			c := controller.Condition(&d.Status, chaos.ConditionSpecUnchanged)
			return (c.Status == metav1.ConditionFalse) == want && (d.Status.Message == c.Message) == want
		}
	}
	change(`{"duration":"1s","selector":{"app":"nobody"},"apiFault":{"hang":null,"status":500}}`)
	f.await(d, "known to be changed", changed(true))
	if !strings.Contains(d.Status.Message, "has no effect") || d.Status.Schedule.Over {
		t.Errorf("%+v", d.Status)
	}
	// Its chaos pod is the same one, and so is one that replaces it, at another target.
	if now, err := podsOf(t.Context(), f, d); err != nil || len(now) != 1 || now[0].UID != pods[0].UID {
		t.Errorf("%d other chaos pods (%v)", len(now), err)
	}
	first := d.Status.Targets[0]
	lost := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: first.Name}}
	if err := f.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	f.await(d, "at another target", func(d *chaos.Disruption) bool {
		return d.Status.Phase == chaos.Injected && len(d.Status.Targets) == 1 && d.Status.Targets[0].UID != first.UID
	})
	specIn := func(p *corev1.Pod) string {
		args := p.Spec.Containers[0].Args
		return args[slices.Index(args, "--spec")+1]
	}
	now, err := podsOf(t.Context(), f, d)
	if err != nil || len(now) != 1 || specIn(&now[0]) != specIn(&pods[0]) ||
		!strings.Contains(specIn(&now[0]), "hang") {
		t.Errorf("%v (%v)", now, err)
	}
	if !d.Status.EndsAt.Equal(ends) {
		t.Errorf("it ends at %v, not at %v", d.Status.EndsAt, ends)
	}
	change(`{"dryRun":true}`)
	clustertest.Eventually(t, func(context.Context) error {
		if notes := reported(); len(notes) != 2 || notes[0] == notes[1] {
			return fmt.Errorf("events: %q", notes)
		}
		return nil
	})
	// Count can still be changed, and the disruption's spec can become what it was.
	change(`{"count":0}`)
	f.await(d, "without targets", func(d *chaos.Disruption) bool { return len(d.Status.Targets) == 0 })
	change(`{"dryRun":null,"duration":"1h","selector":{"app":"x"},"apiFault":{"hang":true,"status":null}}`)
	f.await(d, "unchanged again", changed(false))
	if notes := reported(); len(notes) != 2 {
		t.Errorf("events: %q", notes)
	}
	restore()
	f.end(d)
}

// TestSpecLost: a disruption whose status does not say what is carried out ends when its spec has changed.
func TestSpecLost(t *testing.T) {
	o := options()
	o.KeepFor = time.Minute
	start(t, account.Config(t), o)
	f := newFixture(t)
	f.processes(1)
	d := f.disrupt("changed", hangs(nil))
	f.phase(d, chaos.Injected)
	// The API server refuses the change itself; to the controllers this is the same.
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"specHash":"another"}}`))
	if err := f.Status().Patch(t.Context(), d, patch); err != nil {
		t.Fatal(err)
	}
	f.phase(d, chaos.PreviouslyInjected)
	if e := f.event(d, "SpecChanged"); e.Type != corev1.EventTypeWarning {
		t.Errorf("%+v", e)
	}
	if c := controller.Condition(&d.Status, chaos.ConditionSpecUnchanged); c.Status != metav1.ConditionFalse ||
		d.Status.Message != c.Message || d.Status.Schedule.Active || !d.Status.Schedule.Over {
		t.Errorf("%+v", d.Status)
	}
	if pods, err := podsOf(t.Context(), f, d); err != nil || len(pods) > 0 {
		t.Errorf("%d chaos pods (%v)", len(pods), err)
	}
	f.end(d)
}
