package instrumentation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	goversion "go/version"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"

	"github.com/trommel-dev/trommel/instrumentation/points"
)

// moduleInfo is the output of go list for a module.
type moduleInfo struct {
	Path    string
	Version string
	Main    bool // the main module, or another of its workspace
	Dir     string
	Replace *moduleInfo
	Error   *struct{ Err string }
}

// source returns which version's source the module is built from and where it is. local means a directory outside the
// module cache.
func (m *moduleInfo) source() (version, dir string, local bool) {
	if m.Replace == nil {
		return m.Version, m.Dir, m.Main
	}
	if m.Replace.Version == "" {
		return m.Version, m.Replace.Dir, true
	}
	// A fork's own version number does not say what is in it; the version that it replaces does.
	if m.Replace.Path != m.Path {
		return m.Version, m.Replace.Dir, false
	}
	return m.Replace.Version, m.Replace.Dir, false
}

// repository is what the go command would build from in the user's directory: the vendor directory, the workspace or
// the go.mod.
type repository struct {
	root    string // directory of the main module
	goMod   string // its go.mod, or the file that replaces it in GOFLAGS
	goFlags settings
	work    string // workspace file that the module belongs to; empty: none
	vendor  string // vendor directory that is built from; empty: none
}

// findRepository finds the repository that dir is in.
func findRepository(ctx context.Context, dir string, command *goCommand) (*repository, error) {
	root, err := findModule(dir)
	if err != nil {
		return nil, err
	}
	s, err := command.settings(ctx)
	if err != nil {
		return nil, err
	}
	r := &repository{root: root, goMod: filepath.Join(root, "go.mod"), goFlags: *s}
	if alternative, ok := s.flag("modfile"); ok {
		if r.goMod = alternative; !filepath.IsAbs(alternative) {
			r.goMod = filepath.Join(dir, alternative)
		}
	}
	file, err := readGoMod(r.goMod)
	if err != nil {
		return nil, err
	}
	version, vendor := file.Go, filepath.Join(root, "vendor")
	if s.GOWORK != "" {
		w, members, err := readWork(s.GOWORK)
		if err != nil {
			return nil, err
		}
		if slices.Contains(members, root) { // not a workspace of other modules
			r.work, version, vendor = s.GOWORK, w.Go, filepath.Join(filepath.Dir(s.GOWORK), "vendor")
		}
	}
	if mod, ok := s.flag("mod"); ok {
		if mod == "vendor" {
			r.vendor = vendor
		}
		return r, nil
	}
	// This is the go command's rule.
	list, err := os.ReadFile(filepath.Join(vendor, "modules.txt"))
	info, statErr := os.Stat(vendor)
	forWorkspace := bytes.HasPrefix(list, []byte("## workspace"))
	if statErr == nil && info.IsDir() && version != nil && goversion.Compare("go"+version.Version, "go1.14") >= 0 &&
		forWorkspace == (r.work != "") && (err == nil || errors.Is(err, fs.ErrNotExist)) {
		r.vendor = vendor
	}
	return r, nil
}

// findModule returns the directory of the go.mod above dir.
func findModule(dir string) (string, error) {
	for d := dir; ; {
		if info, err := os.Stat(filepath.Join(d, "go.mod")); err == nil && !info.IsDir() {
			return d, nil
		}
		parent := filepath.Dir(d)
		if parent == d {
			return "", inputErrorf("no go.mod in %s or above it: trommel builds Go modules; "+
				"in an older repository, create one with `go mod init` and `go mod tidy` "+
				"(in a copy, to leave the repository unchanged)", dir)
		}
		d = parent
	}
}

func readGoMod(name string) (*modfile.File, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, inputErrorf("%v", err)
	}
	file, err := modfile.Parse(name, data, nil)
	if err != nil {
		return nil, inputErrorf("%v", err)
	}
	return file, nil
}

// readWork reads a workspace file and lists the directories of its modules by their real names.
func readWork(name string) (*modfile.WorkFile, []string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, inputErrorf("%v", err)
	}
	w, err := modfile.ParseWork(name, data, nil)
	if err != nil {
		return nil, nil, inputErrorf("%v", err)
	}
	var members []string
	for _, use := range w.Use {
		path := use.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(name), path)
		}
		// If one is missing, the go command reports it.
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		members = append(members, path)
	}
	return w, members, nil
}

// generatedModule is a generated go.mod and go.sum.
type generatedModule struct {
	goMod string // path; the go.sum is beside it
	build *goCommand
	// asIs lets the user's GOFLAGS decide whether the go command may complete the go.mod; by default it may not.
	asIs bool
}

func sumOf(goMod string) string { return strings.TrimSuffix(goMod, ".mod") + ".sum" }

// generate starts a generated module as a copy of the one in root.
func generate(root, dir string, command *goCommand) (*generatedModule, error) {
	g := &generatedModule{goMod: filepath.Join(dir, "go.mod"), build: command}
	return g, g.copy(filepath.Join(root, "go.mod"))
}

func (g *generatedModule) copy(goMod string) error {
	if err := os.MkdirAll(filepath.Dir(g.goMod), 0o755); err != nil {
		return err
	}
	file, err := readGoMod(goMod)
	if err != nil {
		return err
	}
	return g.write(file, sumOf(goMod))
}

func (g *generatedModule) write(file *modfile.File, sums string) error {
	file.Cleanup()
	text, err := file.Format()
	if err != nil {
		return err
	}
	if err := writeChanged(g.goMod, text); err != nil {
		return err
	}
	return copySums(sums, sumOf(g.goMod))
}

// copySums copies a go.sum or go.work.sum, if there is one.
func copySums(from, to string) error {
	sum, err := os.ReadFile(from)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return writeChanged(to, sum)
}

// writeChanged writes a file only if its content changes, so that what the go command has cached about it stays valid.
func writeChanged(name string, data []byte) error {
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, data) {
		return nil
	}
	return os.WriteFile(name, data, 0o644)
}

// generatedWork is a generated workspace file with its go.work.sum.
type generatedWork struct{ file string }

// write makes it a copy of the workspace in which copies replace modules. own are the copied modules that belong to the
// workspace itself, with their directories.
func (g *generatedWork) write(work, hookDir string, copies, own map[string]string) error {
	w, members, err := readWork(work)
	if err != nil {
		return err
	}
	for _, use := range slices.Clone(w.Use) {
		if err := w.DropUse(use.Path); err != nil {
			return err
		}
	}
	if hookDir != "" {
		members = append(members, hookDir)
	}
	for _, path := range sortedKeys(own) {
		if i := slices.Index(members, own[path]); i >= 0 {
			members[i] = copies[path]
		}
	}
	for _, dir := range members {
		if err := w.AddUse(dir, ""); err != nil {
			return err
		}
	}
	var replaces []modfile.Replace // dropping one empties its entry
	for _, r := range w.Replace {
		replaces = append(replaces, *r)
	}
	for _, r := range replaces {
		if _, copied := copies[r.Old.Path]; copied || r.New.Version == "" && !filepath.IsAbs(r.New.Path) {
			if err := w.DropReplace(r.Old.Path, r.Old.Version); err != nil {
				return err
			}
			if !copied {
				if err := w.AddReplace(r.Old.Path, r.Old.Version, filepath.Join(filepath.Dir(work), r.New.Path),
					""); err != nil {
					return err
				}
			}
		}
	}
	for _, path := range sortedKeys(copies) {
		if own[path] == "" {
			if err := w.AddReplace(path, "", copies[path], ""); err != nil {
				return err
			}
		}
	}
	w.Cleanup()
	if err := os.MkdirAll(filepath.Dir(g.file), 0o755); err != nil {
		return err
	}
	if err := writeChanged(g.file, modfile.Format(w.Syntax)); err != nil {
		return err
	}
	return copySums(work+".sum", g.file+".sum")
}

// replace replaces one module with another, and drops other replacements of it.
func replace(file *modfile.File, oldPath, oldVersion, newPath, newVersion string) error {
	for _, r := range append([]*modfile.Replace(nil), file.Replace...) {
		if r.Old.Path == oldPath && (oldVersion == "" || r.Old.Version == oldVersion) {
			if err := file.DropReplace(r.Old.Path, r.Old.Version); err != nil {
				return err
			}
		}
	}
	return file.AddReplace(oldPath, oldVersion, newPath, newVersion)
}

func (g *generatedModule) flags() []string {
	if g.asIs {
		return []string{"-modfile=" + g.goMod}
	}
	return []string{"-mod=mod", "-modfile=" + g.goMod}
}

// modules returns the modules among paths that are in the build list, and downloads them.
func (g *generatedModule) modules(ctx context.Context, paths ...string) (map[string]*moduleInfo, error) {
	args := append(append([]string{"list"}, g.flags()...), "-m", "-e", "-json=Path,Version,Dir,Replace,Error")
	out, err := g.build.output(ctx, append(args, paths...)...)
	if err != nil {
		return nil, err
	}
	found := map[string]*moduleInfo{}
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		m := &moduleInfo{}
		if err := decoder.Decode(m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read go list: %w", err)
		}
		if m.Version == "" && m.Replace == nil {
			continue // not in the build list, or the main module itself
		}
		if _, dir, _ := m.source(); dir == "" {
			if err := g.download(ctx, m); err != nil {
				return nil, err
			}
		}
		found[m.Path] = m
	}
	return found, nil
}

func (g *generatedModule) download(ctx context.Context, m *moduleInfo) error {
	from := m
	if m.Replace != nil {
		from = m.Replace
	}
	out, err := g.build.output(ctx, "mod", "download", "-json", "-modfile="+g.goMod, m.Path)
	if err != nil {
		return fmt.Errorf("download %s@%s: %w", m.Path, m.Version, err)
	}
	var d struct{ Dir, Error string }
	if err := json.Unmarshal(out, &d); err != nil {
		return fmt.Errorf("read go mod download: %w", err)
	}
	if d.Error != "" || d.Dir == "" {
		return fmt.Errorf("download %s@%s: %s", m.Path, m.Version, d.Error)
	}
	from.Dir = d.Dir
	return nil
}

// replaceModules writes a copy of a go.mod, with its go.sum, in which other modules, PATH@VERSION, take the place of
// some.
func replaceModules(goMod, to string, others map[string]string) error {
	file, err := readGoMod(goMod)
	if err != nil {
		return err
	}
	for _, path := range sortedKeys(others) {
		other, version, ok := strings.Cut(others[path], "@")
		if !ok {
			return inputErrorf("replace %s: %q: write PATH@VERSION", path, others[path])
		}
		if err := replace(file, path, "", other, version); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return (&generatedModule{goMod: to}).write(file, sumOf(goMod))
}

// replaceWith replaces modules with patched copies and adds the hook.
func (g *generatedModule) replaceWith(root, hookDir string, copies map[string]string) error {
	return g.replaceIn(filepath.Join(root, "go.mod"), hookDir, copies)
}

func (g *generatedModule) replaceIn(goMod, hookDir string, copies map[string]string) error {
	file, err := readGoMod(goMod)
	if err != nil {
		return err
	}
	for _, path := range sortedKeys(copies) {
		if err := replace(file, path, "", copies[path], ""); err != nil {
			return err
		}
	}
	if err := replace(file, points.HookModule, "", hookDir, ""); err != nil {
		return err
	}
	if err := file.AddRequire(points.HookModule, hookVersion); err != nil {
		return err
	}
	return g.write(file, sumOf(goMod))
}
