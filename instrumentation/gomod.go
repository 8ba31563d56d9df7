package instrumentation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// moduleInfo is what go list -m says of a module.
type moduleInfo struct {
	Path    string
	Version string
	Dir     string
	Replace *moduleInfo
	Error   *struct{ Err string }
}

// source tells which version's source the module is built from and where it is. local is a folder outside the module cache.
func (m *moduleInfo) source() (version, dir string, local bool) {
	if m.Replace == nil {
		return m.Version, m.Dir, false
	}
	if m.Replace.Version == "" {
		return m.Version, m.Replace.Dir, true
	}
	// A fork's own version numbers say nothing of what is in it; what it stands for does.
	if m.Replace.Path != m.Path {
		return m.Version, m.Replace.Dir, false
	}
	return m.Replace.Version, m.Replace.Dir, false
}

// generatedModule is a generated go.mod and go.sum.
type generatedModule struct {
	goMod string // path; the go.sum is beside it
	build *goCommand
}

// findModule returns the folder of the go.mod above dir.
func findModule(dir string) (string, error) {
	for d := dir; ; {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d, nil
		}
		parent := filepath.Dir(d)
		if parent == d {
			return "", inputErrorf("no go.mod in %s or above it", dir)
		}
		d = parent
	}
}

func sumOf(goMod string) string { return strings.TrimSuffix(goMod, ".mod") + ".sum" }

// generate starts a generated module as a copy of the one in root.
func generate(root, dir string, command *goCommand) (*generatedModule, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	g := &generatedModule{goMod: filepath.Join(dir, "go.mod"), build: command}
	file, sum, err := readModule(root)
	if err != nil {
		return nil, err
	}
	return g, g.write(file, sum)
}

func (g *generatedModule) write(file *modfile.File, sum []byte) error {
	file.Cleanup()
	text, err := file.Format()
	if err != nil {
		return err
	}
	if err := os.WriteFile(g.goMod, text, 0o644); err != nil {
		return err
	}
	return os.WriteFile(sumOf(g.goMod), sum, 0o644)
}

// readModule reads the go.mod and go.sum in root. The other modules of a workspace, which the build does without, are
// replaced by their folders.
func readModule(root string) (*modfile.File, []byte, error) {
	name := filepath.Join(root, "go.mod")
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, err
	}
	file, err := modfile.Parse(name, data, nil)
	if err != nil {
		return nil, nil, inputErrorf("%v", err)
	}
	sum, err := readSum(filepath.Join(root, "go.sum"))
	if err != nil {
		return nil, nil, err
	}
	work := workspaceOf(root)
	if work == "" {
		return file, sum, nil
	}
	if data, err = os.ReadFile(work); err != nil {
		return nil, nil, err
	}
	w, err := modfile.ParseWork(work, data, nil)
	if err != nil {
		return nil, nil, inputErrorf("%v", err)
	}
	dir := filepath.Dir(work)
	var members []string
	for _, use := range w.Use {
		path := use.Path
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		members = append(members, path)
	}
	if !slices.Contains(members, root) {
		return file, sum, nil // a workspace of others
	}
	sums := []string{work + ".sum"}
	for _, path := range members {
		if path == root {
			continue
		}
		other, err := os.ReadFile(filepath.Join(path, "go.mod"))
		if err != nil {
			return nil, nil, inputErrorf("%s: %v", work, err)
		}
		modulePath := modfile.ModulePath(other)
		if err := replace(file, modulePath, "", path, ""); err != nil {
			return nil, nil, err
		}
		if !requires(file, modulePath, "") {
			if err := file.AddRequire(modulePath, "v0.0.0"); err != nil {
				return nil, nil, err
			}
		}
		sums = append(sums, filepath.Join(path, "go.sum"))
	}
	for _, r := range w.Replace {
		to := r.New.Path
		if r.New.Version == "" && !filepath.IsAbs(to) {
			to = filepath.Join(dir, to)
		}
		if err := replace(file, r.Old.Path, r.Old.Version, to, r.New.Version); err != nil {
			return nil, nil, err
		}
	}
	for _, name := range sums {
		more, err := readSum(name)
		if err != nil {
			return nil, nil, err
		}
		sum = append(sum, more...)
	}
	return file, sum, nil
}

// readSum reads a go.sum, if there is one, so that another may follow it.
func readSum(name string) ([]byte, error) {
	sum, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(sum) > 0 && sum[len(sum)-1] != '\n' {
		sum = append(sum, '\n')
	}
	return sum, nil
}

// workspaceOf finds the workspace file that the go command would use in root.
func workspaceOf(root string) string {
	if work := os.Getenv("GOWORK"); work != "" {
		if work == "off" {
			return ""
		}
		return work
	}
	for d := root; ; d = filepath.Dir(d) {
		name := filepath.Join(d, "go.work")
		if _, err := os.Stat(name); err == nil {
			return name
		}
		if d == filepath.Dir(d) {
			return ""
		}
	}
}

// replace puts one module in the place of another, whatever the file says of it so far.
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

// requires tells whether the file requires at least that version of a module.
func requires(file *modfile.File, path, version string) bool {
	for _, r := range file.Require {
		if r.Mod.Path == path && semver.Compare(r.Mod.Version, version) >= 0 {
			return true
		}
	}
	return false
}

func (g *generatedModule) flags() []string { return []string{"-mod=mod", "-modfile=" + g.goMod} }

// modules asks for the modules among paths that are in the build list, and downloads them.
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

// replaceWith puts patched copies in the place of modules and adds the hook.
func (g *generatedModule) replaceWith(root, hookDir string, copies map[string]string) error {
	file, sum, err := readModule(root)
	if err != nil {
		return err
	}
	for _, path := range sortedKeys(copies) {
		if err := replace(file, path, "", copies[path], ""); err != nil {
			return err
		}
	}
	if err := replace(file, hookModule, "", hookDir, ""); err != nil {
		return err
	}
	if err := file.AddRequire(hookModule, hookVersion); err != nil {
		return err
	}
	if !requires(file, yamuxModule, yamuxVersion) {
		if err := file.AddRequire(yamuxModule, yamuxVersion); err != nil {
			return err
		}
	}
	for _, line := range yamuxSums {
		if !bytes.Contains(sum, []byte(line)) {
			sum = append(sum, line+"\n"...)
		}
	}
	return g.write(file, sum)
}
