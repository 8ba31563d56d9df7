package instrumentation

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/txtar"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"github.com/trommel-dev/trommel/instrumentation/points"
	"github.com/trommel-dev/trommel/internal/atomicfile"
	"github.com/trommel-dev/trommel/internal/buildcache"
	"github.com/trommel-dev/trommel/internal/download"
)

//go:generate go test -run TestControlPlaneSource -update .

//go:embed controlplane_src.txtar
var controlPlaneSource []byte

// KubernetesVersion is the version of the control plane that BuildControlPlane builds by default.
const KubernetesVersion = "v1.36.3"

// KubernetesVersions lists the versions that BuildControlPlane can build, newest first: one of each minor version.
func KubernetesVersions() []string {
	versions := sortedKeys(controlPlaneModules())
	semver.Sort(versions)
	slices.Reverse(versions)
	return versions
}

// ResolveKubernetesVersion finds the version for v1.36.3, v1.36 or either without the v. An empty string means the
// default. The error lists the known versions.
func ResolveKubernetesVersion(version string) (string, error) {
	if version == "" {
		return KubernetesVersion, nil
	}
	want := "v" + strings.TrimPrefix(version, "v")
	for _, have := range KubernetesVersions() {
		if want == have || want == semver.MajorMinor(have) {
			return have, nil
		}
	}
	return "", fmt.Errorf("unknown Kubernetes version %s: this trommel builds control planes of %s", version,
		strings.Join(KubernetesVersions(), ", "))
}

// controlPlaneModules maps each version of Kubernetes to the name of its go.mod in the nested module: go.mod or
// go-1.37.mod, which is an alternative to it as the go command's flag -modfile takes it.
var controlPlaneModules = sync.OnceValue(func() map[string]string {
	modules := map[string]string{}
	for _, f := range txtar.Parse(controlPlaneSource).Files {
		if path.Ext(f.Name) != ".mod" {
			continue
		}
		file, err := modfile.ParseLax(f.Name, f.Data, nil)
		if err != nil {
			panic(err) // a test reads the archive
		}
		for _, r := range file.Require {
			if r.Mod.Path == "k8s.io/kubernetes" {
				modules[r.Mod.Version] = f.Name
			}
		}
	}
	return modules
})

// controlPlaneFiles returns the sources of a version's control plane, as one module.
func controlPlaneFiles(version string) []txtar.File {
	mod := controlPlaneModules()[version]
	sum := strings.TrimSuffix(mod, ".mod") + ".sum"
	var files []txtar.File
	for _, f := range txtar.Parse(controlPlaneSource).Files {
		switch {
		case f.Name == mod:
			f.Name = "go.mod"
		case f.Name == sum:
			f.Name = "go.sum"
		case path.Ext(f.Name) == ".mod" || path.Ext(f.Name) == ".sum":
			continue
		}
		files = append(files, f)
	}
	return files
}

// encoderTemplate is an additional file with which the hook can encode an API server's internal objects.
const encoderTemplate = "controlplane_encoder.go.tmpl"

// withoutDebugInformation spares the compiler some of its time.
const withoutDebugInformation = "-gcflags=all=-dwarf=false"

// controlPlaneMain is the package that is built, relative to the module.
const controlPlaneMain = "."

// ControlPlaneConfig says how to build the control plane. Its zero value works.
type ControlPlaneConfig struct {
	KubernetesVersion string // see ResolveKubernetesVersion; default KubernetesVersion
	Platform          string // such as linux/arm64; default: this machine's
	Plain             bool   // without hooks, to measure their cost
	FromSource        bool   // take none that was built elsewhere; EnvBuild does the same
	Output            string // path for a copy of the binary; it stays in the cache too
	CacheDir          string // default: buildcache.Dir()
	// After delays the compiler until it is closed; nil: no delay. Controllers are compiled first: their authors see
	// their own mistakes soon.
	After <-chan struct{}
	// Progress is called with what is being done at the moment, from one goroutine at a time.
	Progress func(line string)
	// Notice is called with what the user should read even if it is past; default: Progress.
	Notice func(line string)
}

// BuildControlPlane provides the multi-call binary of etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
// KWOK, with hooks in the API server and in client-go. The first time, it fetches it from a release that has it (see
// EnvReleaseURL), or builds it, which takes minutes; later the result is read from the cache. It returns an *InputError
// for a version that it cannot build.
func BuildControlPlane(ctx context.Context, config ControlPlaneConfig) (*Result, error) {
	b, err := configured(config)
	if err != nil {
		return nil, err
	}
	c, err := buildcache.Open(config.CacheDir)
	if err != nil {
		return nil, err
	}
	b.cache = c
	result, err := keeping(ctx, c, func() (*Result, error) { return b.run(ctx) })
	if err != nil {
		return nil, fmt.Errorf("build control plane: %w", err)
	}
	if config.Output != "" {
		if err := copyBinary(result.Binary, config.Output); err != nil {
			return nil, err
		}
		result.Binary = config.Output
	}
	return result, nil
}

// configured returns the build that config describes, without a cache.
func configured(config ControlPlaneConfig) (*controlPlaneBuild, error) {
	version, err := ResolveKubernetesVersion(config.KubernetesVersion)
	if err != nil {
		return nil, inputErrorf("%v", err)
	}
	b := &controlPlaneBuild{version: version, plain: config.Plain,
		fromSource: config.FromSource || config.Plain || os.Getenv(EnvBuild) != "",
		after:      config.After, progress: &progress{report: config.Progress}, notice: config.Notice}
	if b.notice == nil {
		b.notice = b.progress.phase
	}
	if b.platform, err = parsePlatform(config.Platform); err != nil {
		return nil, err
	}
	b.key, err = b.digest()
	return b, err
}

type controlPlaneBuild struct {
	version    string
	platform   platform
	plain      bool
	fromSource bool // not one that was built elsewhere
	after      <-chan struct{}
	cache      *buildcache.Cache
	progress   *progress
	notice     func(line string)
	key        string
}

// platform is what a binary runs on; the zero value is this machine's.
type platform struct{ goos, goarch string }

func parsePlatform(text string) (platform, error) {
	if text == "" {
		return platform{}, nil
	}
	goos, goarch, ok := strings.Cut(text, "/")
	if !ok || goos == "" || goarch == "" {
		return platform{}, inputErrorf("platform %q: want an operating system and an architecture, such as linux/arm64",
			text)
	}
	return platform{goos, goarch}, nil
}

func (p platform) os() string   { return cmp.Or(p.goos, runtime.GOOS) }
func (p platform) arch() string { return cmp.Or(p.goarch, runtime.GOARCH) }

func (p platform) String() string { return p.os() + "/" + p.arch() }

// digest returns a name for everything that goes into the binary except the Go toolchain and yamux: their upgrades need
// no rebuild. (If an upgrade of yamux does, wire.ProtocolVersion is raised with it.)
func (b *controlPlaneBuild) digest() (string, error) {
	parts := []string{string(txtar.Format(&txtar.Archive{Files: controlPlaneFiles(b.version)})), b.versionFlags(),
		b.platform.os(), b.platform.arch()}
	if b.plain {
		return buildcache.Digest(append(parts, "plain")...), nil
	}
	hook, err := buildcache.DigestFS(hookSource)
	if err != nil {
		return "", err
	}
	inserted, err := points.Inserted(points.ControlPlaneModules...)
	if err != nil {
		return "", err
	}
	encoder, err := points.Template(encoderTemplate)
	if err != nil {
		return "", err
	}
	standard, err := points.InsertedStandard()
	if err != nil {
		return "", err
	}
	return buildcache.Digest(append(parts, hook, inserted, string(encoder), standard, withoutDebugInformation)...), nil
}

// versionFlags returns linker flags that stamp the binary like Kubernetes' own release build.
func (b *controlPlaneBuild) versionFlags() string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(b.version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range []string{
			"gitVersion=" + b.version, "gitMajor=" + major, "gitMinor=" + minor, "gitTreeState=clean",
			"gitCommit=trommel", "buildDate=2026-01-01T00:00:00Z",
		} {
			flags = append(flags, "-X "+pkg+"."+v)
		}
	}
	return "-s -w " + strings.Join(flags, " ")
}

func (b *controlPlaneBuild) run(ctx context.Context) (*Result, error) {
	dir := b.cache.Path("controlplane/" + b.key)
	binary := filepath.Join(dir, controlPlaneBinary)
	if result, err := b.have(dir, binary); err == nil {
		return result, nil
	}
	unlock, err := b.cache.Lock(ctx, "controlplane/"+b.key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if result, err := b.have(dir, binary); err == nil {
		return result, nil // another process has built it while we waited
	}
	if result, err := b.prebuilt(ctx, dir, binary); result != nil || err != nil {
		return result, err
	}

	src := filepath.Join(dir, "src")
	if err := b.writeSources(src); err != nil {
		return nil, err
	}
	b.progress.phase("download modules")
	command := &goCommand{dir: src, env: []string{"CGO_ENABLED=0", "GOOS=" + b.platform.os(),
		"GOARCH=" + b.platform.arch()}}
	generated, err := generate(src, filepath.Join(dir, "mod"), command)
	if err != nil {
		return nil, err
	}
	result := &Result{Binary: binary}
	ldflags := b.versionFlags()
	if !b.plain {
		if result.Points, err = b.patch(ctx, src, generated); err != nil {
			return nil, err
		}
		result.Manifest = manifestOf(result.Points)
		stamp, err := manifestFlag(result.Manifest)
		if err != nil {
			return nil, err
		}
		ldflags += " " + stamp
	}
	// Controllers with the same modules share the compiled packages, see build.shared.
	flags := append(generated.flags(), "-ldflags", ldflags, "-trimpath", withoutDebugInformation)
	if !b.plain {
		overlay, err := b.standard(ctx, command, dir)
		if err != nil {
			return nil, err
		}
		flags = append(flags, "-overlay", overlay)
	}
	if err := b.compile(ctx, command, flags, binary+".new"); err != nil {
		return nil, err
	}
	if err := writeResult(dir, result); err != nil {
		return nil, err
	}
	if err := os.Rename(binary+".new", binary); err != nil {
		return nil, err
	}
	_ = os.Remove(filepath.Join(dir, packedFile+download.PartSuffix)) // of a download that failed
	buildcache.MarkChanged(dir)
	return result, nil
}

// have returns the result of an earlier build, and records that it is used.
func (b *controlPlaneBuild) have(dir, binary string) (*Result, error) {
	result, err := readResult(dir, binary)
	if err != nil {
		return nil, err
	}
	if result.Prebuilt && b.fromSource {
		return nil, errors.New("it was not built here")
	}
	buildcache.MarkUsed(dir)
	return result, nil
}

// writeSources writes the module to build. It removes the files of an interrupted build.
func (b *controlPlaneBuild) writeSources(src string) error {
	if err := os.RemoveAll(src); err != nil {
		return err
	}
	files := controlPlaneFiles(b.version)
	if !b.plain {
		encoder, err := points.Template(encoderTemplate)
		if err != nil {
			return err
		}
		files = append(files, txtar.File{Name: "zz_trommel_encoder.go", Data: encoder})
	}
	for _, f := range files {
		to := filepath.Join(src, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, f.Data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// patch makes the generated go.mod point to patched copies.
func (b *controlPlaneBuild) patch(
	ctx context.Context, src string, generated *generatedModule,
) ([]points.Patched, error) {
	config := hookConfig{importPath: points.HookModule, downloading: b.progress.downloading}
	hookDir, err := hookDir(ctx, b.cache, config)
	if err != nil {
		return nil, err
	}
	modules, err := generated.modules(ctx, points.ControlPlaneModules...)
	if err != nil {
		return nil, err
	}
	b.progress.phase("patch")
	var places []points.Patched
	copies := map[string]string{}
	for _, module := range points.ControlPlaneModules {
		m := modules[module]
		if m == nil {
			return nil, fmt.Errorf("%s is not among its modules", module)
		}
		version, from, local := m.source()
		copied, found, err := (&points.ModuleCopy{Path: module, Version: version, Dir: from, Local: local,
			Hook: points.HookModule}).Make(b.cache)
		if err != nil {
			return nil, err
		}
		copies[module] = copied
		places = append(places, found...)
	}
	return places, generated.replaceWith(src, hookDir, copies)
}

// standard writes the overlay of the standard library and returns its path. The components need only the run's clock
// from it. They get all of it, so that controllers share the packages.
func (b *controlPlaneBuild) standard(ctx context.Context, command *goCommand, dir string) (string, error) {
	settings, err := command.settings(ctx)
	if err != nil {
		return "", err
	}
	g, root, err := goRootFor(b.cache, settings)
	if err != nil {
		return "", err
	}
	command.root = root
	overlay, _, err := g.Overlay(b.cache)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, data, 0o644)
}

// compile builds the module that command works in.
func (b *controlPlaneBuild) compile(ctx context.Context, command *goCommand, flags []string, output string) error {
	if b.after != nil {
		select {
		case <-b.after:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	unlock, err := oneAtATime(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	// The packages are listed while the build runs: it takes seconds, and only the progress report needs them.
	counting, stopCounting := context.WithCancel(ctx)
	counted := make(chan struct{})
	defer func() {
		stopCounting()
		<-counted
	}()
	go func() {
		defer close(counted)
		if out, err := command.output(counting, append(append([]string{"list"}, flags...), "-deps", "-e",
			controlPlaneMain)...); err == nil {
			b.progress.needs(strings.Fields(string(out)))
		}
	}()
	return command.build(ctx, "controlplane", append(flags[:len(flags):len(flags)], "-o", output, controlPlaneMain),
		b.progress.downloading, b.progress.compiled)
}

const (
	resultFile         = "result.json"
	controlPlaneBinary = "trommel-controlplane"
)

func writeResult(dir string, r *Result) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, resultFile), data, 0o644)
}

// readResult reads the result of an earlier build; the binary is written last.
func readResult(dir, binary string) (*Result, error) {
	if _, err := os.Stat(binary); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, resultFile))
	if err != nil {
		return nil, err
	}
	var r Result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	r.Binary, r.Cached = binary, true
	return &r, nil
}

func copyBinary(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return atomicfile.Write(to, data, 0o755) // a running binary cannot be written to
}
