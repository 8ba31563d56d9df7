package main

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/cycle"
	"github.com/trommel-dev/trommel/internal/objects"
)

// ctrlC is what a terminal turns into SIGINT for the program in its foreground.
const ctrlC = "\x03"

// inTerminal is a program whose standard streams are a terminal.
type inTerminal struct {
	t        *testing.T
	cmd      *exec.Cmd
	terminal *os.File
	shown    chan string // what the program writes, until it ends
	all      strings.Builder
}

func startInTerminal(t *testing.T, program string, args ...string) *inTerminal {
	t.Helper()
	p := &inTerminal{t: t, cmd: exec.Command(program, args...), shown: make(chan string)}
	var err error
	if p.terminal, err = pty.Start(p.cmd); err != nil {
		t.Fatalf("start in a pseudo-terminal: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(p.shown)
		buffer := make([]byte, 1<<12)
		for {
			n, err := p.terminal.Read(buffer)
			if err != nil { // the program has ended
				return
			}
			select {
			case p.shown <- string(buffer[:n]):
			case <-ended:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(ended)
		_ = p.cmd.Process.Kill()
		_ = p.terminal.Close()
	})
	return p
}

// await returns when the program has written the text after all that was awaited before.
func (p *inTerminal) await(text string) {
	p.t.Helper()
	timeout := time.After(time.Minute)
	for before := ""; !strings.Contains(before, text); {
		select {
		case more, ok := <-p.shown:
			if !ok {
				p.t.Fatalf("it ended without %q:\n%s", text, p.all.String())
			}
			p.all.WriteString(more)
			before += more
		case <-timeout:
			p.t.Fatalf("no %q:\n%s", text, p.all.String())
		}
	}
}

func (p *inTerminal) write(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.terminal, text); err != nil {
		p.t.Fatal(err)
	}
}

// end returns the exit code, or the signal that has ended the program.
func (p *inTerminal) end() string {
	p.t.Helper()
	late := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	for more := range p.shown {
		p.all.WriteString(more)
	}
	return exitCode(p.cmd.Wait())
}

// testCycleInterrupted presses Ctrl-C while nodes are replaced that never become Ready.
func testCycleInterrupted(t *testing.T, trommel, kubeconfig string, c *objects.Client) {
	for _, tt := range []struct {
		name, answer, code, says string
		goesOn                   bool
	}{
		{"no", "n\n", "3", "goes on in the cluster; kubectl delete cnr -n default no ends it", true},
		{"only-enter", "\n", "3", "goes on in the cluster; kubectl delete cnr -n default only-enter ends it", true},
		{"again", ctrlC, "-1", "", true},
		{"yes", "y\n", "3", "the request yes was ended", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startInTerminal(t, trommel, "cycle", "--kubeconfig", kubeconfig, "-n", "default", "workers",
				"--name", tt.name)
			p.await("cycling nodes: request " + tt.name)
			p.write(ctrlC)
			p.await("End it? Nodes that are not drained yet then stay. [y/N] ")
			p.write(tt.answer)
			if code := p.end(); code != tt.code || !strings.Contains(p.all.String(), tt.says) {
				t.Errorf("exit code %s, want %s and %q\n%s", code, tt.code, tt.says, p.all.String())
			}
			_, err := c.Get(t.Context(), cycle.RequestKey("default", tt.name))
			if apierrors.IsNotFound(err) == tt.goesOn || client.IgnoreNotFound(err) != nil {
				t.Errorf("that the request goes on: want %t, got %v", tt.goesOn, err)
			}
		})
	}
}
