package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	chaosconfig "github.com/trommel-dev/trommel/chaos/config"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/manager"
	"github.com/trommel-dev/trommel/cluster"
	"github.com/trommel-dev/trommel/objects"
	"github.com/trommel-dev/trommel/plan"
)

// disruptions implements actions.Disruptions: the controllers of disruptions run in this process.
type disruptions struct {
	*runner
	mu    sync.Mutex
	begun map[string]string // name to namespace
}

const (
	chaosNamespace = "trommel-chaos"
)

// disruptionKey is the resource key of a disruption.
func disruptionKey(namespace, name string) (plan.ResourceKey, error) {
	return plan.ParseResourceKey("disruption.chaos.trommel.dev/" + namespace + "/" + name)
}

// disrupts reports whether the plan has disruptions.
func (r *runner) disrupts() bool {
	return slices.ContainsFunc(r.Plan.Actions, func(a plan.Action) bool { return a.Type == plan.Disrupt })
}

// installDisruptions applies the definitions, accounts and rights of disruptions if the plan has some.
func (r *runner) installDisruptions(ctx context.Context) error {
	if !r.disrupts() {
		return nil
	}
	if r.node() == nil {
		return &UserError{fmt.Errorf("%s: disrupt: cluster %q has no process node: %w", r.Plan.File, r.cluster.Name(),
			cluster.ErrNotSupported)}
	}
	var all []*unstructured.Unstructured
	for _, file := range chaosconfig.Installed {
		data, err := chaosconfig.Files.ReadFile(file)
		if err != nil {
			return err
		}
		list, err := objects.Decode(data, file)
		if err != nil {
			return err
		}
		all = append(all, list...)
	}
	return r.applyManifests(ctx, all)
}

// startDisruptions starts the controllers of disruptions if the plan has some. They end with the run, after its effects
// are undone.
func (r *runner) startDisruptions(ctx context.Context, to *rest.Config) error {
	if !r.disrupts() {
		return nil
	}
	command, err := r.injector(ctx)
	if err != nil {
		return err
	}
	journal, err := os.MkdirTemp("", "trommel-journal-")
	if err != nil {
		return err
	}
	r.later(func(context.Context) error { return os.RemoveAll(journal) })
	to = rest.CopyConfig(to)
	to.UserAgent = "trommel-disruptions"
	mgr, err := manager.New(to, manager.Options{
		Config: controller.Config{
			Namespace: chaosNamespace, Image: "trommel-injector", Command: command, Journal: journal,
			ServiceAccount: "disruption-injector", Simulated: r.node().NodeName(),
			PodAnnotations: map[string]string{cluster.AnnotationBinaryPrefix + "injector": command[0]},
			// There is nothing to protect on a cluster for tests.
			Nets: controller.Nets{NetworkWithoutHosts: true, DiskRoot: true},
		},
		Logger: logr.FromSlogHandler(r.Logger.Handler()),
	})
	if err != nil {
		return fmt.Errorf("controllers of disruptions: %w", err)
	}
	serve, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- mgr.Start(serve) }()
	r.later(func(context.Context) error {
		stop()
		// It ends in any case; what was still going on has no effect on the run.
		if err := <-served; err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("controllers of disruptions: %w", err)
		}
		return nil
	})
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return fmt.Errorf("controllers of disruptions: %w", context.Cause(ctx))
	}
	return nil
}

// injector returns the command of chaos pods on the process node.
func (r *runner) injector(context.Context) ([]string, error) {
	if len(r.Injector) > 0 {
		return r.Injector, nil
	}
	return nil, errors.New("disrupt: there is no injector (Options.Injector)")
}

// Begin creates the disruption and waits until it is injected.
func (d *disruptions) Begin(ctx context.Context, a *plan.Action) (note string, err error) {
	f := a.Begins()
	ctx, cancel := context.WithTimeout(ctx, d.Suite.Timeouts.Step)
	defer cancel()
	namespace, spec := f.Namespace(), f.Spec()
	if !f.Selects() {
		own, err := d.namespaceOf(ctx, d.controllerOf(f))
		if err != nil {
			return "", err
		}
		if namespace != "" && namespace != own {
			return "", fmt.Errorf("disrupt %s: controller %q runs in namespace %s, not in %s", f.Name(),
				d.controllerOf(f), own, namespace)
		}
		namespace = own
		spec["advancedSelector"] = []any{map[string]any{
			"key": controller.LabelDisruption, "operator": string(metav1.LabelSelectorOpDoesNotExist)}}
		filter, _ := spec["filter"].(map[string]any)
		filter = runtime.DeepCopyJSON(filter)
		if filter == nil {
			filter = map[string]any{}
		}
		if err := unstructured.SetNestedField(filter, d.controllerOf(f), "annotations",
			cluster.AnnotationController); err != nil {
			return "", err
		}
		spec["filter"] = filter
	}
	if namespace == "" {
		namespace = corev1.NamespaceDefault
	}
	object, err := objects.FromMap(map[string]any{
		"apiVersion": chaos.GroupVersion.String(), "kind": "Disruption",
		"metadata": map[string]any{"name": f.Name(), "namespace": namespace}, "spec": spec,
	})
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	if d.begun == nil {
		d.begun = map[string]string{}
	}
	d.begun[f.Name()] = namespace
	d.mu.Unlock()
	if _, err := d.objects.Apply(ctx, object); err != nil {
		return "", fmt.Errorf("disrupt %s: %w", f.Name(), err)
	}
	last := ""
	err = d.follow(ctx, namespace, f.Name(), func(o *chaos.Disruption) (done bool, err error) {
		if o == nil {
			return true, errors.New("somebody has deleted it")
		}
		var enough bool
		if note, enough, err = injected(o, a); err != nil || enough {
			return true, err
		}
		last = string(o.Status.Phase) + " " + o.Status.Message
		return false, nil
	})
	if err != nil {
		return "", fmt.Errorf("disrupt %s: %w", f.Name(), why(err, last))
	}
	return note, nil
}

// why adds the last state to a time-out.
func why(err error, last string) error {
	if last = strings.TrimSpace(last); last != "" && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w; it is %s", err, last)
	}
	return err
}

// injected reports whether the disruption is what the plan waits for, or why it will never be.
func injected(o *chaos.Disruption, a *plan.Action) (note string, done bool, err error) {
	s := &o.Status
	switch {
	case s.Phase == chaos.Injected, s.Phase == chaos.PartiallyInjected && a.AcceptPartial,
		s.Phase == chaos.PausedInjected:
		return "", true, nil
	case meta.IsStatusConditionFalse(s.Conditions, chaos.ConditionAccepted):
		return "", true, errors.New(controller.Condition(s, chaos.ConditionAccepted).Message)
	}
	if found := controller.Condition(s, chaos.ConditionTargetsFound); found.Status == metav1.ConditionFalse &&
		(found.Reason == "NoneMatches" || a.AcceptNoTargets) {
		if a.AcceptNoTargets {
			return "without targets: " + found.Message, true, nil
		}
		return "", true, fmt.Errorf("%s (acceptNoTargets: true allows that)", found.Message)
	}
	for _, i := range s.Injections {
		if i.State == chaos.InjectionUnsupported || i.State == chaos.InjectionFailed {
			return "", true, fmt.Errorf("%s: %s", strings.ToLower(string(i.State)), s.Message)
		}
	}
	return "", false, nil
}

// controllerOf is the controller whose pods a disruption without a selector is for.
func (d *disruptions) controllerOf(f plan.Disruption) string {
	if name := f.Controller(); name != "" || len(d.Suite.Controllers) == 0 {
		return name
	}
	return d.Suite.Controllers[0].Name
}

func (d *disruptions) namespaceOf(ctx context.Context, name string) (string, error) {
	processes, err := d.node().Status(ctx, name)
	if err != nil {
		return "", fmt.Errorf("status of controller %q: %w", name, err)
	}
	if len(processes) == 0 {
		return "", fmt.Errorf("controller %q has not run yet", name)
	}
	return processes[len(processes)-1].Namespace, nil
}

// End deletes the disruption and waits until nothing of it is left.
func (d *disruptions) End(ctx context.Context, name string) (ended bool, err error) {
	d.mu.Lock()
	namespace, begun := d.begun[name]
	d.mu.Unlock()
	if !begun {
		return false, nil
	}
	key, err := disruptionKey(namespace, name)
	if err != nil {
		return false, err
	}
	present, err := d.objects.Get(ctx, key)
	if err != nil || present == nil {
		return false, err
	}
	if err := d.objects.Delete(ctx, key, objects.DeleteOptions{}); err != nil {
		return false, fmt.Errorf("end disruption %s: %w", name, err)
	}
	last := ""
	err = d.follow(ctx, namespace, name, func(o *chaos.Disruption) (bool, error) {
		if o == nil {
			return true, nil
		}
		if o.Status.IsStuckOnRemoval {
			return true, errors.New(o.Status.Message)
		}
		last = string(o.Status.Phase) + " " + o.Status.Message
		return false, nil
	})
	if err != nil {
		return true, fmt.Errorf("end disruption %s: %w", name, why(err, last))
	}
	d.mu.Lock()
	delete(d.begun, name)
	d.mu.Unlock()
	return true, nil
}

// follow calls see with each state of the disruption, nil if it does not exist, until it is done.
func (d *disruptions) follow(
	ctx context.Context, namespace, name string, see func(*chaos.Disruption) (done bool, err error),
) error {
	key, err := disruptionKey(namespace, name)
	if err != nil {
		return err
	}
	t, err := d.objects.Resolve(ctx, key)
	if err != nil {
		return err
	}
	f := &disruptionFollower{see: see}
	if err := d.objects.Follow(ctx, t, namespace, name, f); err != nil {
		return err
	}
	return f.err
}

type disruptionFollower struct {
	see func(*chaos.Disruption) (bool, error)
	err error
}

func (f *disruptionFollower) show(u *unstructured.Unstructured) (stop bool) {
	var o *chaos.Disruption
	if u != nil {
		o = &chaos.Disruption{}
		if f.err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); f.err != nil {
			return true
		}
	}
	stop, f.err = f.see(o)
	return stop || f.err != nil
}

func (f *disruptionFollower) Listed(list []*unstructured.Unstructured, _ string) bool {
	if len(list) == 0 {
		return f.show(nil)
	}
	return f.show(list[0])
}

func (f *disruptionFollower) Changed(event watch.EventType, u *unstructured.Unstructured) bool {
	if event == watch.Deleted {
		u = nil
	}
	return f.show(u)
}

func (f *disruptionFollower) Broken(error) bool { return false }
