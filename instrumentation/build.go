package instrumentation

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"sort"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"

	"github.com/trommel-dev/trommel/instrumentation/points"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/buildcache"
)

// Build builds the main package of a controller with hooks at all points. The controller's tree is not changed. It
// returns a *CompileError if the controller does not compile, an *InputError if there is nothing to build or nothing to
// observe, and a *points.NotFoundError if a module differs from the table of points.
func Build(ctx context.Context, config BuildConfig) (*Result, error) {
	b := &build{config: config, progress: progress{report: config.Progress}}
	var err error
	if b.cache, err = buildcache.Open(config.CacheDir); err != nil {
		return nil, err
	}
	result, err := keeping(ctx, b.cache, func() (*Result, error) { return b.run(ctx) })
	if unknown := (*points.UnknownFunctionError)(nil); errors.As(err, &unknown) {
		return nil, inputErrorf("%v", err)
	}
	return result, err
}

type build struct {
	config   BuildConfig
	progress progress
	cache    *buildcache.Cache
	dir      string // working directory of the build, in the cache
	command  *goCommand
	repo     *repository
	goRoot   *points.GoRoot
	module   *generatedModule // nil with a workspace or a vendor directory
	packages []*pkg           // the main package and all that it is built from
	main     *pkg
	hook     string // import path of the hook
	points   []points.Patched
	overlay  map[string]string // files that replace others in the build
}

func (b *build) run(ctx context.Context) (*Result, error) {
	if b.config.Package == "" {
		b.config.Package = "."
	}
	dir, err := filepath.Abs(b.config.Dir)
	if err != nil {
		return nil, err
	}
	// The go command uses the real names of directories.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, inputErrorf("%v", err)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, inputErrorf("%s is not a directory", dir)
	}
	// Without the dot, the go command treats a directory's name as an import path.
	if pkg := b.config.Package; !filepath.IsAbs(pkg) && !strings.HasPrefix(pkg, ".") {
		if info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(pkg))); err == nil && info.IsDir() {
			b.config.Package = "./" + pkg
		}
	}
	b.command = &goCommand{dir: dir, env: sortedEnv(b.config.Env), downloading: b.progress.downloading}
	if b.repo, err = findRepository(ctx, dir, b.command); err != nil {
		return nil, err
	}
	if err := b.findGoRoot(); err != nil {
		return nil, err
	}
	key := buildcache.Digest(dir, b.config.Package, strings.Join(b.config.Tags, ","), b.config.LDFlags,
		fmt.Sprint(b.command.env, b.config.Replace), points.CallsKey(b.config.AnnotatedCalls))
	b.dir = b.cache.Path("builds/" + key)
	// The go commands hold it too: if this process is killed and a go command outlives it, that command does not write
	// to the files of the next build.
	b.command.held, err = b.cache.LockFile(ctx, "builds/"+key,
		func() { b.progress.phase("wait for another build of the same package") })
	if err != nil {
		return nil, err
	}
	defer b.command.held.Close()

	if err := b.prepare(); err != nil {
		return nil, err
	}
	b.progress.phase("patch")
	if err := b.listWithoutCgo(ctx); err != nil {
		return nil, err
	}
	if err := b.patch(ctx); err != nil {
		return nil, err
	}
	if err := b.patchStandard(); err != nil {
		return nil, err
	}
	return b.compile(ctx)
}

// prepare makes the go command use copies of the files in the user's directory that it would both read and write.
func (b *build) prepare() error {
	b.hook = points.HookModule
	b.overlay = map[string]string{}
	if len(b.config.Replace) > 0 && (b.repo.vendor != "" || b.repo.work != "") {
		return inputErrorf("modules are replaced only in a build from a go.mod: here a vendor directory or a " +
			"workspace decides")
	}
	switch {
	case b.repo.vendor != "":
		b.command.work = b.repo.work // it does not write to it when it builds from a vendor directory
		return nil
	case b.repo.work != "":
		b.command.work = b.work().file
		return b.work().write(b.repo.work, "", nil, nil)
	}
	if len(b.config.Replace) > 0 {
		other := filepath.Join(b.dir, "replaced", "go.mod")
		if err := replaceModules(b.repo.goMod, other, b.config.Replace); err != nil {
			return err
		}
		b.repo.goMod = other
	}
	// A go.sum lacks the sums of modules that the suite adds.
	asIs := len(b.config.Replace) == 0
	b.module = &generatedModule{goMod: filepath.Join(b.dir, "go.mod"), build: b.command, asIs: asIs}
	return b.module.copy(b.repo.goMod)
}

func (b *build) work() *generatedWork { return &generatedWork{filepath.Join(b.dir, "go.work")} }

// flags returns the flags of go list and go build.
func (b *build) flags() []string {
	switch {
	case b.repo.vendor != "":
		return append(b.tags(), "-mod=vendor")
	case b.repo.work != "":
		return b.tags()
	}
	return append(b.tags(), b.module.flags()...)
}

// buildTags returns the tags of the build or, if it has none, those in the user's GOFLAGS.
func (b *build) buildTags() []string {
	if len(b.config.Tags) > 0 {
		return b.config.Tags
	}
	tags, _ := b.repo.goFlags.flag("tags")
	return strings.FieldsFunc(tags, func(r rune) bool { return r == ',' || r == ' ' })
}

// tags returns the flag for the build's tags; if it has none, those in the user's GOFLAGS apply.
func (b *build) tags() []string {
	if len(b.config.Tags) == 0 {
		return nil
	}
	return []string{"-tags=" + strings.Join(b.config.Tags, ",")}
}

// pkg is the output of go list for a package.
type pkg struct {
	ImportPath     string
	Name           string
	Dir            string
	GoFiles        []string
	CgoFiles       []string
	IgnoredGoFiles []string
	Standard       bool
	DepOnly        bool
	Module         *moduleInfo
	Error          *struct{ Err string }
}

// list determines what the main package is built from.
func (b *build) list(ctx context.Context) error {
	args := append([]string{"list"}, b.flags()...)
	args = append(args, "-e", "-deps",
		"-json=ImportPath,Name,Dir,GoFiles,CgoFiles,IgnoredGoFiles,Standard,DepOnly,Module,Error", b.config.Package)
	out, err := b.command.output(ctx, args...)
	if err != nil {
		if ctx.Err() == nil && incomplete.MatchString(err.Error()) {
			return b.incomplete(err.Error())
		}
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(out))
	var named []*pkg
	b.packages = nil
	for {
		p := &pkg{}
		if err := decoder.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("read go list: %w", err)
		}
		b.packages = append(b.packages, p)
		if !p.DepOnly {
			named = append(named, p)
		}
	}
	if len(named) != 1 {
		return inputErrorf("%q in %s matches %d packages: want one main package", b.config.Package,
			b.command.dir, len(named))
	}
	b.main = named[0]
	switch {
	case b.main.Name == "" && b.main.Error != nil:
		return inputErrorf("package %q: %s%s", b.config.Package, b.main.Error.Err, b.nested())
	case b.main.Name != "main":
		return inputErrorf("package %s in %s is not a main package", b.main.ImportPath, b.main.Dir)
	}
	for _, p := range b.packages {
		if p.Error != nil && incomplete.MatchString(p.Error.Err) {
			return b.incomplete(p.Error.Err)
		}
	}
	return nil
}

// listWithoutCgo is list. It switches cgo off if that changes nothing outside the standard library. The control plane
// is built without cgo, and such a controller finds its packages compiled. A setting of the user stays.
func (b *build) listWithoutCgo(ctx context.Context) error {
	const variable = "CGO_ENABLED"
	_, inSuite := b.config.Env[variable]
	_, inEnv := os.LookupEnv(variable)
	if inSuite || inEnv || !b.goRoot.Cgo || b.repo.goFlags.instruments() {
		return b.list(ctx)
	}
	env := b.command.env
	b.command.env = append(slices.Clone(env), variable+"=0")
	if err := b.list(ctx); err == nil && !b.needsCgo() {
		b.goRoot.Cgo = false
		return nil
	} else if ctx.Err() != nil {
		return err
	}
	b.command.env = env
	return b.list(ctx)
}

// needsCgo reports whether cgo would add a file to a package outside the standard library, or whether a package cannot
// be loaded without cgo.
func (b *build) needsCgo() bool {
	context := b.goRoot.Context(b.buildTags())
	for _, p := range b.packages {
		if p.Standard {
			continue
		}
		if p.Error != nil {
			return true
		}
		for _, name := range p.IgnoredGoFiles {
			if ok, err := context.MatchFile(p.Dir, name); ok || err != nil {
				return true
			}
		}
	}
	return false
}

// incomplete matches the go command's messages about a go.mod, go.sum or vendor directory that lacks an imported
// package.
var incomplete = regexp.MustCompile(
	`missing go\.sum entry|no required module provides|cannot find module providing|updates to go\.mod needed|` +
		`inconsistent vendoring|is not in your go\.mod file|provided by module .* but not|import lookup disabled|` +
		`module lookup disabled|cannot find package|` +
		`go\.mod requires go|go\.work requires go|must be added to the go\.work|-mod may only be set`)

func (b *build) incomplete(what string) error {
	fix := "`go mod tidy`"
	switch {
	case b.repo.vendor != "" && b.repo.work != "":
		fix = "`go work vendor`"
	case b.repo.vendor != "":
		fix = "`go mod vendor`"
	}
	if strings.Contains(what, "GOPROXY=off") {
		fix = "`go mod download` with a network"
	}
	return inputErrorf("%s\nThis is an error of the go command in %s, without trommel: `go build %s` there must work "+
		"first (%s may fix it)",
		strings.TrimPrefix(strings.TrimSpace(what), "go list: "), b.command.dir, b.config.Package, fix)
}

// nested returns an error if the package is in a separate module.
func (b *build) nested() string {
	for d := filepath.Join(b.command.dir, filepath.FromSlash(b.config.Package)); len(d) > len(
		b.command.dir); d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return fmt.Sprintf("; it is in another module: build it in the directory %s", d)
		}
	}
	return ""
}

// moduleOf returns the module with that path that the main package is built from, or nil if it imports none of its
// packages.
func (b *build) moduleOf(path string) *moduleInfo {
	for _, p := range b.packages {
		if p.Module != nil && p.Module.Path == path {
			return p.Module
		}
	}
	return nil
}

// patch makes the patched copies and replaces the modules with them.
func (b *build) patch(ctx context.Context) error {
	if b.moduleOf(points.ClientGo) == nil {
		return b.unobserved()
	}
	if err := b.tellReconcilesApart(); err != nil {
		return err
	}
	hookDir, err := b.hookDir(ctx)
	if err != nil {
		return err
	}
	calls, err := b.locateCalls()
	if err != nil {
		return err
	}
	patched := []string{points.ClientGo, points.ControllerRuntime}
	if b.sharesAPIMachinery() {
		patched = append(patched, points.APIMachinery)
	}
	for _, path := range patched {
		if b.moduleOf(path) != nil && calls[path] == nil {
			calls[path] = []points.AnnotatedCall{}
		}
	}
	if m := b.moduleOf(points.Reflect2); m != nil && b.goRoot.Known() {
		c, err := b.copyOf(m)
		if err != nil {
			return err
		}
		if calls[m.Path] == nil && c.HasPoints() {
			calls[m.Path] = []points.AnnotatedCall{}
		}
	}
	copies, own := map[string]string{}, map[string]string{}
	for _, path := range sortedKeys(calls) {
		m := b.moduleOf(path)
		c, err := b.copyOf(m)
		if err != nil {
			return err
		}
		c.Calls = calls[path]
		copied, found, err := c.Make(b.cache)
		if err != nil {
			return err
		}
		b.points = append(b.points, found...)
		copies[path] = copied
		if m.Main {
			own[path] = m.Dir
		}
		if b.repo.vendor != "" {
			if err := b.overlayCopy(c.Dir, copied, found); err != nil {
				return err
			}
		}
	}
	switch {
	case b.repo.vendor != "":
		return nil
	case b.repo.work != "":
		return b.work().write(b.repo.work, hookDir, copies, own)
	}
	return b.module.replaceIn(b.repo.goMod, hookDir, copies)
}

// sharesAPIMachinery reports whether the controller uses the apimachinery of a control plane. It then gets the same
// patched copy, which changes nothing in a controller. Otherwise all packages that import apimachinery would be
// compiled twice.
func (b *build) sharesAPIMachinery() bool {
	m := b.moduleOf(points.APIMachinery)
	if m == nil || b.repo.vendor != "" {
		return false
	}
	version, _, local := m.source()
	return !local && slices.ContainsFunc(KubernetesVersions(), func(v string) bool {
		return strings.Replace(v, "v1.", "v0.", 1) == version
	})
}

// unobserved lets a program be built that does not use client-go, if that is allowed and of any use.
func (b *build) unobserved() error {
	without := fmt.Sprintf("package %s in %s does not use %s", b.main.ImportPath, b.main.Dir, points.ClientGo)
	switch {
	case !b.config.AnyProgram || len(b.config.AnnotatedCalls) > 0:
		return inputErrorf("%s: there is nothing to observe (trommel observes controllers that use it to talk to "+
			"Kubernetes)", without)
	case !b.goRoot.Known():
		return inputErrorf("%s, and %s is older than %s: there is nothing to change in it", without, b.goRoot.Version,
			points.OldestGo)
	}
	b.progress.phase(without + ": nothing of it is observed, but faults of its files, connections and names reach it")
	return nil
}

// copyOf describes the patched copy of a module.
func (b *build) copyOf(m *moduleInfo) (*points.ModuleCopy, error) {
	version, dir, local := m.source()
	c := &points.ModuleCopy{Path: m.Path, Version: version, Dir: dir, Local: local, Hook: b.hook,
		ByGoroutine: b.goRoot.ByGoroutine}
	if b.repo.vendor != "" {
		c.Dir, c.Local, c.Partial = filepath.Join(b.repo.vendor, filepath.FromSlash(m.Path)), true, true
	}
	first := points.Oldest(m.Path)
	switch {
	case first == "":
		return c, nil
	case points.KnownVersion(version):
	case local:
		c.Version = b.versionOf(m.Path)
	default:
		var err error
		if c.PointsOf, err = c.VersionByPoints(); err != nil {
			return nil, err
		}
	}
	if semver.Compare(c.Like(), first) >= 0 {
		return c, nil
	}
	what, how := "is too old", fmt.Sprintf("go get %s@%s", m.Path, first)
	if !points.KnownVersion(c.Version) {
		what = "is too old, or its source is not that of a release"
	}
	if m.Replace != nil {
		how = fmt.Sprintf("replace %s => %[1]s %s", m.Path, first)
	}
	return nil, inputErrorf("%s %s %s: the oldest version that can be observed is %s; raise it in go.mod (%s)", m.Path,
		c.Version, what, first, how)
}

// tellReconcilesApart determines whether the controller's reconciles must be distinguished by their goroutines: before
// controller-runtime 0.7 they have no context.
func (b *build) tellReconcilesApart() error {
	m := b.moduleOf(points.ControllerRuntime)
	if m == nil {
		return nil
	}
	c, err := b.copyOf(m)
	if err != nil {
		return err
	}
	if b.goRoot.ByGoroutine, err = c.WithoutContext(); err != nil {
		return err
	}
	if b.goRoot.ByGoroutine && !b.goRoot.Known() {
		return inputErrorf("%s %s gives reconcilers no context; to distinguish them the controller must "+
			"be built with %s or later, not %s: "+
			"raise the toolchain (GOTOOLCHAIN) or %[1]s to v0.7.0", m.Path, c.Version, points.OldestGo,
			b.goRoot.Version)
	}
	return nil
}

// findGoRoot determines which Go installation the controller is built with.
func (b *build) findGoRoot() (err error) {
	b.goRoot, b.command.root, err = goRootFor(b.cache, &b.repo.goFlags)
	return err
}

// goRootOf returns the Go installation and the target of the go command.
func goRootOf(s *settings) *points.GoRoot {
	return &points.GoRoot{Dir: s.GOROOT, Version: s.GOVERSION, GOOS: s.GOOS, GOARCH: s.GOARCH, Cgo: s.CGO == "1"}
}

// goRootFor returns the Go installation of a build, with files that may be replaced. The go command does not replace
// files in the module cache, where its downloaded toolchains are. So such a toolchain is copied, and root is the
// GOROOT of the copy.
func goRootFor(c *buildcache.Cache, settings *settings) (g *points.GoRoot, root string, err error) {
	g = goRootOf(settings)
	if modules := settings.GOMODCACHE; modules == "" || !strings.HasPrefix(g.Dir, modules+string(filepath.Separator)) {
		return g, "", nil
	}
	if !g.Known() {
		return g, "", nil
	}
	copied, err := g.Copy(c)
	if err != nil {
		return nil, "", fmt.Errorf("copy the toolchain %s: %w", g.Version, err)
	}
	g.Dir = copied
	return g, copied, nil
}

// patchStandard replaces files of the standard library with patched ones.
func (b *build) patchStandard() error {
	if !b.goRoot.Known() {
		b.progress.phase(fmt.Sprintf("%s is older than %s: the controller uses the machine's files, "+
			"ports and names instead of its pod's", b.goRoot.Version, points.OldestGo))
		return nil
	}
	overlay, found, err := b.goRoot.Overlay(b.cache)
	if err != nil {
		return err
	}
	if file, ok := b.repo.goFlags.flag("overlay"); ok {
		if err := b.mergeOverlay(file); err != nil {
			return err
		}
	}
	maps.Copy(b.overlay, overlay)
	b.points = append(b.points, found...)
	return nil
}

// mergeOverlay adds the user's own overlay, which our flag would override.
func (b *build) mergeOverlay(file string) error {
	if !filepath.IsAbs(file) {
		file = filepath.Join(b.command.dir, file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return inputErrorf("the overlay in GOFLAGS: %v", err)
	}
	var own struct{ Replace map[string]string }
	if err := json.Unmarshal(data, &own); err != nil {
		return inputErrorf("the overlay in GOFLAGS, %s: %v", file, err)
	}
	for from, to := range own.Replace {
		if !filepath.IsAbs(from) {
			from = filepath.Join(b.command.dir, from)
		}
		if to != "" && !filepath.IsAbs(to) {
			to = filepath.Join(b.command.dir, to)
		}
		if _, ours := b.overlay[from]; !ours {
			b.overlay[from] = to
		}
	}
	return nil
}

// versionOf guesses the version of a module's source in a directory for which go.mod gives no version, as in
// Kubernetes' own repository: modules that are released together have the same version; otherwise it is treated as the
// newest.
func (b *build) versionOf(path string) string {
	if path == points.ClientGo {
		if m := b.moduleOf("k8s.io/apimachinery"); m != nil {
			if version, _, _ := m.source(); points.KnownVersion(version) {
				return version
			}
		}
	}
	return points.Newest
}

// hookDir writes the hook's packages. A build from a vendor directory sees only the modules that are listed there, so
// the hook must be a package of the main module.
func (b *build) hookDir(ctx context.Context) (string, error) {
	config := hookConfig{
		importPath: points.HookModule, byGoroutine: b.goRoot.ByGoroutine, env: b.command.env,
		downloading: b.progress.downloading,
	}
	if b.repo.vendor == "" {
		return hookDir(ctx, b.cache, config)
	}
	if b.main.Module == nil {
		return "", inputErrorf("package %s in %s is in no module", b.main.ImportPath, b.main.Dir)
	}
	const folder = "zz_trommel_hook"
	b.hook = b.main.Module.Path + "/" + folder
	config.importPath = b.hook
	dir, err := hookDir(ctx, b.cache, config)
	if err != nil {
		return "", err
	}
	return dir, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		b.overlay[filepath.Join(b.repo.root, folder, rel)] = path
		return err
	})
}

// overlayCopy adds the changed files of a directory's copy to the overlay, instead of the original files.
func (b *build) overlayCopy(original, copied string, found []points.Patched) error {
	for _, p := range found {
		name := filepath.FromSlash(p.File)
		b.overlay[filepath.Join(original, name)] = filepath.Join(copied, name)
	}
	return filepath.WalkDir(copied, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasPrefix(d.Name(), "zz_trommel_") {
			return err
		}
		rel, err := filepath.Rel(copied, path)
		b.overlay[filepath.Join(original, rel)] = path
		return err
	})
}

// locateCalls sorts annotated calls by the module that they are in. Those in the main module and in the user's other
// directories are added to an overlay immediately.
func (b *build) locateCalls() (map[string][]points.AnnotatedCall, error) {
	byModule := map[string][]points.AnnotatedCall{}
	var annotated points.Annotated
	for _, call := range b.config.AnnotatedCalls {
		p := b.main
		if call.Package != "" {
			i := slices.IndexFunc(b.packages, func(p *pkg) bool { return p.ImportPath == call.Package })
			if i < 0 {
				return nil, inputErrorf("annotated call %q: %s does not use package %q", call.Name,
					b.main.ImportPath,
					call.Package)
			}
			p = b.packages[i]
		}
		call.Package = p.ImportPath
		if p.Standard || p.Module == nil {
			return nil, inputErrorf("annotated call %q: package %s is not in a module", call.Name, p.ImportPath)
		}
		_, _, local := p.Module.source()
		patched := p.Module.Path == points.ClientGo || p.Module.Path == points.ControllerRuntime
		if patched || !local && b.repo.vendor == "" {
			byModule[p.Module.Path] = append(byModule[p.Module.Path], call)
			continue
		}
		found, err := annotated.Add(p.Dir, slices.Concat(p.GoFiles, p.CgoFiles), call)
		if err != nil {
			return nil, err
		}
		found.Module, found.Version = p.Module.Path, p.Module.Version
		found.File = strings.TrimPrefix(path.Join(strings.TrimPrefix(p.ImportPath, p.Module.Path), found.File), "/")
		b.points = append(b.points, found)
	}
	return byModule, b.writeOverlay(annotated.Texts(b.hook, b.goRoot.ByGoroutine))
}

// writeOverlay adds files to the overlay, by the paths of those that they replace.
func (b *build) writeOverlay(texts map[string][]byte) error {
	for path, text := range texts {
		to := filepath.Join(b.dir, "overlay", buildcache.Digest(path)+".go")
		b.overlay[path] = to
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := writeChanged(to, text); err != nil {
			return err
		}
	}
	return nil
}

// shared returns flags with which the build cache has a package once for all controllers that use it. Without trimmed
// paths it knows packages by their directories: those of another checkout, a vendor directory or another cache of ours
// would be compiled again, as would all packages for a controller whose user trims paths. A profile of the controller
// would make all packages its own; it shows only in the time that the controller takes.
func (b *build) shared() []string {
	var flags []string
	if _, ok := b.repo.goFlags.flag("trimpath"); !ok {
		flags = append(flags, "-trimpath")
	}
	_, err := os.Stat(filepath.Join(b.main.Dir, "default.pgo"))
	if _, ok := b.repo.goFlags.flag("pgo"); (ok || err == nil) && b.goRoot.Known() {
		flags = append(flags, "-pgo=off")
	}
	// The control plane has no debug information either. Stack traces do not need it.
	if _, ok := b.repo.goFlags.flag("gcflags"); !ok {
		flags = append(flags, withoutDebugInformation)
	}
	return flags
}

func (b *build) compile(ctx context.Context) (*Result, error) {
	output := b.config.Output
	if output == "" {
		output = filepath.Join(b.dir, "bin", b.main.binary())
	}
	output, err := filepath.Abs(output)
	if err != nil {
		return nil, err
	}
	result := &Result{Binary: output, Manifest: manifestOf(b.points), Points: b.points}
	stamp, err := manifestFlagOf(b.hook, result.Manifest)
	if err != nil {
		return nil, err
	}
	ldflags := b.config.LDFlags
	if ldflags == "" {
		ldflags, _ = b.repo.goFlags.flag("ldflags")
	}
	args := append(b.flags(), "-o", output, "-ldflags", strings.TrimSpace(ldflags+" "+stamp))
	args = append(args, b.shared()...)
	if len(b.overlay) > 0 {
		data, err := json.Marshal(map[string]any{"Replace": b.overlay})
		if err != nil {
			return nil, err
		}
		file := filepath.Join(b.dir, "overlay.json")
		if err := os.MkdirAll(b.dir, 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			return nil, err
		}
		args = append(args, "-overlay", file)
	}
	unlock, err := oneAtATime(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var packages []string
	for _, p := range b.packages {
		packages = append(packages, p.ImportPath)
	}
	b.progress.needs(packages)
	before := fingerprint(output)
	built := 0
	err = b.command.build(ctx, b.main.ImportPath, append(args, b.config.Package), b.progress.downloading,
		func(pkg string) {
			built++
			b.progress.compiled(pkg)
		})
	if err != nil {
		return nil, err
	}
	result.Cached = built == 0 && before != "" && before == fingerprint(output)
	if result.Cached {
		buildcache.MarkUsed(b.dir)
	} else {
		buildcache.MarkChanged(b.dir)
	}
	return result, nil
}

// binary returns the name that go build gives the package's executable.
func (p *pkg) binary() string {
	prefix, major, ok := module.SplitPathVersion(p.ImportPath)
	if ok && strings.HasPrefix(major, "/") {
		return path.Base(prefix)
	}
	return path.Base(p.ImportPath)
}

// manifestOf lists the points that observe something.
func manifestOf(places []points.Patched) wire.Manifest {
	m := wire.Manifest{Builder: builderVersion()}
	for _, p := range places {
		if p.Point != "" {
			m.Points = append(m.Points, p.CompiledPoint)
		}
	}
	return m
}

// manifestFlag makes the linker write the manifest into the hook, so that no package needs to be recompiled for it.
func manifestFlag(m wire.Manifest) (string, error) { return manifestFlagOf(points.HookModule, m) }

func manifestFlagOf(hook string, m wire.Manifest) (string, error) {
	data, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	return "-X " + hook + ".manifest=" + base64.StdEncoding.EncodeToString(data), nil
}

func builderVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Path == "github.com/trommel-dev/trommel" {
		return info.Main.Version
	}
	return "(devel)"
}

// fingerprint changes when the file is linked again: the build ID is near a binary's beginning. Empty if there is no
// file.
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

// keeping runs a build, see [buildcache.Cache.Keep].
func keeping(ctx context.Context, cache *buildcache.Cache, build func() (*Result, error)) (result *Result, err error) {
	err = cache.Keep(ctx, func() (binary string, cached bool, err error) {
		if result, err = build(); err != nil {
			return "", false, err
		}
		return result.Binary, result.Cached, nil
	})
	return result, err
}
