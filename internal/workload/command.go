package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/child"
	"github.com/trommel-dev/trommel/internal/clock"
)

// command runs a command in the suite's directory with KUBECONFIG set. The command and all processes that it has
// started end with the step.
func (r *runner) command(command []string) func(context.Context) error {
	return func(ctx context.Context) error {
		if len(command) == 0 {
			return errors.New("the command is empty")
		}
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = r.dir()
		cmd.Env = append(os.Environ(), "KUBECONFIG="+r.Kubeconfig)
		read, write, err := os.Pipe()
		if err != nil {
			return err
		}
		defer func() { _ = read.Close() }()
		cmd.Stdout, cmd.Stderr = write, write
		fmt.Fprintf(r.Log, "$ %s\n", strings.Join(command, " "))
		// The command runs in the machine's time, because it is not a process of the cluster.
		release := clock.Of(ctx).HoldFor("a command of the workload ran")
		defer release(true)
		p, err := child.Start(cmd)
		_ = write.Close()
		if err != nil {
			return err
		}
		var end tail
		copied := make(chan struct{})
		go func() {
			defer close(copied)
			_, _ = io.Copy(io.MultiWriter(&end, lenient{r.Log}), read)
		}()
		select {
		case <-p.Done():
		case <-ctx.Done():
			p.Kill()
		}
		// A process that has left the process group may still hold the pipe.
		select {
		case <-copied:
		case <-time.After(time.Second):
			_ = read.Close()
			<-copied
		}
		if err := context.Cause(ctx); err != nil {
			return &failure{err: err, detail: end.String()}
		}
		if code := p.ExitCode(); code != 0 {
			return &failure{err: fmt.Errorf("exit code %d", code), detail: end.String()}
		}
		return nil
	}
}

// lenient ignores write errors: a log that cannot be written must not stop the command.
type lenient struct{ io.Writer }

func (l lenient) Write(p []byte) (int, error) {
	_, _ = l.Writer.Write(p)
	return len(p), nil
}

// tail keeps the end of what is written to it.
type tail struct {
	data []byte
	cut  bool
}

const tailSize = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if over := len(t.data) - tailSize; over > 0 {
		t.data = append(t.data[:0], t.data[over:]...)
		t.cut = true
	}
	return len(p), nil
}

func (t *tail) String() string {
	text := strings.TrimRight(string(t.data), "\n")
	if t.cut {
		_, text, _ = strings.Cut(text, "\n")
		text = "…\n" + text
	}
	return text
}
