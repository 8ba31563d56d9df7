package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/internal/clock"
)

// program is a container without a process. Its fields must not change while there are faults.
type program struct {
	name                   string
	started, hooked, heeds bool

	mu       sync.Mutex
	ends     []syscall.Signal
	forgiven int
}

func (p *program) Name() string               { return p.name }
func (p *program) Started() bool              { return p.started }
func (p *program) Hooked() bool               { return p.hooked }
func (p *program) Heeds() (bool, error)       { return p.heeds, nil }
func (p *program) Paths(path string) []string { return []string{path, "/real" + path} }
func (p *program) PID() int                   { return 0 }
func (p *program) MemoryLimit() int64         { return 0 }
func (p *program) ShortOfMemory() (pid int)   { return 0 }
func (p *program) Suspend() (resume func())   { return nil }

func (p *program) End(signal syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends = append(p.ends, signal)
}

func (p *program) Forgive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgiven++
}

func (p *program) seen() (ends []syscall.Signal, forgiven int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.ends), p.forgiven
}

// node is a set of faults without a node, and a client of its socket.
type node struct {
	*testing.T
	set    *Set
	client *http.Client
	dir    string

	mu      sync.Mutex
	changed chan struct{}
}

var host = netip.MustParseAddr("127.0.0.1")

func newNode(t *testing.T) *node {
	t.Helper()
	return newNodeAt(t, nil)
}

// newNodeAt is newNode with a clock for the set.
func newNodeAt(t *testing.T, c *clock.Clock) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "faults") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := &node{T: t, dir: dir, changed: make(chan struct{})}
	socket := filepath.Join(dir, "socket")
	ctx, cancel := context.WithCancel(clock.With(context.Background(), c))
	if n.set, err = New(ctx, Config{
		Node: "process-node", Socket: socket, Host: host, Dir: dir, ServiceAccount: "/account",
		ServiceCIDR: netip.MustParsePrefix("10.96.0.0/16"),
		Service: func(_ context.Context, namespace, name string) (*corev1.Service, error) {
			return nil, fmt.Errorf("no Service %s/%s", namespace, name)
		},
		Headless: func(context.Context, *corev1.Service, string) ([]string, error) { return nil, nil },
		Changed: func() <-chan struct{} {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.changed
		},
		Patience: 10 * time.Second, Logger: slog.New(slog.DiscardHandler),
	}); err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		n.set.Serve()
	}()
	t.Cleanup(func() {
		cancel()
		<-served
	})
	n.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	return n
}

// change says that a process has started or exited.
func (n *node) change() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.changed)
	n.changed = make(chan struct{})
}

// add adds a pod with one container, whose program has all hooks.
func (n *node) add(name, ip string) (*Pod, *program) {
	n.Helper()
	c := &program{name: "main", started: true, hooked: true, heeds: true}
	p, err := n.set.Add(PodConfig{
		UID: types.UID(name), Namespace: "default", Name: name, IP: netip.MustParseAddr(ip), Loopback: host,
		Labels: func() map[string]string { return nil }, Containers: []Container{c},
		DialAPIServer: func(context.Context) (net.Conn, error) { return nil, fmt.Errorf("no API server") },
	})
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(p.Close)
	return p, c
}

// request sends a request to the socket. It returns the status and the answer.
func (n *node) request(method, path string, body any) (int, string) {
	n.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		n.Fatal(err)
	}
	request, err := http.NewRequestWithContext(n.Context(), method, "http://node"+path, bytes.NewReader(data))
	if err != nil {
		n.Fatal(err)
	}
	answer, err := n.client.Do(request)
	if err != nil {
		n.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		n.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// begin begins a fault at the pod and returns what ends it.
func (n *node) begin(pod, kind, spec string) (end func()) {
	n.Helper()
	f := fault.Fault{Kind: v1alpha1.Kind(kind), Pod: types.UID(pod), Spec: json.RawMessage(spec)}
	path := "/faults/" + pod + kind
	if code, text := n.request(http.MethodPut, path, f); code != http.StatusNoContent {
		n.Fatalf("%s: %d %s", kind, code, text)
	}
	return func() {
		if code, text := n.request(http.MethodDelete, path, nil); code != http.StatusNoContent {
			n.Errorf("end %s: %d %s", kind, code, text)
		}
	}
}

func TestAnswersToInjectors(t *testing.T) {
	n := newNode(t)
	n.add("web", "127.9.9.2")
	_, program := n.add("plain", "127.9.9.4")
	program.hooked, program.heeds = false, false
	_, starting := n.add("starting", "127.9.9.6")
	starting.started = false
	for _, tt := range []struct {
		name string
		f    fault.Fault
		code int
		text string
	}{
		{"fine", fault.Fault{Kind: "dns", Pod: "web", Spec: []byte(`{"records":[{"name":"a","fault":"nxdomain"}]}`)},
			204, ""},
		{"unknown kind", fault.Fault{Kind: "earthquake", Pod: "web"}, 501, `kind "earthquake" is unknown`},
		{"impossible kind", fault.Fault{Kind: "podReplacement", Pod: "web"}, 501, "there is no other node"},
		{"another node", fault.Fault{Kind: "dns", Pod: "web", Node: "node-1"}, 501, "the simulated node node-1"},
		{"another pod", fault.Fault{Kind: "dns", Pod: "nobody"}, 404, "no such pod on this node: nobody"},
		{"unknown field", fault.Fault{Kind: "dns", Pod: "web", Spec: []byte(`{"record":[]}`)}, 400,
			`spec of dns: json: unknown field "record"`},
		{"unknown container", fault.Fault{Kind: "cpuPressure", Pod: "web", Containers: []string{"side"},
			Spec: []byte(`{}`)}, 400, `pod default/web has no container "side"`},
		{"no hooks", fault.Fault{Kind: "dns", Pod: "plain", Spec: []byte(`{}`)}, 501, "has no hooks"},
		{"no hooks for files", fault.Fault{Kind: "diskFailure", Pod: "plain", Spec: []byte(`{"paths":["/a"]}`)}, 501,
			"no hooks for faults"},
		{"not started", fault.Fault{Kind: "dns", Pod: "starting", Spec: []byte(`{}`)}, 500, "has not started"},
		{"no certificate", fault.Fault{Kind: "apiFault", Pod: "web", Spec: []byte(`{}`)}, 501, "no certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.f.Spec == nil {
				tt.f.Spec = []byte("{}")
			}
			for _, dryRun := range []string{"?dryRun=1", ""} {
				code, text := n.request(http.MethodPut, "/faults/x"+dryRun, tt.f)
				if code != tt.code || !strings.Contains(text, strings.ReplaceAll(tt.text, `"`, `\"`)) {
					t.Errorf("%s: %d %s", dryRun, code, text)
				}
				if dryRun != "" && len(n.set.List()) > 0 {
					t.Errorf("a dry run has begun %+v", n.set.List())
				}
			}
			if err := n.set.EndAll(t.Context()); err != nil || len(n.set.List()) > 0 {
				t.Errorf("left: %+v, %v", n.set.List(), err)
			}
		})
	}
}

// A fault lasts by the cluster's clock.
func TestEndsByClock(t *testing.T) {
	c := clock.New()
	c.Advance(30 * 24 * time.Hour)
	n := newNodeAt(t, c)
	n.add("web", "127.9.9.2")
	began := c.Now()
	f := fault.Fault{Kind: "containerFailure", Pod: "web", Spec: []byte(`{}`), EndsAt: began.Add(time.Hour)}
	if code, text := n.request(http.MethodPut, "/faults/a", f); code != http.StatusNoContent {
		t.Fatalf("%d %s", code, text)
	}
	active := n.set.list()
	if len(active) != 1 || active[0].Began.Before(began) || active[0].Began.After(c.Now()) {
		t.Fatalf("active: %+v", active)
	}
	c.Advance(30 * time.Minute)
	select {
	case <-active[0].ended:
		t.Fatal("it ended after half of its time")
	default:
	}
	c.Advance(30 * time.Minute)
	<-active[0].ended
}

// A fault ends once: by its injector, by its time, with its pod, or for another one with its ID.
func TestEnds(t *testing.T) {
	n := newNode(t)
	pod, c := n.add("web", "127.9.9.2")
	f := fault.Fault{Kind: "containerFailure", Pod: "web", Spec: []byte(`{}`), Disruption: "default/d"}
	put := func() {
		t.Helper()
		if code, text := n.request(http.MethodPut, "/faults/x", f); code != http.StatusNoContent {
			t.Fatalf("%d %s", code, text)
		}
	}
	forgiven := 0
	ended := func(by string) {
		t.Helper()
		forgiven++
		for i := 0; ; i++ {
			if _, times := c.seen(); times == forgiven && len(n.set.List()) == 0 {
				return
			} else if times > forgiven || i == 1000 {
				t.Fatalf("%s: ended %d times, want %d; left: %+v", by, times, forgiven, n.set.List())
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	put()
	put() // the same again
	list := n.set.List()
	if len(list) != 1 || list[0].ID != "x" || list[0].Disruption != "default/d" || list[0].Pod != "web" {
		t.Errorf("list: %+v", list)
	}
	for range 2 {
		if code, text := n.request(http.MethodDelete, "/faults/x", nil); code != http.StatusNoContent {
			t.Errorf("%d %s", code, text)
		}
	}
	ended("by the injector")

	put()
	f.Spec = []byte(`{"signal":"TERM"}`)
	put()
	if ends, _ := c.seen(); ends[len(ends)-1] != syscall.SIGTERM {
		t.Errorf("signals %v", ends)
	}
	forgiven++ // the first one
	f.EndsAt = time.Now().Add(20 * time.Millisecond)
	put()
	forgiven++
	ended("by its time")

	f.EndsAt = time.Time{}
	put()
	pod.Close()
	ended("with its pod")
	if code, _ := n.request(http.MethodPut, "/faults/x", f); code != http.StatusNotFound {
		t.Errorf("at a pod that has ended: %d", code)
	}
}

// Processes that replace those that a fault has ended are ended, too.
func TestContainerFailureEndsEach(t *testing.T) {
	n := newNode(t)
	_, c := n.add("web", "127.9.9.2")
	end := n.begin("web", "containerFailure", `{}`)
	for want := 1; want < 4; want++ {
		for i := 0; ; i++ {
			ends, forgiven := c.seen()
			if len(ends) == want && forgiven == 0 {
				break
			}
			if len(ends) > want || i == 1000 {
				t.Fatalf("signals %v, want %d; forgiven %d times", ends, want, forgiven)
			}
			time.Sleep(10 * time.Millisecond)
		}
		n.change()
	}
	end()
	before, forgiven := c.seen()
	n.change()
	if after, _ := c.seen(); len(after) != len(before) || forgiven != 1 {
		t.Errorf("signals %v, then %v; forgiven %d times", before, after, forgiven)
	}
	n.begin("web", "containerFailure", `{"once":true}`)()
	if ends, _ := c.seen(); len(ends) != len(before)+1 {
		t.Errorf("once: signals %v, before %v", ends, before)
	}
}

func TestResolve(t *testing.T) {
	n := newNode(t)
	p, _ := n.add("web", "127.9.9.2")
	beside, _ := n.add("beside", "127.9.9.4")
	end := n.begin("web", "dns", `{"records":[
		{"name":"gone.default.svc","fault":"nxdomain"},
		{"name":"*.kube-system.svc","addresses":["10.0.0.1","10.0.0.2"]},
		{"name":"broken.example","fault":"servfail"}]}`)
	for _, tt := range []struct{ name, want, reason string }{
		{"gone", "none", "by the search domain of its namespace"},
		{"GONE.default", "none", ""},
		{"gone.default.svc.cluster.local.", "none", ""},
		{"gone.other", "", "another namespace"},
		{"dns.kube-system.svc", "10.0.0.1 10.0.0.2", ""},
		{"kube-system.svc", "", "not below it"},
		{"broken.example", "servfail", ""},
		{"example", "", ""},
	} {
		if got, ok := p.Resolve(t.Context(), tt.name); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %q, %v, want %q (%s)", tt.name, got, ok, tt.want, tt.reason)
		}
		if got, ok := beside.Resolve(t.Context(), tt.name); ok {
			t.Errorf("beside the target: %s: %q", tt.name, got)
		}
	}
	end()
	if got, ok := p.Resolve(t.Context(), "gone"); ok {
		t.Errorf("after the end: %q", got)
	}
}

// Only connections that a fault disturbs lead to a proxy.
func TestDial(t *testing.T) {
	n := newNode(t)
	p, _ := n.add("web", "127.9.9.2")
	n.add("server", "127.9.9.4")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello")
			_ = c.Close()
		}
	}()
	to := listener.Addr().String()
	for _, tt := range []struct {
		pod, spec, network, wanted, to string
		proxy                          bool
		reason                         string
	}{
		{"web", `{"hosts":[{"host":"10.0.0.7"}]}`, "tcp", "10.0.0.7:80", to, true, ""},
		{"web", `{"hosts":[{"host":"10.0.0.0/8","port":80}]}`, "tcp", "10.0.0.7:80", to, true, ""},
		{"web", `{"hosts":[{"host":"10.0.0.0/8","port":80}]}`, "tcp", "10.0.0.7:81", to, false, "another port"},
		{"web", `{"hosts":[{"host":"10.0.0.7"}]}`, "tcp", "10.0.0.8:80", to, false, "another host"},
		{"web", `{"hosts":[{"host":"10.0.0.7"}]}`, "udp", "10.0.0.7:80", to, false, "not TCP"},
		{"web", `{}`, "tcp", "10.0.0.7:80", to, true, "everything"},
		{"web", `{"hosts":[{"host":"10.0.0.7"}]}`, "tcp", "10.0.0.7:80", p.APIServer(), false, "an API server"},
		{"server", `{"hosts":[{"flow":"ingress"}]}`, "tcp", "10.0.0.7:80", "127.9.9.4:80", true, "to the target"},
		{"server", `{"hosts":[{"flow":"ingress","host":"127.9.9.6"}]}`, "tcp", "10.0.0.7:80", "127.9.9.4:80", false,
			"another client"},
	} {
		t.Run(tt.reason+tt.wanted, func(t *testing.T) {
			spec := `{"delay":"1ms"` + strings.TrimPrefix(strings.Replace(tt.spec, `{"`, `{,"`, 1), "{")
			end := n.begin(tt.pod, "network", spec)
			got, err := p.Dial(tt.network, tt.wanted, tt.to)
			if err != nil || (got != tt.to) != tt.proxy {
				t.Errorf("%s: to %s, %v; want a proxy: %v", spec, got, err, tt.proxy)
			}
			if tt.proxy && tt.to == to {
				c, err := net.Dial("tcp", got)
				if err != nil {
					t.Fatal(err)
				}
				if text, err := io.ReadAll(c); string(text) != "hello" {
					t.Errorf("through the proxy: %q, %v", text, err)
				}
				_ = c.Close()
			}
			end()
			if got, err := p.Dial(tt.network, tt.wanted, tt.to); err != nil || got != tt.to {
				t.Errorf("after the end: to %s, %v", got, err)
			}
		})
	}
}

// Programs read rules for files from a page; another fault of the same container adds to them.
func TestPage(t *testing.T) {
	n := newNode(t)
	p, _ := n.add("web", "127.9.9.2")
	path := filepath.Join(n.dir, "pages", "main")
	for range 2 {
		if got, err := p.Page("main", path); err != nil || got != path {
			t.Fatalf("%s, %v", got, err)
		}
	}
	check := func(quiet bool, want string) {
		t.Helper()
		page, err := os.ReadFile(path)
		if err != nil || len(page) != 8 || bytes.Equal(page[:4], make([]byte, 4)) != quiet {
			t.Errorf("page %q, %v", page, err)
		}
		rules, err := os.ReadFile(path + ".rules")
		if string(rules) != want || (err == nil) == quiet {
			t.Errorf("got  %q, %v\nwant %q", rules, err, want)
		}
	}
	check(true, "")
	kept := "keep\t/account\nkeep\t/real/account\nkeep\t" + n.dir + "\n"
	endFirst := n.begin("web", "diskFailure", `{"paths":["/a/"],"operations":["read","sync"],"error":"ENOSPC"}`)
	first := "fail\t10\t28\t100\t/a\t/real/a\n"
	check(false, kept+first)
	endSecond := n.begin("web", "diskPressure", `{"path":"/b","writeBytesPerSecond":1000}`)
	second := "slow\t0\t1000\t/b\t/real/b\n"
	check(false, kept+first+second)
	endFirst()
	check(false, kept+second)
	endSecond()
	check(true, "")
}

func TestAPIRequest(t *testing.T) {
	for _, tt := range []struct{ method, url, want string }{
		{"GET", "/healthz", "get|||||"},
		{"GET", "/api/v1/pods", "list|pods||||"},
		{"GET", "/api/v1/namespaces/a/pods?watch=true", "watch|pods|||a|"},
		{"GET", "/api/v1/watch/namespaces/a/pods/x", "watch|pods|||a|x"},
		{"GET", "/api/v1/pods?fieldSelector=metadata.name%3Dx", "list|pods||||x"},
		{"POST", "/apis/apps/v1/namespaces/a/deployments", "create|deployments|apps||a|"},
		{"PUT", "/apis/apps/v1/namespaces/a/deployments/x/status", "update|deployments|apps|status|a|x"},
		{"PATCH", "/api/v1/namespaces/a", "patch|namespaces|||a|a"},
		{"PUT", "/api/v1/namespaces/a/finalize", "update|namespaces||finalize|a|a"},
		{"DELETE", "/api/v1/namespaces/a/pods", "deletecollection|pods|||a|"},
		{"DELETE", "/api/v1/nodes/n", "delete|nodes||||n"},
	} {
		request, err := http.NewRequest(tt.method, "https://host"+tt.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		a := parseAPIRequest(request)
		got := strings.Join([]string{a.verb, a.resource, a.group, a.subresource, a.namespace, a.name}, "|")
		if got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.method, tt.url, got, tt.want)
		}
	}
}
