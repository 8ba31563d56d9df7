package plan

import (
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// SuiteFile is the file name that a plan's folder and its parents are searched for.
const SuiteFile = "trommel.yaml"

// Suite is what the plans of a folder share.
type Suite struct {
	APIVersion  string              `yaml:"apiVersion" default:"trommel.dev/v1alpha1"`
	Kind        string              `yaml:"kind" default:"Suite"`
	Cluster     ClusterSpec         `yaml:"cluster"`
	Controllers []Controller        `yaml:"controllers" item:"a controller"`
	Manifests   []Manifest          `yaml:"manifests" item:"an item of manifests"` // applied before controllers start
	Workloads   map[string]Workload `yaml:"workloads" item:"a workload"`
	Invariants  []Invariant         `yaml:"invariants" item:"an invariant"`
	Variants    map[string]Variant  `yaml:"variants" item:"a variant"`
	History     []ResourceKey       `yaml:"history" item:"history"` // recorded beside what plan, workload and invariants name
	Timeouts    Timeouts            `yaml:"timeouts"`

	File string // where it was read from

	source *source // of what was read from a file: where in it
}

// ClusterSpec is the control plane to run on.
type ClusterSpec struct {
	Type                  ClusterType     `yaml:"type" called:"cluster type" default:"embedded"`
	KubernetesVersion     string          `yaml:"kubernetesVersion"` // v1.36.3 or 1.36; default: Trommel's own choice
	APIServers            int             `yaml:"apiServers" range:"1 5" default:"3"`
	Nodes                 int             `yaml:"nodes" range:"0 1000" default:"3"` // simulated nodes
	DisableControllers    []string        `yaml:"disableControllers"`               // of kube-controller-manager
	FeatureGates          map[string]bool `yaml:"featureGates"`
	APIServerArgs         []string        `yaml:"apiServerArgs"`
	ControllerManagerArgs []string        `yaml:"controllerManagerArgs"`
	Answers               []Answer        `yaml:"answers" item:"an answer"` // of simulated pods
	// RemovedAPIs serves API versions that Kubernetes has removed; nil: where a controller is built with a client-go of
	// that time.
	RemovedAPIs *bool `yaml:"removedAPIs"`
}

// Answer is what containers of simulated pods answer to commands, or what their log is. The first that fits is taken.
type Answer struct {
	Namespace string  `yaml:"namespace"` // this, pod and container: patterns as of path.Match; empty: any
	Pod       string  `yaml:"pod"`
	Container string  `yaml:"container"`
	Command   string  `yaml:"command"` // regular expression for the command's words, joined by blanks; empty: any
	Stdout    string  `yaml:"stdout"`
	Stderr    string  `yaml:"stderr"`
	ExitCode  int     `yaml:"exitCode" range:"0 255"`
	Log       *string `yaml:"log"` // nil: it is an answer to commands
}

// Manifest is where objects come from that are applied before controllers start. Exactly one of Path and Helm is set;
// paths are relative to the suite. Its short form is the path.
type Manifest struct {
	Path string `yaml:"path" also:"kustomize"` // of a file, a folder of YAML, or a folder with a kustomization
	Helm string `yaml:"helm" also:"chart"`     // of a chart: a folder or a .tgz

	// Namespace is given to namespaced objects that name none, as `kubectl apply -n` does; of a chart it is the
	// release's.
	Namespace string `yaml:"namespace"`

	Release     string         `yaml:"release"` // of a chart; default: the chart's name
	Values      map[string]any `yaml:"values"`
	ValuesFiles []string       `yaml:"valuesFiles"` // later ones win over earlier ones, Values over all
}

// String is the manifest as a person would name it.
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
	Name   string `yaml:"name"`
	Build  *Build `yaml:"build"`  // exactly one of Build and Binary
	Binary string `yaml:"binary"` // an executable that cannot be rebuilt: no observation points in it

	Image       string            `yaml:"image"`                               // in the manifests, of the container that the binary replaces
	Deployment  ResourceKey       `yaml:"deployment" as:"deployment"`          // of the manifests; zero: one is generated
	Namespace   string            `yaml:"namespace" default:"default"`         // of a generated Deployment
	ClusterRole string            `yaml:"clusterRole" default:"cluster-admin"` // of a generated Deployment
	Args        []string          `yaml:"args"`
	Env         map[string]string `yaml:"env" as:"variables"`
	// EnvFrom holds the variables whose values come from elsewhere, each an EnvVarSource as in a pod: {"fieldRef":
	// {"fieldPath": …}}.
	EnvFrom   map[string]map[string]any `yaml:"env" as:"sources"`
	APIServer string                    `yaml:"apiServer" default:"apiserver-1"` // where it connects first
	// WatchList sets client-go's WatchListClient feature in the controller: nil leaves client-go's default.
	WatchList *bool `yaml:"watchList"`
	// KeepLeases keeps the leases of a killed controller, so that its successor waits them out. Default: they are
	// deleted.
	KeepLeases bool `yaml:"keepLeases"`

	AnnotatedCalls []AnnotatedCall `yaml:"annotatedCalls" item:"an annotated call"`
}

// Build says how to build a controller.
type Build struct {
	Dir     string            `yaml:"dir" default:"."`     // of the module, relative to the suite
	Package string            `yaml:"package" default:"."` // of main
	Tags    []string          `yaml:"tags"`
	LDFlags string            `yaml:"ldflags"`
	Env     map[string]string `yaml:"env"`
	// ControlPlane, when set, takes this component of Trommel's own control plane binary instead of building Package.
	ControlPlane string `yaml:"controlPlane" words:"kube-controller-manager kube-scheduler"`
}

// AnnotatedCall is a function of the user's that gets a hook.
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

// Variant changes controllers for a run, e.g. to a fixed or a mitigated version.
type Variant struct {
	Controllers map[string]VariantController `yaml:"controllers" item:"a variant's controller"`
	Cluster     VariantCluster               `yaml:"cluster" called:"a variant's cluster"`
}

// VariantController is added to the controller of that name.
type VariantController struct {
	Args      []string                  `yaml:"args"` // appended
	Env       map[string]string         `yaml:"env" as:"variables"`
	EnvFrom   map[string]map[string]any `yaml:"env" as:"sources"` // as a controller's
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

// Step is one step of a workload; exactly one of the pointers is set, or Sleep.
type Step struct {
	Name   string        `yaml:"name"`
	Apply  *ApplyStep    `yaml:"apply"`
	Delete *DeleteStep   `yaml:"delete"`
	Patch  *PatchStep    `yaml:"patch"`
	Wait   *WaitStep     `yaml:"wait"`
	Sleep  time.Duration `yaml:"sleep"`
	Exec   *ExecStep     `yaml:"exec"`
	// OnTimeout is what a step does that is not done in time: OnTimeoutFail ends the workload with a finding,
	// OnTimeoutContinue notes it and goes on, as Sieve's workloads do.
	OnTimeout OnTimeoutAction `yaml:"onTimeout"`
}

// stepKinds are the fields that say what a step does.
var stepKinds = []string{"apply", "delete", "patch", "wait", "sleep", "exec"}

// OnTimeoutAction is what becomes of a workload one of whose steps is not done in time.
type OnTimeoutAction string

// What a step does that is not done in time.
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

// DeleteStep deletes an object. It does not wait for it to be gone. Its short form is the resource key.
type DeleteStep struct {
	ResourceKey    ResourceKey    `yaml:"resourceKey" called:"delete"`
	GracePeriod    *time.Duration `yaml:"gracePeriod"`
	Propagation    string         `yaml:"propagation" words:"Background Foreground Orphan" default:"Background"`
	IgnoreNotFound bool           `yaml:"ignoreNotFound"`
}

// PatchStep patches an object.
type PatchStep struct {
	ResourceKey ResourceKey `yaml:"resourceKey" called:"patch"`
	Type        string      `yaml:"type" words:"merge json strategic" default:"merge"`
	Subresource string      `yaml:"subresource"`
	Patch       any         `yaml:"patch"`
}

// WaitStep waits for one object; exactly one of Condition, Phase and Absent.
type WaitStep struct {
	ResourceKey ResourceKey   `yaml:"resourceKey" called:"wait"`
	Condition   string        `yaml:"condition"` // CEL over object
	Phase       string        `yaml:"phase"`     // of a pod or PVC: status.phase
	Absent      bool          `yaml:"absent"`
	Timeout     time.Duration `yaml:"timeout"` // default Timeouts.Step
}

// ExecStep runs a command in the suite's folder with KUBECONFIG set. Its short form is the command.
type ExecStep struct {
	Command []string      `yaml:"command" as:"command"`
	Timeout time.Duration `yaml:"timeout"` // default Timeouts.Step
}

// Invariant is a CEL predicate over the recorded history. Exactly one of Never, Always and Eventually is set.
//
// Never and Always are evaluated on every recorded event of an object that matches On, with the variables object (the
// new state; the last one for a deletion), oldObject (null for a creation), event ("created", "updated", "deleted") and
// objects (all recorded objects as they stand after the event, a list). Without On they are evaluated after every
// event, with object and oldObject null. Eventually is evaluated over objects alone and must hold at some moment after
// the workload's end; Within counts from when both the workload and the plan are over.
type Invariant struct {
	Name       string        `yaml:"name"`
	On         *ResourceKey  `yaml:"on"`
	Never      string        `yaml:"never"`
	Always     string        `yaml:"always"`
	Eventually string        `yaml:"eventually"`
	Within     time.Duration `yaml:"within" default:"30s"` // of Eventually
	Message    string        `yaml:"message"`              // CEL string over the same variables, or plain text
}

func (i *Invariant) has(field string) bool { return field != "within" || i.Eventually != "" }

// Timeouts bound a run.
type Timeouts struct {
	Plan     time.Duration `yaml:"plan" default:"3m"`     // the workload and the plan together
	Step     time.Duration `yaml:"step" default:"60s"`    // a workload's step
	Workload time.Duration `yaml:"workload" default:"2m"` // a workload's external command
	Hold     time.Duration `yaml:"hold" default:"60s"`    // longest time that one observation is held
	Ready    time.Duration `yaml:"ready" default:"60s"`   // until the controllers are connected
	Settle   time.Duration `yaml:"settle" default:"15s"`  // until they have come to rest, after the plan and again after all is given back

	Quiet       time.Duration `yaml:"quiet" default:"2s"`       // how long a controller that has come to rest has done nothing
	Stuck       time.Duration `yaml:"stuck" default:"8s"`       // after the workload, without any event, until the plan is given up
	Acknowledge time.Duration `yaml:"acknowledge" default:"5s"` // until a process has acknowledged what it is to report
	Alive       time.Duration `yaml:"alive" default:"300ms"`    // how long a controller that has started has lived
	Away        time.Duration `yaml:"away" default:"10s"`       // after its API server is back, a controller may still end for want of it
}

func (m *Manifest) long(_ *source, n *yaml.Node) *yaml.Node {
	return longForm(n, "path", yaml.ScalarNode)
}

func (w *Workload) long(s *source, n *yaml.Node) *yaml.Node {
	r := deref(n)
	if r.Kind != yaml.ScalarNode {
		return longForm(n, "steps", yaml.SequenceNode)
	}
	s.errorf(n, "a workload is a list of steps, or a mapping with a command, not %s", kindOf(r))
	return &yaml.Node{Kind: yaml.MappingNode, Line: n.Line, Column: n.Column}
}

// long has no other form. It is called first, and reports what else the step does before that is read.
func (*Step) long(s *source, n *yaml.Node) *yaml.Node {
	count := 0
	for _, kind := range stepKinds {
		if _, value := entry(n, kind); value == nil {
			continue
		} else if count++; count > 1 {
			s.report(value, "a step does one thing; this one has a second: %s", kind)
		}
	}
	return nil
}

func (*ApplyStep) long(_ *source, n *yaml.Node) *yaml.Node {
	r := deref(n)
	if r.Kind == yaml.MappingNode {
		file, _ := entry(r, "file")
		objects, _ := entry(r, "objects")
		if file != nil || objects != nil {
			return nil
		}
		list := &yaml.Node{Kind: yaml.SequenceNode, Line: n.Line, Column: n.Column, Content: []*yaml.Node{n}}
		return longForm(list, "objects", yaml.SequenceNode)
	}
	if r.Kind == yaml.SequenceNode {
		return longForm(n, "objects", yaml.SequenceNode)
	}
	return longForm(n, "file", yaml.ScalarNode)
}

func (*DeleteStep) long(_ *source, n *yaml.Node) *yaml.Node {
	return longForm(n, "resourceKey", yaml.ScalarNode)
}

func (*ExecStep) long(_ *source, n *yaml.Node) *yaml.Node {
	return longForm(n, "command", yaml.ScalarNode, yaml.SequenceNode)
}

// longForm is a mapping with the node as its only field, if the node is of one of the kinds.
func longForm(n *yaml.Node, field string, kinds ...yaml.Kind) *yaml.Node {
	if !slices.Contains(kinds, deref(n).Kind) {
		return nil
	}
	key := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: field, Line: n.Line, Column: n.Column}
	content := []*yaml.Node{key, n}
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: n.Line, Column: n.Column, Content: content}
}
