package plan

import (
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// SuiteFile is the name of the suite file, which is looked for in a plan's directory and its parents.
const SuiteFile = "trommel.yaml"

// Suite is what the plans of a directory share.
type Suite struct {
	APIVersion string      `yaml:"apiVersion" default:"trommel.dev/v1alpha1"`
	Kind       string      `yaml:"kind" default:"Suite"`
	Cluster    ClusterSpec `yaml:"cluster"` // with Clusters: the first of them
	// Clusters are several clusters by name, instead of one. The one that is written first is that of whatever names
	// none, see ClusterNames.
	Clusters    map[string]ClusterSpec `yaml:"clusters" item:"a cluster"`
	Controllers []Controller           `yaml:"controllers" item:"a controller"`
	Manifests   []Manifest             `yaml:"manifests" item:"an item of manifests"` // applied before controllers
	Workloads   map[string]Workload    `yaml:"workloads" item:"a workload"`
	Invariants  []Invariant            `yaml:"invariants" item:"an invariant"`
	Variants    map[string]Variant     `yaml:"variants" item:"a variant"`
	// Builds are other versions of the controllers: what a plan begins with, or upgrades to.
	Builds map[string]SuiteBuild `yaml:"builds" item:"a build"`
	// History is recorded besides the objects that the plan, the workload and the invariants name.
	History []ResourceKey `yaml:"history" item:"history"`
	// Masks are fields that do not count when runs with faults are compared with runs without.
	Masks []Mask `yaml:"masks" item:"a mask"`
	// Generate says which plans Trommel makes.
	Generate Generate `yaml:"generate"`
	Timeouts Timeouts `yaml:"timeouts"`
	// Time says whether the time of a run passes while nothing happens in it.
	Time Time `yaml:"time" called:"time" words:"virtual real" default:"virtual"`
	// Pace says when a step of a workload begins; empty: at rest in what learns and generates plans, at once elsewhere.
	Pace Pace `yaml:"pace" called:"pace" words:"rest none"`
	// Disruptions says how the controllers of disruptions run.
	Disruptions DisruptionControllers `yaml:"disruptions"`

	File string // where it was read from

	source *yamlfile.File // positions of values that were read from a file
	order  []string       // of Clusters in the file
}

// Time is how time passes in runs.
type Time string

// Virtual time moves ahead whenever nothing happens in any process of a run; real time is the machine's.
const (
	VirtualTime Time = "virtual"
	RealTime    Time = "real"
)

// Pace is when a step of a workload begins.
type Pace string

// A step begins when the controllers are at rest after the one before, or as soon as that is complete.
const (
	PaceRest Pace = "rest"
	PaceNone Pace = "none"
)

// Text returns the text that the suite was read from, without any variant; nil for a suite that was built in Go. The
// caller must not change it.
func (s *Suite) Text() []byte {
	if s.source == nil {
		return nil
	}
	return s.source.Text
}

// DisruptionControllers are the controllers of disruptions.
type DisruptionControllers struct {
	// Install runs them in the cluster, as a Deployment with the rights of its service account. Otherwise they run
	// inside of Trommel.
	Install bool `yaml:"install"`
	// Image is that of injectors, for clusters that run containers of images. The local container engine must have it.
	// Empty: that of the release.
	Image string `yaml:"image"`
}

// Mask is a field of objects that does not count when two runs are compared.
type Mask struct {
	// Type of the objects, type[.group]; "*" is all.
	Type string `yaml:"type" json:"type" default:"*"`
	// Path of the field from the object's root, with dots; "*" is one step of any name, "[]" an item of a list,
	// "[name=a]" one of them, and "**" any number of steps. Fields below it are masked too.
	Path   string `yaml:"path" json:"path"`
	Reason string `yaml:"reason" json:"reason"` // for people
}

// Generate says which plans Trommel makes by itself.
type Generate struct {
	Skip []Skip `yaml:"skip" item:"an item of skip"`
}

// Skip is a kind of plans that Trommel does not make. Empty fields match any; one of the first four is set.
type Skip struct {
	Pattern string `yaml:"pattern"`
	// Type and Name are those of an object that the plan writes or, if it writes none, of one that its moments are
	// about. The type is type[.group], without a group of any; the name is a pattern as of path.Match.
	Type string `yaml:"type"`
	Name string `yaml:"name"`
	// Field is one that the plan writes, or that its moments are about: a path as in a [Mask]. Who deletes an object
	// writes metadata.deletionTimestamp.
	Field  string `yaml:"field"`
	Reason string `yaml:"reason"` // for people
}

// String says which plans these are.
func (s Skip) String() string {
	var parts []string
	for _, part := range [][2]string{
		{"pattern", s.Pattern}, {"type", s.Type}, {"name", s.Name}, {"field", s.Field},
	} {
		if part[1] != "" {
			parts = append(parts, part[0]+" "+part[1])
		}
	}
	text := strings.Join(parts, ", ")
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	return text
}

// ClusterSpec is the control plane to run on.
type ClusterSpec struct {
	Type                  ClusterType     `yaml:"type" called:"cluster type" default:"embedded"`
	KubernetesVersion     string          `yaml:"kubernetesVersion"` // v1.36.3 or 1.36; default: Trommel's own choice
	APIServers            int             `yaml:"apiServers" range:"1 5" default:"3"`
	Nodes                 *int            `yaml:"nodes" range:"0 1000" default:"3"` // simulated nodes
	DisableControllers    []string        `yaml:"disableControllers"`               // of kube-controller-manager
	FeatureGates          map[string]bool `yaml:"featureGates"`
	APIServerArgs         []string        `yaml:"apiServerArgs"`
	ControllerManagerArgs []string        `yaml:"controllerManagerArgs"`
	Answers               []Answer        `yaml:"answers" item:"an answer"` // of simulated pods
	// JobKinds are kinds of objects whose simulated pods run for a while and then succeed, as those of a Job do.
	JobKinds      []string      `yaml:"jobKinds"`
	SimulatedPods SimulatedPods `yaml:"simulatedPods"`
	// RemovedAPIs serves API versions that Kubernetes has removed; nil: if a controller is built with a client-go of
	// that time.
	RemovedAPIs *bool `yaml:"removedAPIs"`

	// Kubeconfig is the file that leads to an existing cluster, relative to the suite; empty: the one that kubectl
	// would take. Context is one of its contexts, which has no default.
	Kubeconfig string `yaml:"kubeconfig"`
	Context    string `yaml:"context"`
	// Namespaces are the only ones of an existing cluster in which a run writes.
	Namespaces []string `yaml:"namespaces"`

	// Images are those that pods find on kind's node, from the local container engine: it pulls none for them.
	Images []string `yaml:"images"`
}

// SimulatedPods says how long simulated pods take, in the run's own time.
type SimulatedPods struct {
	// Ready is the time from when a pod is scheduled until it is Ready. End is that from its deletion until it is gone,
	// but not longer than its grace period, and from when a pod of a Job runs until it succeeds. Each pod takes up to a
	// quarter more, which follows from its namespace and name and Seed. Nil: the defaults.
	Ready *time.Duration `yaml:"ready" default:"2s"`
	End   *time.Duration `yaml:"end" default:"1s"`
	Seed  int            `yaml:"seed" range:"0 999999"`
}

// Answer is what containers of simulated pods answer to commands, or their log, or what answers connections to the
// pods. The first one that matches is used.
type Answer struct {
	Namespace string  `yaml:"namespace"` // this, pod and container: patterns as of path.Match; empty: any
	Pod       string  `yaml:"pod"`
	Container string  `yaml:"container"`
	Command   string  `yaml:"command"` // regular expression for the command's words, joined by blanks; empty: any
	Stdout    string  `yaml:"stdout"`
	Stderr    string  `yaml:"stderr"`
	ExitCode  int     `yaml:"exitCode" range:"0 255"`
	Log       *string `yaml:"log"`     // nil: this is an answer to commands
	Service   string  `yaml:"service"` // namespace/name: its processes answer connections to the pods
}

// Manifest is a source of objects that are applied before the controllers start. Exactly one of Path and Helm is set;
// paths are relative to the suite. The short form is the path.
type Manifest struct {
	Path string `yaml:"path" also:"kustomize"` // a file, a directory of YAML, or a directory with a kustomization
	Helm string `yaml:"helm" also:"chart"`     // a chart: a directory or a .tgz

	Cluster string `yaml:"cluster"` // where it is applied; empty: in the first one

	// Namespace is set on namespaced objects without one, as `kubectl apply -n` does; for a chart it is the release's.
	Namespace string `yaml:"namespace"`
	// SkipRemote leaves out what a kustomization loads from the network.
	SkipRemote bool `yaml:"skipRemote"`

	Release     string         `yaml:"release"` // for a chart; default: the chart's name
	Values      map[string]any `yaml:"values"`
	ValuesFiles []string       `yaml:"valuesFiles"` // later ones override earlier ones, Values all of them
}

// String names the manifest in messages.
func (m Manifest) String() string {
	s := m.Path
	if m.Helm != "" {
		s = "chart " + m.Helm
	}
	if m.Namespace != "" {
		s += " in namespace " + m.Namespace
	}
	return s
}

// Controller is a controller under test.
type Controller struct {
	Name string `yaml:"name"`
	// Cluster is where its Deployment is; empty: in the first one. Kubeconfigs give it access to others, by name.
	Cluster     string                `yaml:"cluster"`
	Kubeconfigs map[string]Kubeconfig `yaml:"kubeconfigs" item:"a kubeconfig"`
	Build       *Build                `yaml:"build"` // exactly one of Build and Binary
	// Binary is an executable that cannot be rebuilt, without observation points.
	Binary string `yaml:"binary"`

	Image string `yaml:"image"` // the image that the binary replaces
	// Executables are what other containers of the Deployment run that have no command, by image. Paths are relative to
	// the suite.
	Executables map[string]string `yaml:"executables"`
	// Files are what the image has that the controller reads: absolute paths in the image, and the files or directories
	// that are there, relative to the suite. Clusters that run images do without.
	Files       map[string]string `yaml:"files"`
	Deployment  ResourceKey       `yaml:"deployment" as:"deployment"`          // of the manifests; zero: generated
	Namespace   string            `yaml:"namespace" default:"default"`         // of a generated Deployment
	ClusterRole string            `yaml:"clusterRole" default:"cluster-admin"` // of a generated Deployment
	Args        []string          `yaml:"args"`
	Env         map[string]string `yaml:"env" as:"variables"`
	// EnvFrom holds the variables with valueFrom. Each value is an EnvVarSource as in a pod: {"fieldRef": {"fieldPath":
	// …}}.
	EnvFrom   map[string]map[string]any `yaml:"env" as:"sources"`
	APIServer string                    `yaml:"apiServer" default:"apiserver-1"` // the one that it connects to first
	// Replicas is how many pods the Deployment has; zero: as many as it says, a generated one has one.
	Replicas int `yaml:"replicas" range:"1 9"`
	// WatchList sets client-go's WatchListClient feature in the controller; nil: client-go's default.
	WatchList *bool `yaml:"watchList"`
	// KeepLeases keeps the leases of a killed controller, so that its successor waits until they expire. Default: they
	// are deleted.
	KeepLeases bool `yaml:"keepLeases"`

	AnnotatedCalls []AnnotatedCall `yaml:"annotatedCalls" item:"an annotated call"`
}

// Build says how to build a controller.
type Build struct {
	Dir     string            `yaml:"dir" default:"."`     // of the module, relative to the suite
	Package string            `yaml:"package" default:"."` // the main package
	Tags    []string          `yaml:"tags"`
	LDFlags string            `yaml:"ldflags"`
	Env     map[string]string `yaml:"env"`
	// Replace are modules, by path, that the go.mod names and that cannot be got any more, and others, PATH@VERSION,
	// that take their place.
	Replace map[string]string `yaml:"replace"`
	// ControlPlane, if set, uses this component of Trommel's own control plane binary instead of building Package.
	ControlPlane string `yaml:"controlPlane" words:"kube-controller-manager kube-scheduler"`
}

// AnnotatedCall is a function of the user's code that gets a hook.
type AnnotatedCall struct {
	Name     string `yaml:"name"` // default: Symbol
	Package  string `yaml:"package"`
	Receiver string `yaml:"receiver"` // *T, T or empty
	Function string `yaml:"function"`
}

// Symbol is the function's full name as Go prints it: package.(*Type).Function.
func (a AnnotatedCall) Symbol() string {
	if a.Receiver == "" {
		return a.Package + "." + a.Function
	}
	if strings.HasPrefix(a.Receiver, "*") {
		return a.Package + ".(" + a.Receiver + ")." + a.Function
	}
	return a.Package + "." + a.Receiver + "." + a.Function
}

// Variant changes controllers and their surroundings for a run, e.g. to a fixed or a mitigated version.
type Variant struct {
	Controllers map[string]VariantController `yaml:"controllers" item:"a variant's controller"`
	Cluster     VariantCluster               `yaml:"cluster" called:"a variant's cluster"`
	Disruptions *DisruptionControllers       `yaml:"disruptions"` // instead of the suite's; nil: the suite's
}

// VariantController is added to the controller with that name.
type VariantController struct {
	Args      []string                  `yaml:"args"` // appended
	Env       map[string]string         `yaml:"env" as:"variables"`
	EnvFrom   map[string]map[string]any `yaml:"env" as:"sources"` // as in Controller
	Replicas  int                       `yaml:"replicas" range:"1 9"`
	WatchList *bool                     `yaml:"watchList"`
}

// VariantCluster is added to the suite's cluster.
type VariantCluster struct {
	FeatureGates map[string]bool `yaml:"featureGates"`
}

// Workload exercises the controller. Its short form is the list of steps.
type Workload struct {
	Steps   []Step        `yaml:"steps" item:"a step"`
	Command []string      `yaml:"command" as:"command"` // an external command instead of steps, with KUBECONFIG set
	Timeout time.Duration `yaml:"timeout"`              // of the external command; default Timeouts.Workload
}

// Step is one step of a workload; exactly one of the pointers is set, or Sleep, or
// AdvanceTime, or Go.
type Step struct {
	Name    string        `yaml:"name"`
	Cluster string        `yaml:"cluster"` // where it happens; empty: in the first one
	Apply   *ApplyStep    `yaml:"apply"`
	Delete  *DeleteStep   `yaml:"delete"`
	Patch   *PatchStep    `yaml:"patch"`
	Wait    *WaitStep     `yaml:"wait"`
	Sleep   time.Duration `yaml:"sleep"`
	// AdvanceTime lets the cluster's clock jump ahead, as the action advanceTime does.
	AdvanceTime time.Duration `yaml:"advanceTime"`
	Exec        *ExecStep     `yaml:"exec"`
	// Upgrade installs another of the suite's builds, as a user would, and waits until only its controllers run.
	Upgrade *UpgradeStep `yaml:"upgrade"`
	// Go names the Go function that the step calls, for messages and records. Only the program that runs the plan has
	// the function, see package trommeltest.
	Go string `yaml:"go"`
	// OnTimeout says what happens if the step times out: OnTimeoutFail ends the workload with a finding,
	// OnTimeoutContinue notes it and continues, as Sieve's workloads do.
	OnTimeout OnTimeoutAction `yaml:"onTimeout"`
}

// stepKinds are the fields that say what a step does, as people write them; a step may also have the field go, which
// programs write.
var stepKinds = []string{"apply", "delete", "patch", "wait", "sleep", "advanceTime", "exec", "upgrade"}

// everyStepKind are all fields that say what a step does.
var everyStepKind = append(slices.Clone(stepKinds), "go")

// OnTimeoutAction says what happens if a step of a workload times out.
type OnTimeoutAction string

// What happens if a step times out.
const (
	OnTimeoutFail     OnTimeoutAction = "fail" // the default; also ""
	OnTimeoutContinue OnTimeoutAction = "continue"
)

// ApplyStep applies objects (server-side apply, field manager trommel-workload). Its short forms are a file's name, an
// object and a list of objects.
type ApplyStep struct {
	File    string           `yaml:"file"` // relative to the suite
	Objects []map[string]any `yaml:"objects" item:"an object"`
}

// DeleteStep deletes an object. It does not wait until the object is gone. Its short form is the resource key.
type DeleteStep struct {
	ResourceKey    ResourceKey    `yaml:"resourceKey" called:"delete"`
	GracePeriod    *time.Duration `yaml:"gracePeriod"`
	Propagation    string         `yaml:"propagation" words:"Background Foreground Orphan" default:"Background"`
	IgnoreNotFound bool           `yaml:"ignoreNotFound"`
}

// PatchStep patches an object.
type PatchStep struct {
	ResourceKey ResourceKey `yaml:"resourceKey" called:"patch"`
	PatchType   string      `yaml:"patchType" words:"merge json strategic" default:"merge"`
	Patch       any         `yaml:"patch"`
	Subresource string      `yaml:"subresource"`
}

// WaitStep waits for one object; exactly one of Condition, Phase and Absent is set.
type WaitStep struct {
	ResourceKey ResourceKey   `yaml:"resourceKey" called:"wait"`
	Condition   string        `yaml:"condition"` // CEL over object
	Phase       string        `yaml:"phase"`     // of a pod or PVC: status.phase
	Absent      bool          `yaml:"absent"`
	Timeout     time.Duration `yaml:"timeout"` // default Timeouts.Step
}

// ExecStep runs a command in the suite's directory with KUBECONFIG set. Its short form is the command.
type ExecStep struct {
	Command []string      `yaml:"command" as:"command"`
	Timeout time.Duration `yaml:"timeout"` // default Timeouts.Step
}

// UpgradeStep installs a build. Its short form is the build's name.
type UpgradeStep struct {
	To string `yaml:"to"` // a build of the suite; empty: the suite itself
}

// Name names the build in sentences.
func (u *UpgradeStep) Name() string { return buildName(u.To) }

// Invariant is a CEL predicate over the recorded history. Exactly one of Never, Always and Eventually is set.
//
// Never and Always are evaluated on every recorded event of an object that matches On, with the variables object (the
// new state; the last one for a deletion), oldObject (null for a creation), event ("created", "updated", "deleted") and
// objects (a list of all recorded objects as they are after the event). Without On they are evaluated after every
// event, with object and oldObject null. Eventually is evaluated over objects alone and must hold at some moment after
// the workload's end; Within is measured from when both the workload and the plan have ended.
type Invariant struct {
	Name       string        `yaml:"name"`
	Cluster    string        `yaml:"cluster"` // whose objects it is about; empty: the first one
	On         *ResourceKey  `yaml:"on"`
	Never      string        `yaml:"never"`
	Always     string        `yaml:"always"`
	Eventually string        `yaml:"eventually"`
	Within     time.Duration `yaml:"within" default:"30s"` // of Eventually
	Message    string        `yaml:"message"`              // CEL string over the same variables, or plain text
}

// Timeouts limit a run.
type Timeouts struct {
	Plan     time.Duration `yaml:"plan" default:"3m"`     // the workload and the plan together
	Step     time.Duration `yaml:"step" default:"60s"`    // a workload's step
	Workload time.Duration `yaml:"workload" default:"2m"` // a workload's external command
	Hold     time.Duration `yaml:"hold" default:"60s"`    // longest time that one observation is held
	Ready    time.Duration `yaml:"ready" default:"60s"`   // until the controllers are connected
	// Settle limits how long the controllers may take to come to rest, after the plan and again after the plan is
	// undone.
	Settle time.Duration `yaml:"settle" default:"15s"`

	// Rest limits how long, in the run's own time, the run waits for what the controllers have still to do: what is in
	// their queues, and what they have put off.
	Rest time.Duration `yaml:"rest" default:"10m"`

	// Quiet is how long a controller must do nothing to count as at rest.
	Quiet time.Duration `yaml:"quiet" default:"2s"`
	// Stuck is how long nothing may happen after the workload before the plan is given up.
	Stuck time.Duration `yaml:"stuck" default:"8s"`
	// Acknowledge limits how long a process may take to acknowledge what it must report.
	Acknowledge time.Duration `yaml:"acknowledge" default:"5s"`
	// Alive is how long a controller must run to count as started.
	Alive time.Duration `yaml:"alive" default:"300ms"`
	// Away is how long after its API server is back a controller may still exit because it was gone.
	Away time.Duration `yaml:"away" default:"10s"`
}
