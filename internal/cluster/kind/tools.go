package kind

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/trommel-dev/trommel/internal/buildcache"
	"github.com/trommel-dev/trommel/internal/child"
)

//go:embed launcher/main.go
var launcherSource []byte

//go:generate go test -run TestSources -update .

// The sources of the nested modules program and node, because an installed trommel must be able to build them.
var (
	//go:embed program_src.txtar
	programSource []byte
	//go:embed node_src.txtar
	nodeSource []byte
)

// tools are executables for this machine.
type tools struct {
	program  string // trommel-kind
	launcher string // linked statically, because it runs in any container
}

// buildTools builds the tools, or finds them in the cache.
func buildTools(ctx context.Context, progress func(string)) (tools, error) {
	var t tools
	var err error
	if t.launcher, err = buildLauncher(ctx); err != nil {
		return t, err
	}
	t.program, err = cached("program", []string{string(programSource)}, []string{"trommel-kind"},
		func(dir string) error {
			progress("building trommel-kind")
			return buildModule(ctx, programSource, dir, nil, "trommel-kind")
		})
	if err != nil {
		return t, fmt.Errorf("build trommel-kind: %w", err)
	}
	t.program = filepath.Join(t.program, "trommel-kind")
	return t, nil
}

func buildLauncher(ctx context.Context) (string, error) {
	dir, err := cached("launcher", []string{string(launcherSource)}, []string{"launcher"}, func(dir string) error {
		source := txtar.Format(&txtar.Archive{Files: []txtar.File{
			{Name: "go.mod", Data: []byte("module trommel.dev/launcher\n\ngo 1.24\n")},
			{Name: "main.go", Data: launcherSource},
		}})
		return buildModule(ctx, source, dir, nil, "launcher")
	})
	if err != nil {
		return "", fmt.Errorf("build the launcher: %w", err)
	}
	return filepath.Join(dir, "launcher"), nil
}

// buildModule builds the main package of a module from its sources, as a static executable in dir.
func buildModule(ctx context.Context, source []byte, dir string, flags []string, output string) error {
	src, err := os.MkdirTemp(dir, "src-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(src)
	for _, f := range txtar.Parse(source).Files {
		if err := os.WriteFile(filepath.Join(src, f.Name), f.Data, 0o644); err != nil {
			return err
		}
	}
	args := append([]string{"build", "-trimpath", "-buildvcs=false"}, flags...)
	_, err = goCommand(ctx, src, append(args, "-o", filepath.Join(dir, output), ".")...)
	return err
}

// goCommand runs the go command in a directory, for this machine and without cgo.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	// The user's flags are for the user's modules.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "PWD="+dir)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	if err := child.Run(cmd); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("go %s: %w%s", args[0], err, indent(lastLines(strings.TrimSpace(stderr.String()), 20)))
	}
	return stdout.Bytes(), nil
}

// cached returns the directory in the cache for what fill makes out of the parts; it has the files. Two processes may
// fill it at the same time: the first wins.
func cached(name string, parts, files []string, fill func(dir string) error) (string, error) {
	cache, err := buildcache.Dir()
	if err != nil {
		return "", err
	}
	parent := filepath.Join(cache, "kind")
	dir := filepath.Join(parent, name+"-"+digest(parts...))
	complete := func() bool {
		return !slices.ContainsFunc(files, func(f string) bool { return !exists(filepath.Join(dir, f)) })
	}
	if complete() {
		return dir, nil
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(parent, ".tmp-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := errors.Join(os.Chmod(tmp, 0o755), fill(tmp)); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, dir); err != nil && !complete() {
		return "", err
	}
	return dir, nil
}

// digest returns a name for the content of parts.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))[:20]
}

// downloadModule returns the directory of a module in Go's module cache.
func downloadModule(ctx context.Context, module string) (string, error) {
	out, err := goCommand(ctx, os.TempDir(), "mod", "download", "-json", module)
	if err != nil {
		return "", err
	}
	var m struct{ Dir string }
	if err := json.Unmarshal(out, &m); err != nil {
		return "", err
	}
	return m.Dir, nil
}
