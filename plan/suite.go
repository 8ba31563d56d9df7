package plan

import "time"

// SuiteFile is the file name that a plan's folder and its parents are searched for.
const SuiteFile = "trommel.yaml"

// Suite is what the plans of a folder share.
type Suite struct {
	APIVersion  string
	Kind        string // Suite
	Cluster     ClusterSpec
	Controllers []Controller
	Manifests   []Manifest // applied before controllers start
	Workloads   map[string]Workload
	Invariants  []Invariant
	Variants    map[string]Variant
	History     []ResourceKey // recorded beside what plan, workload and invariants name
	Timeouts    Timeouts

	File string // where it was read from

	keys []keySource
}

// ClusterSpec is the control plane to run on.
type ClusterSpec struct {
	Type                  string   // embedded (default), kind, existing
	KubernetesVersion     string   // v1.36.3 or v1.36, with or without the v; default: Trommel's own choice
	APIServers            int      // 1 to 5, default 3
	Nodes                 int      // simulated nodes, default 3
	DisableControllers    []string // controllers that kube-controller-manager leaves out
	FeatureGates          map[string]bool
	APIServerArgs         []string
	ControllerManagerArgs []string
	Answers               []Answer // of simulated pods
	// RemovedAPIs serves API versions that Kubernetes has removed; nil: where a controller is built with a client-go of
	// that time.
	RemovedAPIs *bool
}

// Answer is what containers of simulated pods answer to commands, or what their log is. The first that fits is taken.
type Answer struct {
	Namespace, Pod, Container string // patterns as of path.Match; empty: any
	Command                   string // regular expression for the command's words, joined by blanks; empty: any
	Stdout, Stderr            string
	ExitCode                  int
	Log                       *string // nil: it is an answer to commands
}

// Controller is a controller under test.
type Controller struct {
	Name   string
	Build  *Build // exactly one of Build and Binary
	Binary string // an executable that cannot be rebuilt: no observation points in it

	Image       string      // container image in the manifests that the binary stands for
	Deployment  ResourceKey // namespace/name of a Deployment in the manifests; zero: one is generated
	Namespace   string      // generated Deployment: default "default"
	ClusterRole string      // generated Deployment: default cluster-admin
	Args        []string
	Env         map[string]string
	// EnvFrom holds the variables whose values come from elsewhere, each an EnvVarSource as in a pod: {"fieldRef":
	// {"fieldPath": …}}.
	EnvFrom   map[string]map[string]any
	APIServer string // where it connects first; default apiserver-1
	// WatchList sets client-go's WatchListClient feature in the controller: nil leaves client-go's default.
	WatchList *bool
	// KeepLeases keeps the leases of a killed controller, so that its successor waits them out. Default: they are deleted.
	KeepLeases bool

	AnnotatedCalls []AnnotatedCall
}

// Build says how to build a controller.
type Build struct {
	Dir     string // of the module, relative to the suite; default "."
	Package string // of main; default "."
	Tags    []string
	LDFlags string
	Env     map[string]string
	// ControlPlane, when set, takes the named component of Trommel's own control plane binary
	// (kube-controller-manager, kube-scheduler) instead of building Package.
	ControlPlane string
}

// AnnotatedCall is a function of the user's that gets a hook.
type AnnotatedCall struct {
	Name     string
	Package  string
	Receiver string // *T, T or empty
	Function string
}

// Variant changes controllers for a run, e.g. to a fixed or a mitigated version.
type Variant struct {
	Controllers map[string]VariantController
	Cluster     VariantCluster
}

// VariantController is added to the controller of that name.
type VariantController struct {
	Args      []string // appended
	Env       map[string]string
	EnvFrom   map[string]map[string]any // as a controller's
	WatchList *bool
}

// VariantCluster is added to the suite's cluster.
type VariantCluster struct {
	FeatureGates map[string]bool
}

// Workload exercises the controller.
type Workload struct {
	Steps   []Step
	Command []string      // an external command instead of steps, with KUBECONFIG set
	Timeout time.Duration // of the external command; default Timeouts.Workload
}

// Step is one step of a workload; exactly one of the pointers is set.
type Step struct {
	Name string
	// OnTimeout is what a step does that is not done in time: OnTimeoutFail ends the workload with a finding,
	// OnTimeoutContinue notes it and goes on, as Sieve's workloads do.
	OnTimeout OnTimeoutAction
	Apply     *ApplyStep
	Delete    *DeleteStep
	Patch     *PatchStep
	Wait      *WaitStep
	Sleep     time.Duration
	Exec      *ExecStep
}

// OnTimeoutAction is what becomes of a workload one of whose steps is not done in time.
type OnTimeoutAction string

// What a step does that is not done in time.
const (
	OnTimeoutFail     OnTimeoutAction = "fail" // the default; also ""
	OnTimeoutContinue OnTimeoutAction = "continue"
)

// ApplyStep applies objects (server-side apply, field manager trommel-workload).
type ApplyStep struct {
	File    string // relative to the suite
	Objects []map[string]any
}

// DeleteStep deletes an object. It does not wait for it to be gone.
type DeleteStep struct {
	ResourceKey    ResourceKey
	GracePeriod    *time.Duration
	Propagation    string // Background (default), Foreground, Orphan
	IgnoreNotFound bool
}

// PatchStep patches an object.
type PatchStep struct {
	ResourceKey ResourceKey
	Type        string // merge (default), json, strategic
	Subresource string
	Patch       any
}

// WaitStep waits for one object; exactly one of Condition, Phase and Absent.
type WaitStep struct {
	ResourceKey ResourceKey
	Condition   string // CEL over object
	Phase       string // of a pod or PVC: status.phase
	Absent      bool
	Timeout     time.Duration // default Timeouts.Step
}

// ExecStep runs a command in the suite's folder with KUBECONFIG set.
type ExecStep struct {
	Command []string
	Timeout time.Duration
}

// Invariant is a CEL predicate over the recorded history. Exactly one of Never, Always and Eventually is set.
//
// Never and Always are evaluated on every recorded event of an object that matches On, with the variables object (the
// new state; the last one for a deletion), oldObject (null for a creation), event ("created", "updated", "deleted") and
// objects (all recorded objects as they stand after the event, a list). Without On they are evaluated after every
// event, with object and oldObject null. Eventually is evaluated over objects alone and must hold at some moment after
// the workload's end; Within counts from when both the workload and the plan are over.
type Invariant struct {
	Name       string
	On         *ResourceKey
	Never      string
	Always     string
	Eventually string
	Within     time.Duration // default 30s
	Message    string        // CEL string over the same variables, or plain text; explains the finding
}

// Timeouts bound a run; zero fields take the defaults.
type Timeouts struct {
	Plan     time.Duration // 3m: the workload and the plan together
	Step     time.Duration // 60s
	Workload time.Duration // 2m
	Hold     time.Duration // 60s: longest time that one observation is held
	Ready    time.Duration // 60s: until the controllers are connected
	Settle   time.Duration // 15s: until they have come to rest, after the plan and again after all is given back
}
