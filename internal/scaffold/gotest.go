package scaffold

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// GoTestDir is the directory of the Go tests that run the plans, relative to the repository. It is a module of its own.
const GoTestDir = "trommel-tests"

//go:embed gotest.tmpl
var goTestTemplate string

var goTest = template.Must(template.New("go test").Parse(goTestTemplate))

// GoTest returns the files of a module with a Go test that runs the plans of the repository in dir, by path relative to
// it. Version is Trommel's; if it was not released, the module does not require it, and the user must choose one. The
// Go version is as go.mod has it.
func GoTest(dir, version, goVersion string) (map[string]string, error) {
	path, err := modulePath(dir)
	if err != nil {
		return nil, err
	}
	var test strings.Builder
	if err := goTest.Execute(&test, struct{ Module string }{path}); err != nil {
		return nil, err
	}
	mod := fmt.Sprintf("module %s/%s\n\ngo %s\n", path, GoTestDir, goVersion)
	if Released(version) {
		mod += fmt.Sprintf("\nrequire github.com/trommel-dev/trommel %s\n", version)
	}
	return map[string]string{
		GoTestDir + "/go.mod":        mod,
		GoTestDir + "/plans_test.go": test.String(),
		GoTestDir + "/.gitignore":    "# Run records can contain Secrets.\n.trommel/\n",
	}, nil
}

// Released reports whether a version of Trommel is one that go.mod files can require: neither unknown nor that of some
// commit.
func Released(version string) bool {
	return semver.IsValid(version) && semver.Build(version) == "" && !module.IsPseudoVersion(version)
}

// modulePath returns the path of the Go module in dir.
// noModuleError says that a directory is not the root of a Go module.
type noModuleError struct{ dir string }

func (e *noModuleError) Error() string {
	return e.dir + " has no go.mod: run it in the root of the controller's Go module"
}

func modulePath(dir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", &noModuleError{dir}
	}
	if err != nil {
		return "", err
	}
	path := modfile.ModulePath(data)
	if path == "" {
		return "", fmt.Errorf("%s has no module directive", filepath.Join(dir, "go.mod"))
	}
	return path, nil
}
