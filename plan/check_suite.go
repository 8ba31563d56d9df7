package plan

import (
	"fmt"
	"maps"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/cel"
)

var kubernetesSemver = regexp.MustCompile(`^v?1\.[0-9]+(\.[0-9]+)?$`)

// check reports the mistakes in a complete suite.
func (s *Suite) check(at *place) {
	checkHeader(at, s.APIVersion, s.Kind, "Suite")
	timeouts := reflect.ValueOf(s.Timeouts)
	for _, f := range shapeOf(timeouts.Type()).fields {
		if timeouts.FieldByIndex(f.index).IsZero() {
			at.field("timeouts").field(f.name).errorf("%s is 0; a timeout must be greater than 0", f.name)
		}
	}
	s.Cluster.check(at.field("cluster"))
	s.capabilities(at)
	for i := range s.Controllers {
		if at := at.field("controllers").item(i); !at.failed() {
			s.Controllers[i].check(at, s, s.ControllerNames()[:i])
		}
	}
	for i := range s.Manifests {
		if at := at.field("manifests").item(i); !at.failed() {
			s.Manifests[i].check(at)
		}
	}
	for name, w := range s.Workloads {
		w.check(at.field("workloads").field(name))
	}
	checkInvariants(s.Invariants, at.field("invariants"))
	for i, m := range s.Masks {
		if at := at.field("masks").item(i); !at.failed() && m.Path == "" {
			at.field("path").missing("a mask has no path such as status.observedGeneration")
		}
	}
	for name, v := range s.Variants {
		at := at.field("variants").field(name)
		if message := nameMistake(name); message != "" {
			at.name().errorf("variant %q %s", name, message)
		}
		for controller := range v.Controllers {
			if names := s.ControllerNames(); !slices.Contains(names, controller) {
				name := at.field("controllers").field(controller).name()
				name.errorf("unknown controller %q (%s)", controller, suiteHas(names))
			}
		}
	}
}

// file reports a file that the suite names but that does not exist.
func (p *place) file(path string) { p.fileBeside(p.in.file, path) }

// fileBeside reports a file that does not exist beside the suite of that name.
func (p *place) fileBeside(suite, path string) {
	if path == "" || !p.given() {
		return
	}
	if _, err := os.Stat(Beside(suite, path)); err != nil {
		p.errorf("%s: no such file beside the suite", path)
	}
}

func (c *ClusterSpec) check(at *place) {
	if v := c.KubernetesVersion; v != "" && !kubernetesSemver.MatchString(v) {
		at.field("kubernetesVersion").errorf("kubernetesVersion %q: write it like v1.36.3 or 1.36", v)
	}
	for i := range c.Answers {
		a, at := &c.Answers[i], at.field("answers").item(i)
		patterns := map[string]string{"namespace": a.Namespace, "pod": a.Pod, "container": a.Container}
		for field, pattern := range patterns {
			if _, err := path.Match(pattern, ""); err != nil {
				at.field(field).errorf("%s %q is not a pattern: %v", field, pattern, err)
			}
		}
		if _, err := regexp.Compile(a.Command); err != nil {
			at.field("command").errorf("command is a regular expression: %v", err)
		}
		if a.Log != nil {
			for _, f := range at.oneOf("command", "stdout", "stderr", "exitCode") {
				f.errorf("an answer has either log or the fields for commands: %s does not go with log", f.step)
			}
		}
	}
}

// check checks a controller; before holds the names of the controllers before it.
func (c *Controller) check(at *place, s *Suite, before []string) {
	name := at.field("name")
	switch {
	case c.Name == "":
		name.missing("the controller has no name")
	case !validName(c.Name, true):
		name.errorf("controller name %q: it becomes a Kubernetes name; use lower case letters, digits, - and .", c.Name)
	case IsAPIServer(c.Name):
		name.errorf("controller name %q is the name of an API server", c.Name)
	case slices.Contains(before, c.Name):
		name.errorf("duplicate controller %q", c.Name)
	}
	build, binary, image := at.field("build"), at.field("binary"), at.field("image")
	switch {
	case build.given() && binary.given():
		binary.errorf("controller %q has both build and binary; it takes one", c.Name)
	case build.given() || binary.given():
	case image.given():
		image.errorf("controller %q has only an image, and controllers run as local processes, without a container "+
			"engine: give its source with build:, or the executable that is in the image with binary:", c.Name)
	default:
		at.errorf("controller %q has neither build nor binary", c.Name)
	}
	if at.field("deployment").given() {
		for _, f := range at.oneOf("namespace", "clusterRole") {
			f.errorf("%s is for a generated Deployment; controller %q has its own", f.step, c.Name)
		}
	} else if image.given() && (build.given() || binary.given()) {
		image.errorf("image names the image in the manifests' Deployment that the binary replaces; name that with " +
			"deployment: namespace/name")
	}
	if names := s.APIServerNames(); !slices.Contains(names, c.APIServer) {
		at.field("apiServer").errorf("unknown API server %q (%s)", c.APIServer, suiteHas(names))
	}
	if c.Build != nil {
		build.field("dir").file(c.Build.Dir)
		if build.field("controlPlane").given() {
			for _, f := range build.oneOf("dir", "package", "tags", "ldflags", "env") {
				f.errorf("build has controlPlane, which Trommel builds from its own source; it takes no %s", f.step)
			}
		}
	}
	calls := at.field("annotatedCalls")
	if calls.given() && !build.given() && binary.given() {
		calls.errorf("annotatedCalls are compiled in, and controller %q is given by binary:; "+
			"give its source with build:",
			c.Name)
	}
	for i, call := range c.AnnotatedCalls {
		at := calls.item(i)
		if at.failed() {
			continue
		}
		for _, field := range []string{"package", "function"} {
			if !at.field(field).given() {
				at.errorf("the annotated call has no %s", field)
			}
		}
		same := func(other AnnotatedCall) bool { return other.Name == call.Name }
		if slices.ContainsFunc(c.AnnotatedCalls[:i], same) {
			at.errorf("duplicate annotated call %q", call.Name)
		}
	}
}

func (m *Manifest) check(at *place) {
	path, helm := at.field("path"), at.field("helm")
	path.file(m.Path)
	helm.file(m.Helm)
	switch {
	case path.given() && helm.given():
		helm.errorf("an item of manifests has both path and helm; it takes one")
	case path.given():
		for _, f := range at.oneOf("release", "values", "valuesFiles") {
			f.errorf("%s is for a chart: helm: %s", f.step, m.Path)
		}
	case !helm.given():
		at.errorf("an item of manifests has neither path nor helm")
	}
	if m.Namespace != "" && !validNamespace(m.Namespace) {
		at.field("namespace").errorf("namespace %q: a namespace has lower case letters, digits and -", m.Namespace)
	}
	if m.Release != "" && (!validName(m.Release, true) || len(m.Release) > 53) {
		at.field("release").errorf("release %q: a release has up to 53 lower case letters, digits, - and .", m.Release)
	}
	for i, file := range m.ValuesFiles {
		at.field("valuesFiles").item(i).file(file)
	}
}

func (w *Workload) check(at *place) {
	if both := at.oneOf("steps", "command"); len(both) > 1 {
		both[1].errorf("the workload has both steps and a command; it takes one")
	}
	for i := range w.Steps {
		if at := at.field("steps").item(i); !at.failed() {
			w.Steps[i].check(at, at.in.file)
		}
	}
}

// check checks what a step does. Reading the step has reported a second thing already. The name of the suite, beside
// which files are, may be empty: then they are not looked for.
func (s *Step) check(whole *place, suite string) {
	if len(whole.oneOf(everyStepKind...)) == 0 {
		whole.errorf("the step does nothing; it takes one of: %s", strings.Join(stepKinds, ", "))
	}
	if at := whole.field("sleep"); s.Sleep == 0 && at.given() && !at.failed() {
		at.errorf("sleep is 0")
	}
	if at := whole.field("apply"); s.Apply != nil && !at.failed() {
		if suite != "" {
			at.field("file").fileBeside(suite, s.Apply.File)
		}
		for i, object := range s.Apply.Objects {
			if message := objectMistake(object); object != nil && message != "" {
				at.field("objects").item(i).errorf("the object %s", message)
			}
		}
		if both := at.oneOf("file", "objects"); len(both) > 1 {
			both[1].errorf("apply has both file and objects; it takes one")
		}
	}
	if at := whole.field("delete"); s.Delete != nil && !at.failed() {
		at.oneObject(s.Delete.ResourceKey)
	}
	if at := whole.field("patch"); s.Patch != nil && !at.failed() {
		at.oneObject(s.Patch.ResourceKey)
		if message := patchMistake(s.Patch.Type, s.Patch.Patch); message != "" {
			at.field("patch").errorf("%s", strings.ReplaceAll(message, "patchType", "type"))
		}
	}
	if at := whole.field("wait"); s.Wait != nil && !at.failed() {
		at.oneObject(s.Wait.ResourceKey)
		at.field("condition").cel(s.Wait.Condition, cel.Object)
		kinds := []string{"condition", "phase", "absent"}
		if !s.Wait.Absent {
			kinds = kinds[:2]
		}
		at.exactlyOne(kinds, "wait takes one of condition, phase and absent",
			"wait has none of condition, phase and absent")
	}
	if at := whole.field("exec"); s.Exec != nil && !at.failed() && !at.field("command").given() {
		at.errorf("exec has no command")
	}
}

// exactlyOne reports kinds unless exactly one of them is given.
func (p *place) exactlyOne(fields []string, several, none string) {
	given := p.oneOf(fields...)
	if len(given) == 0 {
		p.errorf("%s", none)
		return
	}
	for _, f := range given[1:] {
		f.errorf("%s", several)
	}
}

// oneObject checks the resourceKey of a step.
func (p *place) oneObject(k ResourceKey) {
	if at := p.field("resourceKey"); !at.given() {
		p.errorf("%s has no resourceKey", p.step)
	} else if k.HasWildcard() {
		at.errorf("%s takes one object; %q may match several", p.step, k)
	}
}

func (i *Invariant) check(at *place) {
	if !at.field("name").given() {
		at.errorf("the invariant has no name")
	}
	at.field("never").cel(i.Never, cel.History)
	at.field("always").cel(i.Always, cel.History)
	at.field("eventually").cel(i.Eventually, cel.Objects)
	kinds := []string{"never", "always", "eventually"}
	at.exactlyOne(kinds, "an invariant takes one of never, always and eventually",
		"the invariant has none of never, always and eventually")
	switch eventually, on, within := at.field("eventually"), at.field("on"), at.field("within"); {
	case eventually.given() && on.given():
		on.errorf("eventually is evaluated over all objects; it takes no on")
	case !eventually.given() && within.given() && len(at.oneOf(kinds...)) > 0:
		within.errorf("within is for eventually")
	}
}

// WithVariant returns a copy of the suite with the variant merged in; an empty name returns the suite as it is. The
// copy shares what the variant does not change with the original.
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
			return nil, fmt.Errorf("variant %q: unknown controller %q (%s)", name, controller,
				suiteHas(s.ControllerNames()))
		}
		c, change := &merged.Controllers[i], v.Controllers[controller]
		c.Args = append(c.Args, change.Args...)
		for k, value := range change.Env {
			set(&c.Env, k, value)
			delete(c.EnvFrom, k)
		}
		for k, source := range change.EnvFrom {
			set(&c.EnvFrom, k, source)
			delete(c.Env, k)
		}
		if change.WatchList != nil {
			c.WatchList = change.WatchList
		}
		if change.Replicas != 0 {
			c.Replicas = change.Replicas
		}
	}
	for gate, on := range v.Cluster.FeatureGates {
		set(&merged.Cluster.FeatureGates, gate, on)
	}
	if v.Disruptions != nil {
		merged.Disruptions = *v.Disruptions
	}
	return &merged, nil
}

func set[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = value
}
