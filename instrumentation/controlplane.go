package instrumentation

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/txtar"
)

//go:generate go test -run TestControlPlaneSource -update .

//go:embed controlplane_src.txtar
var controlPlaneSource []byte

// KubernetesVersion is the version of the control plane that BuildControlPlane builds.
const KubernetesVersion = "v1.36.3"

// encoderTemplate is the file added to it that teaches the hook to write an API server's internal objects.
const encoderTemplate = "points/controlplane_encoder.go.tmpl"

// controlPlaneMain is the package that is built, relative to the module.
const controlPlaneMain = "."

// ControlPlaneConfig says how to build the control plane. Its zero value works.
type ControlPlaneConfig struct {
	Output   string            // a copy of the binary, beside the one in the cache
	CacheDir string            // default CacheDir()
	Progress func(line string) // called with lines for people, from one goroutine at a time
}

// BuildControlPlane builds the multi-call binary of etcd, kube-apiserver, kube-controller-manager, kube-scheduler and
// KWOK, with hooks in the API server and in client-go. It takes minutes the first time and is read from the cache after.
func BuildControlPlane(ctx context.Context, config ControlPlaneConfig) (*Result, error) {
	c, err := openCache(config.CacheDir)
	if err != nil {
		return nil, err
	}
	key, err := controlPlaneKey()
	if err != nil {
		return nil, err
	}
	result, err := buildControlPlane(ctx, c, key, &progress{report: config.Progress})
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

// controlPlaneKey names all that goes into the binary but the Go toolchain, whose upgrade is no reason to build it again.
func controlPlaneKey() (string, error) {
	hook, err := digestFS(hookSource)
	if err != nil {
		return "", err
	}
	inserted, err := insertedInto(moduleClientGo, moduleAPIServer)
	if err != nil {
		return "", err
	}
	encoder, err := templates.ReadFile(encoderTemplate)
	if err != nil {
		return "", err
	}
	return digest(string(controlPlaneSource), hook, inserted, string(encoder), versionFlags(), runtime.GOOS, runtime.GOARCH), nil
}

// versionFlags stamps the binary as Kubernetes' own release build would.
func versionFlags() string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(KubernetesVersion, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range []string{
			"gitVersion=" + KubernetesVersion, "gitMajor=" + major, "gitMinor=" + minor, "gitTreeState=clean",
			"gitCommit=trommel", "buildDate=2026-01-01T00:00:00Z",
		} {
			flags = append(flags, "-X "+pkg+"."+v)
		}
	}
	return "-s -w " + strings.Join(flags, " ")
}

func buildControlPlane(ctx context.Context, c *cache, key string, p *progress) (*Result, error) {
	dir := filepath.Join(c.dir, "controlplane", key)
	binary := filepath.Join(dir, "trommel-controlplane")
	if result, err := readResult(dir, binary); err == nil {
		return result, nil
	}
	unlock, err := c.lock(ctx, "controlplane/"+key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if result, err := readResult(dir, binary); err == nil {
		return result, nil // built while we waited
	}

	// Sources that were left by an interrupted build are written again.
	src := filepath.Join(dir, "src")
	if err := os.RemoveAll(src); err != nil {
		return nil, err
	}
	for _, f := range txtar.Parse(controlPlaneSource).Files {
		to := filepath.Join(src, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(to, f.Data, 0o644); err != nil {
			return nil, err
		}
	}
	encoder, err := templates.ReadFile(encoderTemplate)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(src, "zz_trommel_encoder.go"), encoder, 0o644); err != nil {
		return nil, err
	}

	p.phase("download modules")
	command := &goCommand{dir: src, env: []string{"CGO_ENABLED=0"}}
	generated, err := generate(src, filepath.Join(dir, "mod"), command)
	if err != nil {
		return nil, err
	}
	hookDir, err := c.hookModuleDir()
	if err != nil {
		return nil, err
	}
	modules, err := generated.modules(ctx, moduleClientGo, moduleAPIServer)
	if err != nil {
		return nil, err
	}
	p.phase("patch")
	result := &Result{Binary: binary}
	copies := map[string]string{}
	for _, path := range []string{moduleClientGo, moduleAPIServer} {
		m := modules[path]
		if m == nil {
			return nil, fmt.Errorf("%s is not among its modules", path)
		}
		version, from, local := m.source()
		copied, found, err := c.patchedModule(path, version, from, local, nil)
		if err != nil {
			return nil, err
		}
		copies[path] = copied
		result.Points = append(result.Points, found...)
	}
	if err := generated.replaceWith(src, hookDir, copies); err != nil {
		return nil, err
	}
	result.Manifest = manifestOf(result.Points)
	stamp, err := manifestFlag(result.Manifest)
	if err != nil {
		return nil, err
	}

	// The number of packages is asked for beside the build: it takes seconds, and only the progress wants to know.
	var total atomic.Int64
	counting, stopCounting := context.WithCancel(ctx)
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		args := append([]string{"list"}, generated.flags()...)
		if out, err := command.output(counting, append(args, "-deps", "-e", controlPlaneMain)...); err == nil {
			total.Store(int64(bytes.Count(out, []byte("\n"))))
		}
	}()
	err = command.build(ctx, "controlplane", append(generated.flags(), "-o", binary+".new", "-ldflags", versionFlags()+" "+stamp, controlPlaneMain),
		p.downloading, func(pkg string) { p.compiled(pkg, int(total.Load())) })
	stopCounting()
	<-counted
	if err != nil {
		return nil, err
	}
	if err := writeResult(dir, result); err != nil {
		return nil, err
	}
	if err := os.Rename(binary+".new", binary); err != nil {
		return nil, err
	}
	return result, nil
}

const resultFile = "result.json"

func writeResult(dir string, r *Result) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, resultFile), data, 0o644)
}

// readResult reads what a former build left; the binary comes last.
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
	// Written beside and renamed: a binary that runs cannot be written to.
	if err := os.WriteFile(to+".new", data, 0o755); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}
