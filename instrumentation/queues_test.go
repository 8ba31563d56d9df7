package instrumentation_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// TestQueues builds programs with queues of several ages and reads what their tables say.
func TestQueues(t *testing.T) {
	if testing.Short() {
		t.Skip("builds controllers of several ages")
	}
	for _, program := range []string{"client-go-0.16.0/queues", "client-go-0.26.15/queues", "client-go-0.37.2/queues",
		"client-go-0.32.13/priorityqueue", "client-go-0.37.2/priorityqueue"} {
		t.Run(program, func(t *testing.T) {
			version, pkg := filepath.Split(program)
			result, err := instrumentation.Build(t.Context(), instrumentation.BuildConfig{
				Dir: filepath.Join("testdata", "versions", version), Package: "./" + pkg,
			})
			if err != nil {
				t.Fatal(err)
			}
			q := startQueues(t, result.Binary)
			q.do("add")
			q.wait("queued", func(q wire.Queue) bool { return q.Queued == 1 && q.Working == 0 })
			q.do("get")
			q.wait("working", func(q wire.Queue) bool { return q.Queued == 0 && q.Working == 1 && q.Gets == 1 })
			q.do("add")
			q.wait("queued again", func(q wire.Queue) bool { return q.Queued == 1 && q.Working == 1 })
			q.do("done")
			q.do("get")
			q.do("done")
			q.wait("empty", func(q wire.Queue) bool { return q.Empty() && q.Gets == 2 })

			before := time.Now()
			q.do("30s")
			after := time.Now()
			q.wait("delayed", func(q wire.Queue) bool {
				// It is queued while it is in a buffer.
				return !q.Busy() && q.Delayed == 1 && q.Delays == 1 && q.Earliest.Equal(q.Latest) &&
					!q.Earliest.Before(before.Add(30*time.Second)) && q.Earliest.Before(after.Add(time.Minute))
			})
			q.do("1h")
			q.do("20s")
			moved := func(q wire.Queue) bool {
				return !q.Busy() && q.Delayed == 1 && q.Earliest.Equal(q.Latest) &&
					q.Earliest.Before(before.Add(29*time.Second))
			}
			q.wait("moved ahead", moved)
			q.do("1ms")
			q.do("get")
			q.wait("taken after a delay", func(q wire.Queue) bool {
				taken := q.Queued == 0 && q.Working == 1
				q.Working = 0
				// A delay that is over before the queue sees it does not replace the item's other delay.
				return taken && (q.Delayed == 0 || moved(q))
			})
			q.do("done")
			q.do("30s")
			q.wait("delayed again", func(q wire.Queue) bool { return !q.Busy() && q.Delayed == 1 })
			q.do("shut down")
			q.wait("shut down", wire.Queue.Empty)
		})
	}
}

// queuesProgram is a running program of testdata/versions/src/queues.
type queuesProgram struct {
	t     *testing.T
	path  string // of its table
	in    io.Writer
	lines *bufio.Scanner
}

func startQueues(t *testing.T, binary string) *queuesProgram {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), wire.QueuesVariable+"="+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &queuesProgram{t: t, path: filepath.Join(dir, strconv.Itoa(cmd.Process.Pid)), in: in,
		lines: bufio.NewScanner(out)}
}

// do returns when the program has done it.
func (p *queuesProgram) do(command string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, command); err != nil {
		p.t.Fatal(err)
	}
	if !p.lines.Scan() {
		p.t.Fatalf("%s: the program has ended", command)
	}
}

// wait polls, because no event announces a change of the table.
func (p *queuesProgram) wait(what string, is func(wire.Queue) bool) {
	p.t.Helper()
	var list []wire.Queue
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var err error
		if list, err = wire.ReadQueues(p.path); err != nil && !errors.Is(err, wire.ErrQueuesNotReady) {
			p.t.Fatal(err)
		}
		if len(list) == 1 && list[0].Name == "steps" && is(list[0]) {
			return
		}
	}
	p.t.Fatalf("not %s: %+v", what, list)
}
