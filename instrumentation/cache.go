package instrumentation

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"

	"github.com/trommel-dev/trommel/internal/buildcache"
)

//go:embed hook/*.go wire/*.go
var hookSource embed.FS

const (
	hookModule  = "trommel.dev/hook"
	hookVersion = "v0.0.0"
	ownPath     = "github.com/trommel-dev/trommel/instrumentation/"
)

// hookConfig says which hook to write.
type hookConfig struct {
	importPath  string   // of its packages
	byGoroutine bool     // distinguish reconciles by goroutine; this needs a patched standard library
	env         []string // of the build, added to that of this process
	downloading func(module string)
}

// hookDir writes the module that patched packages import: the sources of hook, wire and yamux under their own path.
func hookDir(ctx context.Context, c *buildcache.Cache, config hookConfig) (string, error) {
	importPath := config.importPath
	sum, err := buildcache.DigestFS(hookSource)
	if err != nil {
		return "", err
	}
	goMod := "module " + importPath + "\n\ngo 1.16\n"
	dependency := yamux()
	yamuxKey, err := dependency.key()
	if err != nil {
		return "", err
	}
	key := []string{sum, yamuxKey, goMod}
	var goroutine []byte
	if config.byGoroutine {
		if goroutine, err = templates.ReadFile("points/hook_goroutine.go.tmpl"); err != nil {
			return "", err
		}
		key = append(key, string(goroutine))
	}
	return c.Make("hook/"+buildcache.Digest(key...), func(dir string) error {
		from, err := dependency.source(ctx, config.env, config.downloading)
		if err != nil {
			return err
		}
		files, err := dependency.files(from)
		if err != nil {
			return err
		}
		add := func(name string, data []byte) error {
			to := filepath.Join(dir, filepath.FromSlash(name))
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			return os.WriteFile(to, data, 0o644)
		}
		imports := strings.NewReplacer(`"`+ownPath+`wire"`, `"`+importPath+`/wire"`, `"`+yamuxModule+`"`,
			`"`+importPath+`/yamux"`)
		err = fs.WalkDir(hookSource, ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			data, err := hookSource.ReadFile(path)
			if err != nil {
				return err
			}
			return add(strings.TrimPrefix(path, "hook/"), []byte(imports.Replace(string(data))))
		})
		if err != nil {
			return err
		}
		for name, data := range files {
			if err := add("yamux/"+name, data); err != nil {
				return err
			}
		}
		if config.byGoroutine {
			if err := add("goroutine/goroutine.go", importHook(goroutine, importPath)); err != nil {
				return err
			}
		}
		return add("go.mod", []byte(goMod))
	})
}

const foundFile = "trommel-points.json"

// moduleCopy describes a module to copy and patch.
type moduleCopy struct {
	path, version string
	pointsOf      string // the version whose points it has; empty: version
	dir           string
	local         bool // a directory: its copy is named after its content, which may change
	calls         []AnnotatedCall
	hook          string // import path of the hook
	partial       bool   // packages that are not imported are missing, as in a vendor directory
	byGoroutine   bool   // the controller's reconciles have no context: their goroutines distinguish them
}

func (m *moduleCopy) like() string {
	if m.pointsOf != "" {
		return m.pointsOf
	}
	return m.version
}

// patchedModule returns a patched copy of the module in dir.
func patchedModule(c *buildcache.Cache, path, version, dir string, local bool,
	calls []AnnotatedCall) (string, []PatchedPoint, error) {
	return patched(c, moduleCopy{path: path, version: version, dir: dir, local: local, calls: calls, hook: hookModule})
}

func patched(c *buildcache.Cache, m moduleCopy) (string, []PatchedPoint, error) {
	table, err := insertedInto(m.path)
	if err != nil {
		return "", nil, err
	}
	key := []string{table, fmt.Sprintf("%#v", m.calls), m.dir, m.path, m.version}
	if m.hook != hookModule {
		key = append(key, m.hook)
	}
	if m.byGoroutine {
		key = append(key, fmt.Sprintf("%#v", goroutinePoints))
	}
	if m.local {
		state, err := buildcache.TreeState(m.dir)
		if err != nil {
			return "", nil, err
		}
		key = append(key, state)
	}
	escaped, err := module.EscapePath(m.path)
	if err != nil {
		return "", nil, err
	}
	copied, err := c.Make("modules/"+escaped+"@"+m.version+"-"+buildcache.Digest(key...), func(to string) error {
		if err := copyModule(m.dir, to); err != nil {
			return fmt.Errorf("copy %s: %w", m.path, err)
		}
		if err := completeModule(m.path, to); err != nil {
			return err
		}
		found, err := patchModule(m, to)
		if err != nil {
			return err
		}
		data, err := json.Marshal(found)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, foundFile), data, 0o644)
	})
	if err != nil {
		return "", nil, err
	}
	var found []PatchedPoint
	data, err := os.ReadFile(filepath.Join(copied, foundFile))
	if err == nil {
		err = json.Unmarshal(data, &found)
	}
	return copied, found, err
}

// insertedInto returns a name for everything that is inserted into modules: their points and helpers.
func insertedInto(modules ...string) (string, error) {
	var parts []string
	for _, m := range modules {
		for _, p := range points {
			if p.module == m {
				parts = append(parts, fmt.Sprintf("%#v", p))
			}
		}
		for _, h := range helpers {
			if h.module == m {
				text, err := templates.ReadFile("points/" + h.template)
				if err != nil {
					return "", err
				}
				parts = append(parts, fmt.Sprintf("%#v", h), string(text))
			}
		}
	}
	return buildcache.Digest(parts...), nil
}

// copyModule copies a module without its tests.
func copyModule(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			if d.Name() == ".git" {
				return filepath.SkipDir
			}
			return os.MkdirAll(target, 0o755)
		case !d.Type().IsRegular() || strings.HasSuffix(d.Name(), "_test.go"):
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
}

// completeModule adds a go.mod to a module that is older than go.mod files, because the go command accepts no directory
// without one.
func completeModule(path, dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "go.mod"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "module %s\n", path)
	return errors.Join(err, f.Close())
}
