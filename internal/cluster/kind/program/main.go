// Command trommel-kind makes one cluster with kind and removes it when its standard input ends, however the process at
// the other end has ended. It reads requests and writes answers, each a line of JSON, one after the other. kind is a
// library in this module of its own, so that Trommel's is free of it. Its argument is the engine: docker or podman.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/kind/pkg/cluster/nodeutils"
	kinderrors "sigs.k8s.io/kind/pkg/errors"
	kindexec "sigs.k8s.io/kind/pkg/exec"
	"sigs.k8s.io/kind/pkg/log"
)

// request asks for one thing. The package that starts this program has the same type.
type request struct {
	Do         string `json:"do"`                   // list, network, up, load, down
	Name       string `json:"name,omitempty"`       // of the cluster, and of its network
	Dir        string `json:"dir,omitempty"`        // network: the cluster's directory, which is removed with it
	Image      string `json:"image,omitempty"`      // up: the nodes' image
	Config     string `json:"config,omitempty"`     // up: kind's configuration, YAML
	Kubeconfig string `json:"kubeconfig,omitempty"` // up: the file to write
	Archive    string `json:"archive,omitempty"`    // load: a file with images, as docker save writes it
}

// answer is one line of the answer to a request; the last one has Done or Error.
type answer struct {
	Progress string   `json:"progress,omitempty"`
	Done     bool     `json:"done,omitempty"`
	Error    string   `json:"error,omitempty"`
	Names    []string `json:"names,omitempty"`   // list: the clusters
	Gateway  string   `json:"gateway,omitempty"` // network: this machine's address there
	Node     string   `json:"node,omitempty"`    // up: the container
	Address  string   `json:"address,omitempty"` // up: the node's IP
}

func main() {
	// The process that started us decides when we end: a Ctrl-C in the terminal is meant for it.
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGPIPE)
	out := &output{encoder: json.NewEncoder(os.Stdout)}
	p := &program{engine: engines[os.Args[1]]}
	p.provider = cluster.NewProvider(p.engine.provider(), cluster.ProviderWithLogger(logger{out}))
	ended := make(chan struct{})
	for r := range requests(os.Stdin, ended) {
		a, err := p.do(r, ended)
		if err != nil {
			a.Error = describe(err)
		}
		a.Done = err == nil
		out.write(a)
	}
	if err := p.finish(); err != nil {
		fmt.Fprintln(os.Stderr, "trommel-kind:", describe(err))
		os.Exit(1)
	}
}

// finishTimeout is how long to try again what the engine has refused.
const finishTimeout = time.Minute

// finish removes all that is left. An engine gives up the removal of a container that does not end within ten seconds,
// as on a busy machine; it is asked again for as long as it answers.
func (p *program) finish() error {
	began := time.Now()
	for {
		err := p.removeAll()
		if err == nil || time.Since(began) > finishTimeout || p.engine.run("version") != nil {
			return err
		}
		time.Sleep(time.Second)
	}
}

// requests returns the requests that come from in, and closes ended as soon as there are no more, which can be while
// one is being carried out.
func requests(in io.Reader, ended chan<- struct{}) <-chan request {
	all := make(chan request)
	go func() {
		defer close(all)
		defer close(ended)
		decoder := json.NewDecoder(bufio.NewReader(in))
		for {
			var r request
			if err := decoder.Decode(&r); err != nil {
				if !errors.Is(err, io.EOF) {
					fmt.Fprintln(os.Stderr, "trommel-kind:", err)
				}
				return
			}
			all <- r
		}
	}()
	return all
}

// engine is a container engine that kind knows.
type engine struct {
	command    string // its client
	provider   func() cluster.ProviderOption
	networkEnv string // the variable that names the network to kind
	gateways   string // the template of a network's gateways
}

// engines are those that the program's argument names.
var engines = map[string]engine{
	"docker": {
		command: "docker", provider: cluster.ProviderWithDocker, networkEnv: "KIND_EXPERIMENTAL_DOCKER_NETWORK",
		gateways: "{{range .IPAM.Config}}{{.Gateway}}\n{{end}}",
	},
	"podman": {
		command: "podman", provider: cluster.ProviderWithPodman, networkEnv: "KIND_EXPERIMENTAL_PODMAN_NETWORK",
		gateways: "{{range .Subnets}}{{.Gateway}}\n{{end}}",
	},
}

// program knows what it has made.
type program struct {
	engine     engine
	provider   *cluster.Provider
	clusters   []string
	kubeconfig string // of the cluster
	networks   []string
	dir        string // of the cluster
}

// do carries out a request. What takes long fails soon after ended is closed.
func (p *program) do(r request, ended <-chan struct{}) (answer, error) {
	switch r.Do {
	case "list":
		names, err := p.provider.List()
		return answer{Names: names}, err
	case "network":
		p.dir = r.Dir
		gateway, err := p.network(r.Name)
		return answer{Gateway: gateway}, err
	case "up":
		return p.up(r, ended)
	case "load":
		return answer{}, p.load(r)
	case "down":
		return answer{}, p.removeAll()
	}
	return answer{}, fmt.Errorf("unknown request %q", r.Do)
}

// network creates the cluster's own network, and returns this machine's address in it.
func (p *program) network(name string) (gateway string, err error) {
	if err := p.engine.run("network", "inspect", name); err == nil {
		return "", fmt.Errorf("the network %q exists already", name)
	}
	err = p.engine.run("network", "create", "--driver", "bridge", "--label", "dev.trommel.cluster="+name, name)
	if err != nil {
		return "", err
	}
	p.networks = append(p.networks, name)
	lines, err := kindexec.OutputLines(kindexec.Command(p.engine.command, "network", "inspect", "--format",
		p.engine.gateways, name))
	if err != nil {
		return "", err
	}
	for _, line := range lines {
		if line != "" && !strings.Contains(line, ":") {
			return line, nil
		}
	}
	return "", fmt.Errorf("the network %q has no IPv4 gateway", name)
}

func (p *program) up(r request, ended <-chan struct{}) (answer, error) {
	names, err := p.provider.List()
	if err != nil {
		return answer{}, err
	}
	if slices.Contains(names, r.Name) {
		return answer{}, fmt.Errorf("there is already a kind cluster %q", r.Name)
	}
	if err := p.engine.run("image", "inspect", r.Image); err != nil {
		return answer{}, fmt.Errorf("the engine has no image %q", r.Image)
	}
	if err := os.Setenv(p.engine.networkEnv, r.Name); err != nil {
		return answer{}, err
	}
	p.clusters, p.kubeconfig = append(p.clusters, r.Name), r.Kubeconfig
	stop := p.deleteOnceEnded(r.Name, ended)
	err = p.provider.Create(r.Name, cluster.CreateWithRawConfig([]byte(r.Config)),
		cluster.CreateWithNodeImage(r.Image), cluster.CreateWithKubeconfigPath(r.Kubeconfig),
		cluster.CreateWithDisplayUsage(false), cluster.CreateWithDisplaySalutation(false))
	stop()
	if err != nil {
		return answer{}, err
	}
	nodes, err := p.provider.ListInternalNodes(r.Name)
	if err != nil {
		return answer{}, err
	}
	if len(nodes) != 1 {
		return answer{}, fmt.Errorf("the cluster has %d nodes instead of one", len(nodes))
	}
	address, _, err := nodes[0].IP()
	return answer{Node: nodes[0].String(), Address: address}, err
}

// deleteOnceEnded takes the node away from kind, which cannot be interrupted and waits for minutes for what happens on
// the node, once the cluster is not wanted any more. It does so until the function that it returns is called.
func (p *program) deleteOnceEnded(name string, ended <-chan struct{}) (stop func()) {
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-done:
			return
		case <-ended:
		}
		for {
			_ = p.provider.Delete(name, p.kubeconfig) // removeAll reports if it cannot be deleted
			select {
			case <-done:
				return
			case <-time.After(500 * time.Millisecond): // the node may not be there yet
			}
		}
	}()
	return func() {
		close(done)
		<-stopped
	}
}

// load puts the images of an archive into the nodes.
func (p *program) load(r request) error {
	nodes, err := p.provider.ListInternalNodes(r.Name)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		f, err := os.Open(r.Archive)
		if err != nil {
			return err
		}
		err = errors.Join(nodeutils.LoadImageArchive(n, f), f.Close())
		if err != nil {
			return err
		}
	}
	return nil
}

// removeAll removes what this program has made, and what is left it tries again at the next call.
func (p *program) removeAll() error {
	var errs []error
	left := func(names []string, remove func(name string) error) (left []string) {
		for _, name := range names {
			if err := remove(name); err != nil {
				errs = append(errs, err)
				left = append(left, name)
			}
		}
		return left
	}
	p.clusters = left(p.clusters, func(name string) error { return p.provider.Delete(name, p.kubeconfig) })
	p.networks = left(p.networks, func(name string) error { return p.engine.run("network", "rm", name) })
	if p.dir != "" {
		_ = os.RemoveAll(p.dir) // so does the process at the other end, unless it was killed
	}
	return errors.Join(errs...)
}

// run runs the engine's client; an error has what it wrote.
func (e engine) run(args ...string) error {
	text, err := exec.Command(e.command, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", e.command, strings.Join(args, " "), err, strings.TrimSpace(string(text)))
	}
	return nil
}

// describe adds what a failed command wrote.
func describe(err error) string {
	text := err.Error()
	if run := kindexec.RunErrorForError(err); run != nil && len(run.Output) > 0 {
		lines := strings.Split(strings.TrimSpace(string(run.Output)), "\n")
		// kubeadm says what it was, and then where in its source.
		is := func(line string) bool { return strings.HasPrefix(line, "error: ") }
		if at := slices.IndexFunc(lines, is); at >= 0 {
			lines = lines[at : at+1]
		}
		if len(lines) > 40 {
			lines = lines[len(lines)-40:]
		}
		text += "\n\t" + strings.Join(lines, "\n\t")
	}
	for _, e := range kinderrors.Errors(err) {
		if !strings.Contains(text, e.Error()) {
			text += "\n\t" + e.Error()
		}
	}
	return text
}

// output writes answers.
type output struct {
	mu      sync.Mutex
	encoder *json.Encoder
}

func (o *output) write(a answer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.encoder.Encode(a) // if the other end has gone, it is not read; the next read finds out
}

// logger makes kind's log progress.
type logger struct{ out *output }

func (l logger) say(text string) {
	if text = strings.TrimSpace(text); text != "" {
		l.out.write(answer{Progress: text})
	}
}

func (l logger) Warn(message string)               { l.say(message) }
func (l logger) Warnf(format string, args ...any)  { l.say(fmt.Sprintf(format, args...)) }
func (l logger) Error(message string)              { l.say(message) }
func (l logger) Errorf(format string, args ...any) { l.say(fmt.Sprintf(format, args...)) }
func (l logger) V(level log.Level) log.InfoLogger  { return verbosity{l, level} }

// verbosity passes on what everybody should see.
type verbosity struct {
	logger
	level log.Level
}

func (v verbosity) Enabled() bool { return v.level <= 0 }
func (v verbosity) Info(message string) {
	if v.Enabled() {
		v.say(message)
	}
}
func (v verbosity) Infof(format string, args ...any) { v.Info(fmt.Sprintf(format, args...)) }
