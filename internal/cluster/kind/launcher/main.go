// Command launcher is the first process of a container that Trommel observes. It asks Trommel's gate when it may start
// the container's program, reports how the program ends, and kills or stops it when the gate orders it. For the hooks
// in the program it is the coordinator: it passes what they send through the gate, encrypted. Without a gate, it only
// runs the program.
//
// It uses nothing but the standard library, because Trommel builds it from its source when it first needs it. Called as
// pause it is the container that holds the namespaces of a pod.
package main

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// config says where the gate is. It comes from a file, or from the environment.
type config struct {
	Address     string `json:"address"`     // host:port
	Token       string `json:"token"`       // by which the gate knows us
	Fingerprint string `json:"fingerprint"` // of the gate's certificate, SHA-256 in hexadecimal
}

// Variables of the environment. The program does not get them.
const (
	envAddress     = "TROMMEL_GATE"
	envToken       = "TROMMEL_GATE_TOKEN"
	envFingerprint = "TROMMEL_GATE_FINGERPRINT"
	envName        = "TROMMEL_GATE_NAME" // who we are: JSON that only the gate reads
	// Those of the hooks: where the coordinator is, and by which token it knows them.
	envCoordinator      = "TROMMEL_COORDINATOR"
	envCoordinatorToken = "TROMMEL_TOKEN"
)

// hello is the first line on a connection.
type hello struct {
	Token  string          `json:"token"`
	Tunnel bool            `json:"tunnel,omitempty"` // what follows is for the coordinator, as it is
	Name   json.RawMessage `json:"name,omitempty"`
	PID    int             `json:"pid,omitempty"` // the program's, if it runs already
}

// order is a command from the gate.
type order struct {
	ID int    `json:"id"`
	Do string `json:"do"` // start, kill, freeze, thaw, exit
	// Env and Args are what the program that starts gets besides its container's.
	Env  []string `json:"env"`
	Args []string `json:"args"`
}

// report is what we tell the gate.
type report struct {
	Done    int    `json:"done,omitempty"` // the order's ID
	Error   string `json:"error,omitempty"`
	Started int    `json:"started,omitempty"` // the program's process ID
	Exited  *int   `json:"exited,omitempty"`  // its exit code; 128+n for a signal n
	Log     []byte `json:"log,omitempty"`
}

// dialFor is how long we look for a gate before the program starts without one.
const dialFor = 20 * time.Second

func main() {
	if filepath.Base(os.Args[0]) == "pause" {
		pause()
		return
	}
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "launcher:", err)
	}
	os.Exit(code)
}

// pause waits for the end, and takes over the orphans of its pod.
func pause() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for {
		select {
		case <-end:
			return
		case <-children:
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}

func run(args []string) (code int, err error) {
	c := config{os.Getenv(envAddress), os.Getenv(envToken), os.Getenv(envFingerprint)}
	name := os.Getenv(envName)
	if len(args) > 1 && args[0] == "--config" {
		data, err := os.ReadFile(args[1])
		if err != nil {
			return 127, err
		}
		if err := json.Unmarshal(data, &c); err != nil {
			return 127, fmt.Errorf("%s: %w", args[1], err)
		}
		args = args[2:]
	}
	if len(args) < 2 || args[0] != "--" {
		return 127, errors.New("usage: launcher [--config FILE] -- PROGRAM [ARGV...]")
	}
	// The rest has argv[0] first; without a rest it is the program's path.
	p := &program{path: args[1], argv: args[2:]}
	if len(p.argv) == 0 {
		p.argv = args[1:2]
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, envAddress) {
			p.env = append(p.env, v)
		}
	}
	g := &gate{config: c, name: json.RawMessage(name)}
	if c.Address != "" {
		if err := g.tunnel(p); err != nil {
			return 127, err
		}
		g.connect(dialFor)
	}
	return g.supervise(p)
}

// gate is the connection to Trommel.
type gate struct {
	config config
	name   json.RawMessage

	mu   sync.Mutex
	conn net.Conn // nil: there is none
	out  *json.Encoder
	in   *bufio.Reader
}

// dial connects and says hello.
func (g *gate) dial(h hello) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: 2 * time.Second}
	conn, err := tls.DialWithDialer(dialer, "tcp", g.config.Address, &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // this certificate and no other, see below
		MinVersion:         tls.VersionTLS13,
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			if len(raw) == 0 {
				return errors.New("no certificate")
			}
			sum := sha256.Sum256(raw[0])
			if hex.EncodeToString(sum[:]) != g.config.Fingerprint {
				return errors.New("another certificate than the gate's")
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	h.Token = g.config.Token
	if err := json.NewEncoder(conn).Encode(h); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// connect tries until it has a connection or the time is over.
func (g *gate) connect(limit time.Duration) {
	for begin := time.Now(); time.Since(begin) < limit; time.Sleep(100 * time.Millisecond) {
		conn, err := g.dial(hello{Name: g.name})
		if err != nil {
			continue
		}
		g.conn, g.out, g.in = conn, json.NewEncoder(conn), bufio.NewReader(conn)
		return
	}
}

// tell reports to the gate, if there is one.
func (g *gate) tell(r report) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conn == nil {
		return
	}
	_ = g.conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
	if err := g.out.Encode(r); err != nil {
		_ = g.conn.Close() // the reader notices
	}
}

// orders returns the gate's orders. The channel is closed when the connection is lost.
func (g *gate) orders() <-chan order {
	orders := make(chan order)
	if g.conn == nil {
		close(orders)
		return orders
	}
	go func() {
		defer close(orders)
		decoder := json.NewDecoder(g.in)
		for {
			var o order
			if decoder.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	return orders
}

// tunnel listens where the program's hooks look for the coordinator.
func (g *gate) tunnel(p *program) error {
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return err
	}
	// An abstract socket needs no file: the container's file system may be read-only.
	address := "@trommel-" + hex.EncodeToString(random[:])
	listener, err := net.Listen("unix", address)
	if err != nil {
		return err
	}
	p.hooks = []string{envCoordinator + "=unix://" + address, envCoordinatorToken + "=" + g.config.Token}
	go func() {
		for {
			inside, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer inside.Close()
				outside, err := g.dial(hello{Tunnel: true})
				if err != nil {
					return
				}
				defer outside.Close()
				done := make(chan struct{}, 2)
				go func() { _, _ = io.Copy(outside, inside); done <- struct{}{} }()
				go func() { _, _ = io.Copy(inside, outside); done <- struct{}{} }()
				<-done // either end is the end of the session
			}()
		}
	}()
	return nil
}

// program is what the container is for.
type program struct {
	path  string
	argv  []string
	env   []string
	hooks []string // the variables by which its hooks find the coordinator

	cmd    *exec.Cmd
	exited chan int // receives the exit code
	frozen bool
}

func (p *program) running() bool { return p.cmd != nil }

// start starts the program, in a group of its own with its children. Of several values of a variable, the last one
// counts.
func (p *program) start(g *gate, o order) error {
	log := tee{g}
	cmd := &exec.Cmd{
		Path: p.path, Args: slices.Concat(p.argv, o.Args), Env: slices.Concat(p.env, o.Env, p.hooks),
		Stdout: io.MultiWriter(os.Stdout, log), Stderr: io.MultiWriter(os.Stderr, log),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		WaitDelay:   time.Second, // for children that keep its output open
	}
	if !filepath.IsAbs(cmd.Path) {
		path, err := exec.LookPath(cmd.Path)
		if err != nil {
			return err
		}
		cmd.Path = path
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.frozen, p.exited = cmd, false, make(chan int, 1)
	g.tell(report{Started: cmd.Process.Pid})
	go func() {
		_ = cmd.Wait()
		code := cmd.ProcessState.ExitCode()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			code = 128 + int(status.Signal())
		}
		p.exited <- code
	}()
	return nil
}

// signal sends a signal to the program and its children.
func (p *program) signal(s syscall.Signal) {
	if p.running() {
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	}
}

// awaitStopped returns when the program no longer runs, which the kernel sees to soon after the signal.
func (p *program) awaitStopped() {
	for begin := time.Now(); p.running() && time.Since(begin) < 5*time.Second; time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			return
		}
		// The state stands behind the name, which may have any character.
		if _, state, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " "); state == "" ||
			strings.ContainsRune("TtZX", rune(state[0])) {
			return
		}
	}
}

// tee sends what the program writes to the gate.
type tee struct{ gate *gate }

func (t tee) Write(data []byte) (int, error) {
	t.gate.tell(report{Log: data})
	return len(data), nil
}

// supervise carries out the gate's orders until the program has ended by itself, and returns its exit code. If the gate
// is lost, nothing stays stopped.
func (g *gate) supervise(p *program) (code int, err error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1,
		syscall.SIGUSR2)
	orders := g.orders()
	killing := 0 // the order that kills it
	for {
		var exited chan int
		if p.running() {
			exited = p.exited
		}
		select {
		case o, ok := <-orders:
			if !ok {
				orders = nil
				g.mu.Lock()
				g.conn = nil
				g.mu.Unlock()
				o.Do = "thaw"
				if !p.running() {
					o.Do = "start"
				}
			}
			switch o.Do {
			case "start":
				if !p.running() {
					if err := p.start(g, o); err != nil {
						g.tell(report{Done: o.ID, Error: err.Error()})
						return 127, err
					}
				}
			case "kill":
				if p.running() {
					killing = o.ID
					p.signal(syscall.SIGKILL)
					continue // done when it has exited
				}
			case "freeze":
				p.signal(syscall.SIGSTOP)
				p.frozen = true
				p.awaitStopped()
			case "thaw":
				p.signal(syscall.SIGCONT)
				p.frozen = false
			}
			g.tell(report{Done: o.ID})
		case code := <-exited:
			p.cmd = nil
			g.tell(report{Exited: &code})
			if killing == 0 {
				return code, nil
			}
			g.tell(report{Done: killing})
			killing = 0
		case s := <-signals:
			if !p.running() {
				return 128 + int(s.(syscall.Signal)), nil
			}
			p.signal(s.(syscall.Signal))
			if p.frozen && s == syscall.SIGTERM {
				p.signal(syscall.SIGCONT) // the container is to end
			}
		}
	}
}
