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
	// A fork's own version numbers say nothing of what is in it.
	if m.Replace.Path != m.Path && !semver.IsValid(m.Replace.Version) {
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
	data, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(g.goMod, data, 0o644); err != nil {
		return nil, err
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return g, os.WriteFile(sumOf(g.goMod), sum, 0o644)
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
	data, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return err
	}
	file, err := modfile.Parse(filepath.Join(root, "go.mod"), data, nil)
	if err != nil {
		return inputErrorf("%v", err)
	}
	copies[hookModule] = hookDir
	for _, r := range file.Replace {
		if _, ok := copies[r.Old.Path]; ok {
			if err := file.DropReplace(r.Old.Path, r.Old.Version); err != nil {
				return err
			}
		}
	}
	for _, path := range sortedKeys(copies) {
		if err := file.AddReplace(path, "", copies[path], ""); err != nil {
			return err
		}
	}
	if err := file.AddRequire(hookModule, hookVersion); err != nil {
		return err
	}
	has := false
	for _, r := range file.Require {
		if r.Mod.Path == yamuxModule {
			has = semver.Compare(r.Mod.Version, yamuxVersion) >= 0
		}
	}
	if !has {
		if err := file.AddRequire(yamuxModule, yamuxVersion); err != nil {
			return err
		}
	}
	file.Cleanup()
	text, err := file.Format()
	if err != nil {
		return err
	}
	if err := os.WriteFile(g.goMod, text, 0o644); err != nil {
		return err
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, line := range yamuxSums {
		if !bytes.Contains(sum, []byte(line)) {
			if len(sum) > 0 && sum[len(sum)-1] != '\n' {
				sum = append(sum, '\n')
			}
			sum = append(sum, line+"\n"...)
		}
	}
	return os.WriteFile(sumOf(g.goMod), sum, 0o644)
}
