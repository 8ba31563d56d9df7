package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	chaosconfig "github.com/trommel-dev/trommel/chaos/config"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/controller/manager"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// disruptions implements actions.Disruptions: the controllers of disruptions run in this process, or in the cluster if
// the suite says so.
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
	return slices.ContainsFunc(r.Plan.Actions, func(a plan.Action) bool { return a.Begins() != nil })
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
	return r.applyFiles(ctx, chaosconfig.Files, chaosconfig.Installed)
}

// applyFiles applies manifests that are a part of this program.
func (r *runner) applyFiles(ctx context.Context, files fs.FS, names []string) error {
	var all []*unstructured.Unstructured
	for _, name := range names {
		list, err := builtIn(files, name)
		if err != nil {
			return err
		}
		all = append(all, list...)
	}
	return r.applyManifests(ctx, all)
}

// builtIn reads manifests that are a part of this program.
func builtIn(files fs.FS, name string) ([]*unstructured.Unstructured, error) {
	data, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, err
	}
	return objects.Decode(data, name)
}

// deployDisruptions runs the controllers of disruptions in the cluster, as a process of this machine, and returns when
// it has started.
func (r *runner) deployDisruptions(ctx context.Context, journal string) error {
	if len(r.DisruptionControllers) == 0 {
		return errors.New("disruptions: there is no executable to install (Options.DisruptionControllers)")
	}
	list, err := builtIn(chaosconfig.Files, chaosconfig.Deployment)
	if err != nil {
		return err
	}
	if len(list) != 1 {
		return fmt.Errorf("%s has %d objects", chaosconfig.Deployment, len(list))
	}
	var d appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list[0].Object, &d); err != nil {
		return err
	}
	program := r.DisruptionControllers[0]
	pod := &d.Spec.Template
	pod.Annotations = map[string]string{
		cluster.AnnotationBinaryPrefix + pod.Spec.Containers[0].Name: program,
		fault.AnnotationInjector:                                     "true", // it is the executable of injectors, too
	}
	pod.Spec.NodeName = r.node().NodeName()
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	c := &pod.Spec.Containers[0]
	c.Command = []string{program}
	c.Args = append(slices.Clone(r.DisruptionControllers[1:]),
		"--kubeconfig=$(KUBECONFIG)", "--injector-here", "--privileged=false", "--journal="+journal,
		"--pod-annotation="+cluster.AnnotationBinaryPrefix+"injector="+program,
		"--process-node="+r.node().NodeName(),
		// There is nothing to protect on a cluster for tests.
		"--max-namespace-share=0", "--max-cluster-share=0", "--max-duration=0s", "--protected-namespaces=",
		"--allow-network-without-hosts", "--allow-disk-root")
	// Several clusters may share this machine, and its ports.
	c.Ports, c.LivenessProbe, c.ReadinessProbe, c.SecurityContext = nil, nil, nil, nil
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&d)
	if err != nil {
		return err
	}
	if err := r.applyManifests(ctx, []*unstructured.Unstructured{{Object: object}}); err != nil {
		return err
	}
	return r.awaitDisruptionControllers(ctx, d.Namespace, d.Name)
}

func (r *runner) awaitDisruptionControllers(ctx context.Context, namespace, name string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.Suite.Timeouts.Ready, fmt.Errorf(
		"the controllers of disruptions have not started within %s (timeouts.ready)", r.Suite.Timeouts.Ready))
	defer cancel()
	key, err := plan.ParseResourceKey("deployment/" + namespace + "/" + name)
	if err != nil {
		return err
	}
	err = objects.FollowOne(ctx, r.objects, key, func(d *appsv1.Deployment) (bool, error) {
		return d != nil && d.Status.AvailableReplicas > 0, nil
	})
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

// startDisruptions starts the controllers of disruptions if the plan has some. They end with the run, or with the
// cluster's objects, after its effects are undone.
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
	if r.Suite.Disruptions.Install {
		return r.deployDisruptions(ctx, journal)
	}
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
	return r.serve(ctx, "controllers of disruptions", mgr)
}

// serve runs a manager until the run ends. It returns when the manager's cache is filled.
func (r *runner) serve(ctx context.Context, what string, mgr ctrl.Manager) error {
	serve, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- mgr.Start(serve) }()
	r.later(func(context.Context) error {
		stop()
		// It ends in any case; what was still going on has no effect on the run.
		if err := <-served; err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
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
	key, err := disruptionKey(namespace, f.Name())
	if err != nil {
		return "", err
	}
	last := ""
	err = objects.FollowOne(ctx, d.objects, key, func(o *chaos.Disruption) (done bool, err error) {
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
	err = objects.FollowOne(ctx, d.objects, key, func(o *chaos.Disruption) (bool, error) {
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
