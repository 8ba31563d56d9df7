package plan

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/predicate"
)

// The defaults of a suite.
const (
	DefaultAPIServers      = 3
	DefaultNodes           = 3
	DefaultPlanTimeout     = 3 * time.Minute
	DefaultStepTimeout     = time.Minute
	DefaultWorkloadTimeout = 2 * time.Minute
	DefaultHoldTimeout     = time.Minute
	DefaultReadyTimeout    = time.Minute
	DefaultSettleTimeout   = 15 * time.Second
	DefaultWithin          = 30 * time.Second
)

// LoadSuite reads a suite from a file. See [ParseSuite].
func LoadSuite(path string) (*Suite, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return ParseSuite(data, path)
}

// ParseSuite reads a suite; file is its name in messages, and its folder is where the files that it names are looked
// for. The suite is complete with its defaults. The error is Errors: every mistake of the file.
func ParseSuite(data []byte, file string) (*Suite, error) {
	d := &decoder{file: file}
	root := d.parse(data, "suite")
	if root == nil {
		return nil, d.errs.err()
	}
	s := d.suite(root)
	if err := d.errs.err(); err != nil {
		return nil, err
	}
	return s, nil
}

var (
	suiteSchema = &schema{
		what: "a suite",
		fields: []string{
			"apiVersion", "kind", "cluster", "controllers", "manifests", "workloads", "invariants", "variants", "history", "timeouts",
		},
		hints: map[string]string{"actions": "that is a plan's; this file is read as a suite"},
	}
	clusterSchema = &schema{
		what: "cluster",
		fields: []string{
			"type", "kubernetesVersion", "apiServers", "nodes", "disableControllers", "featureGates", "apiServerArgs", "controllerManagerArgs",
			"answers", "removedAPIs",
		},
	}
	answerSchema = &schema{
		what:   "an answer",
		fields: []string{"namespace", "pod", "container", "command", "stdout", "stderr", "exitCode", "log"},
	}
	controllerSchema = &schema{
		what: "a controller",
		fields: []string{
			"name", "build", "binary", "image", "deployment", "namespace", "clusterRole", "args", "env", "apiServer", "watchList",
			"keepLeases", "annotatedCalls",
		},
	}
	buildSchema = &schema{
		what:   "build",
		fields: []string{"dir", "package", "tags", "ldflags", "env", "controlPlane"},
	}
	callSchema = &schema{
		what:   "an annotated call",
		fields: []string{"name", "package", "receiver", "function"},
	}
	workloadSchema = &schema{
		what:   "a workload",
		fields: []string{"steps", "command", "timeout"},
	}
	stepSchema = &schema{
		what:   "a step",
		fields: []string{"name", "apply", "delete", "patch", "wait", "sleep", "exec", "onTimeout"},
	}
	applySchema = &schema{
		what:   "apply",
		fields: []string{"file", "objects"},
	}
	deleteSchema = &schema{
		what:   "delete",
		fields: []string{"resourceKey", "gracePeriod", "propagation", "ignoreNotFound"},
	}
	patchSchema = &schema{
		what:   "patch",
		fields: []string{"resourceKey", "type", "subresource", "patch"},
	}
	waitSchema = &schema{
		what:   "wait",
		fields: []string{"resourceKey", "condition", "phase", "absent", "timeout"},
	}
	execSchema = &schema{
		what:   "exec",
		fields: []string{"command", "timeout"},
	}
	invariantSchema = &schema{
		what:   "an invariant",
		fields: []string{"name", "on", "never", "always", "eventually", "within", "message"},
	}
	variantSchema = &schema{
		what:   "a variant",
		fields: []string{"controllers", "cluster"},
	}
	variantControllerSchema = &schema{
		what:   "a variant's controller",
		fields: []string{"args", "env", "watchList"},
	}
	variantClusterSchema = &schema{
		what:   "a variant's cluster",
		fields: []string{"featureGates"},
	}
	timeoutsSchema = &schema{
		what:   "timeouts",
		fields: []string{"plan", "step", "workload", "hold", "ready", "settle"},
	}
)

var (
	clusterTypes     = []string{"embedded", "kind", "existing"}
	controlPlanes    = []string{"kube-controller-manager", "kube-scheduler"}
	propagations     = []string{"Background", "Foreground", "Orphan"}
	kubernetesSemver = regexp.MustCompile(`^v?1\.[0-9]+(\.[0-9]+)?$`)
)

func (d *decoder) suite(n *yaml.Node) *Suite {
	f := d.mapping(n, suiteSchema)
	if f == nil {
		return nil
	}
	s := &Suite{APIVersion: d.apiVersion(f[0]), Kind: d.kind(f[1], "Suite"), File: d.file}
	d.keys = []keySource{}
	s.Timeouts = d.timeouts(f[9])
	s.Cluster = d.cluster(f[2])
	for _, item := range d.list(f[3], "controllers") {
		s.Controllers = append(s.Controllers, d.controllerUnderTest(item, s))
	}
	for _, item := range d.list(f[4], "manifests") {
		s.Manifests = append(s.Manifests, d.manifest(item))
	}
	d.named(f[5], "workloads", func(name string, _, value *yaml.Node) {
		if s.Workloads == nil {
			s.Workloads = map[string]Workload{}
		}
		s.Workloads[name] = d.workload(value, s.Timeouts)
	})
	for _, item := range d.list(f[6], "invariants") {
		inv := d.invariant(item)
		if inv.Name != "" && slices.ContainsFunc(s.Invariants, func(other Invariant) bool { return other.Name == inv.Name }) {
			d.errorf(item, "invariant %q stands twice", inv.Name)
		}
		s.Invariants = append(s.Invariants, inv)
	}
	d.named(f[7], "variants", func(name string, key, value *yaml.Node) {
		if message := nameMistake(name); message != "" {
			d.errorf(key, "variant %q %s", name, message)
		}
		if s.Variants == nil {
			s.Variants = map[string]Variant{}
		}
		s.Variants[name] = d.variant(value, s)
	})
	for _, item := range d.list(f[8], "history") {
		s.History = append(s.History, d.resourceKey(item, "history"))
	}
	s.keys = d.keys
	return s
}

// exists reports a file of the suite that is not there.
func (d *decoder) exists(n *yaml.Node, path string) {
	if path == "" {
		return
	}
	if _, err := os.Stat(Beside(d.file, path)); err != nil {
		d.errorf(n, "%s: no such file beside the suite", path)
	}
}

func (d *decoder) timeouts(n *yaml.Node) Timeouts {
	t := Timeouts{
		Plan: DefaultPlanTimeout, Step: DefaultStepTimeout, Workload: DefaultWorkloadTimeout,
		Hold: DefaultHoldTimeout, Ready: DefaultReadyTimeout, Settle: DefaultSettleTimeout,
	}
	if n == nil {
		return t
	}
	f := d.mapping(n, timeoutsSchema)
	if f == nil {
		return t
	}
	for i, v := range []*time.Duration{&t.Plan, &t.Step, &t.Workload, &t.Hold, &t.Ready, &t.Settle} {
		if *v = d.duration(f[i], timeoutsSchema.fields[i], *v); *v == 0 {
			d.errorf(f[i], "%s is 0; a timeout has a length", timeoutsSchema.fields[i])
		}
	}
	return t
}

func (d *decoder) cluster(n *yaml.Node) ClusterSpec {
	c := ClusterSpec{Type: "embedded", APIServers: DefaultAPIServers, Nodes: DefaultNodes}
	if n == nil {
		return c
	}
	f := d.mapping(n, clusterSchema)
	if f == nil {
		return c
	}
	if t := word(d, f[0], "cluster type", clusterTypes); t != "" {
		c.Type = t
	}
	if c.KubernetesVersion = d.text(f[1], "kubernetesVersion"); c.KubernetesVersion != "" && !kubernetesSemver.MatchString(c.KubernetesVersion) {
		d.errorf(f[1], "kubernetesVersion %q: write it like v1.36.3 or 1.36", c.KubernetesVersion)
	}
	if c.APIServers = d.integer(f[2], "apiServers", DefaultAPIServers); c.APIServers < 1 || c.APIServers > 5 {
		d.errorf(f[2], "apiServers is %d; it can be 1 to 5", c.APIServers)
		c.APIServers = DefaultAPIServers
	}
	if c.Nodes = d.integer(f[3], "nodes", DefaultNodes); c.Nodes < 0 || c.Nodes > 1000 {
		d.errorf(f[3], "nodes is %d; it can be 0 to 1000", c.Nodes)
	}
	c.DisableControllers = d.texts(f[4], "disableControllers")
	c.FeatureGates = d.boolMap(f[5], "featureGates")
	c.APIServerArgs = d.texts(f[6], "apiServerArgs")
	c.ControllerManagerArgs = d.texts(f[7], "controllerManagerArgs")
	for _, item := range d.list(f[8], "answers") {
		c.Answers = append(c.Answers, d.answer(item))
	}
	c.RemovedAPIs = d.optionalBool(f[9], "removedAPIs")
	return c
}

func (d *decoder) answer(n *yaml.Node) Answer {
	f := d.mapping(n, answerSchema)
	if f == nil {
		return Answer{}
	}
	a := Answer{
		Namespace: d.text(f[0], "namespace"), Pod: d.text(f[1], "pod"), Container: d.text(f[2], "container"), Command: d.text(f[3], "command"),
		Stdout: d.text(f[4], "stdout"), Stderr: d.text(f[5], "stderr"), ExitCode: d.integer(f[6], "exitCode", 0),
	}
	for i, pattern := range []string{a.Namespace, a.Pod, a.Container} {
		if _, err := path.Match(pattern, ""); err != nil {
			d.errorf(f[i], "%s %q is no pattern: %v", answerSchema.fields[i], pattern, err)
		}
	}
	if _, err := regexp.Compile(a.Command); err != nil {
		d.errorf(f[3], "command is a regular expression: %v", err)
	}
	if a.ExitCode < 0 || a.ExitCode > 255 {
		d.errorf(f[6], "exitCode is %d; it can be 0 to 255", a.ExitCode)
	}
	if f[7] != nil {
		log := d.text(f[7], "log")
		a.Log = &log
		for i := 3; i < 7; i++ {
			if f[i] != nil {
				d.errorf(f[i], "an answer is a log or one to commands: %s does not go with log", answerSchema.fields[i])
			}
		}
	}
	return a
}

func (d *decoder) controllerUnderTest(n *yaml.Node, s *Suite) Controller {
	var c Controller
	f := d.mapping(n, controllerSchema)
	if f == nil {
		return c
	}
	c = Controller{
		Name:        d.text(f[0], "name"),
		Binary:      d.text(f[2], "binary"),
		Image:       d.text(f[3], "image"),
		Namespace:   d.text(f[5], "namespace"),
		ClusterRole: d.text(f[6], "clusterRole"),
		Args:        d.texts(f[7], "args"),
		APIServer:   d.text(f[9], "apiServer"),
		WatchList:   d.optionalBool(f[10], "watchList"),
		KeepLeases:  d.boolean(f[11], "keepLeases"),
	}
	c.Env, c.EnvFrom = d.environment(f[8])
	switch {
	case c.Name == "" && f[0] == nil:
		d.errorf(n, "the controller has no name")
	case c.Name != "" && !validName(c.Name, true):
		d.errorf(f[0], "controller name %q: it becomes a Kubernetes name, so lower case letters, digits, - and .", c.Name)
	case IsAPIServer(c.Name):
		d.errorf(f[0], "controller name %q is the name of an API server", c.Name)
	case c.Name != "" && slices.Contains(s.ControllerNames(), c.Name):
		d.errorf(f[0], "controller %q stands twice", c.Name)
	}
	if f[1] != nil {
		c.Build = d.build(f[1])
	}
	switch {
	case f[1] != nil && f[2] != nil:
		d.errorf(f[2], "controller %q has both build and binary; it takes one", c.Name)
	case f[1] == nil && f[2] == nil && f[3] != nil:
		d.errorf(f[3], "controller %q is given by its image alone, and controllers run as local processes, without a container engine: "+
			"give its source with build:, or the executable that is in the image with binary:", c.Name)
	case f[1] == nil && f[2] == nil:
		d.errorf(n, "controller %q has neither build nor binary", c.Name)
	}
	if f[4] != nil {
		c.Deployment = d.deployment(f[4])
		for _, i := range []int{5, 6} {
			if f[i] != nil {
				d.errorf(f[i], "%s is for a generated Deployment; controller %q has its own", controllerSchema.fields[i], c.Name)
			}
		}
	} else if f[3] != nil && (f[1] != nil || f[2] != nil) {
		d.errorf(f[3], "image is what the binary stands for in the manifests' Deployment; name that with deployment: namespace/name")
	}
	if c.Namespace == "" {
		c.Namespace = "default"
	}
	if c.ClusterRole == "" {
		c.ClusterRole = "cluster-admin"
	}
	if c.APIServer == "" {
		c.APIServer = "apiserver-1"
	} else if names := s.APIServerNames(); !slices.Contains(names, c.APIServer) {
		d.errorf(f[9], "unknown API server %q (%s)", c.APIServer, suiteHas(names))
	}
	if f[12] != nil && f[1] == nil && f[2] != nil {
		d.errorf(f[12], "annotatedCalls are compiled in, and controller %q is given by binary:; give its source with build:", c.Name)
	}
	for _, item := range d.list(f[12], "annotatedCalls") {
		c.AnnotatedCalls = append(c.AnnotatedCalls, d.annotatedCall(item, c.AnnotatedCalls))
	}
	return c
}

func (d *decoder) optionalBool(n *yaml.Node, what string) *bool {
	if n == nil {
		return nil
	}
	v := d.boolean(n, what)
	return &v
}

func (d *decoder) build(n *yaml.Node) *Build {
	b := &Build{Dir: ".", Package: "."}
	f := d.mapping(n, buildSchema)
	if f == nil {
		return b
	}
	if f[0] != nil {
		b.Dir = d.text(f[0], "dir")
		d.exists(f[0], b.Dir)
	}
	if f[1] != nil {
		b.Package = d.text(f[1], "package")
	}
	b.Tags = d.texts(f[2], "tags")
	b.LDFlags = d.text(f[3], "ldflags")
	b.Env = d.textMap(f[4], "env")
	if b.ControlPlane = word(d, f[5], "controlPlane", controlPlanes); f[5] != nil {
		for _, i := range []int{0, 1, 2, 3, 4} {
			if f[i] != nil {
				d.errorf(f[i], "build has controlPlane, which is built from Trommel's own; it takes no %s", buildSchema.fields[i])
			}
		}
	}
	return b
}

// deployment reads namespace/name, or the same as a resource key.
func (d *decoder) deployment(n *yaml.Node) ResourceKey {
	s := d.text(n, "deployment")
	parts := strings.Split(s, "/")
	if len(parts) == 3 && (parts[0] == "deployment" || parts[0] == "deployment.apps") {
		parts = parts[1:]
	}
	if len(parts) != 2 || !validNamespace(parts[0]) || !validName(parts[1], true) {
		if s != "" || deref(n).Kind == yaml.ScalarNode && deref(n).Value == "" {
			d.errorf(n, "deployment %q: write namespace/name", s)
		}
		return ResourceKey{}
	}
	return ResourceKey{Type: "deployment", Group: "apps", Namespace: parts[0], Name: parts[1]}
}

func (d *decoder) annotatedCall(n *yaml.Node, before []AnnotatedCall) AnnotatedCall {
	f := d.mapping(n, callSchema)
	if f == nil {
		return AnnotatedCall{}
	}
	c := AnnotatedCall{
		Name: d.text(f[0], "name"), Package: d.text(f[1], "package"), Receiver: d.text(f[2], "receiver"), Function: d.text(f[3], "function"),
	}
	for _, i := range []int{1, 3} {
		if f[i] == nil {
			d.errorf(n, "the annotated call has no %s", callSchema.fields[i])
		}
	}
	if c.Name == "" {
		c.Name = c.Symbol()
	}
	if slices.ContainsFunc(before, func(other AnnotatedCall) bool { return other.Name == c.Name }) {
		d.errorf(n, "annotated call %q stands twice", c.Name)
	}
	return c
}

func (d *decoder) workload(n *yaml.Node, t Timeouts) Workload {
	w := Workload{Timeout: t.Workload}
	r := deref(n)
	if r.Kind == yaml.SequenceNode {
		w.Steps = d.steps(n, t)
		return w
	}
	if isNull(r) {
		return w
	}
	if r.Kind != yaml.MappingNode {
		d.errorf(n, "a workload is a list of steps, or a mapping with a command, not %s", kindOf(r))
		return w
	}
	f := d.mapping(n, workloadSchema)
	w.Steps = d.steps(f[0], t)
	w.Command = d.command(f[1], "command")
	w.Timeout = d.duration(f[2], "timeout", t.Workload)
	if f[0] != nil && f[1] != nil {
		d.errorf(f[1], "the workload has both steps and a command; it takes one")
	}
	return w
}

// command reads a program with its arguments: a list, or text that is one word.
func (d *decoder) command(n *yaml.Node, what string) []string {
	if n == nil {
		return nil
	}
	if r := deref(n); r.Kind == yaml.ScalarNode {
		d.errorf(n, "%s is a list such as [sh, -c, %q]", what, r.Value)
		return nil
	}
	list := d.texts(n, what)
	if len(list) == 0 && deref(n).Kind == yaml.SequenceNode {
		d.errorf(n, "%s is empty", what)
	}
	return list
}

func (d *decoder) steps(n *yaml.Node, t Timeouts) []Step {
	var steps []Step
	for _, item := range d.list(n, "steps") {
		steps = append(steps, d.step(item, t))
	}
	return steps
}

func (d *decoder) step(n *yaml.Node, t Timeouts) Step {
	var s Step
	f := d.mapping(n, stepSchema)
	if f == nil {
		return s
	}
	s.Name = d.text(f[0], "name")
	kinds := stepSchema.fields[1:7]
	count := 0
	for i := range kinds {
		if f[i+1] == nil {
			continue
		}
		if count++; count > 1 {
			d.errorf(f[i+1], "a step does one thing; this one has a second: %s", kinds[i])
		}
	}
	if count == 0 {
		d.errorf(n, "the step does nothing; it takes one of: %s", strings.Join(kinds, ", "))
	}
	if f[1] != nil {
		s.Apply = d.applyStep(f[1])
	}
	if f[2] != nil {
		s.Delete = d.deleteStep(f[2])
	}
	if f[3] != nil {
		s.Patch = d.patchStep(f[3])
	}
	if f[4] != nil {
		s.Wait = d.waitStep(f[4], t)
	}
	if f[5] != nil {
		if s.Sleep = d.duration(f[5], "sleep", time.Nanosecond); s.Sleep == 0 {
			d.errorf(f[5], "sleep is 0")
		}
	}
	if f[6] != nil {
		s.Exec = d.execStep(f[6], t)
	}
	if f[7] != nil {
		s.OnTimeout = OnTimeoutAction(d.text(f[7], "onTimeout"))
		known := []string{string(OnTimeoutFail), string(OnTimeoutContinue)}
		if s.OnTimeout != "" && !slices.Contains(known, string(s.OnTimeout)) {
			d.errorf(f[7], "unknown onTimeout %q%s", s.OnTimeout, didYouMean(string(s.OnTimeout), known))
		}
	}
	return s
}

func (d *decoder) applyStep(n *yaml.Node) *ApplyStep {
	s := &ApplyStep{}
	r := deref(n)
	switch {
	case r.Kind == yaml.ScalarNode:
		s.File = d.text(n, "apply")
		d.exists(n, s.File)
	case r.Kind == yaml.SequenceNode:
		s.Objects = d.objects(n)
	case hasKey(r, "file") || hasKey(r, "objects"):
		f := d.mapping(n, applySchema)
		if s.File = d.text(f[0], "file"); f[0] != nil {
			d.exists(f[0], s.File)
		}
		s.Objects = d.objects(f[1])
		if f[0] != nil && f[1] != nil {
			d.errorf(f[1], "apply has both file and objects; it takes one")
		}
	default:
		s.Objects = []map[string]any{d.kubernetesObject(n)}
	}
	return s
}

func hasKey(n *yaml.Node, key string) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return true
		}
	}
	return false
}

func (d *decoder) objects(n *yaml.Node) []map[string]any {
	var list []map[string]any
	for _, item := range d.list(n, "objects") {
		list = append(list, d.kubernetesObject(item))
	}
	return list
}

func (d *decoder) kubernetesObject(n *yaml.Node) map[string]any {
	o := d.object(n, "an object")
	if o != nil {
		if message := objectMistake(o); message != "" {
			d.errorf(n, "the object %s", message)
		}
	}
	return o
}

// oneObject reads the key of a single object.
func (d *decoder) oneObject(n, parent *yaml.Node, what string) ResourceKey {
	if n == nil {
		d.errorf(parent, "%s has no resourceKey", what)
		return ResourceKey{}
	}
	k := d.resourceKey(n, what)
	if k.HasWildcard() {
		d.errorf(n, "%s is for one object; %q may be several", what, k)
	}
	return k
}

func (d *decoder) deleteStep(n *yaml.Node) *DeleteStep {
	s := &DeleteStep{Propagation: "Background"}
	if deref(n).Kind == yaml.ScalarNode {
		s.ResourceKey = d.oneObject(n, n, "delete")
		return s
	}
	f := d.mapping(n, deleteSchema)
	if f == nil {
		return s
	}
	s.ResourceKey = d.oneObject(f[0], n, "delete")
	if f[1] != nil {
		grace := d.duration(f[1], "gracePeriod", 0)
		s.GracePeriod = &grace
	}
	if p := word(d, f[2], "propagation", propagations); p != "" {
		s.Propagation = p
	}
	s.IgnoreNotFound = d.boolean(f[3], "ignoreNotFound")
	return s
}

func (d *decoder) patchStep(n *yaml.Node) *PatchStep {
	s := &PatchStep{Type: "merge"}
	f := d.mapping(n, patchSchema)
	if f == nil {
		return s
	}
	s.ResourceKey = d.oneObject(f[0], n, "patch")
	if t := word(d, f[1], "type", patchTypes); t != "" {
		s.Type = t
	}
	s.Subresource = d.text(f[2], "subresource")
	at := n
	if f[3] != nil {
		s.Patch, at = d.value(f[3]), f[3]
	}
	if message := patchMistake(s.Type, s.Patch); message != "" {
		d.errorf(at, "%s", strings.ReplaceAll(message, "patchType", "type"))
	}
	return s
}

func (d *decoder) waitStep(n *yaml.Node, t Timeouts) *WaitStep {
	s := &WaitStep{Timeout: t.Step}
	f := d.mapping(n, waitSchema)
	if f == nil {
		return s
	}
	s.ResourceKey = d.oneObject(f[0], n, "wait")
	s.Condition = d.text(f[1], "condition")
	s.Phase = d.text(f[2], "phase")
	s.Absent = d.boolean(f[3], "absent")
	s.Timeout = d.duration(f[4], "timeout", t.Step)
	d.cel(f[1], s.Condition, "condition", predicate.Object)
	count := 0
	for _, i := range []int{1, 2, 3} {
		if f[i] != nil && (i != 3 || s.Absent) {
			if count++; count > 1 {
				d.errorf(f[i], "wait takes one of condition, phase and absent")
			}
		}
	}
	if count == 0 {
		d.errorf(n, "wait has none of condition, phase and absent")
	}
	return s
}

func (d *decoder) execStep(n *yaml.Node, t Timeouts) *ExecStep {
	s := &ExecStep{Timeout: t.Step}
	if deref(n).Kind != yaml.MappingNode {
		s.Command = d.command(n, "exec")
		return s
	}
	f := d.mapping(n, execSchema)
	if f[0] == nil {
		d.errorf(n, "exec has no command")
	}
	s.Command = d.command(f[0], "command")
	s.Timeout = d.duration(f[1], "timeout", t.Step)
	return s
}

// cel reports what is wrong with a CEL expression.
func (d *decoder) cel(n *yaml.Node, text, what string, scope predicate.Scope) {
	if n == nil || text == "" {
		return
	}
	var bad *predicate.SyntaxError
	if !errors.As(scope.Check(text), &bad) {
		return
	}
	line, col := n.Line, n.Column
	if r := deref(n); r.Kind == yaml.ScalarNode {
		line, col = scalarPosition(d.src, r, bad.Offset)
	}
	d.errs = append(d.errs, &Error{File: d.file, Line: line, Col: col, Message: what + ": CEL: " + bad.Message})
}

func (d *decoder) invariant(n *yaml.Node) Invariant {
	var inv Invariant
	f := d.mapping(n, invariantSchema)
	if f == nil {
		return inv
	}
	inv = Invariant{
		Name:       d.text(f[0], "name"),
		Never:      d.text(f[2], "never"),
		Always:     d.text(f[3], "always"),
		Eventually: d.text(f[4], "eventually"),
		Message:    d.text(f[6], "message"),
	}
	if f[0] == nil {
		d.errorf(n, "the invariant has no name")
	}
	if f[1] != nil {
		k := d.resourceKey(f[1], "on")
		inv.On = &k
	}
	d.cel(f[2], inv.Never, "never", predicate.History)
	d.cel(f[3], inv.Always, "always", predicate.History)
	d.cel(f[4], inv.Eventually, "eventually", predicate.Objects)
	count := 0
	for _, i := range []int{2, 3, 4} {
		if f[i] != nil {
			if count++; count > 1 {
				d.errorf(f[i], "an invariant takes one of never, always and eventually")
			}
		}
	}
	if count == 0 {
		d.errorf(n, "the invariant has none of never, always and eventually")
	}
	inv.Within = d.duration(f[5], "within", DefaultWithin)
	if f[4] == nil && count > 0 {
		if f[5] != nil {
			d.errorf(f[5], "within is for eventually")
		}
		inv.Within = 0
	}
	if f[4] != nil && f[1] != nil {
		d.errorf(f[1], "eventually is evaluated over all objects; it takes no on")
	}
	return inv
}

func (d *decoder) variant(n *yaml.Node, s *Suite) Variant {
	var v Variant
	if isNull(deref(n)) {
		return v
	}
	f := d.mapping(n, variantSchema)
	if f == nil {
		return v
	}
	d.named(f[0], "controllers", func(name string, key, value *yaml.Node) {
		if names := s.ControllerNames(); !slices.Contains(names, name) {
			d.errorf(key, "unknown controller %q (%s)", name, suiteHas(names))
		}
		if v.Controllers == nil {
			v.Controllers = map[string]VariantController{}
		}
		if isNull(deref(value)) {
			v.Controllers[name] = VariantController{}
			return
		}
		if f := d.mapping(value, variantControllerSchema); f != nil {
			c := VariantController{Args: d.texts(f[0], "args"), WatchList: d.optionalBool(f[2], "watchList")}
			c.Env, c.EnvFrom = d.environment(f[1])
			v.Controllers[name] = c
		}
	})
	if f[1] != nil {
		if f := d.mapping(f[1], variantClusterSchema); f != nil {
			v.Cluster.FeatureGates = d.boolMap(f[0], "featureGates")
		}
	}
	return v
}

// WithVariant returns a copy of the suite with the variant merged in; the empty name is the suite as it is. The copy
// shares with the original what a variant does not change.
func (s *Suite) WithVariant(name string) (*Suite, error) {
	merged := *s
	merged.Controllers = slices.Clone(s.Controllers)
	merged.Cluster.FeatureGates = maps.Clone(s.Cluster.FeatureGates)
	for i := range merged.Controllers {
		c := &merged.Controllers[i]
		c.Args, c.Env, c.EnvFrom = slices.Clone(c.Args), maps.Clone(c.Env), maps.Clone(c.EnvFrom)
	}
	if name == "" {
		return &merged, nil
	}
	v, ok := s.Variants[name]
	if !ok {
		return nil, fmt.Errorf("unknown variant %q (%s)", name, suiteHas(sortedKeys(s.Variants)))
	}
	for _, controller := range sortedKeys(v.Controllers) {
		i := slices.Index(s.ControllerNames(), controller)
		if i < 0 {
			return nil, fmt.Errorf("variant %q: unknown controller %q (%s)", name, controller, suiteHas(s.ControllerNames()))
		}
		c, change := &merged.Controllers[i], v.Controllers[controller]
		c.Args = append(c.Args, change.Args...)
		for k, value := range change.Env {
			if c.Env == nil {
				c.Env = map[string]string{}
			}
			c.Env[k] = value
			delete(c.EnvFrom, k)
		}
		for k, source := range change.EnvFrom {
			if c.EnvFrom == nil {
				c.EnvFrom = map[string]map[string]any{}
			}
			c.EnvFrom[k] = source
			delete(c.Env, k)
		}
		if change.WatchList != nil {
			c.WatchList = change.WatchList
		}
	}
	for gate, on := range v.Cluster.FeatureGates {
		if merged.Cluster.FeatureGates == nil {
			merged.Cluster.FeatureGates = map[string]bool{}
		}
		merged.Cluster.FeatureGates[gate] = on
	}
	return &merged, nil
}
