package manager

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// event waits for an event with this reason about an object, and returns it.
func (f *fixture) event(about client.Object, reason string) eventsv1.Event {
	f.t.Helper()
	var found eventsv1.Event
	clustertest.Eventually(f.t, func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := f.List(ctx, &list, client.InNamespace(f.namespace)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.UID == about.GetUID() && e.Reason == reason {
				found = e
				return nil
			}
		}
		return fmt.Errorf("no event %s of %s", reason, about.GetName())
	})
	return found
}

// TestDisruptionWithoutTargetsEnds: a disruption that was due during the night does not begin when its targets appear
// at 14:00.
func TestDisruptionWithoutTargetsEnds(t *testing.T) {
	o := options()
	o.KeepFor = time.Hour
	start(t, account.Config(t), o)
	f := newFixture(t)
	d := f.disrupt("nobody", hangs(func(s *chaos.DisruptionSpec) { s.Duration = duration(time.Second) }))
	f.phase(d, chaos.PreviouslyNotInjected)
	if !d.Status.Schedule.Over || d.Status.Message != "nothing matches the selector" {
		t.Errorf("%+v", d.Status)
	}
	f.processes(1)
	// Controllers that have handled another disruption of the pod have had their opportunity.
	other := f.disrupt("later", hangs(nil))
	f.phase(other, chaos.Injected)
	f.await(d, "still over", func(d *chaos.Disruption) bool {
		return len(d.Status.Targets) == 0 && d.Status.Schedule.Over
	})
	f.end(other)
	f.end(d)
}

// TestRunningDisruptionKeepsItsTargets: when one of ten pods is replaced, there are only nine for a moment.
func TestRunningDisruptionKeepsItsTargets(t *testing.T) {
	o := options()
	o.Nets.NamespaceShare = 80
	start(t, account.Config(t), o)
	f := newFixture(t)
	pods := f.processes(10)
	share := intstr.FromString("80%")
	d := f.disrupt("most", hangs(func(s *chaos.DisruptionSpec) { s.Count = &share }))
	f.phase(d, chaos.Injected)
	lost := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return controller.HasTarget(d, p.UID) })
	if err := f.Delete(t.Context(), pods[lost]); err != nil {
		t.Fatal(err)
	}
	f.await(d, "on seven of eight", func(d *chaos.Disruption) bool {
		return d.Status.Counts.Injected == 7 && d.Status.Phase == chaos.PartiallyInjected &&
			strings.Contains(d.Status.Message, "8 targets would disrupt more than 80% of the 9 pods")
	})
	f.running(f.pod("another", shared.Processes().NodeName()))
	f.await(d, "on eight again", func(d *chaos.Disruption) bool {
		return d.Status.Counts.Injected == 8 && d.Status.Phase == chaos.Injected && d.Status.Message == ""
	})
	f.end(d)
}

// TestShareOfWhatRuns: pods that have completed cannot be disrupted, and do not make room.
func TestShareOfWhatRuns(t *testing.T) {
	o := options()
	o.Nets.NamespaceShare = 50
	start(t, account.Config(t), o)
	f := newFixture(t)
	f.processes(3)
	for i := range 3 {
		p := f.labelled(fmt.Sprintf("done-%d", i), "node-1", "done")
		f.running(p)
		p.Status.Phase = corev1.PodSucceeded
		if err := f.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	two := intstr.FromInt32(2)
	d := f.disrupt("two", hangs(func(s *chaos.DisruptionSpec) { s.Count = &two }))
	f.await(d, "refused", func(d *chaos.Disruption) bool {
		return strings.Contains(d.Status.Message, "2 targets would disrupt more than 50% of the 3 pods")
	})
}

// TestDisruptionsDoNotPassTheNetsTogether creates disruptions that are allowed one by one.
func TestDisruptionsDoNotPassTheNetsTogether(t *testing.T) {
	o := options()
	o.Nets.NamespaceShare, o.KeepFor = 50, time.Hour
	start(t, account.Config(t), o)
	f := newFixture(t)
	f.processes(4)
	two, names := intstr.FromInt32(2), []string{"a", "b", "c", "d"}
	errs := make(chan error, len(names))
	var all []*chaos.Disruption
	for _, name := range names {
		d := f.disruption(name, hangs(func(s *chaos.DisruptionSpec) { s.Count = &two }))
		all = append(all, d)
		go func() { errs <- f.Create(t.Context(), d) }()
	}
	for range names {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	accepted := 0
	for _, d := range all {
		f.await(d, "decided", func(d *chaos.Disruption) bool {
			return d.Status.Phase == chaos.Injected || d.Status.Phase == chaos.PreviouslyNotInjected
		})
		if d.Status.Phase == chaos.Injected {
			accepted++
		}
	}
	if accepted != 1 {
		t.Errorf("%d of %d disruptions of half of the pods are accepted", accepted, len(names))
	}
	for _, d := range all {
		f.end(d)
	}
}

// TestControllersComeBackAfterTheEnd: the controllers have missed the end, but it is known what was injected.
func TestControllersComeBackAfterTheEnd(t *testing.T) {
	o := options()
	o.KeepFor = time.Hour
	stop := start(t, account.Config(t), o)
	f := newFixture(t)
	f.processes(2)
	d := f.disrupt("late", hangs(func(s *chaos.DisruptionSpec) { s.Duration = duration(3 * time.Second) }))
	f.phase(d, chaos.Injected)
	stop()
	clustertest.Eventually(t, func(ctx context.Context) error { // injectors end by themselves
		pods, err := podsOf(ctx, f, d)
		for _, p := range pods {
			if p.Status.Phase != corev1.PodSucceeded {
				return fmt.Errorf("chaos pod %s is %s (%w)", p.Name, p.Status.Phase, err)
			}
		}
		return err
	})
	start(t, account.Config(t), o)
	f.await(d, "over", func(d *chaos.Disruption) bool {
		return strings.HasPrefix(string(d.Status.Phase), "Previously")
	})
	if d.Status.Phase != chaos.PreviouslyInjected {
		t.Errorf("%+v", d.Status)
	}
	f.end(d)
}

// TestFinalizerStripped: a disruption loses its finalizer and goes, and another one gets its name.
func TestFinalizerStripped(t *testing.T) {
	stop := start(t, account.Config(t), options())
	f := newFixture(t)
	f.processes(1)
	first := f.disrupt("again", hangs(nil))
	f.phase(first, chaos.Injected)
	stop()
	patch := client.MergeFrom(first.DeepCopy())
	first.Finalizers = nil
	if err := errors.Join(f.Patch(t.Context(), first, patch), f.Delete(t.Context(), first)); err != nil {
		t.Fatal(err)
	}
	second := f.disrupt("again", chaos.DisruptionSpec{
		Selector: map[string]string{"app": "nobody"}, Kinds: chaos.Kinds{APIFault: &chaos.APIFault{Hang: true}},
	})
	start(t, account.Config(t), options())
	clustertest.Eventually(t, func(ctx context.Context) error {
		pods, err := podsOf(ctx, f, first)
		if err == nil && len(pods) > 0 {
			err = errors.New("the first one's chaos pod is still there")
		}
		return err
	})
	f.end(second)
	if left := must(filepath.Glob(filepath.Join(journal, string(first.UID)+"*"))); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestKilledInjector: one that cannot clean up, because it was killed, is cleaned after, and replaced.
func TestKilledInjector(t *testing.T) {
	for name, kill := range map[string]func(*testing.T, *fixture, *chaos.Disruption){
		"with its pod": func(t *testing.T, f *fixture, d *chaos.Disruption) {
			pods, err := podsOf(t.Context(), f, d)
			if err != nil || len(pods) != 1 {
				t.Fatal(pods, err)
			}
			if err := f.Delete(t.Context(), &pods[0], client.GracePeriodSeconds(0)); err != nil {
				t.Fatal(err)
			}
		},
		"by its grace period": func(t *testing.T, f *fixture, d *chaos.Disruption) {
			pods, err := podsOf(t.Context(), f, d)
			if err != nil || len(pods) != 1 {
				t.Fatal(pods, err)
			}
			err = errors.Join(syscall.Kill(injectorOf(t, d), syscall.SIGSTOP), f.Delete(t.Context(), &pods[0]))
			if err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, account.Config(t), options())
			f := newFixture(t)
			f.processes(1)
			d := f.disrupt("killed", hangs(nil))
			f.phase(d, chaos.Injected)
			before := d.Status.Injections[0].Pod
			pods, err := podsOf(t.Context(), f, d)
			if err != nil || len(pods) != 1 || pods[0].Name != before {
				t.Fatal(pods, err)
			}
			uid := pods[0].UID
			kill(t, f, d)
			clustertest.Eventually(t, func(ctx context.Context) error {
				pods, err := podsOf(ctx, f, d)
				if err == nil && (len(pods) != 1 || pods[0].UID == uid || !clustertest.IsReady(&pods[0])) {
					err = fmt.Errorf("it is not replaced: %d pods", len(pods))
				}
				return err
			})
			f.phase(d, chaos.Injected)
			f.end(d)
			var cleaners corev1.PodList
			if err := f.List(t.Context(), &cleaners, client.InNamespace("trommel-chaos"),
				client.MatchingLabels{controller.LabelCleans: string(uid)}); err != nil {
				t.Fatal(err)
			}
			for _, c := range cleaners.Items { // they go with the pod after which they clean
				if c.Status.Phase != corev1.PodSucceeded {
					t.Errorf("cleaner %s is %s", c.Name, c.Status.Phase)
				}
			}
		})
	}
}

// TestDryRunIsReportedAsOne: a dry run must not alarm its users.
func TestDryRunIsReportedAsOne(t *testing.T) {
	start(t, account.Config(t), options())
	f := newFixture(t)
	target := f.processes(1)[0]
	d := f.disrupt("dry", hangs(func(s *chaos.DisruptionSpec) { s.DryRun = true }))
	f.phase(d, chaos.Injected)
	if d.Status.Message != "dry run: nothing is really injected" {
		t.Errorf("message %q", d.Status.Message)
	}
	if e := f.event(target, "DryRun"); e.Type != corev1.EventTypeNormal {
		t.Errorf("%+v", e)
	}
	if e := f.event(d, "Injected"); e.Note != "1 of 1 targets (dry run)" {
		t.Errorf("%+v", e)
	}
	f.end(d)
}

// TestMistakesAreTold: a selector and schedules that the definition cannot check.
func TestMistakesAreTold(t *testing.T) {
	o := options()
	o.KeepFor = time.Hour
	start(t, account.Config(t), o)
	f := newFixture(t)
	d := f.disrupt("selector", hangs(func(s *chaos.DisruptionSpec) { s.Selector = map[string]string{"target!!": "x"} }))
	f.phase(d, chaos.PreviouslyNotInjected)
	if c := controller.Condition(&d.Status, chaos.ConditionAccepted); c.Reason != "InvalidSelector" ||
		!strings.HasPrefix(d.Status.Message, "selector: ") {
		t.Errorf("%+v", d.Status)
	}
	f.event(d, "Refused")
	for _, schedule := range []string{"61 * * * *", "TZ=0"} {
		c := f.cron("cron", hangs(nil))
		c.Spec.Schedule = schedule
		if err := f.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		e := f.event(c, "InvalidSchedule")
		if !strings.HasPrefix(e.Note, "schedule: ") || e.Type != corev1.EventTypeWarning {
			t.Errorf("%s: %+v", schedule, e)
		}
		if err := f.Delete(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	// A trigger has one moment.
	both := f.disruption("both", hangs(nil))
	both.Spec.Triggers = &chaos.Triggers{Inject: chaos.Trigger{
		NotBefore: &both.CreationTimestamp, Offset: duration(time.Second),
	}}
	now := time.Now()
	both.Spec.Triggers.Inject.NotBefore.Time = now
	if err := f.Create(t.Context(), both); err == nil ||
		!strings.Contains(err.Error(), "notBefore and offset cannot both be given") {
		t.Errorf("both moments: %v", err)
	}
	f.end(d)
}

// TestUnsupportedEndsAtOnce: an impossible disruption does not wait.
func TestUnsupportedEndsAtOnce(t *testing.T) {
	o := options()
	o.KeepFor = time.Hour
	start(t, account.Config(t), o)
	f := newFixture(t)
	f.running(f.pod("simulated", "node-1"))
	d := f.disrupt("unsupported", hangs(nil))
	f.phase(d, chaos.PreviouslyNotInjected)
	if s := d.Status; !s.Schedule.Over || len(s.Injections) != 1 ||
		s.Injections[0].State != chaos.InjectionUnsupported ||
		!strings.Contains(s.Message, "runs on the simulated node") {
		t.Errorf("%+v", s)
	}
	f.end(d)
}

// TestCountOfMoreThanThereAre: five of two are not all.
func TestCountOfMoreThanThereAre(t *testing.T) {
	start(t, account.Config(t), options())
	f := newFixture(t)
	f.processes(2)
	five, none := intstr.FromInt32(5), intstr.FromInt32(0)
	d := f.disrupt("five", hangs(func(s *chaos.DisruptionSpec) { s.Count = &five }))
	f.await(d, "in part", func(d *chaos.Disruption) bool {
		return d.Status.Phase == chaos.PartiallyInjected && d.Status.Counts.Injected == 2 &&
			d.Status.Counts.Desired == 5 &&
			d.Status.Message == "2 of 5 targets found: there are no more healthy matches"
	})
	f.end(d)
	d = f.disrupt("none", hangs(func(s *chaos.DisruptionSpec) { s.Count = &none }))
	f.await(d, "told why", func(d *chaos.Disruption) bool { return d.Status.Message == "count is 0 targets" })
	f.end(d)
}

// TestChaosPodGone: the finalizers of a disruption and its chaos pod are removed by another client, and the injector is
// killed. What that has left is removed all the same, by no other injector.
func TestChaosPodGone(t *testing.T) {
	start(t, account.Config(t), options())
	f := newFixture(t)
	f.processes(1)
	d := f.disrupt("gone", hangs(func(s *chaos.DisruptionSpec) { s.Duration = duration(time.Hour) }))
	f.phase(d, chaos.Injected)
	pods, err := podsOf(t.Context(), f, d)
	if err != nil || len(pods) != 1 {
		t.Fatal(pods, err)
	}
	if err := syscall.Kill(injectorOf(t, d), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{d, &pods[0]} {
		if err := f.Delete(t.Context(), o, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
		strip := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		if err := f.Patch(t.Context(), o, strip); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		left := must(filepath.Glob(filepath.Join(journal, string(d.UID)+"*")))
		faults, err := shared.Processes().Faults(ctx)
		for _, fault := range faults {
			if strings.HasPrefix(fault.ID, string(d.UID)) {
				left = append(left, fault.ID)
			}
		}
		var cleaners corev1.PodList
		err = errors.Join(err, f.List(ctx, &cleaners, client.InNamespace("trommel-chaos"),
			client.MatchingLabels{controller.LabelCleans: string(pods[0].UID)}))
		for _, c := range cleaners.Items {
			left = append(left, "cleaner "+c.Name)
		}
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("left: %q", left)
		}
		return err
	})
	f.gone(d)
}

// TestNodeThatIsNotReady: a disruption whose chaos pod is on a node that does not answer any more is removed all the
// same, and a cleaner waits for the node. What has failed to clean up there waits, too.
func TestNodeThatIsNotReady(t *testing.T) {
	for _, tt := range []struct {
		name   string
		spec   func(node string) chaos.DisruptionSpec
		status corev1.ConditionStatus // of the node
	}{
		{"a node, unreachable", func(node string) chaos.DisruptionSpec {
			return nodeLevel(func(s *chaos.DisruptionSpec) {
				s.Selector, s.Duration = map[string]string{corev1.LabelHostname: node}, duration(time.Hour)
			})
		}, corev1.ConditionUnknown},
		{"a pod, not ready", func(string) chaos.DisruptionSpec {
			return hangs(func(s *chaos.DisruptionSpec) {
				s.Kinds = chaos.Kinds{CPUPressure: &chaos.CPUPressure{}}
			})
		}, corev1.ConditionFalse},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t)
			// The pods of this node are not run.
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: f.namespace, Labels: map[string]string{corev1.LabelHostname: f.namespace},
			}}
			if err := f.Create(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := f.Delete(context.WithoutCancel(t.Context()), node); err != nil {
					t.Error(err)
				}
			})
			ready := func(status corev1.ConditionStatus) {
				t.Helper()
				patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status)
				change := client.RawPatch(types.StrategicMergePatchType, []byte(patch))
				if err := f.Status().Patch(t.Context(), node, change); err != nil {
					t.Fatal(err)
				}
			}
			runs := func(p *corev1.Pod) {
				t.Helper()
				p.Status.Phase = corev1.PodRunning
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{
					Name: p.Spec.Containers[0].Name, Ready: true,
					State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
				}}
				if err := f.Status().Update(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			}
			ready(corev1.ConditionTrue)
			o := options()
			o.Config.Simulated, o.Config.Overdue = "", time.Second
			start(t, account.Config(t), o)
			runs(f.pod("target", node.Name))
			d := f.disrupt("down", tt.spec(node.Name))
			var chaosPod *corev1.Pod
			clustertest.Eventually(t, func(ctx context.Context) error {
				pods, err := podsOf(ctx, f, d)
				if err != nil || len(pods) != 1 {
					return fmt.Errorf("%d chaos pods (%v)", len(pods), err)
				}
				chaosPod = &pods[0]
				return nil
			})
			runs(chaosPod)
			f.phase(d, chaos.Injected)
			ready(tt.status)
			if err := f.Delete(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			f.gone(d)
			if e := f.event(d, "NodeNotReady"); e.Type != corev1.EventTypeWarning {
				t.Errorf("%+v", e)
			}
			var cleaners corev1.PodList
			if err := f.List(t.Context(), &cleaners, client.InNamespace("trommel-chaos"),
				client.MatchingLabels{controller.LabelCleans: string(chaosPod.UID)}); err != nil {
				t.Fatal(err)
			}
			if len(cleaners.Items) != 1 || len(cleaners.Items[0].OwnerReferences) > 0 ||
				cleaners.Items[0].Spec.NodeName != node.Name {
				t.Fatalf("cleaners: %v", cleaners.Items)
			}
			// The node is back, and the cleaner succeeds.
			ready(corev1.ConditionTrue)
			cleaner := &cleaners.Items[0]
			cleaner.Status.Phase = corev1.PodSucceeded
			if err := f.Status().Update(t.Context(), cleaner); err != nil {
				t.Fatal(err)
			}
			clustertest.Eventually(t, func(ctx context.Context) error {
				err := f.Get(ctx, client.ObjectKeyFromObject(cleaner), cleaner)
				if err == nil {
					err = errors.New("the cleaner is still there")
					// Its processes are not ended, as a kubelet would do.
					if cleaner.DeletionTimestamp != nil {
						err = errors.Join(err, f.Delete(ctx, cleaner, client.GracePeriodSeconds(0)))
					}
				}
				return client.IgnoreNotFound(err)
			})
		})
	}
}

// TestSuccessorThatNeverBegan: a chaos pod has gone before its time, another one takes its place, and the disruption
// ends before that one has begun. What the first one left is cleaned all the same.
func TestSuccessorThatNeverBegan(t *testing.T) {
	f := newFixture(t)
	// The pods of this node are not run, so the second one cannot begin.
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}}
	if err := f.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Delete(context.WithoutCancel(t.Context()), node); err != nil {
			t.Error(err)
		}
	})
	o := options()
	o.Config.Simulated = node.Name
	start(t, account.Config(t), o)
	f.running(f.pod("target", "node-1"))
	d := f.disrupt("short", hangs(func(s *chaos.DisruptionSpec) { s.Duration = duration(time.Hour) }))
	chaosPod := func(unlike types.UID) (found *corev1.Pod) {
		t.Helper()
		clustertest.Eventually(t, func(ctx context.Context) error {
			pods, err := podsOf(ctx, f, d)
			if err == nil && (len(pods) != 1 || pods[0].UID == unlike) {
				err = fmt.Errorf("%d chaos pods", len(pods))
			}
			if err == nil {
				found = &pods[0]
			}
			return err
		})
		return found
	}
	first := chaosPod("")
	first.Status.Phase = corev1.PodRunning
	first.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "injector", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	if err := f.Status().Update(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	strip := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := errors.Join(f.Patch(t.Context(), first, strip),
		f.Delete(t.Context(), first, client.GracePeriodSeconds(0))); err != nil {
		t.Fatal(err)
	}
	second := chaosPod(first.UID)
	// Its finalizer keeps it; otherwise nothing waits, as with a kubelet.
	if err := errors.Join(f.Delete(t.Context(), d),
		f.Delete(t.Context(), second, client.GracePeriodSeconds(0))); err != nil {
		t.Fatal(err)
	}
	f.gone(d)
	var cleaners corev1.PodList
	clustertest.Eventually(t, func(ctx context.Context) error {
		err := f.List(ctx, &cleaners, client.InNamespace("trommel-chaos"),
			client.MatchingLabels{controller.LabelCleans: string(first.UID)})
		if err == nil && (len(cleaners.Items) != 1 || cleaners.Items[0].DeletionTimestamp != nil) {
			err = fmt.Errorf("cleaners: %v", cleaners.Items)
		}
		return err
	})
	// It goes when it has succeeded.
	cleaner := &cleaners.Items[0]
	cleaner.Status.Phase = corev1.PodSucceeded
	if err := f.Status().Update(t.Context(), cleaner); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		err := f.Get(ctx, client.ObjectKeyFromObject(cleaner), cleaner)
		if err == nil {
			err = errors.New("the cleaner is still there")
			// Its processes are not ended, as a kubelet would do.
			if cleaner.DeletionTimestamp != nil {
				err = errors.Join(err, f.Delete(ctx, cleaner, client.GracePeriodSeconds(0)))
			}
		}
		return client.IgnoreNotFound(err)
	})
}

// TestFailedNodeThatNobodyKnows: a chaos pod of nodeFailure is removed by force while no controllers run. The next
// injector with such a fault, at another node, repairs the node when the time of the first is over.
func TestFailedNodeThatNobodyKnows(t *testing.T) {
	stop := start(t, account.Config(t), options())
	f := newFixture(t)
	fail := func(name, node string, change func(*chaos.DisruptionSpec)) *chaos.Disruption {
		return f.disrupt(name, nodeLevel(func(s *chaos.DisruptionSpec) {
			s.Selector, s.Kinds = map[string]string{corev1.LabelHostname: node}, chaos.Kinds{
				NodeFailure: &chaos.NodeFailure{},
			}
			change(s)
		}))
	}
	const lasts = 10 * time.Second
	d := fail("forgotten", "node-1", func(s *chaos.DisruptionSpec) { s.Duration = duration(lasts) })
	f.phase(d, chaos.Injected)
	const overtime = 3 * time.Second // with which an injector is over; rounded up
	over := metav1.NewTime(d.Status.Schedule.StartedAt.Add(lasts + overtime))
	pods, err := podsOf(t.Context(), f, d)
	if err != nil || len(pods) != 1 {
		t.Fatal(pods, err)
	}
	pid := injectorOf(t, d)
	stop()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	strip := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	for _, o := range []client.Object{&pods[0], d} {
		if err := errors.Join(f.Patch(t.Context(), o, strip),
			f.Delete(t.Context(), o, client.GracePeriodSeconds(0))); err != nil {
			t.Fatal(err)
		}
	}
	start(t, account.Config(t), options())
	left := func() []string { return must(filepath.Glob(filepath.Join(journal, string(d.UID)+"*"))) }
	if len(left()) == 0 {
		t.Fatal("nothing is left")
	}
	// The node itself is not a target, because it is not ready.
	same := fail("same", "node-1", func(s *chaos.DisruptionSpec) { s.Duration = duration(time.Hour) })
	f.await(same, "told why", func(d *chaos.Disruption) bool {
		return d.Status.Message == "none of the 1 matches is running"
	})
	f.end(same)
	another := fail("another", "node-2", func(s *chaos.DisruptionSpec) {
		s.Duration = duration(time.Hour)
		s.Triggers = &chaos.Triggers{Inject: chaos.Trigger{NotBefore: &over}}
	})
	f.phase(another, chaos.Injected)
	node := &corev1.Node{}
	if err := f.Get(t.Context(), client.ObjectKey{Name: "node-1"}, node); err != nil {
		t.Fatal(err)
	}
	if node.Annotations[fault.AnnotationSimulated] == "" || len(left()) > 0 {
		t.Errorf("left: %q, annotations of the node: %v", left(), node.Annotations)
	}
	f.end(another)
}

// TestInjectorOfAFailingNodeIsReplaced: the chaos pod of a simulated node that fails is removed by force. The next one
// runs on the process node, too: a node that fails runs nothing, and KWOK only says that it does.
func TestInjectorOfAFailingNodeIsReplaced(t *testing.T) {
	stop := start(t, account.Config(t), options())
	f := newFixture(t)
	d := f.disrupt("replaced", nodeLevel(func(s *chaos.DisruptionSpec) {
		s.Duration = duration(time.Hour)
		s.Selector = map[string]string{corev1.LabelHostname: "node-1"}
		s.Kinds = chaos.Kinds{NodeFailure: &chaos.NodeFailure{}}
	}))
	f.phase(d, chaos.Injected)
	pods, err := podsOf(t.Context(), f, d)
	if err != nil || len(pods) != 1 {
		t.Fatal(pods, err)
	}
	stop() // they would perhaps clean before the next chaos pod is created
	strip := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := errors.Join(syscall.Kill(injectorOf(t, d), syscall.SIGSTOP), f.Patch(t.Context(), &pods[0], strip),
		f.Delete(t.Context(), &pods[0], client.GracePeriodSeconds(0))); err != nil {
		t.Fatal(err)
	}
	start(t, account.Config(t), options())
	former := pods[0].UID
	clustertest.Eventually(t, func(ctx context.Context) error {
		pods, err := podsOf(ctx, f, d)
		if err == nil && (len(pods) != 1 || pods[0].UID == former) {
			err = errors.New("the chaos pod is not replaced")
		}
		if err != nil {
			return err
		}
		if pods[0].Spec.NodeName != shared.Processes().NodeName() {
			t.Fatalf("the chaos pod is on node %s", pods[0].Spec.NodeName)
		}
		if !controller.PodReady(&pods[0]) {
			err = errors.New("the chaos pod that replaces it is not ready")
		}
		return err
	})
	f.end(d)
	node := &corev1.Node{}
	if err := f.Get(t.Context(), client.ObjectKey{Name: "node-1"}, node); err != nil {
		t.Fatal(err)
	}
	if node.Annotations[fault.AnnotationSimulated] == "" {
		t.Errorf("annotations of the node: %v", node.Annotations)
	}
}

// TestPaused: a person pauses a disruption, and lets it go on. One that is paused ends at its time all the same.
func TestPaused(t *testing.T) {
	o := options()
	o.KeepFor = time.Minute
	start(t, account.Config(t), o)
	f := newFixture(t)
	f.processes(1)
	pause := func(d *chaos.Disruption, value string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, chaos.AnnotationPaused, value)
		if err := f.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(name string, change func(*chaos.DisruptionSpec)) *chaos.Disruption {
		t.Helper()
		d := f.disruption(name, hangs(change))
		d.Annotations = map[string]string{chaos.AnnotationPaused: "true"}
		if err := f.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	paused := begin("paused", nil)
	const message = "paused by the annotation chaos.trommel.dev/paused"
	f.await(paused, "paused from its beginning", func(d *chaos.Disruption) bool {
		return d.Status.Phase == chaos.NotInjected && d.Status.Message == message && d.Status.Schedule.Paused &&
			len(d.Status.Injections) == 1 && d.Status.Injections[0].State == chaos.InjectionPending
	})
	pause(paused, "")
	f.phase(paused, chaos.Injected)
	ends := paused.Status.EndsAt
	pause(paused, "true")
	f.phase(paused, chaos.PausedInjected)
	faults, err := shared.Processes().Faults(t.Context())
	if err != nil || slices.ContainsFunc(faults, func(fault cluster.Fault) bool {
		return strings.HasPrefix(fault.ID, string(paused.UID))
	}) {
		t.Errorf("faults while it is paused: %+v (%v)", faults, err)
	}
	if paused.Status.Message != message {
		t.Errorf("message %q", paused.Status.Message)
	}
	pause(paused, "false")
	f.phase(paused, chaos.Injected)
	if !paused.Status.EndsAt.Equal(ends) {
		t.Errorf("it was to end at %v, and does at %v", ends, paused.Status.EndsAt)
	}
	f.end(paused)
	over := begin("over", func(s *chaos.DisruptionSpec) { s.Duration = duration(2 * time.Second) })
	f.phase(over, chaos.PreviouslyNotInjected)
	f.end(over)
}
