package manager

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// writers are the field managers that wrote each field of a status, by the kind of object and the field. An item of a
// list counts for its list, apart from conditions.
type writers struct {
	mu sync.Mutex
	by map[string]map[string][]string
}

// test is the field manager of what a test writes into a status.
const test = "test"

// followWriters notes all versions of the objects of a namespace until the end of the test, or until stop is called.
// Objects of which remote is true count as another kind.
func followWriters(t *testing.T, namespace string, remote func(client.Object) bool) (all *writers, stop func()) {
	t.Helper()
	c, err := client.NewWithWatch(must(shared.RESTConfig("")), client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	all = &writers{by: map[string]map[string][]string{}}
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for kind, list := range map[string]client.ObjectList{
		"Disruption": &chaos.DisruptionList{}, "DisruptionCron": &chaos.DisruptionCronList{},
		"DisruptionRollout": &chaos.DisruptionRolloutList{}, "RemoteCluster": &chaos.RemoteClusterList{},
	} {
		var in []client.ListOption
		if kind != "RemoteCluster" {
			in = append(in, client.InNamespace(namespace))
		}
		events, err := c.Watch(ctx, list, in...)
		if meta.IsNoMatchError(err) && kind == "RemoteCluster" {
			continue // this cluster has no parent
		}
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			defer events.Stop()
			for e := range events.ResultChan() {
				o, ok := e.Object.(client.Object)
				if !ok {
					continue
				}
				kind := kind
				if remote(o) {
					kind = "remote " + kind
				}
				if err := all.note(kind, o); err != nil {
					t.Error(err)
				}
			}
		})
	}
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return all, stop
}

func (w *writers) note(kind string, o client.Object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, entry := range o.GetManagedFields() {
		if entry.FieldsV1 == nil || entry.Manager == test {
			continue
		}
		var owned map[string]map[string]any
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned); err != nil {
			return err
		}
		for _, field := range leaves("", owned["f:status"]) {
			if w.by[kind] == nil {
				w.by[kind] = map[string][]string{}
			}
			if of := w.by[kind][field]; !slices.Contains(of, entry.Manager) {
				w.by[kind][field] = append(of, entry.Manager)
			}
		}
	}
	return nil
}

// leaves lists the fields of a set of managed fields.
func leaves(path string, set map[string]any) (all []string) {
	for key, value := range set {
		name, isField := strings.CutPrefix(key, "f:")
		item, isItem := strings.CutPrefix(key, "k:")
		sub, _ := value.(map[string]any)
		switch {
		case isItem && path == "conditions":
			var of struct{ Type string }
			if json.Unmarshal([]byte(item), &of) == nil {
				all = append(all, path+"["+of.Type+"]")
			}
		case isItem || strings.HasPrefix(key, "v:"):
			all = append(all, path)
		case isField && len(sub) == 0:
			all = append(all, strings.TrimPrefix(path+"."+name, "."))
		case isField:
			all = append(all, leaves(strings.TrimPrefix(path+"."+name, "."), sub)...)
		}
	}
	return all
}

// are compares the writers with those that each field must have. Each writer's fields are listed.
func (w *writers) are(t *testing.T, kind string, want map[string][]string, all bool) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	of, written, structures := map[string]string{}, map[string]bool{}, map[string]bool{}
	for name, fields := range want {
		for _, field := range fields {
			of[field] = FieldManager(name)
			if structure, _, ok := strings.Cut(field, "."); ok {
				structures[structure] = true
			}
		}
	}
	for _, field := range slices.Sorted(maps.Keys(w.by[kind])) {
		if structures[field] {
			continue // the first writer makes it, empty; its fields have their writers
		}
		owned := field
		for of[owned] == "" && strings.Contains(owned, ".") { // a part of the field belongs to its writer, too
			owned = owned[:strings.LastIndex(owned, ".")]
		}
		written[owned] = true
		if got := w.by[kind][field]; len(got) != 1 || got[0] != of[owned] {
			t.Errorf("%s: status.%s was written by %q, want %q", kind, field, got, of[owned])
		}
	}
	for _, field := range slices.Sorted(maps.Keys(of)) {
		if all && !written[field] {
			t.Errorf("%s: status.%s was not written", kind, field)
		}
	}
}

// statusFields lists the fields of a status as leaves does. Those of an item belong to its list.
func statusFields(path string, status reflect.Type) (all []string) {
	for i := range status.NumField() {
		field := status.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		name = strings.TrimPrefix(path+"."+name, ".")
		if field.Type.Kind() == reflect.Struct {
			all = append(all, statusFields(name, field.Type)...)
			continue
		}
		all = append(all, name)
	}
	return all
}

// localWriters are the writers of a disruption's status, by controller.
var localWriters = map[string][]string{
	"spechash": {"specHash", "spec", "kinds", "seed", "conditions[SpecAccepted]", "conditions[SpecUnchanged]"},
	"targets": {
		"targets", "counts.matching", "counts.ignored", "counts.desired", "counts.selected",
		"conditions[TargetsFound]", "conditions[WithinSafetyNets]",
	},
	"lifetime": {
		"schedule.startedAt", "schedule.active", "schedule.since", "schedule.runs", "schedule.paused", "schedule.over",
		"endsAt",
	},
	"chaospods":  {"conditions[ChaosPods]"},
	"injections": {"phase", "message", "injections", "counts.injected", "conditions[Accepted]"},
	"cleanup":    {"isStuckOnRemoval", "conditions[Removable]"},
}

// TestOneWriterForEachField follows the lives of disruptions: no field of a status, and no condition, has a second
// writer.
func TestOneWriterForEachField(t *testing.T) {
	o := options()
	o.Nets.NamespaceShare, o.Nets.MaxDuration = 80, 2*time.Hour
	f := newFixture(t)
	all, stop := followWriters(t, f.namespace, func(client.Object) bool { return false })
	start(t, account.Config(t), o)
	pods := f.processes(3)
	f.running(f.labelled("alone", shared.Processes().NodeName(), "alone"))
	alone := func(change func(*chaos.DisruptionSpec)) chaos.DisruptionSpec {
		return hangs(func(s *chaos.DisruptionSpec) {
			s.Selector = map[string]string{"app": "alone"}
			if change != nil {
				change(s)
			}
		})
	}

	// Its targets change, and it is paused.
	one, two := intstr.FromInt32(1), intstr.FromInt32(2)
	d := f.disrupt("life", hangs(func(s *chaos.DisruptionSpec) { s.Count = &one }))
	f.phase(d, chaos.Injected)
	patch := client.MergeFrom(d.DeepCopy())
	d.Spec.Count = &two
	if err := f.Patch(t.Context(), d, patch); err != nil {
		t.Fatal(err)
	}
	f.await(d, "on two targets", func(d *chaos.Disruption) bool { return d.Status.Counts.Injected == 2 })
	for _, paused := range []struct {
		value string
		phase chaos.Phase
	}{{`"true"`, chaos.PausedInjected}, {`null`, chaos.Injected}} {
		annotation := `{"metadata":{"annotations":{"` + chaos.AnnotationPaused + `":` + paused.value + `}}}`
		if err := f.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(annotation))); err != nil {
			t.Fatal(err)
		}
		f.phase(d, paused.phase)
	}
	if c := controller.Condition(&d.Status, chaos.ConditionAccepted); c.Status != metav1.ConditionTrue {
		t.Errorf("%+v", c)
	}
	f.end(d)
	// Its pulses end, and it is deleted.
	d = f.disrupt("pulse", alone(func(s *chaos.DisruptionSpec) {
		s.Duration = duration(4 * time.Second)
		s.Pulse = &chaos.Pulse{ActiveDuration: *duration(time.Second), DormantDuration: *duration(time.Second)}
	}))
	f.phase(d, chaos.PausedInjected)
	f.gone(d)

	// They are refused, in each way that there is.
	for _, refused := range []struct {
		by   string
		spec chaos.DisruptionSpec
	}{
		{chaos.ConditionSpecAccepted, alone(func(s *chaos.DisruptionSpec) { s.Duration = duration(3 * time.Hour) })},
		{chaos.ConditionSpecAccepted, to("x", f, nil)}, // by the mode
		{chaos.ConditionWithinSafetyNets, hangs(func(s *chaos.DisruptionSpec) {
			s.Selector = nil
			s.AdvancedSelector = []chaos.LabelRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}
		})},
	} {
		d := f.disrupt("refused", refused.spec)
		f.await(d, "refused", refusedByPart(refused.by))
		f.end(d)
	}

	// The spec has changed: to the controllers this is the same.
	d = f.disrupt("changed", alone(nil))
	f.phase(d, chaos.Injected)
	change := client.RawPatch(types.MergePatchType, []byte(`{"status":{"specHash":"another"}}`))
	if err := f.Status().Patch(t.Context(), d, change, client.FieldOwner(test)); err != nil {
		t.Fatal(err)
	}
	f.gone(d)

	// A chaos pod cannot be created.
	taken := f.pod("taken", "node-1")
	taken = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: controller.PodName(chaos.LevelPod, f.namespace, "alone", chaos.KindAPIFault),
		},
		Spec: corev1.PodSpec{
			NodeName: "node-1", Tolerations: taken.Spec.Tolerations,
			TerminationGracePeriodSeconds: taken.Spec.TerminationGracePeriodSeconds,
			Containers:                    []corev1.Container{{Name: "c", Image: "c"}},
		},
	}
	if err := f.Create(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	d = f.disrupt("taken", alone(nil))
	f.await(d, "without a chaos pod", func(d *chaos.Disruption) bool {
		return controller.Condition(&d.Status, chaos.ConditionChaosPods).Status == metav1.ConditionFalse
	})
	if err := f.Delete(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	f.phase(d, chaos.Injected)

	// Its injector is killed, and cannot be cleaned after.
	if err := syscall.Kill(injectorOf(t, d), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	entry := must(filepath.Glob(filepath.Join(journal, string(d.UID)+"*.json")))[0]
	text := must(os.ReadFile(entry))
	if err := errors.Join(os.WriteFile(entry, []byte("damaged"), 0o600), f.Delete(t.Context(), d)); err != nil {
		t.Fatal(err)
	}
	f.await(d, "stuck", func(d *chaos.Disruption) bool { return d.Status.IsStuckOnRemoval })
	if err := os.WriteFile(entry, text, 0o600); err != nil {
		t.Fatal(err)
	}
	f.gone(d)

	// DisruptionCrons and DisruptionRollouts have a status, too.
	cron := f.cron("cron", alone(nil))
	cron.Spec.Schedule, cron.Spec.Suspend = "@every 1s", false
	rollout := f.rollout("rollout", alone(nil))
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: rollout.Spec.Target.Name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: pods[0].Spec,
			},
		},
	}
	deployment.Spec.Template.Spec.NodeName = ""
	for _, o := range []client.Object{cron, rollout} {
		if err := f.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		err := errors.Join(f.Get(ctx, client.ObjectKeyFromObject(cron), cron),
			f.Get(ctx, client.ObjectKeyFromObject(rollout), rollout))
		if err == nil && (len(cron.Status.History) == 0 || rollout.Status.Message == "") {
			err = errors.New("nothing is written yet")
		}
		return err
	})
	if err := errors.Join(f.Delete(t.Context(), cron), f.Create(t.Context(), deployment)); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		err := f.Get(ctx, client.ObjectKeyFromObject(rollout), rollout)
		if err == nil && rollout.Status.Version == "" {
			err = errors.New("no version is written yet")
		}
		return err
	})

	stop()
	all.are(t, "Disruption", localWriters, true)
	all.are(t, "DisruptionCron", map[string][]string{
		"cron": statusFields("", reflect.TypeFor[chaos.DisruptionCronStatus]()),
	}, false)
	all.are(t, "DisruptionRollout", map[string][]string{
		"rollout": statusFields("", reflect.TypeFor[chaos.DisruptionRolloutStatus]()),
	}, false)
}

// TestOneWriterOfRemoteDisruptions: only spechash writes beside the controller that copies what the other cluster says.
func TestOneWriterOfRemoteDisruptions(t *testing.T) {
	far := childCluster(t)
	o := parentOptions()
	o.Nets.MaxDuration = 2 * time.Hour
	startParent(t, o)
	f, there := newFixture(t), far.fixture(t)
	all, stop := followWriters(t, f.namespace, func(o client.Object) bool {
		d, ok := o.(*chaos.Disruption)
		return ok && controller.IsRemote(d)
	})
	far.targets(there, 1)
	f.cluster(f.remoteCluster("writers", far.kubeconfig), "ready", isReady)
	d := f.disrupt("life", to("writers", there, nil))
	f.phase(d, chaos.Injected)
	for _, kind := range []string{chaos.ConditionAccepted, chaos.ConditionAcceptedRemotely} {
		if c := controller.Condition(&d.Status, kind); c.Status != metav1.ConditionTrue {
			t.Errorf("%+v", d.Status.Conditions)
		}
	}
	f.ended(d)
	// One is refused here, the other one there.
	for by, change := range map[string]func(*chaos.DisruptionSpec){
		chaos.ConditionSpecAccepted: func(s *chaos.DisruptionSpec) { s.Duration = duration(3 * time.Hour) },
		// The child protects this namespace.
		chaos.ConditionAcceptedRemotely: func(s *chaos.DisruptionSpec) { s.RemoteCluster.Namespace = "kube-system" },
	} {
		d := f.disrupt("refused", to("writers", there, change))
		f.await(d, "refused", refusedByPart(by))
		f.ended(d)
	}
	stop()
	own := []string{"specHash", "spec", "kinds", "conditions[SpecAccepted]", "conditions[SpecUnchanged]"}
	copied := []string{"remote", "conditions[Remote]", "conditions[AcceptedRemotely]"}
	for _, fields := range localWriters {
		for _, field := range fields {
			if !slices.Contains(own, field) {
				copied = append(copied, field)
			}
		}
	}
	all.are(t, "remote Disruption", map[string][]string{"spechash": own, "remote": copied}, false)
	var ofCluster []string
	for field := range all.by["RemoteCluster"] {
		ofCluster = append(ofCluster, field)
	}
	all.are(t, "RemoteCluster", map[string][]string{"remote": ofCluster}, true)
}

// refusedByPart reports whether a disruption is refused by a part of Accepted, and says so everywhere.
func refusedByPart(part string) func(*chaos.Disruption) bool {
	return func(d *chaos.Disruption) bool {
		accepted, by := controller.Condition(&d.Status, chaos.ConditionAccepted), controller.Condition(&d.Status, part)
		return by.Status == metav1.ConditionFalse && accepted.Status == metav1.ConditionFalse &&
			accepted.Message == by.Message && d.Status.Message == by.Message && d.Status.Schedule.Over &&
			d.Status.Phase == chaos.PreviouslyNotInjected
	}
}

// Each field of a status has a row in the table of its writers.
func TestEachFieldHasAWriter(t *testing.T) {
	var written []string
	for _, fields := range localWriters {
		written = append(written, fields...)
	}
	for _, field := range statusFields("", reflect.TypeFor[chaos.DisruptionStatus]()) {
		if !slices.Contains(written, field) && field != "remote" && field != "conditions" {
			t.Errorf("status.%s has no writer", field)
		}
	}
	for i, field := range written {
		if slices.Contains(written[:i], field) {
			t.Errorf("status.%s has two writers", field)
		}
	}
}

// The documentation has each condition with its writer.
func TestDocumentedConditions(t *testing.T) {
	text := string(must(os.ReadFile("../../../docs/disruptions.md")))
	documented := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| (?:– )?`(\\w+)` \\| .* \\| `(\\w+)` \\|$")
	for _, cells := range row.FindAllStringSubmatch(text, -1) {
		documented[cells[1]] = cells[2]
	}
	want := map[string]string{chaos.ConditionAcceptedRemotely: "remote", chaos.ConditionRemote: "remote"}
	for name, fields := range localWriters {
		for _, field := range fields {
			if kind, ok := strings.CutPrefix(field, "conditions["); ok {
				want[strings.TrimSuffix(kind, "]")] = name
			}
		}
	}
	if diff := cmp.Diff(want, documented); diff != "" {
		t.Errorf("(-controllers +documented)\n%s", diff)
	}
}
