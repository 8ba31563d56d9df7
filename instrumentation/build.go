package instrumentation

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"sort"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// Build builds the main package of a controller with hooks at all points. The controller's tree stays as it is. It
// returns a *CompileError if the controller does not compile, an *InputError if there is nothing to build or nothing to
// observe, and a *NotFoundError if a module is not as the table of points has it.
func Build(ctx context.Context, config BuildConfig) (*Result, error) {
	b := &build{config: config, progress: progress{report: config.Progress}}
	return b.run(ctx)
}

type build struct {
	config   BuildConfig
	progress progress
	cache    *cache
	root     string // folder of the module
	dir      string // where the build works, in the cache
	command  *goCommand
	module   *generatedModule
	points   []PatchedPoint
	overlay  map[string]string
}

func (b *build) run(ctx context.Context) (*Result, error) {
	var err error
	if b.cache, err = openCache(b.config.CacheDir); err != nil {
		return nil, err
	}
	if b.config.Package == "" {
		b.config.Package = "."
	}
	dir, err := filepath.Abs(b.config.Dir)
	if err != nil {
		return nil, err
	}
	// The go command knows its folders by their real names.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, inputErrorf("%v", err)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, inputErrorf("%s is no folder", dir)
	}
	if b.root, err = findModule(dir); err != nil {
		return nil, err
	}
	b.command = &goCommand{dir: dir, env: sortedEnv(b.config.Env)}
	key := digest(dir, b.config.Package, strings.Join(b.config.Tags, ","), b.config.LDFlags, fmt.Sprint(b.command.env), fmt.Sprintf("%#v", b.config.AnnotatedCalls))
	b.dir = filepath.Join(b.cache.dir, "builds", key)
	unlock, err := b.cache.lock(ctx, "builds/"+key)
	if err != nil {
		return nil, err
	}
	defer unlock()

	if b.module, err = generate(b.root, b.dir, b.command); err != nil {
		return nil, err
	}
	hookDir, err := b.cache.hookModuleDir()
	if err != nil {
		return nil, err
	}
	b.progress.phase("patch")
	main, err := b.mainPackage(ctx)
	if err != nil {
		return nil, err
	}
	copies, err := b.patch(ctx, main)
	if err != nil {
		return nil, err
	}
	if err := b.module.replaceWith(b.root, hookDir, copies); err != nil {
		return nil, err
	}
	return b.compile(ctx, main)
}

// pkg is what go list says of a package.
type pkg struct {
	ImportPath string
	Name       string
	Dir        string
	GoFiles    []string
	CgoFiles   []string
	Standard   bool
	Module     *struct {
		Path, Version string
		Main          bool
		Dir           string
		Replace       *struct{ Version string }
	}
	Error *struct{ Err string }
}

func (b *build) packages(ctx context.Context, patterns ...string) ([]*pkg, error) {
	args := append([]string{"list"}, b.module.flags()...)
	args = append(args, "-e", "-find", "-tags="+strings.Join(b.config.Tags, ","), "-json=ImportPath,Name,Dir,GoFiles,CgoFiles,Standard,Module,Error")
	out, err := b.command.output(ctx, append(args, patterns...)...)
	if err != nil {
		return nil, err
	}
	var list []*pkg
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		p := &pkg{}
		if err := decoder.Decode(p); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("read go list: %w", err)
		}
		list = append(list, p)
	}
}

func (b *build) mainPackage(ctx context.Context) (*pkg, error) {
	list, err := b.packages(ctx, b.config.Package)
	if err != nil {
		return nil, err
	}
	if len(list) != 1 {
		return nil, inputErrorf("%q in %s is %d packages: want the one main package", b.config.Package, b.command.dir, len(list))
	}
	p := list[0]
	switch {
	case p.Name == "" && p.Error != nil:
		return nil, inputErrorf("package %q: %s", b.config.Package, p.Error.Err)
	case p.Name != "main":
		return nil, inputErrorf("package %s in %s is no main package", p.ImportPath, p.Dir)
	}
	return p, nil
}

// patch makes the patched copies and the overlay.
func (b *build) patch(ctx context.Context, main *pkg) (map[string]string, error) {
	modules, err := b.module.modules(ctx, moduleClientGo, moduleControllerRuntime)
	if err != nil {
		return nil, err
	}
	if modules[moduleClientGo] == nil {
		return nil, inputErrorf("the module in %s does not use %s: there is nothing to observe", b.root, moduleClientGo)
	}
	calls, err := b.locateCalls(ctx, main, modules)
	if err != nil {
		return nil, err
	}
	copies := map[string]string{}
	for _, path := range sortedKeys(modules) {
		version, dir, local := modules[path].source()
		if first := oldest[path]; first != "" && semver.Compare(version, first) < 0 {
			return nil, inputErrorf("%s %s is too old: the oldest version that can be observed is %s", path, version, first)
		}
		copied, found, err := b.cache.patchedModule(path, version, dir, local, calls[path])
		if err != nil {
			return nil, err
		}
		copies[path] = copied
		b.points = append(b.points, found...)
	}
	return copies, nil
}

// locateCalls sorts annotated calls by the module that they are in. Those outside the module cache go into an overlay
// right away; modules gets the others' modules added.
func (b *build) locateCalls(ctx context.Context, main *pkg, modules map[string]*moduleInfo) (map[string][]AnnotatedCall, error) {
	if len(b.config.AnnotatedCalls) == 0 {
		return nil, nil
	}
	byModule := map[string][]AnnotatedCall{}
	files := map[string]*source{}
	names := map[string]string{} // folder → package name, of packages in the overlay
	for _, call := range b.config.AnnotatedCalls {
		p := main
		if call.Package != "" && call.Package != main.ImportPath {
			list, err := b.packages(ctx, call.Package)
			if err != nil {
				return nil, err
			}
			if len(list) != 1 || list[0].Name == "" {
				return nil, inputErrorf("annotated call %q: no package %q", call.Name, call.Package)
			}
			p = list[0]
		}
		call.Package = p.ImportPath
		switch {
		case p.Standard || p.Module == nil:
			return nil, inputErrorf("annotated call %q: package %s is not in a module", call.Name, p.ImportPath)
		case modules[p.Module.Path] == nil && (p.Module.Main || p.Module.Replace != nil && p.Module.Replace.Version == ""):
			s, found, err := annotateIn(files, p.Dir, append(p.GoFiles, p.CgoFiles...), call)
			if err != nil {
				return nil, err
			}
			names[p.Dir] = s.file.Name.Name
			found.Module, found.Version = p.Module.Path, p.Module.Version
			if rel, err := filepath.Rel(p.Module.Dir, found.Path); err == nil {
				found.File = filepath.ToSlash(rel)
			}
			b.points = append(b.points, found)
		default:
			byModule[p.Module.Path] = append(byModule[p.Module.Path], call)
			if modules[p.Module.Path] == nil {
				more, err := b.module.modules(ctx, p.Module.Path)
				if err != nil {
					return nil, err
				}
				modules[p.Module.Path] = more[p.Module.Path]
			}
		}
	}
	return byModule, b.writeOverlay(files, names)
}

func (b *build) writeOverlay(files map[string]*source, names map[string]string) error {
	b.overlay = map[string]string{}
	add := func(path string, text []byte) error {
		to := filepath.Join(b.dir, "overlay", digest(path)+".go")
		b.overlay[path] = to
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o644)
	}
	for _, s := range files {
		if len(s.edits) == 0 {
			continue
		}
		if err := add(s.path, s.patched()); err != nil {
			return err
		}
	}
	for dir, name := range names {
		if err := add(filepath.Join(dir, callsFile), callsHelper(name)); err != nil {
			return err
		}
	}
	return nil
}

func (b *build) compile(ctx context.Context, main *pkg) (*Result, error) {
	output := b.config.Output
	if output == "" {
		output = filepath.Join(b.dir, "bin", filepath.Base(main.ImportPath))
	}
	output, err := filepath.Abs(output)
	if err != nil {
		return nil, err
	}
	result := &Result{Binary: output, Manifest: manifestOf(b.points), Points: b.points}
	stamp, err := manifestFlag(result.Manifest)
	if err != nil {
		return nil, err
	}
	args := append(b.module.flags(), "-o", output, "-ldflags", strings.TrimSpace(b.config.LDFlags+" "+stamp))
	if len(b.config.Tags) > 0 {
		args = append(args, "-tags", strings.Join(b.config.Tags, ","))
	}
	if len(b.overlay) > 0 {
		data, err := json.Marshal(map[string]any{"Replace": b.overlay})
		if err != nil {
			return nil, err
		}
		file := filepath.Join(b.dir, "overlay.json")
		if err := os.WriteFile(file, data, 0o644); err != nil {
			return nil, err
		}
		args = append(args, "-overlay", file)
	}
	before := fingerprint(output)
	built := 0
	err = b.command.build(ctx, main.ImportPath, append(args, b.config.Package), b.progress.downloading, func(pkg string) {
		built++
		b.progress.compiled(pkg, 0)
	})
	if err != nil {
		return nil, err
	}
	result.Cached = built == 0 && before != "" && before == fingerprint(output)
	return result, nil
}

// manifestOf lists the points that observe something.
func manifestOf(points []PatchedPoint) wire.Manifest {
	m := wire.Manifest{Builder: builderVersion()}
	for _, p := range points {
		if p.Point != "" {
			m.Points = append(m.Points, p.CompiledPoint)
		}
	}
	return m
}

// manifestFlag lets the linker write the manifest into the hook: nothing needs to be compiled again for it.
func manifestFlag(m wire.Manifest) (string, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	return "-X " + hookModule + ".manifest=" + base64.StdEncoding.EncodeToString(data), nil
}

func builderVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Path == "github.com/trommel-dev/trommel" {
		return info.Main.Version
	}
	return "(devel)"
}

// fingerprint changes when the file is linked anew: the build ID is near a binary's beginning. Empty for no file.
func fingerprint(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	h := sha256.New()
	if _, err := io.CopyN(h, f, 1<<16); err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	return fmt.Sprintf("%d %x", info.Size(), h.Sum(nil))
}

func sortedEnv(env map[string]string) []string {
	var list []string
	for _, k := range sortedKeys(env) {
		list = append(list, k+"="+env[k])
	}
	return list
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// progress turns what the go command does into lines for people.
type progress struct {
	report   func(string)
	packages int
}

func (p *progress) phase(name string) {
	if p.report != nil {
		p.report(name)
	}
}

func (p *progress) downloading(module string) { p.phase("download " + module) }

// compiled counts a package. total is 0 while it is unknown.
func (p *progress) compiled(pkg string, total int) {
	p.packages++
	if total > 0 {
		p.phase(fmt.Sprintf("compile %d/%d %s", p.packages, total, pkg))
	} else {
		p.phase(fmt.Sprintf("compile %d %s", p.packages, pkg))
	}
}
