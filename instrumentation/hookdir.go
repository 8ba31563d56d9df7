package instrumentation

import (
	"context"
	"embed"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/trommel-dev/trommel/instrumentation/points"
	"github.com/trommel-dev/trommel/internal/buildcache"
)

//go:embed hook/*.go wire/*.go
var hookSource embed.FS

const (
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
		if goroutine, err = points.Template("hook_goroutine.go.tmpl"); err != nil {
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
			if err := add("goroutine/goroutine.go", points.ImportHook(goroutine, importPath)); err != nil {
				return err
			}
		}
		return add("go.mod", []byte(goMod))
	})
}
