// Package scaffold writes a first suite and a first plan for a controller's repository, filled in from what it finds
// there. The result is a guess; the files say so and have comments for the user who edits them.
package scaffold

import (
	_ "embed"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/trommel-dev/trommel/plan"
)

// PlanFile is the path of the first plan, relative to the repository.
const PlanFile = "trommel-plans/restart.yaml"

// Repository is what Inspect found out about a controller. Paths are relative to the repository, with slashes.
type Repository struct {
	Program                     // the controller's; without a Deployment, one is generated
	Module      string          // module path
	Package     string          // the main package that looks most like the manager
	Tags        []string        // with which a Makefile or a Dockerfile builds it
	OtherMains  []string        // further main packages
	Manifests   []plan.Manifest // what to apply
	Beside      []string        // files beside the manifests that nothing in them needs
	Charts      []string        // which may install it instead of the manifests
	Args        []string        // to add to its container's, which serve all definitions
	ArgsOf      string          // file of the same Deployment that has them
	Also        []Program       // the same program in further Deployments, and others that serve webhooks
	ImageFiles  []ImageFile     // what its image has of the repository
	Definitions []string        // kinds that the CustomResourceDefinitions define
	Sample      Sample          // an object of such a kind
	More        []Sample        // objects of further kinds
	Notes       []string        // what the user must check

	owns  map[string]int    // how many types the controller of a kind owns
	stage func(what string) // is called with what is being done
}

// Inspect searches the repository in dir. It calls stage with what it does next; nil: it calls nothing.
func Inspect(dir string, stage func(what string)) (*Repository, error) {
	module, err := modulePath(dir)
	if err != nil {
		if below := modulesBelow(dir); len(below) > 0 {
			return nil, fmt.Errorf("%w: `trommel init %s`%s", err, filepath.Join(dir, below[0]), others(below[1:]))
		}
		return nil, err
	}
	if stage == nil {
		stage = func(string) {}
	}
	r := &Repository{
		Program: Program{Name: controllerName(module)}, Module: module, owns: map[string]int{}, stage: stage,
	}
	stage("looking for main packages")
	mains, elsewhere, err := findMains(dir, module, r.Name, r.owns)
	if err != nil {
		return nil, err
	}
	if len(elsewhere) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("a likelier program than %s is in another module: %s; if it is the "+
			"controller, write its directory as the dir of build, and package: .",
			mains[0].pkg, strings.Join(elsewhere[:min(len(elsewhere), mostOthers)], ", ")))
	}
	stage("reading YAML files")
	files, err := readFiles(dir)
	if err != nil {
		return nil, err
	}
	s := r.choose(dir, mains, files)
	if r.ImageFiles, err = findImageFiles(dir, s.match.program); err != nil {
		return nil, err
	}
	r.addDefinitions(s, files)
	r.compareFiles(s, files)
	stage("choosing a sample")
	r.findSample(s, files)
	return r, nil
}

// others names further directories with Go modules.
func others(below []string) string {
	if len(below) == 0 {
		return ""
	}
	return "; other modules with a controller: " + strings.Join(below[:min(len(below), mostOthers)], ", ")
}

// controllerName makes a valid name from the last element of the module path that is not a version.
func controllerName(module string) string {
	name := path.Base(module)
	if len(name) > 1 && name[0] == 'v' && strings.Trim(name[1:], "0123456789") == "" {
		name = path.Base(path.Dir(module))
	}
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	if name = strings.Trim(name, "-"); name == "" {
		return "controller"
	}
	return name
}

//go:embed suite.tmpl
var suiteTemplate string

//go:embed plan.tmpl
var planTemplate string

var templates = template.Must(template.Must(template.New("suite").Parse(suiteTemplate)).New("plan").Parse(planTemplate))

// Files returns the texts of the suite and of the first plan, by path relative to the repository.
func (r *Repository) Files() (map[string]string, error) {
	files := map[string]string{}
	for name, file := range map[string]string{"suite": plan.SuiteFile, "plan": PlanFile} {
		var text strings.Builder
		if err := templates.ExecuteTemplate(&text, name, r); err != nil {
			return nil, err
		}
		files[file] = text.String()
	}
	return files, nil
}
