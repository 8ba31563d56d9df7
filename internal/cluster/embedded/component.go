package embedded

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/trommel-dev/trommel/internal/child"
	"github.com/trommel-dev/trommel/internal/clock/keeper"
)

// component is one process of the control plane; it can be restarted after it has exited.
type component struct {
	name    string // unique in the cluster: apiserver-2
	program string // that the multi-call executable runs as: kube-apiserver
	binary  string
	args    []string
	env     []string
	logFile string
	keeper  *keeper.Keeper // nil: real time

	mu       sync.Mutex
	process  *child.Process
	logStart int64 // offset at which the log of the running process begins
}

// start starts the process, which must not be running.
func (c *component) start() (*child.Process, error) {
	log, err := os.OpenFile(c.logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	cmd := &exec.Cmd{
		Path:   c.binary,
		Args:   append([]string{c.program}, c.args...),
		Env:    slices.Clone(c.env),
		Stdout: log,
		Stderr: log,
		Dir:    filepath.Dir(c.logFile),
	}
	if err := child.WatchParent(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	p, err := keeper.Adopt(c.keeper, func() (*child.Process, error) { return child.Start(cmd) })
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process = p
	c.logStart = info.Size()
	return p, nil
}

// running returns the process, or nil if it is not running.
func (c *component) running() *child.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process == nil {
		return nil
	}
	select {
	case <-c.process.Done():
		return nil
	default:
		return c.process
	}
}

// ended returns a channel that is closed when the latest process has exited.
func (c *component) ended() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process.Done()
}

// kill kills the process, if it is running, and waits until it has exited.
func (c *component) kill() {
	if p := c.running(); p != nil {
		p.Kill()
	}
}

// whileRunning runs f. If the process exits meanwhile, it cancels f's context and returns an error that says so.
func (c *component) whileRunning(ctx context.Context, f func(context.Context) error) error {
	p := c.running()
	if p == nil {
		return c.died()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-p.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	err := f(ctx)
	cancel()
	<-watched
	if err == nil {
		return nil
	}
	select {
	case <-p.Done():
		return c.died()
	default:
		return err
	}
}

// died returns an error that describes the end of the process, with the last lines of its log.
func (c *component) died() error {
	c.mu.Lock()
	p, start := c.process, c.logStart
	c.mu.Unlock()
	how := "is not running"
	if p != nil {
		how = fmt.Sprintf("exited with code %d", p.ExitCode())
		if n := p.ExitCode() - 128; n > 0 {
			how = fmt.Sprintf("was killed by signal %d", n)
		}
	}
	tail := c.logTail(start, 12)
	if tail == "" {
		return fmt.Errorf("%s %s; it logged nothing", c.name, how)
	}
	return fmt.Errorf("%s %s; the end of its log:\n%s", c.name, how, tail)
}

// logTail returns the last lines of the log after the offset, indented.
func (c *component) logTail(from int64, lines int) string {
	f, err := os.Open(c.logFile)
	if err != nil {
		return ""
	}
	defer f.Close()
	const enough = 32 << 10
	if size, err := f.Seek(0, io.SeekEnd); err == nil && size-enough > from {
		from = size - enough
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(f, enough))
	if err != nil {
		return ""
	}
	all := strings.Split(string(bytes.TrimRight(text, "\n")), "\n")
	if last := all[len(all)-1]; strings.HasPrefix(last, "Error: ") {
		// Before this line is the command's usage, several pages long.
		lines = 1
	}
	for i, line := range all {
		// What matters of a panic is its beginning; the goroutines behind it are longer than the tail.
		if (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")) && i+lines < len(all) {
			all = all[max(0, i-1) : i+lines-1]
			break
		}
	}
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	if len(all) == 1 && all[0] == "" {
		return ""
	}
	return "\t" + strings.Join(all, "\n\t")
}

// baseEnv is the part of this process's environment that components get: nothing that would change their behavior.
func baseEnv(home string) []string {
	// They work together on each write, and clusters run side by side: with all processors for each of them, a tenth of
	// the processor time goes into waking threads.
	procs := max(1, runtime.GOMAXPROCS(0)/2)
	env := []string{"HOME=" + home, "TMPDIR=" + home, fmt.Sprintf("GOMAXPROCS=%d", procs)}
	for _, name := range []string{"PATH", "GOTRACEBACK", "TZ"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// featureGates formats gates as a command line argument; nil for none.
func featureGates(gates map[string]bool) []string {
	if len(gates) == 0 {
		return nil
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(gates)) {
		parts = append(parts, fmt.Sprintf("%s=%t", name, gates[name]))
	}
	return []string{"--feature-gates=" + strings.Join(parts, ",")}
}
