package instrumentation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"

	"github.com/trommel-dev/trommel/internal/buildcache"
)

// dependency is the only module that the hook needs besides the standard library: yamux. The hook gets a copy of it
// under a separate import path, so that the controller's own version of it, if any, does not change.
type dependency struct {
	path, version string
	sum           string // as in go.sum; empty: not known, only for dir
	dir           string // directory in a replace line
}

const yamuxModule = "github.com/hashicorp/yamux"

// pinnedYamux is the version in go.mod and go.sum. It is used if the running binary has no such build information: a
// test binary, or one built from a vendor directory.
var pinnedYamux = dependency{path: yamuxModule, version: "v0.1.2",
	sum: "h1:XtB8kyFOyHXYVFnwT5C3+Bdo8gArse7j2AQ0DA0Uey8="}

// yamux is the version that the running binary was built with, so that the monitor and the hook use the same one.
func yamux() dependency {
	info, _ := debug.ReadBuildInfo()
	return yamuxOf(info)
}

// yamuxOf returns the version in the build information, which is nil if the binary has none.
func yamuxOf(info *debug.BuildInfo) dependency {
	if info == nil {
		return pinnedYamux
	}
	for _, m := range info.Deps {
		if m.Path != yamuxModule {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		switch {
		case m.Version == "" && filepath.IsAbs(m.Path):
			return dependency{path: yamuxModule, dir: m.Path}
		case m.Version != "" && m.Sum != "":
			return dependency{path: m.Path, version: m.Version, sum: m.Sum}
		}
	}
	return pinnedYamux
}

func (d dependency) String() string { return d.path + "@" + d.version }

// key returns a name for the content.
func (d dependency) key() (string, error) {
	if d.dir != "" {
		return buildcache.TreeState(d.dir)
	}
	return d.String() + " " + d.sum, nil
}

// source returns a directory with the module's source, after checking its checksum. It looks in the module cache of
// this process and in that of the build, whose environment is that of this process with env added; otherwise it
// downloads the module into the latter.
func (d dependency) source(ctx context.Context, env []string, downloading func(module string)) (string, error) {
	if d.dir != "" {
		return d.dir, nil
	}
	escaped, err := module.EscapePath(d.path)
	if err != nil {
		return "", err
	}
	// In a separate module, no go.mod, vendor directory or workspace around it has an effect.
	work, err := os.MkdirTemp("", "trommel-download-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "go.mod"), []byte("module trommel.dev/download\n\ngo 1.16\n"),
		0o644); err != nil {
		return "", err
	}
	var s *settings
	for _, env := range [][]string{nil, env} {
		if s, err = (&goCommand{dir: work, env: env}).settings(ctx); err != nil {
			return "", err
		}
		dir := filepath.Join(s.GOMODCACHE, filepath.FromSlash(escaped)+"@"+d.version)
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		if err := d.verify(dir); err != nil {
			return "", err
		}
		return dir, nil
	}
	// Of the flags, only the one for the module cache applies to this command.
	flags := ""
	if _, ok := s.flag("modcacherw"); ok {
		flags = "-modcacherw"
	}
	// The checksum is compared here with that of the running binary: the checksum database is not used.
	g := &goCommand{
		dir: work, downloading: downloading,
		env: append(env[:len(env):len(env)], "GO111MODULE=on", "GOSUMDB=off", "GOFLAGS="+flags),
	}
	return d.download(ctx, g, s.GOMODCACHE)
}

func (d dependency) download(ctx context.Context, g *goCommand, modules string) (string, error) {
	out, err := g.output(ctx, "mod", "download", "-json", d.String())
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	var got struct{ Dir, Error string }
	if json.Unmarshal(out, &got) == nil && got.Error != "" { // more detailed than the command's exit code
		err = errors.New(got.Error)
	}
	if err != nil {
		return "", fmt.Errorf("the hook is built with %s, as this trommel is, but it is not in the module cache "+
			"(%s) and cannot be downloaded: %w; "+
			"run `go mod download %[1]s` with a network, or set GOPROXY or GOMODCACHE to a place that has it",
			d, modules, err)
	}
	return got.Dir, d.verify(got.Dir)
}

// verify compares the content of a directory with the checksum.
func (d dependency) verify(dir string) error {
	sum, err := dirhash.HashDir(dir, d.String(), dirhash.Hash1)
	if err != nil {
		return fmt.Errorf("read %s in the module cache: %w", d, err)
	}
	if sum != d.sum {
		return fmt.Errorf("%s is not the %s that this trommel was built with: its checksum is %s, not %s; "+
			"remove it (`go clean -modcache` removes the whole module cache) and check GOPROXY", dir, d,
			sum,
			d.sum)
	}
	return nil
}

// files reads the package's source files and its licence.
func (d dependency) files(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, e := range entries {
		name := e.Name()
		if !e.Type().IsRegular() || name != "LICENSE" && (filepath.Ext(name) != ".go" ||
			strings.HasSuffix(name, "_test.go")) {
			continue
		}
		if files[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s in %s: %w", d.path, dir, fs.ErrNotExist)
	}
	return files, nil
}
