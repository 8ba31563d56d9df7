package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// SuiteBuild is another version of the controllers under test: where its source is, and what is installed with it. At
// most one of Ref, Dir and Module is set; none is the suite's own source.
//
// What the suite names by a path below its repository, or below its Go module with Module or a Dir that is no
// repository, is looked for at the same path of that source.
type SuiteBuild struct {
	Ref    string `yaml:"ref"`    // a commit, tag or branch of the suite's git repository
	Dir    string `yaml:"dir"`    // another checkout, or another module's directory; relative to the suite
	Module string `yaml:"module"` // PATH@VERSION of a Go module, which go downloads
	// Manifests are applied instead of the suite's; nil: the same paths. What the source does not have is beside the
	// suite.
	Manifests []Manifest `yaml:"manifests" item:"an item of manifests"`
	// Controllers say what is different in a controller of the suite, by its name.
	Controllers map[string]BuildController `yaml:"controllers" item:"a build's controller"`
}

// BuildController says how a controller of a build differs from the suite's. Empty fields are as there.
type BuildController struct {
	Package    string      `yaml:"package"` // the main package
	Args       []string    `yaml:"args"`    // instead of the suite's
	Image      string      `yaml:"image"`
	Deployment ResourceKey `yaml:"deployment" as:"deployment"`
}

// BuildNames lists the suite's builds, sorted.
func (s *Suite) BuildNames() []string { return sortedKeys(s.Builds) }

// checkBuilds reports mistakes in the suite's builds that can be found without their sources.
func (s *Suite) checkBuilds(at *yamlfile.Place) {
	for _, name := range s.BuildNames() {
		b, at := s.Builds[name], at.Field(name)
		if message := nameMistake(name); message != "" {
			at.Name().Errorf("build %q %s", name, message)
		}
		if given := at.OneOf("ref", "dir", "module"); len(given) > 1 {
			given[1].Errorf("build %q has both %s and %s; it takes one", name, given[0].Step(), given[1].Step())
		}
		if strings.HasPrefix(b.Ref, "-") {
			at.Field("ref").Errorf("ref %q: a commit, tag or branch does not begin with -", b.Ref)
		}
		if path, version, ok := strings.Cut(b.Module, "@"); b.Module != "" && (!ok || path == "" || version == "") {
			at.Field("module").Errorf("module %q: write PATH@VERSION, such as example.com/operator@v1.2.3", b.Module)
		}
		checkFile(at.Field("dir"), b.Dir)
		for i := range b.Manifests {
			if at := at.Field("manifests").Item(i); !at.Failed() {
				b.Manifests[i].checkForm(at)
			}
		}
		for _, controller := range sortedKeys(b.Controllers) {
			at, known := at.Field("controllers").Field(controller), s.ControllerNames()
			i := slices.Index(known, controller)
			if i < 0 {
				at.Name().Errorf("unknown controller %q (%s)", controller, suiteHas(known))
				continue
			}
			build := s.Controllers[i].Build
			if at.Field("package").Given() && (build == nil || build.ControlPlane != "") {
				at.Field("package").Errorf("controller %q is not built from a package", controller)
			}
		}
	}
}

// WithBuild returns a copy of the suite that runs the controllers of one of its builds; an empty name returns the suite
// as it is. Locate returns where in the build's source a path of the suite is; own: the build itself names the path.
// The error is Errors: what locate says, at the place of what names the path.
func (s *Suite) WithBuild(name string, locate func(path string, own bool) (string, error)) (*Suite, error) {
	if name == "" {
		return s, nil
	}
	src := s.errorsOf()
	at := src.Whole().Field("builds").Field(name)
	b, ok := s.Builds[name]
	if !ok {
		at.Errorf("unknown build %q (%s)", name, suiteHas(s.BuildNames()))
		return nil, mistakes(src)
	}
	find := func(at *yamlfile.Place, path *string, own bool) {
		if *path == "" {
			return
		}
		found, err := locate(*path, own)
		if err != nil {
			at.Errorf("build %q: %v", name, err)
			return
		}
		*path = found
	}
	merged := *s
	merged.Controllers = slices.Clone(s.Controllers)
	for i := range merged.Controllers {
		c := &merged.Controllers[i]
		change, changed := b.Controllers[c.Name]
		if c.Build != nil && c.Build.ControlPlane == "" {
			build := *c.Build
			if change.Package != "" {
				build.Package = change.Package
			}
			find(at, &build.Dir, false)
			c.Build = &build
		}
		c.Files = maps.Clone(c.Files)
		for _, in := range sortedKeys(c.Files) {
			file := c.Files[in]
			find(at, &file, true) // a version without it does not read it, or has moved it
			c.Files[in] = file
		}
		if !changed {
			continue
		}
		if change.Args != nil {
			c.Args = change.Args
		}
		if change.Image != "" {
			c.Image = change.Image
		}
		if !change.Deployment.IsZero() {
			c.Deployment = change.Deployment
		}
	}
	own := b.Manifests != nil
	list, in := s.Manifests, at
	if own {
		list = b.Manifests
	}
	merged.Manifests = slices.Clone(list)
	for i := range merged.Manifests {
		m := &merged.Manifests[i]
		if own {
			in = at.Field("manifests").Item(i)
		}
		find(in, &m.Path, own)
		find(in, &m.Helm, own)
		m.ValuesFiles = slices.Clone(m.ValuesFiles)
		for k := range m.ValuesFiles {
			find(in, &m.ValuesFiles[k], own)
		}
	}
	if err := mistakes(src); err != nil {
		return nil, err
	}
	return &merged, nil
}

// BuildError returns an error as Errors, at a field of one of the suite's builds; an empty field is the build.
func (s *Suite) BuildError(name, field string, err error) error {
	src := s.errorsOf()
	at := src.Whole().Field("builds").Field(name)
	if field != "" {
		at = at.Field(field)
	}
	at.Errorf("build %q: %v", name, err)
	return mistakes(src)
}

// errorsOf is the suite's file without mistakes.
func (s *Suite) errorsOf() *yamlfile.File {
	if s.source == nil {
		return &yamlfile.File{Name: s.File, Format: layout}
	}
	own := *s.source
	own.Mistakes = nil
	return &own
}
