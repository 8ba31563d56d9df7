package instrumentation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/trommel-dev/trommel/internal/child"
)

// goCommand runs the go command in a directory.
type goCommand struct {
	dir         string
	env         []string            // added to that of this process
	work        string              // a workspace file; empty: none
	root        string              // GOROOT, if it is not the command's own
	held        *os.File            // a lock that lasts as long as any go command does
	downloading func(module string) // called for each download, if set
}

func (g *goCommand) command(ctx context.Context, args ...string) *exec.Cmd {
	name := "go"
	if g.root != "" {
		name = filepath.Join(g.root, "bin", "go")
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = g.dir
	work := g.work
	if work == "" {
		work = "off" // a workspace would add its own modules
	}
	// To stamp the binary, go asks git for the repository's state, and git would rewrite its index.
	cmd.Env = append(append(os.Environ(), g.env...), "GOWORK="+work, "PWD="+g.dir, "GIT_OPTIONAL_LOCKS=0")
	if g.root != "" {
		cmd.Env = append(cmd.Env, "GOROOT="+g.root, "GOTOOLCHAIN=local")
	}
	if g.held != nil {
		cmd.ExtraFiles = []*os.File{g.held}
	}
	// The compilers that go starts are killed with it, and all of them with this process: see package child.
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// output returns what the command writes to its standard output.
func (g *goCommand) output(ctx context.Context, args ...string) ([]byte, error) {
	return g.outputOf(ctx, g.command(ctx, args...))
}

func (g *goCommand) outputOf(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	var stdout bytes.Buffer
	stderr := &lines{line: func(text string) bool { return g.download(text, g.downloading) }}
	cmd.Stdout, cmd.Stderr = &stdout, stderr
	err := child.Run(cmd)
	stderr.end()
	if err != nil {
		return stdout.Bytes(), g.failed(ctx, err, cmd.Args[1], stderr.rest.String())
	}
	return stdout.Bytes(), nil
}

// download reports a line about a download.
func (g *goCommand) download(text string, report func(module string)) bool {
	m := downloadLine.FindStringSubmatch(text)
	if m != nil && report != nil {
		report(m[1] + " " + m[2])
	}
	return m != nil
}

// settings are those of the go command's environment and of the user's `go env -w`.
type settings struct {
	GOFLAGS string
	GOWORK  string // the workspace file that it would use; empty: none

	GOROOT, GOVERSION, GOOS, GOARCH, GOMODCACHE string
	CGO                                         string `json:"CGO_ENABLED"`
}

func (g *goCommand) settings(ctx context.Context) (*settings, error) {
	cmd := g.command(ctx, "env", "-json", "GOFLAGS", "GOWORK", "GOROOT", "GOVERSION", "GOOS", "GOARCH", "GOMODCACHE",
		"CGO_ENABLED")
	cmd.Env = append(append(os.Environ(), g.env...), "PWD="+g.dir)
	out, err := g.outputOf(ctx, cmd)
	if err != nil {
		return nil, err
	}
	var s settings
	if err := json.Unmarshal(out, &s); err != nil {
		return nil, fmt.Errorf("read go env: %w", err)
	}
	if s.GOWORK == "off" {
		s.GOWORK = ""
	}
	return &s, nil
}

// flag returns the value of a flag in GOFLAGS, a list of flags separated by blanks; each may be quoted.
func (s *settings) flag(name string) (value string, ok bool) {
	rest := s.GOFLAGS
	for {
		if rest = strings.TrimLeft(rest, " \t\r\n"); rest == "" {
			return value, ok
		}
		var word string
		if q := rest[0]; q == '\'' || q == '"' {
			word, rest, _ = strings.Cut(rest[1:], string(q))
		} else if i := strings.IndexAny(rest, " \t\r\n"); i >= 0 {
			word, rest = rest[:i], rest[i:]
		} else {
			word, rest = rest, ""
		}
		if n, v, _ := strings.Cut(strings.TrimLeft(word, "-"), "="); n == name {
			value, ok = v, true
		}
	}
}

// instruments reports whether GOFLAGS asks for the race detector or another sanitizer. They need cgo.
func (s *settings) instruments() bool {
	return slices.ContainsFunc([]string{"race", "msan", "asan"}, func(name string) bool {
		value, ok := s.flag(name)
		return ok && value != "false"
	})
}

func (g *goCommand) failed(ctx context.Context, err error, verb, stderr string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("run the go command: %w; controllers are built from their source: "+
			"install Go (https://go.dev/dl) or add it to PATH", err)
	}
	if stderr = strings.TrimSpace(stderr); stderr != "" {
		return fmt.Errorf("go %s: %s", verb, withAdvice(stderr))
	}
	return fmt.Errorf("go %s: %w", verb, err)
}

var (
	packageLine  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/~+-]*$`)
	downloadLine = regexp.MustCompile(`^go: downloading (\S+) (\S+)$`)
)

// build runs go build -v. It reports downloads and compiled packages; everything else that the command prints is the
// output of the CompileError that it returns if the command fails.
func (g *goCommand) build(ctx context.Context, pkg string, args []string, downloading func(module string),
	compiled func(pkg string)) error {
	cmd := g.command(ctx, append([]string{"build", "-v"}, args...)...)
	stderr := &lines{line: func(text string) bool {
		switch {
		case g.download(text, downloading):
		case packageLine.MatchString(text):
			compiled(text)
		default:
			return false
		}
		return true
	}}
	cmd.Stdout, cmd.Stderr = io.Discard, stderr
	err := child.Run(cmd)
	stderr.end()
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var exit *exec.ExitError
		if errors.As(err, &exit) && stderr.rest.Len() > 0 {
			return &CompileError{Package: pkg, Dir: g.dir, Output: stderr.rest.String()}
		}
		return g.failed(ctx, err, "build", stderr.rest.String())
	}
	return nil
}

// lines is a writer that passes whole lines to a function, and keeps those that the function does not accept.
type lines struct {
	line    func(text string) bool
	pending []byte
	rest    strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.pending = append(l.pending, p...)
	for {
		i := bytes.IndexByte(l.pending, '\n')
		if i < 0 {
			return len(p), nil
		}
		l.take(l.pending[:i+1])
		l.pending = l.pending[i+1:]
	}
}

func (l *lines) take(line []byte) {
	if !l.line(strings.TrimRight(string(line), "\r\n")) {
		l.rest.Write(line)
	}
}

// end handles a last line without a newline.
func (l *lines) end() {
	if len(l.pending) > 0 {
		l.take(l.pending)
		l.pending = nil
	}
}
