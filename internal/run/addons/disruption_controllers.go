package addons

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	chaosconfig "github.com/trommel-dev/trommel/chaos/config"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/controller/manager"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/mistake"
	"github.com/trommel-dev/trommel/internal/objects/apply"
	"github.com/trommel-dev/trommel/internal/privatedir"
	"github.com/trommel-dev/trommel/plan"
)

// disruptionControllers are the controllers of disruptions of a cluster in which a plan has some: they run in this
// process, or in the cluster if the suite says so.
type disruptionControllers struct {
	plan     string // its file
	cluster  string // its name
	to       *rest.Config
	node     interface{ NodeName() string } // nil: there is no process node
	loader   cluster.ImageLoader            // nil: pods are processes of the process node
	image    string                         // of injectors, with loader
	injector []string                       // command of chaos pods on the process node; see Options
	program  []string                       // command of the controllers, to install them; see Options
	deployed bool                           // they run in the cluster
	present  bool                           // the cluster is equipped with them
	ready    time.Duration
	follow   follows[appsv1.Deployment]
	apply    interface {
		All(ctx context.Context, list []*unstructured.Unstructured) error
		Files(ctx context.Context, files fs.FS, names []string) error
	}
	later  func(undo)
	logger *slog.Logger
}

const chaosNamespace = "trommel-chaos"

// newDisruptionControllers returns those of each cluster in which the plan has disruptions.
func newDisruptionControllers(c *Config) (all []*disruptionControllers) {
	for _, name := range disruptedClusters(c.Plan, c.Suite) {
		in := c.site(name)
		d := &disruptionControllers{
			plan: c.Plan.File, cluster: in.Cluster.Name(), to: in.REST, injector: c.Injector,
			program: c.Controllers, deployed: c.Suite.Disruptions.Install,
			present: equippedWith(in.Cluster, cluster.Disruptions), ready: c.Suite.Timeouts.Ready,
			follow: followOn[appsv1.Deployment](in.Objects), apply: c.applier(in),
			later: c.Later, logger: c.Logger,
		}
		can := cluster.CapabilitiesOf(in.Cluster)
		if node := can.ProcessNode(); node != nil {
			d.node = node
		}
		if can.Images != nil {
			d.loader, d.image = can.Images, injectorImage(c.Suite)
		}
		all = append(all, d)
	}
	return all
}

// disruptedClusters names the clusters in which the plan has disruptions.
func disruptedClusters(p *plan.Plan, suite *plan.Suite) []string {
	var names []string
	for i := range p.Actions {
		a := &p.Actions[i]
		if a.Begins() == nil {
			continue
		}
		if name := suite.DisruptedCluster(a); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// injectorImage is the image of chaos pods where they run in containers.
func injectorImage(s *plan.Suite) string {
	return cmp.Or(s.Disruptions.Image, chaosconfig.InjectorImage)
}

// FindImages refuses a plan that needs an image which is missing, before a cluster is started for it.
func FindImages(ctx context.Context, p *plan.Plan, suite *plan.Suite) error {
	kind, err := cluster.Lookup(string(suite.Cluster.Type))
	if err != nil || kind.FindImages == nil || !Disrupts(p) {
		return err
	}
	if err := kind.FindImages(ctx, []string{injectorImage(suite)}); err != nil {
		return needsInjector(p.File, err)
	}
	return nil
}

func needsInjector(planFile string, err error) error {
	return &mistake.Error{Err: fmt.Errorf(
		"%s: disrupt needs the image of injectors (disruptions.image in the suite): %w", planFile, err)}
}

// Disrupts reports whether the plan has disruptions.
func Disrupts(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return a.Begins() != nil })
}

// Install applies the definitions, accounts and rights of disruptions.
func (d *disruptionControllers) Install(ctx context.Context) error {
	if d.node == nil {
		return &mistake.Error{Err: fmt.Errorf("%s: disrupt: cluster %q has no process node: %w", d.plan, d.cluster,
			cluster.ErrNotSupported)}
	}
	if d.present {
		return nil
	}
	if d.loader != nil {
		if err := d.loader.LoadImage(ctx, d.image); err != nil {
			return needsInjector(d.plan, err)
		}
	}
	return d.apply.Files(ctx, chaosconfig.Files, chaosconfig.Installed)
}

// deployment returns the Deployment that runs the controllers as a process of this machine.
func (d *disruptionControllers) deployment(journal string) (*appsv1.Deployment, error) {
	if len(d.program) == 0 {
		return nil, errors.New("disruptions: there is no executable to install (Options.DisruptionControllers)")
	}
	list, err := apply.Read(chaosconfig.Files, chaosconfig.Deployment)
	if err != nil {
		return nil, err
	}
	if len(list) != 1 {
		return nil, fmt.Errorf("%s has %d objects", chaosconfig.Deployment, len(list))
	}
	deployment := new(appsv1.Deployment)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list[0].Object, deployment); err != nil {
		return nil, err
	}
	program := d.program[0]
	pod := &deployment.Spec.Template
	pod.Annotations = map[string]string{
		cluster.AnnotationBinaryPrefix + pod.Spec.Containers[0].Name: program,
		fault.AnnotationInjector:                                     "true", // it is the executable of injectors, too
	}
	pod.Spec.NodeName = d.node.NodeName()
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	c := &pod.Spec.Containers[0]
	c.Command = []string{program}
	c.Args = append(slices.Clone(d.program[1:]),
		"--kubeconfig=$(KUBECONFIG)", "--injector-here", "--privileged=false", "--journal="+journal,
		"--pod-annotation="+cluster.AnnotationBinaryPrefix+"injector="+program,
		"--process-node="+d.node.NodeName(),
		// There is nothing to protect on a cluster for tests.
		"--max-namespace-share=0", "--max-cluster-share=0", "--max-duration=0s", "--protected-namespaces=",
		"--allow-network-without-hosts", "--allow-disk-root", "--allow-nodes")
	// Several clusters may share this machine, and its ports.
	c.Ports, c.LivenessProbe, c.ReadinessProbe, c.SecurityContext, pod.Spec.SecurityContext = nil, nil, nil, nil, nil
	return deployment, nil
}

// deploy runs the controllers in the cluster and returns when they have started.
func (d *disruptionControllers) deploy(ctx context.Context, journal string) error {
	deployment, err := d.deployment(journal)
	if err != nil {
		return err
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(deployment)
	if err != nil {
		return err
	}
	if err := d.apply.All(ctx, []*unstructured.Unstructured{{Object: object}}); err != nil {
		return err
	}
	return d.await(ctx, deployment.Namespace, deployment.Name)
}

// await waits until the controllers in the cluster have started.
func (d *disruptionControllers) await(ctx context.Context, namespace, name string) error {
	ctx, cancel := clock.WithTimeoutCause(ctx, d.ready, fmt.Errorf(
		"the controllers of disruptions have not started within %s (timeouts.ready)", d.ready))
	defer cancel()
	key, err := plan.ParseResourceKey("deployment/" + namespace + "/" + name)
	if err != nil {
		return err
	}
	err = d.follow(ctx, key, func(d *appsv1.Deployment) (bool, error) {
		return d != nil && d.Status.AvailableReplicas > 0, nil
	})
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

// Start starts the controllers. They end with the run, or with the cluster's objects, after its effects are undone.
func (d *disruptionControllers) Start(ctx context.Context) error {
	if d.present {
		return nil
	}
	const what = "controllers of disruptions"
	if d.loader != nil {
		mgr, err := newDisruptions(d.to, controller.Config{Image: d.image, Privileged: true}, d.logger)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return serve(ctx, what, mgr, d.later)
	}
	if len(d.injector) == 0 {
		return errors.New("disrupt: there is no injector (Options.Injector)")
	}
	dir, err := privatedir.New("")
	if err != nil {
		return fmt.Errorf("keep the journal of %s: %w", what, err)
	}
	d.later(func(context.Context) error { return dir.Remove() })
	journal := dir.Path()
	if d.deployed {
		return d.deploy(ctx, journal)
	}
	mgr, err := newDisruptions(d.to, processInjectors(d.node.NodeName(), journal, d.injector), d.logger)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return serve(ctx, what, mgr, d.later)
}

// Populate does nothing: a plan creates its disruptions.
func (d *disruptionControllers) Populate(context.Context) error { return nil }

// processInjectors configures controllers whose chaos pods run on the process node, by a command of this machine.
func processInjectors(node, journal string, injector []string) controller.Config {
	return controller.Config{
		Image: "trommel-injector", Command: injector, Journal: journal, Simulated: node,
		PodAnnotations: map[string]string{cluster.AnnotationBinaryPrefix + "injector": injector[0]},
	}
}

// newDisruptions makes the controllers of disruptions of a cluster for tests, to run in this process.
func newDisruptions(to *rest.Config, config controller.Config, logger *slog.Logger) (ctrl.Manager, error) {
	to = rest.CopyConfig(to)
	to.UserAgent = "trommel-disruptions"
	config.Namespace, config.PriorityClass = chaosNamespace, "trommel-disruption-injector"
	config.ServiceAccount, config.APIServiceAccount = "disruption-injector", "disruption-api-injector"
	// There is nothing to protect on a cluster for tests.
	config.Nets = controller.Nets{NetworkWithoutHosts: true, DiskRoot: true, Nodes: true}
	return manager.New(to, manager.Options{Config: config, Logger: logr.FromSlogHandler(logger.Handler())})
}
