package addons

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/kinds"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// disruptions implements actions.Disruptions: it writes the Disruptions that a plan asks for, and follows them.
type disruptions struct {
	in        func(cluster string) followedCluster[chaos.Disruption]
	clusterOf func(a *plan.Action) string // a disrupt
	node      interface {                 // nil: there is no process node
		Status(ctx context.Context, controller string) ([]cluster.Process, error)
	}
	controllers []string      // under test
	step        time.Duration // that a disruption may take to begin

	expecter cluster.ContainerKillExpecter // nil: the cluster knows who ends a container

	mu    sync.Mutex
	begun map[string]begun // by name
}

// begun is a disruption that has begun.
type begun struct {
	cluster   followedCluster[chaos.Disruption]
	namespace string
	over      func() // it kills nothing any more
}

// expect makes the cluster count containers that the disruption ends as ended by the plan.
func (d *disruptions) expect(f plan.Disruption) (over func()) {
	kills := slices.ContainsFunc(kinds.All(), func(k kinds.Kind) bool { return k.EndsContainers && f[k.Name] != nil })
	if d.expecter == nil || !kills {
		return func() {}
	}
	return d.expecter.ExpectKills()
}

// disruptionKey is the resource key of a disruption.
func disruptionKey(namespace, name string) (plan.ResourceKey, error) {
	return plan.ParseResourceKey("disruption.chaos.trommel.dev/" + namespace + "/" + name)
}

// Begin creates the disruption and waits until it is injected.
func (d *disruptions) Begin(ctx context.Context, a *plan.Action) (note string, err error) {
	f := a.Begins()
	ctx, cancel := clock.WithTimeout(ctx, d.step)
	defer cancel()
	object, namespace, err := d.disruptionOf(ctx, f)
	if err != nil {
		return "", err
	}
	in := d.in(d.clusterOf(a))
	d.mu.Lock()
	if d.begun == nil {
		d.begun = map[string]begun{}
	}
	d.begun[f.Name()] = begun{in, namespace, d.expect(f)}
	d.mu.Unlock()
	if _, err := in.Apply(ctx, object); err != nil {
		return "", fmt.Errorf("disrupt %s: %w", f.Name(), err)
	}
	key, err := disruptionKey(namespace, f.Name())
	if err != nil {
		return "", err
	}
	last := ""
	err = in.follow(ctx, key, func(o *chaos.Disruption) (done bool, err error) {
		if o == nil {
			return true, errors.New("another client has deleted it")
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

// disruptionOf returns the object that a plan's disruption asks for, and its namespace.
func (d *disruptions) disruptionOf(
	ctx context.Context, f plan.Disruption,
) (object *unstructured.Unstructured, namespace string, err error) {
	namespace, spec := f.Namespace(), f.Spec()
	if !f.Selects() {
		own, err := d.namespaceOf(ctx, d.controllerOf(f))
		if err != nil {
			return nil, "", err
		}
		if namespace != "" && namespace != own {
			return nil, "", fmt.Errorf("disrupt %s: controller %q runs in namespace %s, not in %s", f.Name(),
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
			return nil, "", err
		}
		spec["filter"] = filter
	}
	if namespace == "" {
		namespace = corev1.NamespaceDefault
	}
	object, err = objects.FromMap(map[string]any{
		"apiVersion": chaos.GroupVersion.String(), "kind": "Disruption",
		"metadata": map[string]any{"name": f.Name(), "namespace": namespace}, "spec": spec,
	})
	return object, namespace, err
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
	if name := f.Controller(); name != "" || len(d.controllers) == 0 {
		return name
	}
	return d.controllers[0]
}

func (d *disruptions) namespaceOf(ctx context.Context, name string) (string, error) {
	processes, err := d.node.Status(ctx, name)
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
	one, found := d.begun[name]
	d.mu.Unlock()
	if !found {
		return false, nil
	}
	key, err := disruptionKey(one.namespace, name)
	if err != nil {
		return false, err
	}
	present, err := one.cluster.Get(ctx, key)
	if err != nil {
		return false, err
	}
	if present == nil {
		one.over()
		return false, nil
	}
	if err := one.cluster.Delete(ctx, key, objects.DeleteOptions{}); err != nil {
		return false, fmt.Errorf("end disruption %s: %w", name, err)
	}
	last := ""
	err = one.cluster.follow(ctx, key, func(o *chaos.Disruption) (bool, error) {
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
	one.over()
	d.mu.Lock()
	delete(d.begun, name)
	d.mu.Unlock()
	return true, nil
}
