package kind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// program is a running trommel-kind. It removes what it has made when its standard input ends, so also if this process
// is killed.
type program struct {
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	requests *json.Encoder
	answers  chan answer // closed when the program writes no more
	progress func(string)
	stderr   *tail

	mu sync.Mutex // one request at a time
}

// request and answer are trommel-kind's.
type request struct {
	Do         string `json:"do"`
	Name       string `json:"name,omitempty"`
	Dir        string `json:"dir,omitempty"`
	Image      string `json:"image,omitempty"`
	Config     string `json:"config,omitempty"`
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Archive    string `json:"archive,omitempty"`
}

type answer struct {
	Progress string   `json:"progress"`
	Done     bool     `json:"done"`
	Error    string   `json:"error"`
	Names    []string `json:"names"`
	Gateway  string   `json:"gateway"`
	Node     string   `json:"node"`
	Address  string   `json:"address"`
}

// startProgram starts trommel-kind. Progress receives what kind says.
func startProgram(binary string, progress func(string)) (*program, error) {
	p := &program{cmd: exec.Command(binary, client()), answers: make(chan answer), progress: progress, stderr: &tail{}}
	// A Ctrl-C in the terminal must not reach the programs that kind starts.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = p.stderr
	p.cmd.Env = os.Environ()
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start trommel-kind: %w", err)
	}
	p.requests = json.NewEncoder(p.stdin)
	go func() {
		defer close(p.answers)
		decoder := json.NewDecoder(stdout)
		for {
			var a answer
			if decoder.Decode(&a) != nil {
				return
			}
			p.answers <- a
		}
	}()
	return p, nil
}

// ask sends a request and waits for its answer. If ctx ends first, the program can only be closed.
func (p *program) ask(ctx context.Context, r request) (answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.requests.Encode(r); err != nil {
		return answer{}, fmt.Errorf("kind: %w%s", err, indent(p.stderr.String()))
	}
	for {
		select {
		case a, ok := <-p.answers:
			switch {
			case !ok:
				return answer{}, fmt.Errorf("kind: trommel-kind has ended%s", indent(p.stderr.String()))
			case a.Error != "":
				return a, fmt.Errorf("kind: %s", a.Error)
			case a.Done:
				return a, nil
			}
			p.progress(a.Progress)
		case <-ctx.Done():
			return answer{}, context.Cause(ctx)
		}
	}
}

// close lets the program remove what it has made, and waits for that. If ctx ends first the program goes on alone.
func (p *program) close(ctx context.Context) error {
	_ = p.stdin.Close()
	done := make(chan error, 1)
	go func() {
		for range p.answers { // the answer to a request that was given up
		}
		done <- p.cmd.Wait()
	}()
	select {
	case err := <-done:
		if err != nil {
			err = fmt.Errorf("remove the cluster: %w%s", err, indent(p.stderr.String()))
		}
		return err
	case <-ctx.Done():
		return errors.Join(errors.New("remove the cluster: it is still being removed"), context.Cause(ctx))
	}
}

// tail keeps the end of what is written.
type tail struct {
	mu   sync.Mutex
	data []byte
}

func (t *tail) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, data...)
	if over := len(t.data) - 8<<10; over > 0 {
		t.data = append([]byte(nil), t.data[over:]...)
	}
	return len(data), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return lastLines(string(t.data), 20)
}
