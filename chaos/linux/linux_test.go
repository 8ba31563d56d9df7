package linux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
)

func request(p *runningPod, kind, spec string) inject.Request {
	return inject.Request{
		Kind: v1alpha1.Kind(kind), Spec: json.RawMessage(spec),
		Disruption: "default/test", DisruptionUID: "6f1d0a3e-0000-4000-8000-1",
		Target: inject.Target{Namespace: "default", Pod: "target", UID: p.uid, Node: "worker"},
		EndsAt: time.Now().Add(time.Hour),
	}
}

// newPair makes a target and a control target, each with the container app.
func newPair(t *testing.T) (n *node, target, control *runningPod) {
	t.Helper()
	n = newNode(t)
	target, control = n.newPod(false), n.newPod(true)
	target.start("app")
	control.start("app")
	return n, target, control
}

// injecting injects a fault and returns when it is in effect. The function that it returns removes it again.
func injecting(t *testing.T, r inject.Request) (remove func()) {
	t.Helper()
	return injectingBy(t, backend(os.Getpid()), r)
}

func injectingBy(t *testing.T, by *Backend, r inject.Request) (remove func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	states, ended := make(chan inject.State, 8), make(chan error, 1)
	go func() {
		ended <- inject.Run(ctx, inject.Config{
			Request: r, Backends: []inject.Backend{by}, Backend: Name, Journal: t.TempDir(),
			Report: func(s inject.State) { states <- s },
		})
	}()
	if s := <-states; s.State != v1alpha1.InjectionInjected {
		cancel()
		<-ended
		t.Fatalf("%s %s: %s: %s", r.Kind, r.Spec, s.State, s.Error)
	}
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// servers are the programs beside the pods.
type servers struct {
	// arrived counts UDP packets and bytes of TCP, by the sender's address and the server's.
	arrived sync.Map
	// patient waits for more answers than there were packets.
	patient bool
}

func (s *servers) count(from, at net.Addr) *atomic.Int64 {
	count, _ := s.arrived.LoadOrStore(from.String()+" "+at.String(), &atomic.Int64{})
	return count.(*atomic.Int64)
}

// listen starts an echo of UDP and TCP at a port of the server's addresses.
func (s *servers) listen(n *node, port int) {
	for _, host := range []string{host1, host2, host6} {
		at := net.JoinHostPort(host, strconv.Itoa(port))
		var udp net.PacketConn
		var tcp net.Listener
		n.check(n.server.do(func() (err error) {
			if udp, err = net.ListenPacket("udp", at); err != nil {
				return err
			}
			tcp, err = net.Listen("tcp", at)
			return err
		}))
		n.check(enlarge(udp))
		n.t.Cleanup(func() { _, _ = udp.Close(), tcp.Close() })
		go func() {
			buffer := make([]byte, 2048)
			for {
				size, from, err := udp.ReadFrom(buffer)
				if err != nil {
					return
				}
				s.count(from, udp.LocalAddr()).Add(1)
				_, _ = udp.WriteTo(buffer[:size], from)
			}
		}()
		go func() {
			for {
				c, err := tcp.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					// The first byte says whether the client sends or receives.
					var mode [1]byte
					if _, err := io.ReadFull(c, mode[:]); err != nil {
						return
					}
					if mode[0] == 'r' {
						for block := make([]byte, 16<<10); ; {
							if _, err := c.Write(block); err != nil {
								return
							}
						}
					}
					for block := make([]byte, 16<<10); ; {
						size, err := c.Read(block)
						if err != nil {
							return
						}
						s.count(c.RemoteAddr(), c.LocalAddr()).Add(int64(size))
					}
				}()
			}
		}()
	}
}

// enlarge gives a UDP socket a buffer in which all packets of a measurement have room, however busy the machine is.
func enlarge(c any) error {
	raw, err := c.(*net.UDPConn).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	})
	return errors.Join(err, failed)
}

const packets = 500

// loss sends UDP packets and returns the shares in percent that do not arrive, and that are not answered. It waits
// until no answer has come for a moment. If all packets should be answered, it waits longer: the machine may be busy.
func (s *servers) loss(p *runningPod, to string, all bool) (lost, unanswered int) {
	t := p.n.t
	t.Helper()
	quiet := 200 * time.Millisecond
	if all && !s.patient {
		quiet = 10 * time.Second
	}
	c := must(p.dial(t.Context(), "udp", to))(t)
	defer c.Close()
	must(0, enlarge(c))(t)
	answers := make(chan int)
	var sent atomic.Bool
	go func() {
		count := 0
		buffer := make([]byte, 64)
		for s.patient || count < packets {
			if _, err := c.Read(buffer); err != nil {
				break
			}
			count++
			if sent.Load() {
				_ = c.SetReadDeadline(time.Now().Add(quiet))
			}
		}
		answers <- count
	}()
	for range packets {
		if _, err := c.Write([]byte("packet")); err != nil {
			t.Fatalf("a lost packet must not be an error of the program: %v", err)
		}
	}
	sent.Store(true)
	n := must(0, c.SetReadDeadline(time.Now().Add(quiet)))(t)
	n += <-answers
	arrived := s.count(c.LocalAddr(), c.RemoteAddr()).Load()
	return int(packets-arrived) * 100 / packets, (packets - n) * 100 / packets
}

// opens reports whether a TCP connection can be opened.
func opens(p *runningPod, to string) bool {
	ctx, cancel := context.WithTimeout(p.n.t.Context(), 300*time.Millisecond)
	defer cancel()
	c, err := p.dial(ctx, "tcp", to)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// near reports whether a share in percent is what was asked for, as far as chance allows with so many packets.
func near(got, want int) bool {
	if want%100 == 0 {
		return got == want
	}
	return got > want-10 && got < want+10
}

func TestNetworkLoss(t *testing.T) {
	n, target, control := newPair(t)
	s := &servers{}
	s.listen(n, 7000)
	s.listen(n, 7001)
	before := target.dump()
	var (
		one, two, six = host1 + ":7000", host2 + ":7000", "[" + host6 + "]:7000"
		other         = host1 + ":7001"
	)
	for _, tt := range []struct {
		name, spec string
		lost       map[string]int // in percent, of those that are sent
		unanswered map[string]int // default: by lost, there and back
		tcp        map[string]bool
	}{
		{
			name: "all to an address", spec: `{"hosts": [{"host": "10.77.9.1"}], "drop": 100}`,
			lost: map[string]int{one: 100, other: 100, two: 0, six: 0},
			tcp:  map[string]bool{one: false, other: false, two: true, six: true},
		},
		{
			name: "a share", spec: `{"hosts": [{"host": "10.77.9.0/31"}], "drop": 30}`,
			lost: map[string]int{one: 30, two: 0}, unanswered: map[string]int{one: 51},
		},
		{
			name: "a share of a share", spec: `{"hosts": [{"host": "10.77.9.1"}], "drop": 50, "percentage": 60}`,
			lost: map[string]int{one: 30}, unanswered: map[string]int{one: 51},
		},
		{
			name: "a port", spec: `{"hosts": [{"host": "10.77.9.1", "port": 7001}], "drop": 100}`,
			lost: map[string]int{one: 0, other: 100}, tcp: map[string]bool{one: true, other: false},
		},
		{
			name: "a protocol", spec: `{"hosts": [{"port": 7000, "protocol": "tcp"}], "drop": 100}`,
			lost: map[string]int{one: 0, six: 0}, tcp: map[string]bool{one: false, other: true, six: false},
		},
		{
			name: "IPv6", spec: `{"hosts": [{"host": "fd77:9::/32"}], "drop": 100}`,
			lost: map[string]int{six: 100, one: 0}, tcp: map[string]bool{six: false, one: true},
		},
		{
			name: "a service, by its name",
			spec: `{"services": [{"name": "db", "namespace": "default", "ports": [7000]}], "drop": 100}`,
			lost: map[string]int{one: 0, two: 100}, tcp: map[string]bool{host2 + ":7001": true, two: false},
		},
		{
			name: "a name", spec: `{"hosts": [{"host": "example.org"}], "drop": 100}`,
			lost: map[string]int{one: 100, two: 0},
		},
		{
			name: "everything", spec: `{"drop": 100}`, lost: map[string]int{one: 100, six: 100},
			tcp: map[string]bool{two: false},
		},
		{
			name: "connections to the target only",
			spec: `{"hosts": [{"host": "10.77.0.0/16", "flow": "ingress"}], "drop": 100}`,
			lost: map[string]int{one: 0}, tcp: map[string]bool{one: true, six: true},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			remove := injecting(t, request(target, "network", tt.spec))
			var both sync.WaitGroup
			for _, to := range []string{one, two, six, other} {
				want, ok := tt.lost[to]
				if !ok {
					continue
				}
				back, ok := tt.unanswered[to]
				if !ok {
					back = want
				}
				both.Go(func() {
					if lost, unanswered := s.loss(target, to, back == 0); !near(lost, want) || !near(unanswered, back) {
						t.Errorf("%s: %d %% lost, %d %% unanswered; want %d, %d", to, lost, unanswered, want, back)
					}
				})
				both.Go(func() {
					if lost, unanswered := s.loss(control, to, true); lost != 0 || unanswered != 0 {
						t.Errorf("control target, %s: %d %% lost, %d %% unanswered", to, lost, unanswered)
					}
				})
			}
			both.Wait()
			for to, want := range tt.tcp {
				if got := opens(target, to); got != want {
					t.Errorf("TCP to %s: %t, want %t", to, got, want)
				}
				if !opens(control, to) {
					t.Errorf("control target: no TCP to %s", to)
				}
			}
			remove()
			if diff := cmp.Diff(before, target.dump()); diff != "" {
				t.Errorf("left (-before +after):\n%s", diff)
			}
		})
	}
	if lost, unanswered := s.loss(target, one, true); lost != 0 || unanswered != 0 {
		t.Errorf("afterwards %d %% are lost, %d %% unanswered", lost, unanswered)
	}
}

// A connection that the target has accepted is not one that it has opened.
func TestNetworkIngress(t *testing.T) {
	n := newNode(t)
	target, control := n.newPod(false), n.newPod(false)
	for _, p := range []*runningPod{target, control} {
		p.start("app")
		var l net.Listener
		n.check(p.ns.do(func() (err error) {
			l, err = net.Listen("tcp", ":8080")
			return err
		}))
		t.Cleanup(func() { _ = l.Close() })
	}
	reaches := func(p *runningPod) bool {
		return opens(&runningPod{n: n, ns: n.server}, p.ip+":8080")
	}
	for _, tt := range []struct {
		spec string
		want bool
	}{
		{`{"hosts": [{"port": 8080, "flow": "ingress"}], "drop": 100}`, false},
		{`{"hosts": [{"flow": "ingress"}], "drop": 100}`, false},
		{`{"hosts": [{"port": 8081, "flow": "ingress"}], "drop": 100}`, true},
		{`{"hosts": [{"port": 8080}], "drop": 100}`, true},
		{`{"hosts": [{"flow": "egress"}], "drop": 100}`, true},
	} {
		remove := injecting(t, request(target, "network", tt.spec))
		if got := reaches(target); got != tt.want {
			t.Errorf("%s: the target is reached: %t, want %t", tt.spec, got, tt.want)
		}
		if !reaches(control) {
			t.Errorf("%s: the control target is not reached", tt.spec)
		}
		remove()
	}
	if !reaches(target) {
		t.Error("afterwards the target is not reached")
	}
}

// throughput transfers data for a while and returns bytes per second, as they arrive.
func (s *servers) throughput(p *runningPod, to string, mode byte) int {
	t := p.n.t
	t.Helper()
	// The first bytes, which may have been saved up, do not count.
	const ignored, measured = 500 * time.Millisecond, time.Second
	c := must(p.dial(t.Context(), "tcp", to))(t)
	defer c.Close()
	must(c.Write([]byte{mode}))(t)
	arrived := s.count(c.LocalAddr(), c.RemoteAddr())
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		for block := make([]byte, 16<<10); ; {
			size, err := 0, error(nil)
			if mode == 'r' {
				size, err = c.Read(block)
				arrived.Add(int64(size))
			} else {
				_, err = c.Write(block)
			}
			if err != nil {
				return
			}
		}
	}()
	time.Sleep(ignored)
	before := arrived.Load()
	time.Sleep(measured)
	after := arrived.Load()
	_ = c.Close()
	<-moved
	return int(float64(after-before) / measured.Seconds())
}

func TestNetworkBandwidth(t *testing.T) {
	n, target, control := newPair(t)
	s := &servers{}
	s.listen(n, 7000)
	before := target.dump()
	const limit = 400_000
	remove := injecting(t, request(target, "network",
		fmt.Sprintf(`{"hosts": [{"host": "10.77.9.1"}], "bandwidthLimit": %d}`, limit)))
	var all sync.WaitGroup
	for _, mode := range []byte{'r', 'w'} {
		all.Go(func() {
			least := map[byte]int{'w': limit / 2, 'r': limit / 50}[mode]
			got := 0
			// Packets beyond the limit are dropped, so that TCP may send much less for a while, even for seconds.
			for range 8 {
				got = s.throughput(target, host1+":7000", mode)
				t.Logf("%c: %d bytes per second, limit %d", mode, got, limit)
				if got >= least {
					break
				}
			}
			if got > limit*5/4 || got < least {
				t.Errorf("%c: %d bytes per second, limit %d", mode, got, limit)
			}
		})
		all.Go(func() {
			if got := s.throughput(target, host2+":7000", mode); got < 20*limit {
				t.Errorf("%c: another host: %d bytes per second", mode, got)
			}
		})
		all.Go(func() {
			if got := s.throughput(control, host1+":7000", mode); got < 20*limit {
				t.Errorf("%c: control target: %d bytes per second", mode, got)
			}
		})
	}
	all.Wait()
	remove()
	if diff := cmp.Diff(before, target.dump()); diff != "" {
		t.Errorf("left (-before +after):\n%s", diff)
	}
	if got := s.throughput(target, host1+":7000", 'w'); got < 20*limit {
		t.Errorf("afterwards: %d bytes per second", got)
	}
}

// roundTrip returns the time until the answer to a UDP packet.
func roundTrip(p *runningPod, to string) time.Duration {
	t := p.n.t
	t.Helper()
	c := must(p.dial(t.Context(), "udp", to))(t)
	defer c.Close()
	must(0, c.SetDeadline(time.Now().Add(5*time.Second)))(t)
	began := time.Now()
	must(c.Write([]byte("packet")))(t)
	must(c.Read(make([]byte, 64)))(t)
	return time.Since(began)
}

func TestNetworkDelay(t *testing.T) {
	n, target, control := newPair(t)
	s := &servers{}
	s.listen(n, 7000)
	before := target.dump()
	one, two, six := host1+":7000", host2+":7000", "["+host6+"]:7000"
	// A busy machine delays too, but not as much as the fault.
	const quick, slack = 100 * time.Millisecond, 300 * time.Millisecond
	for _, tt := range []struct {
		name, spec  string
		least, most time.Duration
	}{
		{"delay", `{"hosts": [{"host": "10.77.9.1"}, {"host": "fd77:9::1"}], "delay": "150ms"}`,
			150 * time.Millisecond, 150*time.Millisecond + slack},
		{"jitter", `{"hosts": [{"host": "10.77.9.1"}, {"host": "fd77:9::1"}], "delay": "150ms", "delayJitter": "50ms"}`,
			100 * time.Millisecond, 200*time.Millisecond + slack},
		{"by port, with a limit",
			`{"hosts": [{"port": 7000, "host": "10.77.9.1"}, {"port": 7000, "host": "fd77:9::/64"}],
			"delay": "150ms", "bandwidthLimit": 100000}`, 150 * time.Millisecond, 150*time.Millisecond + slack},
	} {
		t.Run(tt.name, func(t *testing.T) {
			remove := injecting(t, request(target, "network", tt.spec))
			for _, to := range []string{one, six} {
				got := roundTrip(target, to)
				t.Logf("%s: round trip %s, control target %s", to, got, roundTrip(control, to))
				if got < tt.least || got > tt.most {
					t.Errorf("%s: round trip %s, want %s to %s", to, got, tt.least, tt.most)
				}
				if got := roundTrip(control, to); got > quick {
					t.Errorf("%s: control target: %s", to, got)
				}
			}
			if got := roundTrip(target, two); got > quick {
				t.Errorf("another host: %s", got)
			}
			began := time.Now()
			c := must(target.dial(t.Context(), "tcp", one))(t)
			if took := time.Since(began); took < tt.least || took > tt.most {
				t.Errorf("a TCP connection took %s", took)
			}
			must(0, c.Close())(t)
			remove()
			if diff := cmp.Diff(before, target.dump()); diff != "" {
				t.Errorf("left (-before +after):\n%s", diff)
			}
		})
	}
	// Everything, by a pod that has not found its neighbour yet.
	fresh := n.newPod(false)
	fresh.start("app")
	remove := injecting(t, request(fresh, "network", `{"delay": "150ms"}`))
	if got := roundTrip(fresh, six); got < 150*time.Millisecond {
		t.Errorf("everything is delayed: round trip %s", got)
	}
	remove()
	// The shares in percent of packets that arrive twice, with wrong bits (and then not at all), or not at all.
	s.patient = true
	for spec, arrive := range map[string]int{
		`{"hosts": [{"host": "10.77.9.1"}], "duplicate": 100}`:             200,
		`{"hosts": [{"host": "10.77.9.1"}], "duplicate": 30}`:              130,
		`{"hosts": [{"host": "10.77.9.1"}], "corrupt": 100}`:               0,
		`{"hosts": [{"host": "10.77.9.1"}], "corrupt": 40}`:                60,
		`{"hosts": [{"host": "10.77.9.1"}], "drop": 40, "delay": "20ms"}`:  60,
		`{"hosts": [{"host": "10.77.9.1"}], "drop": 100, "delay": "20ms"}`: 0,
	} {
		remove := injecting(t, request(target, "network", spec))
		if lost, _ := s.loss(target, one, false); !near(100-lost, arrive) {
			t.Errorf("%s: %d %% arrive, want %d", spec, 100-lost, arrive)
		}
		if lost, _ := s.loss(control, one, true); lost != 0 {
			t.Errorf("%s: control target: %d %% are lost", spec, lost)
		}
		if lost, _ := s.loss(target, two, true); lost != 0 {
			t.Errorf("%s: another host: %d %% are lost", spec, lost)
		}
		remove()
	}
	if got := roundTrip(target, one); got > quick {
		t.Errorf("afterwards: round trip %s", got)
	}
}

// ask sends a query as the pod's programs do. The text is the addresses or the code of the answer.
func ask(p *runningPod, network, server, name string, kind uint16) string {
	ctx, cancel := context.WithTimeout(p.n.t.Context(), 300*time.Millisecond)
	defer cancel()
	answer, err := p.ns.exchange(ctx, network, server+":53", new(dns.Msg).SetQuestion(dns.Fqdn(name), kind), 0)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
			return "timeout"
		}
		return err.Error()
	}
	if answer.Rcode != dns.RcodeSuccess {
		return dns.RcodeToString[answer.Rcode]
	}
	var all []string
	for _, r := range answer.Answer {
		switch r := r.(type) {
		case *dns.A:
			all = append(all, r.A.String())
		case *dns.AAAA:
			all = append(all, r.AAAA.String())
		}
	}
	return strings.Join(all, " ")
}

func TestDNS(t *testing.T) {
	_, target, control := newPair(t)
	before := target.dump()
	remove := injecting(t, request(target, "dns", `{"records": [
		{"name": "db.default", "addresses": ["10.1.2.3", "10.1.2.4", "fd00::1"]},
		{"name": "gone.example.org", "fault": "nxdomain"},
		{"name": "broken.example.org", "fault": "servfail"},
		{"name": "silent.example.org", "fault": "drop"},
		{"name": "*.random.example.org", "fault": "random"}
	]}`))
	for _, tt := range []struct {
		name           string
		kind           uint16
		want, original string
	}{
		{"db.default.svc.cluster.local", dns.TypeA, "10.1.2.3 10.1.2.4", host2},
		{"DB.default.svc.Cluster.local", dns.TypeAAAA, "fd00::1", ""},
		{"gone.example.org", dns.TypeA, "NXDOMAIN", "NXDOMAIN"},
		{"gone.example.org.svc.cluster.local", dns.TypeAAAA, "NXDOMAIN", "NXDOMAIN"},
		{"broken.example.org", dns.TypeA, "SERVFAIL", "NXDOMAIN"},
		{"silent.example.org", dns.TypeA, "timeout", "NXDOMAIN"},
		{"a.random.example.org", dns.TypeA, "198.18.0.0/15", "NXDOMAIN"},
		{"example.org", dns.TypeA, host1, host1},
		{"below.example.org", dns.TypeA, host1, host1},
		{"unknown.example.org", dns.TypeA, "NXDOMAIN", "NXDOMAIN"},
	} {
		for _, network := range []string{"udp", "tcp"} {
			got := ask(target, network, nameserver, tt.name, tt.kind)
			if prefix, err := netip.ParsePrefix(tt.want); err == nil {
				if ip, err := netip.ParseAddr(got); err != nil || !prefix.Contains(ip) {
					t.Errorf("%s, %s: %s, want one of %s", tt.name, network, got, prefix)
				}
			} else if got != tt.want {
				t.Errorf("%s, %s: %s, want %s", tt.name, network, got, tt.want)
			}
			if got := ask(control, network, nameserver, tt.name, tt.kind); got != tt.original {
				t.Errorf("control target, %s, %s: %s, want %s", tt.name, network, got, tt.original)
			}
		}
	}
	// Programs that ask a server of their own choice.
	for _, network := range []string{"udp", "tcp"} {
		if got := ask(target, network, otherNameserver, "broken.example.org", dns.TypeA); got != "SERVFAIL" {
			t.Errorf("another server, %s: %s", network, got)
		}
		if got := ask(target, network, otherNameserver, "example.org", dns.TypeA); got != "10.77.8.8" {
			t.Errorf("another server, %s: the answer %s is not its own", network, got)
		}
	}
	remove()
	if got := ask(target, "udp", nameserver, "db.default.svc.cluster.local", dns.TypeA); got != host2 {
		t.Errorf("afterwards: %s", got)
	}
	if diff := cmp.Diff(before, target.dump()); diff != "" {
		t.Errorf("left (-before +after):\n%s", diff)
	}
}

// cpuTime is what a process has used, in clock ticks.
func cpuTime(t *testing.T, pid int) int {
	t.Helper()
	data := string(must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(t))
	fields := strings.Fields(data[strings.LastIndexByte(data, ')')+1:])
	return must(strconv.Atoi(fields[11]))(t) + must(strconv.Atoi(fields[12]))(t)
}

func TestCPUPressure(t *testing.T) {
	n := newNode(t)
	target, control := n.newPod(false), n.newPod(true)
	// A part of one processor each: as much as a busy machine has.
	few := limits{"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000", "cpu.shares": "200000",
		"cpuset.cpus": "0"}
	a, b := target.start("app", []string{"burn"}, few), control.start("app", []string{"burn"}, few)
	n.check(os.WriteFile(filepath.Join(control.cgroups["cpu"], "cpu.shares"), []byte("200000"), 0))
	n.check(os.WriteFile(filepath.Join(target.cgroups["cpu"], "cpu.shares"), []byte("200000"), 0))
	shares := func() (target, control, helper int) {
		began := []int{cpuTime(t, a.cmd.Process.Pid), cpuTime(t, b.cmd.Process.Pid)}
		at := must(os.ReadFile(filepath.Join(a.cgroups["cpuacct"], "cpuacct.usage")))(t)
		time.Sleep(2 * time.Second) // the measurement
		later := must(os.ReadFile(filepath.Join(a.cgroups["cpuacct"], "cpuacct.usage")))(t)
		target, control = cpuTime(t, a.cmd.Process.Pid)-began[0], cpuTime(t, b.cmd.Process.Pid)-began[1]
		from, to := must(strconv.Atoi(strings.TrimSpace(string(at))))(t),
			must(strconv.Atoi(strings.TrimSpace(string(later))))(t)
		return target, control, (to-from)/10_000_000 - target
	}
	before := target.dump()
	for _, load := range []int{50, 100} {
		remove := injecting(t, request(target, "cpuPressure", fmt.Sprintf(`{"load": %d}`, load)))
		got, free, helper := shares()
		t.Logf("load %d: the target had %d, ours %d, the control target %d clock ticks", load, got, helper, free)
		// On a busy machine the target also waits for others, and ours, with its priority, does not.
		if want := free * (100 - load) / 100; got > want+free/4 || got < want/4 || helper < free*load/100-free/4 {
			t.Errorf("load %d: the target had %d, ours %d, the control target %d clock ticks", load, got, helper, free)
		}
		remove()
		if diff := cmp.Diff(before, target.dump()); diff != "" {
			t.Errorf("left (-before +after):\n%s", diff)
		}
	}
}

func TestMemoryPressure(t *testing.T) {
	n := newNode(t)
	target, control := n.newPod(false), n.newPod(true)
	const limit = 200 << 20
	some := limits{"memory.limit_in_bytes": strconv.Itoa(limit)}
	a, b := target.start("app", some), control.start("app", some)
	use := func(c *running) int { return int(must(memoryUse(c.cgroups["memory"]))(t) * 100 / limit) }
	before := target.dump()
	remove := injecting(t, request(target, "memoryPressure", `{"target": 60}`))
	if got := use(a); got < 58 || got > 62 {
		t.Errorf("%d %% are in use, want 60", got)
	}
	if got := use(b); got > 15 {
		t.Errorf("control target: %d %% are in use", got)
	}
	remove()
	if got := use(a); got > 15 {
		t.Errorf("afterwards %d %% are in use", got)
	}
	began := time.Now()
	remove = injecting(t, request(target, "memoryPressure", `{"target": 60, "ramp": "1s"}`))
	if got := use(a); got > 40 {
		t.Errorf("%d %% are in use after %s of a ramp of 1s", got, time.Since(began))
	}
	for use(a) < 58 {
		time.Sleep(10 * time.Millisecond) // memory.usage_in_bytes has no events for what grows
	}
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("it grew in %s, want 1s", took)
	}
	remove()
	if diff := cmp.Diff(before, target.dump()); diff != "" {
		t.Errorf("left (-before +after):\n%s", diff)
	}
}

// A container that ends must not be kept by a process of ours in its cgroup.
func TestPressureEndsWithItsContainer(t *testing.T) {
	n := newNode(t)
	target := n.newPod(false)
	c := target.start("app")
	target.start("sidecar")
	r := request(target, "cpuPressure", `{"load": 1}`)
	r.Target.Containers = []string{"app"}
	remove := injecting(t, r)
	if got := len(processes(c.cgroups["cpu"])); got != 2 {
		t.Fatalf("%d processes, want the target and ours", got)
	}
	n.check(c.end())
	for len(processes(c.cgroups["cpu"])) > 0 {
		time.Sleep(5 * time.Millisecond) // version 1 has no events for this
	}
	remove()
}

// readRate is what a process reads, in bytes per second.
func readRate(t *testing.T, c *running) int {
	t.Helper()
	read := func() int {
		for line := range strings.Lines(string(must(os.ReadFile(fmt.Sprintf("/proc/%d/io", c.cmd.Process.Pid)))(t))) {
			if n, ok := strings.CutPrefix(line, "rchar: "); ok {
				return must(strconv.Atoi(strings.TrimSpace(n)))(t)
			}
		}
		return 0
	}
	const measured = time.Second
	before := read()
	time.Sleep(measured)
	return int(float64(read()-before) / measured.Seconds())
}

func TestDiskPressure(t *testing.T) {
	n := newNode(t)
	file := filepath.Join(n.dir, "data")
	n.check(os.WriteFile(file, make([]byte, 4<<20), 0o600))
	target, control := n.newPod(false), n.newPod(true)
	a, b := target.start("app", []string{"read", file}), control.start("app", []string{"read", file})
	device, err := Node{Host: os.Getpid()}.withDefaults().device(a.cmd.Process.Pid, file)
	if err != nil {
		t.Skip(err)
	}
	// An earlier limit is put back.
	before := filepath.Join(a.cgroups["blkio"], "blkio.throttle.read_bps_device")
	n.check(os.WriteFile(before, []byte(device+" 900000000"), 0))
	was := target.dump()
	if !strings.Contains(was, "900000000") {
		t.Fatal(was)
	}
	const limit = 1 << 20
	remove := injecting(t, request(target, "diskPressure",
		fmt.Sprintf(`{"path": %q, "readBytesPerSecond": %d, "writeBytesPerSecond": %d}`, file, limit, limit)))
	got, free := readRate(t, a), readRate(t, b)
	t.Logf("target %d, control target %d bytes per second, limit %d", got, free, limit)
	if got > limit*5/4 || got < limit/2 || free < 5*limit {
		t.Errorf("target %d, control target %d bytes per second, limit %d", got, free, limit)
	}
	remove()
	if diff := cmp.Diff(was, target.dump()); diff != "" {
		t.Errorf("left (-before +after):\n%s", diff)
	}
	if got := readRate(t, a); got < 5*limit {
		t.Errorf("afterwards: %d bytes per second", got)
	}
	n.check(os.WriteFile(before, []byte(device+" 0"), 0))
}

func TestContainerFailure(t *testing.T) {
	n := newNode(t)
	target, control := n.newPod(false), n.newPod(true)
	other := control.start("app")
	app, sidecar := target.start("app"), target.start("sidecar")
	r := request(target, "containerFailure", `{"signal": "KILL"}`)
	r.Target.Containers = []string{"app"}
	remove := injecting(t, r)
	<-app.exited
	again := target.start("app")
	<-again.exited
	if state := again.cmd.ProcessState.String(); state != "signal: killed" {
		t.Errorf("exit: %s", state)
	}
	remove()
	last := target.start("app")
	once := injecting(t, inject.Request{
		Kind: r.Kind, Spec: json.RawMessage(`{"signal": "TERM", "once": true}`), Disruption: r.Disruption,
		DisruptionUID: r.DisruptionUID, Target: r.Target, EndsAt: r.EndsAt,
	})
	<-last.exited
	survivor := target.start("app")
	once()
	for name, c := range map[string]*running{
		"control target": other, "another container": sidecar, "after the end, or once": survivor,
	} {
		select {
		case <-c.exited:
			t.Errorf("%s: ended", name)
		default:
		}
	}
}

// TestUnsupported: a fault that is not possible is reported before anything is touched.
func TestUnsupported(t *testing.T) {
	n := newNode(t)
	target := n.newPod(false)
	target.start("app")
	target.start("sidecar")
	before := target.dump()
	for _, tt := range []struct {
		kind, spec, reason string
		node               bool
		containers         []string
		want               error
	}{
		{kind: "network", spec: `{"bandwidthLimit": 1, "http": {}}`, reason: "limited", want: inject.ErrUnsupported},
		{kind: "network", spec: `{"drop": 1, "http": {}}`, reason: "choose pods", node: true,
			want: inject.ErrUnsupported},
		{kind: "network", spec: `{"delay": "1s"}`, reason: "choose pods", node: true, want: inject.ErrUnsupported},
		{kind: "network", spec: `{"services": [{"name": "db"}], "drop": 1}`, reason: "choose hosts", node: true,
			want: inject.ErrUnsupported},
		{kind: "dns", spec: `{}`, reason: "choose pods", node: true, want: inject.ErrUnsupported},
		{kind: "diskPressure", spec: `{"path": "/proc", "readBytesPerSecond": 1}`, reason: "no disk",
			want: inject.ErrUnsupported},
		{kind: "apiFault", spec: `{}`, reason: "encrypted", want: inject.ErrUnsupported},
		{kind: "grpc", spec: `{"port": 1}`, reason: "choose pods", node: true, want: inject.ErrUnsupported},
		{kind: "diskFailure", spec: `{"paths": ["/"], "error": "EROFS"}`, reason: "not with EROFS",
			want: inject.ErrUnsupported},
		{kind: "diskFailure", spec: `{"paths": ["/"], "operations": ["open", "sync"]}`,
			reason: "carries out sync: choose", want: inject.ErrUnsupported},
		{kind: "diskFailure", spec: `{"paths": ["/"]}`, reason: "choose pods", node: true, want: inject.ErrUnsupported},
		{kind: "network", spec: `{"drop": 1}`, containers: []string{"app", "sidecar"}},
		{kind: "containerFailure", spec: `{}`, containers: []string{"none"}, want: errNoProcess},
	} {
		r := request(target, tt.kind, tt.spec)
		r.Target.NodeLevel, r.Target.Containers = tt.node, tt.containers
		i, err := backend(os.Getpid()).New(r, &inject.Notes{})
		if err == nil {
			err = i.Check(t.Context())
		}
		if !errors.Is(err, tt.want) || err != nil && !strings.Contains(err.Error(), tt.reason) {
			t.Errorf("%s %s: %v, want %v, %q", tt.kind, tt.spec, err, tt.want, tt.reason)
		}
	}
	onHost := n.newPod(false)
	onHost.ns = must(openNamespace("/proc/self/ns/net"))(t)
	t.Cleanup(onHost.ns.Close)
	onHost.start("app")
	for kind, spec := range map[string]string{"network": `{"drop": 1}`, "dns": `{}`} {
		err := must(backend(os.Getpid()).New(request(onHost, kind, spec), &inject.Notes{}))(t).Check(t.Context())
		if !errors.Is(err, inject.ErrUnsupported) || !strings.Contains(err.Error(), "node's own network") {
			t.Errorf("%s of a pod with the node's network: %v", kind, err)
		}
	}
	if diff := cmp.Diff(before, target.dump()); diff != "" {
		t.Errorf("touched (-before +after):\n%s", diff)
	}
}

// The network of a pod stays when its containers have ended.
func TestCleanWithoutItsContainer(t *testing.T) {
	n := newNode(t)
	target := n.newPod(false)
	app := target.start("app")
	before := target.dump()
	notes := &inject.Notes{}
	r := request(target, "network", `{"hosts": [{"host": "10.77.9.1"}], "drop": 100, "bandwidthLimit": 1000}`)
	dead := must(backend(os.Getpid()).New(r, notes))(t)
	n.check(dead.Check(t.Context()))
	n.check(dead.Inject(t.Context()))
	if target.dump() == before {
		t.Fatal("nothing is injected")
	}
	n.check(app.end())
	for range 2 { // it is idempotent
		n.check(must(backend(os.Getpid()).New(r, notes))(t).Clean(t.Context()))
	}
	target.start("app")
	// But for the cgroup of the container.
	relevant := func(dump string) string { return dump[:strings.Index(dump, "tcp: ")] }
	if diff := cmp.Diff(relevant(before), relevant(target.dump())); diff != "" {
		t.Errorf("left (-before +after):\n%s", diff)
	}
}

// TestKilledInjectorLeavesNothing kills injectors at random moments.
func TestKilledInjectorLeavesNothing(t *testing.T) {
	n := newNode(t)
	file := filepath.Join(n.dir, "data")
	n.check(os.WriteFile(file, make([]byte, 1<<20), 0o600))
	for name, spec := range map[string]string{
		"network": `{"hosts": [{"host": "example.org", "port": 7000}], "drop": 50, "bandwidthLimit": 1000000,
			"delay": "5ms"}`,
		"network http":   `{"hosts": [{"host": "example.org", "port": 7000}], "drop": 50, "http": {}}`,
		"dns":            `{"records": [{"name": "example.org", "fault": "nxdomain"}]}`,
		"cpuPressure":    `{"load": 10}`,
		"memoryPressure": `{"target": 30}`,
		"diskPressure": fmt.Sprintf(`{"path": %q, "readBytesPerSecond": 1000000, "writeBytesPerSecond": 1000000}`,
			file),
	} {
		target := n.newPod(false)
		target.start("app", limits{"memory.limit_in_bytes": strconv.Itoa(100 << 20)})
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind, _, _ := strings.Cut(name, " ")
			target.n = &node{t: t}
			killed(t, target, os.Getpid(), request(target, kind, spec))
		})
	}
	if n.roots["unified"] != "" {
		target := n.newPod(true)
		target.start("app")
		target.start("sidecar")
		for kind, spec := range map[string]string{
			"network": `{"hosts": [{"host": "10.77.9.1"}], "drop": 50}`,
			"dns":     `{"records": [{"name": "example.org", "fault": "nxdomain"}]}`,
		} {
			t.Run(kind+" of a container", func(t *testing.T) {
				r := request(target, kind, spec)
				r.Target.Containers = []string{"app"}
				target.n = &node{t: t}
				killed(t, target, os.Getpid(), r)
			})
		}
	}
}

// TestKilledInjectorLeavesNothingOnItsNode is the same for a whole node.
func TestKilledInjectorLeavesNothingOnItsNode(t *testing.T) {
	_, w := newWhole(t)
	killed(t, w.runningPod, w.backend.Node.Host,
		nodeRequest("network", `{"hosts": [{"host": "example.org"}], "drop": 50, "bandwidthLimit": 1000000}`))
}

// injectorCommand is an injector in a process of its own. host is a process with the node's own network.
func injectorCommand(r inject.Request, host int, journal, ready string) *exec.Cmd {
	args := []string{"inject", string(r.Kind), "--spec", string(r.Spec), "--disruption", r.Disruption,
		"--disruption-uid", string(r.DisruptionUID), "--target-uid", string(r.Target.UID),
		"--target-node", "worker", "--duration", "1h", "--journal", journal, "--ready-file", ready}
	if r.Target.NodeLevel {
		args = append(args, "--target-node-level")
	} else {
		args = append(args, "--target-namespace", "default", "--target-pod", "target")
	}
	for _, c := range r.Target.Containers {
		args = append(args, "--container", c)
	}
	c := exec.Command("/proc/self/exe", args...)
	c.Args[0] = asInjector
	c.Env = append(os.Environ(), envHost+"="+strconv.Itoa(host))
	return c
}

// killed kills injectors with a request, and cleans up. host is a process with the node's own network.
func killed(t *testing.T, target *runningPod, host int, r inject.Request) {
	before := target.dump()
	times := 20
	if testing.Short() {
		times = 4
	}
	dirty, whole, deed := 0, time.Duration(0), time.Duration(0)
	for round := range times {
		journal, ready := t.TempDir(), filepath.Join(t.TempDir(), "ready")
		entry := filepath.Join(journal, r.ID()+".json")
		c := injectorCommand(r, host, journal, ready)
		log := &strings.Builder{}
		c.Stderr = log
		began := time.Now()
		must(0, c.Start())(t)
		// until waits for a file.
		until := func(path string) time.Time {
			for !exists(path) {
				if time.Since(began) > 20*time.Second {
					t.Fatalf("there is no %s: %s", path, log)
				}
				time.Sleep(200 * time.Microsecond)
			}
			return time.Now()
		}
		switch {
		case round == 0:
			// The first one shows how long everything takes.
			from, to := until(entry), until(ready)
			whole, deed = to.Sub(began), to.Sub(from)
			if target.dump() == before {
				t.Fatal("nothing is injected, or the dump does not show it")
			}
		case round%4 == 0:
			time.Sleep(rand.N(whole)) // a random moment
		default:
			until(entry)
			time.Sleep(rand.N(deed + deed/5)) // a random moment while it injects
		}
		must(0, c.Process.Kill())(t)
		_ = c.Wait()
		if target.dump() != before {
			dirty++
		}
		if _, err := inject.CleanAll(t.Context(), journal, []inject.Backend{backend(host)},
			slog.New(slog.DiscardHandler)); err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		if diff := cmp.Diff(before, target.dump()); diff != "" {
			t.Fatalf("left after a kill and a clean-up (-before +after):\n%s\n%s", diff, log)
		}
		if left := must(os.ReadDir(journal))(t); len(left) > 0 {
			t.Fatalf("left in the journal: %v", left)
		}
	}
	t.Logf("%d of %d kills left something to clean up; ready after %s, of which %s to inject", dirty, times, whole,
		deed)
}

// A kubelet with systemd, cgroups of version 2.
func TestVersion2(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the target's root directory is only for root")
	}
	root := t.TempDir()
	const uid = types.UID("1b4e28ba-2fa1-11d2-883f-0016d3cca427")
	slice := filepath.Join(root, "kubelet.slice", "kubelet-kubepods.slice", "kubelet-kubepods-besteffort.slice",
		"kubelet-kubepods-besteffort-pod1b4e28ba_2fa1_11d2_883f_0016d3cca427.slice")
	scope := filepath.Join(slice, "crio-abc.scope")
	monitor := filepath.Join(slice, "crio-conmon-abc.scope")
	proc := t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(root, "cgroup.controllers"):           "cpu io memory\n",
		filepath.Join(scope, "cgroup.procs"):                "",
		filepath.Join(scope, "container", "cgroup.procs"):   "41\n42\n",
		filepath.Join(scope, "container", "cpu.max"):        "max 100000\n",
		filepath.Join(slice, "cpu.max"):                     "50000 100000\n",
		filepath.Join(scope, "container", "memory.max"):     "max\n",
		filepath.Join(scope, "container", "memory.current"): "5000\n",
		filepath.Join(slice, "memory.max"):                  "1000000\n",
		filepath.Join(slice, "memory.current"):              "7000\n",
		filepath.Join(slice, "memory.stat"):                 "anon 1\ninactive_file 2000\n",
		filepath.Join(scope, "container", "io.max"):         "8:16 rbps=5 wbps=max riops=max wiops=max\n",
		filepath.Join(monitor, "cgroup.procs"):              "40\n",
		filepath.Join(proc, "40", "stat"):                   stat(10),
		filepath.Join(proc, "41", "stat"):                   stat(30),
		filepath.Join(proc, "42", "stat"):                   stat(20),
		filepath.Join(proc, "42", "comm"):                   "app\n",
		filepath.Join(proc, "42", "oom_score_adj"):          "900\n",
		filepath.Join(proc, "42", "cmdline"):                "app\x00",
		filepath.Join(proc, "42", "mountinfo"): "36 35 98:0 /var/lib/kubelet/pods/" + string(uid) +
			"/containers/app/0a1b2c /dev/termination-log rw - ext4 /dev/root rw\n",
	} {
		must(0, os.MkdirAll(filepath.Dir(path), 0o755))(t)
		must(0, os.WriteFile(path, []byte(text), 0o600))(t)
	}
	node := Node{Cgroups: root, Proc: proc, Host: 1}
	pod := must(node.pod(uid))(t)
	want := container{
		name: "app", id: "abc", init: 42, cgroups: []string{filepath.Join(scope, "container")},
		podCgroups: []string{slice},
	}
	if diff := cmp.Diff([]container{want}, pod.containers, cmp.AllowUnexported(container{})); diff != "" {
		t.Error(diff)
	}
	base := injection{node: node, request: inject.Request{Target: inject.Target{UID: uid}}}
	cpu := must((&pressure{injection: base, cpu: &v1alpha1.CPUPressure{Load: ptr(int32(50))}}).victims())(t)
	if got := cpu[0]; got.CPU.Processors != 0.25 || !slices.Equal(got.join, want.cgroups) {
		t.Errorf("CPU: %+v, %v", got.CPU, got.join)
	}
	memory := must((&pressure{injection: base, memory: &v1alpha1.MemoryPressure{Target: 50}}).victims())(t)
	if got := memory[0].Memory; got.Limit != 1000000 || got.Cgroup != slice || got.OOMScoreAdj != "900" {
		t.Errorf("memory: %+v", got)
	}
	if use := must(memoryUse(slice))(t); use != 5000 {
		t.Errorf("%d bytes are in use", use)
	}
	for device, want := range map[string]throttle{
		"8:0":  {Line: "8:0 rbps=7", Before: "8:0 rbps=max wbps=max riops=max wiops=max"},
		"8:16": {Line: "8:16 rbps=7", Before: "8:16 rbps=5 wbps=max riops=max wiops=max"},
	} {
		want.File = filepath.Join(scope, "container", "io.max")
		disk := &diskPressure{injection: base, spec: v1alpha1.DiskPressure{ReadBytesPerSecond: ptr(int64(7))}}
		if diff := cmp.Diff([]throttle{want}, must(disk.throttlesIn(pod.containers[0], device))(t)); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := node.pod("other"); !errors.Is(err, errNoProcess) {
		t.Errorf("another pod: %v", err)
	}
}

func ptr[T any](v T) *T { return &v }

// stat is a line of /proc/PID/stat of a process that started at a time.
func stat(start int) string {
	return fmt.Sprintf("1 (a (b) c) S 1%s %d 0", strings.Repeat(" 0", 17), start)
}

func TestNames(t *testing.T) {
	const uid = types.UID("1b4e28ba-2fa1")
	for name, want := range map[string]bool{
		"pod1b4e28ba-2fa1": true, "kubepods-burstable-pod1b4e28ba_2fa1.slice": true,
		"kubepods-pod1b4e28ba_2fa1.slice": true, "pod1b4e28ba-2fa11": false,
		"kubepods-burstable.slice": false, "xpod1b4e28ba-2fa1": false,
	} {
		if got := isPodCgroup(name, uid); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
	for name, want := range map[string]string{
		"abc": "abc", "cri-containerd-abc.scope": "abc", "docker-abc.scope": "abc", "crio-abc.scope": "abc",
		"crio-conmon-abc.scope": "",
	} {
		if got := containerID(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	for list, want := range map[string]int{"0": 1, "0-3,7": 5, "": 0} {
		if got := countCPUs(list); got != want {
			t.Errorf("%q: %d", list, got)
		}
	}
	long := tableName(strings.Repeat("0b-", 12) + "." + strings.Repeat("0b-", 12) + ".network")
	if len(long) >= unix.NFT_TABLE_MAXNAMELEN || strings.ContainsAny(long, "-.") {
		t.Errorf("invalid name %s", long)
	}
}
