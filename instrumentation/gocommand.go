package instrumentation

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// goCommand runs the go command in a folder.
type goCommand struct {
	dir string
	env []string // added to the process's
}

func (g *goCommand) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = g.dir
	// A workspace would bring its own modules in.
	cmd.Env = append(append(os.Environ(), g.env...), "GOWORK=off", "PWD="+g.dir)
	// The compilers that go starts end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// output returns what the command writes to its standard output.
func (g *goCommand) output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := g.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.Bytes(), g.failed(ctx, err, args[0], stderr.String())
	}
	return stdout.Bytes(), nil
}

func (g *goCommand) failed(ctx context.Context, err error, verb, stderr string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("run the go command: %w", err)
	}
	if stderr = strings.TrimSpace(stderr); stderr != "" {
		return fmt.Errorf("go %s: %s", verb, stderr)
	}
	return fmt.Errorf("go %s: %w", verb, err)
}

var (
	packageLine  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/~+-]*$`)
	downloadLine = regexp.MustCompile(`^go: downloading (\S+) (\S+)$`)
)

// build runs go build -v. It reports downloads and compiled packages; whatever else the command says is the output of
// the CompileError that it returns if the command fails.
func (g *goCommand) build(ctx context.Context, pkg string, args []string, downloading func(module string), compiled func(pkg string)) error {
	cmd := g.command(ctx, append([]string{"build", "-v"}, args...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	cmd.Stdout = io.Discard
	if err := cmd.Start(); err != nil {
		return g.failed(ctx, err, "build", "")
	}
	var output strings.Builder
	reader := bufio.NewReader(stderr)
	for {
		line, err := reader.ReadString('\n')
		text := strings.TrimRight(line, "\r\n")
		if m := downloadLine.FindStringSubmatch(text); m != nil {
			downloading(m[1] + " " + m[2])
		} else if packageLine.MatchString(text) {
			compiled(text)
		} else {
			output.WriteString(line)
		}
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var exit *exec.ExitError
		if errors.As(err, &exit) && output.Len() > 0 {
			return &CompileError{Package: pkg, Output: output.String()}
		}
		return g.failed(ctx, err, "build", output.String())
	}
	return nil
}
