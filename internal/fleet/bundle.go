package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/buildinfo"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/plan"
)

// Bundle is what all runs of a campaign need. It is sent as JSON; the files are blobs.
type Bundle struct {
	// WorkDir is the directory that the campaign was started in, and Suite the suite's file as it was named there. A
	// worker has the same paths below a directory of its own, so that messages name the same files.
	WorkDir string `json:"workDir"`
	Suite   string `json:"suite"`
	Variant string `json:"variant,omitempty"`
	// Time is how time passes in the runs, if not as the suite says.
	Time        plan.Time    `json:"time,omitempty"`
	Files       []File       `json:"files"`
	Controllers []Executable `json:"controllers"` // of the suite's controllers, in order
	// ControlPlane is the digest of the control plane's executable.
	ControlPlane string `json:"controlPlane"`
	// Builds are the suite's other builds.
	Builds []Build `json:"builds,omitempty"`
}

// Build is one of a suite's builds.
type Build struct {
	Name        string       `json:"name"`
	Controllers []Executable `json:"controllers"` // in the suite's order
	Paths       []Located    `json:"paths"`       // that the suite and the build name
}

// Located says where a path is in a build's source.
type Located struct {
	builds.Path
	At string `json:"at"` // absolute
}

// File is a file that the suite, a plan or a manifest names.
type File struct {
	Path       string `json:"path"` // absolute
	Digest     string `json:"digest"`
	Executable bool   `json:"executable,omitempty"`
}

// Executable is that of a controller.
type Executable struct {
	Digest   string         `json:"digest"`
	Manifest *wire.Manifest `json:"manifest,omitempty"`
	// Component is the control plane's component that it is; empty: it is none.
	Component string `json:"component,omitempty"`
}

// Source is what a bundle is made from.
type Source struct {
	Suite        *plan.Suite // with the variant
	Variant      string
	Time         plan.Time
	Plans        []*plan.Plan // that name files; generated ones need not be there
	Binaries     []builds.Binary
	ControlPlane string
	Builds       map[string]*builds.Build // all of the suite's others
}

// maxFiles and maxBytes of the files that a suite names are more than any suite needs: a directory that holds
// everything is named by mistake.
const (
	maxFiles = 20_000
	maxBytes = 1 << 30
)

// gathering collects the files of a bundle.
type gathering struct {
	blobs *blobs
	seen  map[string]bool // paths
	files []File
	bytes int64
}

// bundle gathers what the runs need, and lets workers fetch it.
func (s *Source) bundle(b *blobs) (*Bundle, error) {
	work, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	all := &Bundle{WorkDir: work, Suite: s.Suite.File, Variant: s.Variant, Time: s.Time}
	g := &gathering{blobs: b, seen: map[string]bool{}}
	if err := g.suite(s.Suite); err != nil {
		return nil, &run.UserError{Err: err}
	}
	for _, p := range s.Plans {
		for i := range p.Actions {
			if file := p.Actions[i].ManifestFile; file != "" {
				if err := g.named(p.File, file); err != nil {
					return nil, &run.UserError{Err: err}
				}
			}
		}
		for _, step := range p.Steps {
			if step.Apply != nil && step.Apply.File != "" {
				if err := g.named(s.Suite.File, step.Apply.File); err != nil {
					return nil, &run.UserError{Err: err}
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Builds)) {
		b, err := g.build(name, s.Builds[name])
		if err != nil {
			return nil, err
		}
		all.Builds = append(all.Builds, b)
	}
	all.Files = g.files
	if all.ControlPlane, err = g.executable(s.ControlPlane); err != nil {
		return nil, err
	}
	all.Controllers, err = g.controllers(s.Suite, s.Binaries)
	return all, err
}

// controllers lets workers fetch the executables of a suite's controllers.
func (g *gathering) controllers(suite *plan.Suite, binaries []builds.Binary) (all []Executable, err error) {
	for i, binary := range binaries {
		e := Executable{Manifest: binary.Manifest}
		if c := suite.Controllers[i]; c.Build != nil && c.Build.ControlPlane != "" {
			e.Component = c.Build.ControlPlane
		}
		if e.Digest, err = g.executable(binary.Path); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// build gathers one of the suite's builds.
func (g *gathering) build(name string, b *builds.Build) (all Build, err error) {
	all.Name = name
	for path, at := range b.Paths {
		all.Paths = append(all.Paths, Located{path, at})
	}
	for _, file := range filesOfBuild(b.Suite) {
		if err := g.tree(plan.Beside(b.Suite.File, file)); err != nil {
			return all, &run.UserError{Err: fmt.Errorf("build %q: %w", name, err)}
		}
	}
	if err := g.modules(b.Suite); err != nil {
		return all, err
	}
	all.Controllers, err = g.controllers(b.Suite, b.Binaries)
	return all, err
}

// suite gathers the suite with the files that it names. What its commands read is in its directory, and is taken if a
// command names it.
func (g *gathering) suite(s *plan.Suite) error {
	if err := g.tree(s.File); err != nil {
		return err
	}
	names := filesOfBuild(s)
	for i := range s.Controllers {
		names = slices.AppendSeq(names, maps.Values(s.Controllers[i].Executables))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Workloads)) {
		w := s.Workloads[name]
		commands := [][]string{w.Command}
		for _, step := range w.Steps {
			if step.Apply != nil {
				names = append(names, step.Apply.File)
			}
			if step.Exec != nil {
				commands = append(commands, step.Exec.Command)
			}
		}
		for _, words := range commands {
			for _, word := range words {
				if info, err := os.Stat(plan.Beside(s.File, word)); err == nil && info.Mode().IsRegular() &&
					!filepath.IsAbs(word) {
					names = append(names, word)
				}
			}
		}
	}
	for _, name := range names {
		if name != "" {
			if err := g.named(s.File, name); err != nil {
				return err
			}
		}
	}
	return g.modules(s)
}

// filesOfBuild lists the files and directories that the manifests of a suite name, and those of its controllers'
// images.
func filesOfBuild(s *plan.Suite) (names []string) {
	for _, m := range s.Manifests {
		names = append(append(names, m.Path, m.Helm), m.ValuesFiles...)
	}
	for i := range s.Controllers {
		names = slices.AppendSeq(names, maps.Values(s.Controllers[i].Files))
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// modules gathers the go.mod files of the suite's controllers.
func (g *gathering) modules(s *plan.Suite) error {
	for i := range s.Controllers {
		if b := s.Controllers[i].Build; b != nil && b.ControlPlane == "" {
			if err := g.module(plan.Beside(s.File, b.Dir)); err != nil {
				return err
			}
		}
	}
	return nil
}

// module gathers the go.mod of a controller, which says what it is shown when its API server is stale.
func (g *gathering) module(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for ; ; dir = filepath.Dir(dir) {
		file := filepath.Join(dir, "go.mod")
		if _, err := os.Stat(file); err == nil {
			return g.tree(file)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// named gathers a file or a directory that the file from names.
func (g *gathering) named(from, name string) error {
	if filepath.IsAbs(name) {
		return fmt.Errorf("%s names %s, which other machines have elsewhere: write a path that begins at the file's "+
			"directory", from, name)
	}
	return g.tree(plan.Beside(from, name))
}

// tree gathers a file, or all files below a directory, and what the kustomizations and charts among them take from
// elsewhere.
func (g *gathering) tree(root string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return filepath.SkipDir
		case d.IsDir() || g.seen[path]:
			return nil
		}
		info, err := os.Stat(path) // of what a link leads to
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		g.seen[path] = true
		if g.bytes += info.Size(); g.bytes > maxBytes || len(g.files) >= maxFiles {
			return fmt.Errorf("the files that the suite names are more than %d, or more than %d MB; one of them is %s",
				maxFiles, maxBytes>>20, path)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		g.files = append(g.files, File{
			Path: path, Digest: g.blobs.add(data), Executable: info.Mode()&0o111 != 0,
		})
		switch d.Name() {
		case "kustomization.yaml", "kustomization.yml", "Kustomization":
			return g.kustomization(filepath.Dir(path), data)
		case "Chart.yaml":
			return g.chart(filepath.Dir(path))
		}
		return nil
	})
}

// chart gathers the charts beside one on which it depends.
func (g *gathering) chart(dir string) error {
	dirs, err := manifests.ChartDirs(dir)
	if err != nil {
		return nil //nolint:nilerr // who reads it says so
	}
	for _, beside := range dirs[1:] {
		if err := g.tree(beside); err != nil {
			return err
		}
	}
	return nil
}

// kustomization gathers what a kustomization names: whatever in it is the path of something that exists.
func (g *gathering) kustomization(dir string, data []byte) error {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil //nolint:nilerr // who reads it says so
	}
	var walk func(n *yaml.Node) error
	walk = func(n *yaml.Node) error {
		if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
			name := n.Value
			if _, file, ok := strings.Cut(name, "="); ok { // key=file of a generator
				name = file
			}
			path := filepath.Join(dir, name)
			if _, err := os.Stat(path); name == "" || strings.ContainsAny(name, "\n") || err != nil {
				return nil
			}
			if inside := strings.HasPrefix(dir+string(filepath.Separator), path+string(filepath.Separator)); inside {
				return nil // the kustomization's own directory, or one above
			}
			return g.tree(path)
		}
		for _, child := range n.Content {
			if err := walk(child); err != nil {
				return err
			}
		}
		return nil
	}
	return walk(&root)
}

// executable lets workers fetch an executable, and returns its digest.
func (g *gathering) executable(path string) (string, error) {
	digest, err := buildinfo.FileDigest(path)
	if err == nil {
		g.blobs.addFile(digest, path)
	}
	return digest, err
}

// contents returns what workers need: the control plane, the controllers' executables, and everything else. Nothing is
// there twice.
func (b *Bundle) contents(blobs *blobs) (controlPlane, controllers, rest []Content) {
	seen := map[string]bool{}
	add := func(to *[]Content, digest string) {
		if !seen[digest] {
			seen[digest] = true
			*to = append(*to, blobs.content(digest))
		}
	}
	add(&controlPlane, b.ControlPlane)
	for _, e := range b.Controllers {
		add(&controllers, e.Digest)
	}
	for _, other := range b.Builds {
		for _, e := range other.Controllers {
			add(&controllers, e.Digest)
		}
	}
	for _, f := range b.Files {
		add(&rest, f.Digest)
	}
	return controlPlane, controllers, rest
}

// encode returns the bundle as a blob.
func (b *Bundle) encode() ([]byte, error) { return json.Marshal(b) }

// unpacked is a bundle on a worker.
type unpacked struct {
	suite        *plan.Suite // with the variant
	root         string      // that absolute paths begin at
	workDir      string      // that relative paths begin at
	binaries     []builds.Binary
	controlPlane string
	builds       map[string]*builds.Build
}

// unpack lays a bundle's files out below dir as they are where the campaign was started. The caller's working directory
// must become workDir before runs begin.
func (b *Bundle) unpack(ctx context.Context, dir string, from *store) (*unpacked, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	below := func(path string) string { return filepath.Join(dir, "tree", filepath.Clean("/"+path)) }
	for _, f := range b.Files {
		if err := place(ctx, below(f.Path), f.Digest, f.Executable, from); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	u := &unpacked{root: below("/"), workDir: below(b.WorkDir)}
	if err := os.MkdirAll(u.workDir, 0o700); err != nil {
		return nil, err
	}
	u.controlPlane = filepath.Join(dir, "bin", "controlplane", "trommel-controlplane")
	if err := place(ctx, u.controlPlane, b.ControlPlane, true, from); err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	executables := func(dir string, all []Executable) (binaries []builds.Binary, err error) {
		for i, e := range all {
			path := filepath.Join(dir, fmt.Sprint(i), "controller")
			if e.Component != "" {
				path = filepath.Join(filepath.Dir(u.controlPlane), filepath.Base(e.Component))
			}
			if err := place(ctx, path, e.Digest, true, from); err != nil {
				return nil, fmt.Errorf("controller %d: %w", i+1, err)
			}
			binaries = append(binaries, builds.Binary{Path: path, Manifest: e.Manifest})
		}
		return binaries, nil
	}
	if u.binaries, err = executables(filepath.Join(dir, "bin"), b.Controllers); err != nil {
		return nil, err
	}
	file := b.Suite
	if filepath.IsAbs(file) {
		file = below(file)
	}
	if err := os.Chdir(u.workDir); err != nil { // the suite's file is named as where the campaign was started
		return nil, err
	}
	if u.suite, err = plan.LoadSuite(file); err != nil {
		return nil, err
	}
	if b.Time != "" {
		u.suite.Time = b.Time
	}
	if u.suite, err = run.Choose(u.suite, b.Variant); err != nil {
		return nil, err
	}
	u.builds = map[string]*builds.Build{}
	for i, other := range b.Builds {
		made := new(builds.Build)
		made.Suite, err = u.suite.WithBuild(other.Name, func(path string, own bool) (string, error) {
			named := builds.Path{Name: path, Own: own}
			at := slices.IndexFunc(other.Paths, func(l Located) bool { return l.Path == named })
			if at < 0 {
				return "", fmt.Errorf("%s was not sent", path)
			}
			return below(other.Paths[at].At), nil
		})
		if err != nil {
			return nil, err
		}
		made.Binaries, err = executables(filepath.Join(dir, "builds", fmt.Sprint(i)), other.Controllers)
		if err != nil {
			return nil, fmt.Errorf("build %q: %w", other.Name, err)
		}
		u.builds[other.Name] = made
	}
	// A file that a manifest takes from an unexpected place is missed now, and not in the first run.
	if _, _, err := manifests.OfSuite(u.suite, ""); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("a manifest needs a file that was not sent: %w", err)
	}
	return u, nil
}

// place makes a file of a blob.
func place(ctx context.Context, path, digest string, executable bool, from *store) error {
	blob, lasting, err := from.get(ctx, digest)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if executable {
		link := os.Link // the cache may be cleaned
		if lasting {
			link = os.Symlink // another file system; so pods of a node share it in memory, too
		}
		if link(blob, path) == nil {
			return nil // it is executable
		}
	}
	data, err := os.ReadFile(blob)
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	if executable {
		mode = 0o700
	}
	return os.WriteFile(path, data, mode)
}
