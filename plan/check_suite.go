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
	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

var kubernetesSemver = regexp.MustCompile(`^v?1\.[0-9]+(\.[0-9]+)?$`)

// check reports the mistakes in a complete suite.
func (s *Suite) check(at *yamlfile.Place) {
	checkHeader(at, s.APIVersion, s.Kind, "Suite")
	timeouts := reflect.ValueOf(s.Timeouts)
	for _, f := range layout.ShapeOf(timeouts.Type()).Fields {
		if timeouts.FieldByIndex(f.Index).IsZero() {
			at.Field("timeouts").Field(f.Name).Errorf("%s is 0; a timeout must be greater than 0", f.Name)
		}
	}
	s.checkClusters(at)
	s.capabilities(at)
	for i := range s.Controllers {
		if at := at.Field("controllers").Item(i); !at.Failed() {
			s.Controllers[i].check(at, s, s.ControllerNames()[:i])
		}
	}
	for i := range s.Manifests {
		if at := at.Field("manifests").Item(i); !at.Failed() {
			s.Manifests[i].check(at)
		}
	}
	s.checkBuilds(at.Field("builds"))
	for name, w := range s.Workloads {
		w.check(at.Field("workloads").Field(name), s)
	}
	checkInvariants(s.Invariants, at.Field("invariants"))
	for i, m := range s.Masks {
		if at := at.Field("masks").Item(i); !at.Failed() && m.Path == "" {
			at.Field("path").Missing("a mask has no path such as status.observedGeneration")
		}
	}
	for i, skip := range s.Generate.Skip {
		at := at.Field("generate").Field("skip").Item(i)
		if skip.Pattern+skip.Type+skip.Name+skip.Field == "" {
			at.Errorf("an item of skip needs a pattern, type, name or field: this one would leave out all plans")
		}
		if _, err := path.Match(skip.Name, ""); err != nil {
			at.Field("name").Errorf("name %q is not a pattern: %v", skip.Name, err)
		}
	}
	for name, v := range s.Variants {
		at := at.Field("variants").Field(name)
		if message := nameMistake(name); message != "" {
			at.Name().Errorf("variant %q %s", name, message)
		}
		for controller := range v.Controllers {
			if names := s.ControllerNames(); !slices.Contains(names, controller) {
				name := at.Field("controllers").Field(controller).Name()
				name.Errorf("unknown controller %q (%s)", controller, suiteHas(names))
			}
		}
	}
}

// checkFile reports a file that the suite names but that does not exist.
func checkFile(at *yamlfile.Place, path string) { checkFileBeside(at, at.File().Name, path) }

// checkFileBeside reports a file that does not exist beside the suite of that name.
func checkFileBeside(at *yamlfile.Place, suite, path string) {
	if path == "" || !at.Given() {
		return
	}
	if _, err := os.Stat(Beside(suite, path)); err != nil {
		at.Errorf("%s: no such file beside the suite", path)
	}
}

// kindName is what the name of a kind looks like.
var kindName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

func (c *ClusterSpec) check(at *yamlfile.Place) {
	if v := c.KubernetesVersion; v != "" && !kubernetesSemver.MatchString(v) {
		at.Field("kubernetesVersion").Errorf("kubernetesVersion %q: write it like v1.36.3 or 1.36", v)
	}
	for i, kind := range c.JobKinds {
		if !kindName.MatchString(kind) {
			at.Field("jobKinds").Item(i).Errorf("jobKinds %q: a kind is written like TaskRun", kind)
		}
	}
	for i := range c.Answers {
		a, at := &c.Answers[i], at.Field("answers").Item(i)
		patterns := map[string]string{"namespace": a.Namespace, "pod": a.Pod, "container": a.Container}
		for field, pattern := range patterns {
			if _, err := path.Match(pattern, ""); err != nil {
				at.Field(field).Errorf("%s %q is not a pattern: %v", field, pattern, err)
			}
		}
		if _, err := regexp.Compile(a.Command); err != nil {
			at.Field("command").Errorf("command is a regular expression: %v", err)
		}
		if a.Service != "" {
			namespace, name, _ := strings.Cut(a.Service, "/")
			if namespace == "" || name == "" || strings.Contains(name, "/") {
				at.Field("service").Errorf("service %q: write namespace/name", a.Service)
			}
			for _, f := range at.OneOf("container", "command", "stdout", "stderr", "exitCode", "log") {
				f.Errorf("an answer with a service is for connections to the pod: %s does not go with it", f.Step())
			}
			continue
		}
		if a.Log != nil {
			for _, f := range at.OneOf("command", "stdout", "stderr", "exitCode") {
				f.Errorf("an answer has either log or the fields for commands: %s does not go with log", f.Step())
			}
		}
	}
}

// check checks a controller; before holds the names of the controllers before it.
func (c *Controller) check(at *yamlfile.Place, s *Suite, before []string) {
	name := at.Field("name")
	switch {
	case c.Name == "":
		name.Missing("the controller has no name")
	case !validName(c.Name, true):
		name.Errorf("controller name %q: it becomes a Kubernetes name; use lower case letters, digits, - and .", c.Name)
	case IsAPIServer(c.Name):
		name.Errorf("controller name %q is the name of an API server", c.Name)
	case slices.Contains(before, c.Name):
		name.Errorf("duplicate controller %q", c.Name)
	}
	build, binary, image := at.Field("build"), at.Field("binary"), at.Field("image")
	switch {
	case build.Given() && binary.Given():
		binary.Errorf("controller %q has both build and binary; it takes one", c.Name)
	case build.Given() || binary.Given():
	case image.Given():
		image.Errorf("controller %q has only an image, and controllers run as local processes, without a container "+
			"engine: give its source with build:, or the executable that is in the image with binary:", c.Name)
	default:
		at.Errorf("controller %q has neither build nor binary", c.Name)
	}
	executables := at.Field("executables")
	for image, file := range c.Executables {
		if file == "" {
			executables.Field(image).Errorf("the image %s has no executable: give its path", image)
			continue
		}
		checkFile(executables.Field(image), file)
	}
	c.checkFiles(at.Field("files"))
	if at.Field("deployment").Given() {
		for _, f := range at.OneOf("namespace", "clusterRole") {
			f.Errorf("%s is for a generated Deployment; controller %q has its own", f.Step(), c.Name)
		}
	} else if executables.Given() {
		executables.Errorf("executables are for other containers of the manifests' Deployment; name that with " +
			"deployment: namespace/name")
	} else if image.Given() && (build.Given() || binary.Given()) {
		image.Errorf("image names the image in the manifests' Deployment that the binary replaces; name that with " +
			"deployment: namespace/name")
	}
	names := s.APIServerNames()
	if s.ClusterNames() != nil {
		names = ServersOf(names, c.Cluster)
	}
	if len(names) > 0 && !slices.Contains(names, c.APIServer) { // an unknown cluster has none
		at.Field("apiServer").Errorf("unknown API server %q (%s)", c.APIServer, suiteHas(names))
	}
	if c.Build != nil {
		checkFile(build.Field("dir"), c.Build.Dir)
		for _, path := range slices.Sorted(maps.Keys(c.Build.Replace)) {
			other := c.Build.Replace[path]
			if to, version, _ := strings.Cut(other, "@"); path == "" || to == "" || version == "" {
				build.Field("replace").Field(path).Errorf("replace %s: %q: write PATH@VERSION", path, other)
			}
		}
		if build.Field("controlPlane").Given() {
			for _, f := range build.OneOf("dir", "package", "tags", "ldflags", "env") {
				f.Errorf("build has controlPlane, which Trommel builds from its own source; it takes no %s", f.Step())
			}
		}
	}
	calls := at.Field("annotatedCalls")
	if calls.Given() && !build.Given() && binary.Given() {
		calls.Errorf("annotatedCalls are compiled in, and controller %q is given by binary:; "+
			"give its source with build:",
			c.Name)
	}
	for i, call := range c.AnnotatedCalls {
		at := calls.Item(i)
		if at.Failed() {
			continue
		}
		for _, field := range []string{"package", "function"} {
			if !at.Field(field).Given() {
				at.Errorf("the annotated call has no %s", field)
			}
		}
		same := func(other AnnotatedCall) bool { return other.Name == call.Name }
		if slices.ContainsFunc(c.AnnotatedCalls[:i], same) {
			at.Errorf("duplicate annotated call %q", call.Name)
		}
	}
}

// systemDirs are where no image has files of its own: a process has them from its system.
var systemDirs = []string{"/dev", "/proc", "/sys"}

// checkFiles checks what a controller's image has.
func (c *Controller) checkFiles(files *yamlfile.Place) {
	given := map[string]string{} // as the suite writes them, by the clean path
	for _, in := range sortedKeys(c.Files) {
		at, clean := files.Field(in), path.Clean(in)
		within := func(dir string) bool { return clean == dir || strings.HasPrefix(clean, dir+"/") }
		switch same, twice := given[clean]; {
		case !path.IsAbs(in):
			at.Name().Errorf("files: %q is the path in the image, which begins with /", in)
		case clean == "/":
			at.Name().Errorf("files: / is all of the image; give the path of what the controller reads, such as /crds")
		case clean == "/tmp":
			at.Name().Errorf("files: a pod's /tmp is empty when it starts; give the path of what is in it")
		case slices.ContainsFunc(systemDirs, within):
			at.Name().Errorf("files: %s belongs to the system, not to the image", in)
		case twice:
			at.Name().Errorf("files: %s is the same path as %s", in, same)
		case c.Files[in] == "":
			at.Errorf("files: %s has nothing: give the path of a file or directory, relative to the suite", in)
		default:
			checkFile(at, c.Files[in])
		}
		given[clean] = in
	}
}

func (m *Manifest) check(at *yamlfile.Place) {
	checkFile(at.Field("path"), m.Path)
	checkFile(at.Field("helm"), m.Helm)
	for i, file := range m.ValuesFiles {
		checkFile(at.Field("valuesFiles").Item(i), file)
	}
	m.checkForm(at)
}

// checkForm is check without the files.
func (m *Manifest) checkForm(at *yamlfile.Place) {
	path, helm := at.Field("path"), at.Field("helm")
	switch {
	case path.Given() && helm.Given():
		helm.Errorf("an item of manifests has both path and helm; it takes one")
	case path.Given():
		for _, f := range at.OneOf("release", "values", "valuesFiles") {
			f.Errorf("%s is for a chart: helm: %s", f.Step(), m.Path)
		}
	case helm.Given():
		for _, f := range at.OneOf("skipRemote") {
			f.Errorf("skipRemote is for a kustomization; a chart loads nothing from the network")
		}
	default:
		at.Errorf("an item of manifests has neither path nor helm")
	}
	if m.Namespace != "" && !validNamespace(m.Namespace) {
		at.Field("namespace").Errorf("namespace %q: a namespace has lower case letters, digits and -", m.Namespace)
	}
	if m.Release != "" && (!validName(m.Release, true) || len(m.Release) > 53) {
		at.Field("release").Errorf("release %q: a release has up to 53 lower case letters, digits, - and .", m.Release)
	}
}

func (w *Workload) check(at *yamlfile.Place, s *Suite) {
	if both := at.OneOf("steps", "command"); len(both) > 1 {
		both[1].Errorf("the workload has both steps and a command; it takes one")
	}
	for i := range w.Steps {
		if at := at.Field("steps").Item(i); !at.Failed() {
			w.Steps[i].check(at, at.File().Name, s)
		}
	}
}

// check checks what a step does. Reading the step has reported a second thing already. The name of the suite, beside
// which files are, may be empty: then they are not looked for. Of may be nil.
func (s *Step) check(whole *yamlfile.Place, suite string, of *Suite) {
	if len(whole.OneOf(everyStepKind...)) == 0 {
		whole.Errorf("the step does nothing; it takes one of: %s", strings.Join(stepKinds, ", "))
	}
	if at := whole.Field("sleep"); s.Sleep == 0 && at.Given() && !at.Failed() {
		at.Errorf("sleep is 0")
	}
	if at := whole.Field("advanceTime"); s.AdvanceTime == 0 && at.Given() && !at.Failed() {
		at.Errorf("advanceTime is 0")
	}
	if of != nil {
		of.stepNeeds(s, whole)
	}
	if at := whole.Field("apply"); s.Apply != nil && !at.Failed() {
		if suite != "" {
			checkFileBeside(at.Field("file"), suite, s.Apply.File)
		}
		for i, object := range s.Apply.Objects {
			if message := objectMistake(object); object != nil && message != "" {
				at.Field("objects").Item(i).Errorf("the object %s", message)
			}
		}
		if both := at.OneOf("file", "objects"); len(both) > 1 {
			both[1].Errorf("apply has both file and objects; it takes one")
		}
	}
	if at := whole.Field("delete"); s.Delete != nil && !at.Failed() {
		checkOneObject(at, s.Delete.ResourceKey)
	}
	if at := whole.Field("patch"); s.Patch != nil && !at.Failed() {
		checkOneObject(at, s.Patch.ResourceKey)
		if message := patchMistake(s.Patch.PatchType, s.Patch.Patch); message != "" {
			at.Field("patch").Errorf("%s", message)
		}
	}
	if at := whole.Field("wait"); s.Wait != nil && !at.Failed() {
		checkOneObject(at, s.Wait.ResourceKey)
		checkCEL(at.Field("condition"), s.Wait.Condition, cel.Object)
		kinds := []string{"condition", "phase", "absent"}
		if !s.Wait.Absent {
			kinds = kinds[:2]
		}
		exactlyOne(at, kinds, "wait takes one of condition, phase and absent",
			"wait has none of condition, phase and absent")
	}
	if s.Upgrade != nil {
		checkBuildName(whole.Field("upgrade").Field("to"), of, s.Upgrade.To)
	}
	if at := whole.Field("exec"); s.Exec != nil && !at.Failed() && !at.Field("command").Given() {
		at.Errorf("exec has no command")
	}
}

// exactlyOne reports kinds unless exactly one of them is given.
func exactlyOne(at *yamlfile.Place, fields []string, several, none string) {
	given := at.OneOf(fields...)
	if len(given) == 0 {
		at.Errorf("%s", none)
		return
	}
	for _, f := range given[1:] {
		f.Errorf("%s", several)
	}
}

// checkOneObject checks the resourceKey of a step.
func checkOneObject(at *yamlfile.Place, k ResourceKey) {
	if key := at.Field("resourceKey"); !key.Given() {
		at.Errorf("%s has no resourceKey", at.Step())
	} else if k.HasWildcard() {
		key.Errorf("%s takes one object; %q may match several", at.Step(), k)
	}
}

func (i *Invariant) check(at *yamlfile.Place) {
	if !at.Field("name").Given() {
		at.Errorf("the invariant has no name")
	}
	checkCEL(at.Field("never"), i.Never, cel.History)
	checkCEL(at.Field("always"), i.Always, cel.History)
	checkCEL(at.Field("eventually"), i.Eventually, cel.Objects)
	kinds := []string{"never", "always", "eventually"}
	exactlyOne(at, kinds, "an invariant takes one of never, always and eventually",
		"the invariant has none of never, always and eventually")
	switch eventually, on, within := at.Field("eventually"), at.Field("on"), at.Field("within"); {
	case eventually.Given() && on.Given():
		on.Errorf("eventually is evaluated over all objects; it takes no on")
	case !eventually.Given() && within.Given() && len(at.OneOf(kinds...)) > 0:
		within.Errorf("within is for eventually")
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
		merged.Builds = withArgs(merged.Builds, controller, change.Args)
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
	merged.Clusters = maps.Clone(s.Clusters)
	for gate, on := range v.Cluster.FeatureGates {
		set(&merged.Cluster.FeatureGates, gate, on)
		for cluster, spec := range merged.Clusters {
			spec.FeatureGates = maps.Clone(spec.FeatureGates)
			set(&spec.FeatureGates, gate, on)
			merged.Clusters[cluster] = spec
		}
	}
	if v.Disruptions != nil {
		merged.Disruptions = *v.Disruptions
	}
	return &merged, nil
}

// withArgs adds arguments to a controller in the builds that have others than the suite.
func withArgs(builds map[string]SuiteBuild, controller string, args []string) map[string]SuiteBuild {
	all := maps.Clone(builds)
	for name, b := range all {
		if c, ok := b.Controllers[controller]; ok && c.Args != nil {
			c.Args = slices.Concat(c.Args, args)
			b.Controllers = maps.Clone(b.Controllers)
			b.Controllers[controller] = c
			all[name] = b
		}
	}
	return all
}

func set[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = value
}
