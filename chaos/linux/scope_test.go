package linux

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/chaos/inject"
)

// newShared makes a pod with two containers that obey. They have cgroups of version 2.
func newShared(t *testing.T) (n *node, target *runningPod, app, sidecar *running) {
	t.Helper()
	n = newNode(t)
	if n.roots["unified"] == "" {
		t.Skip("containers have no cgroups of version 2 here")
	}
	target = n.newPod(true)
	return n, target, target.start("app", []string{"obey"}), target.start("sidecar", []string{"obey"})
}

// TestNetworkOfAContainer: the containers of a pod share its network. Only the packets of one are disturbed.
func TestNetworkOfAContainer(t *testing.T) {
	n, target, app, sidecar := newShared(t)
	echo(n, 7000)
	for c, port := range map[*running]string{app: "8000", sidecar: "8001"} {
		if answer := c.ask(t, "listen :"+port); answer != "" {
			t.Fatal(answer)
		}
	}
	forward(n, n.server)
	other := n.newPod(false).start("client", []string{"obey"})
	before := target.dump()
	for _, tt := range []struct {
		spec                       string
		tcp, udp, accepted, beside int
	}{
		{`{"drop": 100}`, 0, 0, 0, 3},
		{`{"hosts": [{"host": "10.77.9.1", "port": 7000}], "drop": 100}`, 0, 0, 3, 3},
		{`{"hosts": [{"host": "10.77.9.2"}], "drop": 100}`, 3, 3, 3, 3},
		{`{"hosts": [{"host": "10.77.0.0/16", "flow": "ingress"}], "drop": 100}`, 3, 3, 0, 3},
		{`{"delay": "400ms"}`, 0, 0, 0, 3},
	} {
		t.Run(tt.spec, func(t *testing.T) {
			r := request(target, "network", tt.spec)
			r.Target.Containers = []string{"app"}
			remove := injecting(t, r)
			for _, m := range []struct {
				by   *running
				from string
				want int
			}{
				{app, "tcp " + host1 + ":7000", tt.tcp}, {app, "udp " + host1 + ":7000", tt.udp},
				{other, "tcp " + target.ip + ":8000", tt.accepted},
				{sidecar, "tcp " + host1 + ":7000", tt.beside}, {sidecar, "udp " + host1 + ":7000", tt.beside},
				{other, "tcp " + target.ip + ":8001", tt.beside},
			} {
				if got := m.by.echoes(t, m.from, m.want); got != m.want {
					t.Errorf("%s: %d of 3 came back, want %d", m.from, got, m.want)
				}
			}
			remove()
			if diff := cmp.Diff(before, target.dump()); diff != "" {
				t.Errorf("left (-before +after):\n%s", diff)
			}
		})
	}
}

// TestDNSOfAContainer: only the queries of one container are answered.
func TestDNSOfAContainer(t *testing.T) {
	_, target, app, sidecar := newShared(t)
	before := target.dump()
	r := request(target, "dns", `{"records": [{"name": "example.org", "addresses": ["192.0.2.7"]}]}`)
	r.Target.Containers = []string{"app"}
	remove := injecting(t, r)
	for c, want := range map[*running]string{app: "192.0.2.7", sidecar: host1} {
		if got := c.ask(t, "dns example.org"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	remove()
	if diff := cmp.Diff(before, target.dump()); diff != "" {
		t.Errorf("left (-before +after):\n%s", diff)
	}
	if got := app.ask(t, "dns example.org"); got != host1 {
		t.Errorf("afterwards %s", got)
	}
}

// TestContainerWithoutCgroup: the runtime has put containers into cgroups of version 1 only.
func TestContainerWithoutCgroup(t *testing.T) {
	n := newNode(t)
	delete(n.roots, "unified")
	target := n.newPod(false)
	target.start("app")
	target.start("sidecar")
	for kind, spec := range map[string]string{"network": `{"drop": 1}`, "dns": `{}`} {
		r := request(target, kind, spec)
		r.Target.Containers = []string{"app"}
		err := must(backend(os.Getpid()).New(r, &inject.Notes{}))(t).Check(t.Context())
		if err == nil || err.Error() != "unsupported: container app has no cgroup of version 2, by which its packets "+
			"differ from those of the pod's other containers: choose all containers" {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// echo answers at a port of the server's addresses.
func echo(n *node, port int) {
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
		n.t.Cleanup(func() { _, _ = udp.Close(), tcp.Close() })
		go func() { _ = serveEcho(tcp) }()
		go func() {
			buffer := make([]byte, 64)
			for {
				size, from, err := udp.ReadFrom(buffer)
				if err != nil {
					return
				}
				_, _ = udp.WriteTo(buffer[:size], from)
			}
		}()
	}
}

// whole is a likeness of a whole node: one of the pods takes its place, with a kubelet, and with a pod behind it.
type whole struct {
	*runningPod
	backend *Backend
	own     *running // a program of the node
	pod     *running // a program of the pod behind it
	podIP   string
	kubelet net.Conn // its connection to the API server
}

// forward lets a namespace forward packets.
func forward(n *node, ns *namespace) {
	n.check(ns.do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) }))
}

const (
	apiServer     = host1 + ":6443"
	service       = "10.96.0.1"
	throughKubeIP = service + ":443"
)

func newWhole(t *testing.T) (*node, *whole) {
	t.Helper()
	n := newNode(t)
	for _, port := range []int{6443, 7000} {
		echo(n, port)
	}
	forward(n, n.server)
	w := &whole{runningPod: n.newPod(false), podIP: "10.77.200.2"}
	w.own = w.start("app", []string{"obey"})
	w.backend = backend(w.own.cmd.Process.Pid)
	w.backend.Node.APIServers = netip.MustParseAddrPort(throughKubeIP)

	// The kubelet is this process.
	n.check(w.ns.do(func() error {
		for _, port := range []int{kubeletPort, sshPort, 8000} {
			l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = l.Close() })
			go func() { _ = serveEcho(l) }()
		}
		return nil
	}))
	w.kubelet = must(w.dial(t.Context(), "tcp", apiServer))(t)
	t.Cleanup(func() { _ = w.kubelet.Close() })

	// A pod of the node, as a network plugin connects it.
	inner := n.newPod(false)
	outside, inside := n.handle(w.ns), n.handle(inner.ns)
	n.check(inside.LinkDel(must(inside.LinkByName("eth0"))(t)))
	n.check(outside.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: "veth1"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(inner.ns.NsHandle),
	}))
	for _, end := range []struct {
		h        *netlink.Handle
		name, ip string
	}{{outside, "veth1", "10.77.200.1/24"}, {inside, "eth0", w.podIP + "/24"}} {
		l := must(end.h.LinkByName(end.name))(t)
		n.check(end.h.AddrAdd(l, &netlink.Addr{IPNet: must(netlink.ParseIPNet(end.ip))(t)}))
		n.check(end.h.LinkSetUp(l))
	}
	n.check(inside.RouteAdd(&netlink.Route{LinkIndex: must(inside.LinkByName("eth0"))(t).Attrs().Index,
		Gw: net.ParseIP("10.77.200.1")}))
	n.check(n.handle(n.server).RouteAdd(&netlink.Route{
		Dst: must(netlink.ParseIPNet("10.77.200.0/24"))(t), Gw: net.ParseIP(w.ip),
	}))
	forward(n, w.ns)
	w.pod = inner.start("app", []string{"obey"})
	if answer := w.pod.ask(t, "listen :8000"); answer != "" {
		t.Fatal(answer)
	}
	w.replace(t)
	return n, w
}

// replace does what kube-proxy does: a service's address becomes that of the API server.
func (w *whole) replace(t *testing.T) {
	c := must(nftables.New(nftables.WithNetNSFd(int(w.ns.NsHandle))))(t)
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "kube-proxy"})
	for name, hook := range map[string]*nftables.ChainHook{
		"output": nftables.ChainHookOutput, "prerouting": nftables.ChainHookPrerouting,
	} {
		ch := c.AddChain(&nftables.Chain{Table: table, Name: name, Type: nftables.ChainTypeNAT, Hooknum: hook,
			Priority: nftables.ChainPriorityNATDest})
		for from, to := range map[string]netip.AddrPort{
			service: netip.MustParseAddrPort(host2 + ":6443"), "10.96.0.2": netip.MustParseAddrPort(host2 + ":7000"),
		} {
			addRules(c, ch, rule(address(netip.MustParsePrefix(from+"/32"), false), protocol(unix.IPPROTO_TCP),
				&expr.Immediate{Register: 1, Data: to.Addr().AsSlice()},
				&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(to.Port())},
				&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2}))
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
}

func nodeRequest(kind, spec string) inject.Request {
	r := request(&runningPod{uid: "5f1d0a3e-0000-4000-8000-2"}, kind, spec)
	r.Target = inject.Target{NodeLevel: true, UID: r.Target.UID, Node: "worker"}
	return r
}

// TestNodeNetwork: all of a node's traffic is disturbed, that of its pods too, but for what keeps the node manageable.
func TestNodeNetwork(t *testing.T) {
	n, w := newWhole(t)
	client := n.newPod(false).start("client", []string{"obey"})
	before := w.dump()
	type measure struct {
		by   *running
		from string
		want int
	}
	// Whatever the fault is.
	always := []measure{
		{w.own, "tcp " + apiServer, 3}, {w.pod, "tcp " + apiServer, 3},
		{w.own, "tcp " + throughKubeIP, 3}, {w.pod, "tcp " + throughKubeIP, 3},
		{client, fmt.Sprintf("tcp %s:%d", w.ip, kubeletPort), 3}, {client, fmt.Sprintf("tcp %s:%d", w.ip, sshPort), 3},
		{w.own, "tcp " + w.podIP + ":8000", 3}, // between the node and its pod
		{client, "tcp " + host2 + ":7000", 3},
	}
	for _, tt := range []struct {
		spec                                    string
		own, pod, udp, six, node, podIn, byName int
	}{
		{`{"drop": 100}`, 0, 0, 0, 0, 0, 0, 0},
		{`{"hosts": [{"host": "10.77.9.2", "port": 7000, "protocol": "tcp"}], "drop": 100}`,
			0, 0, 3, 3, 3, 3, 0},
		{`{"hosts": [{"host": "10.96.0.2"}], "drop": 100}`, 3, 3, 3, 3, 3, 3, 0},
		{`{"hosts": [{"host": "10.77.0.0/16", "flow": "ingress"}], "drop": 100}`, 3, 3, 3, 3, 0, 0, 3},
		{`{"hosts": [{"host": "fd77:9::1"}], "drop": 100}`, 3, 3, 3, 0, 3, 3, 3},
		{`{"hosts": [{"host": "example.org"}], "drop": 100}`, 3, 3, 3, 3, 3, 3, 3},
	} {
		t.Run(tt.spec, func(t *testing.T) {
			remove := injectingBy(t, w.backend, nodeRequest("network", tt.spec))
			for _, m := range append([]measure{
				{w.own, "tcp " + host2 + ":7000", tt.own}, {w.pod, "tcp " + host2 + ":7000", tt.pod},
				{w.own, "udp " + host2 + ":7000", tt.udp}, {w.pod, "udp " + host2 + ":7000", tt.udp},
				{w.own, "tcp [" + host6 + "]:7000", tt.six},
				{client, "tcp " + w.ip + ":8000", tt.node}, {client, "tcp " + w.podIP + ":8000", tt.podIn},
				{w.own, "tcp 10.96.0.2:80", tt.byName}, {w.pod, "tcp 10.96.0.2:80", tt.byName},
			}, always...) {
				if got := m.by.echoes(t, m.from, m.want); got != m.want {
					t.Errorf("%s: %d of 3 came back, want %d", m.from, got, m.want)
				}
			}
			remove()
			if diff := cmp.Diff(before, w.dump()); diff != "" {
				t.Errorf("left (-before +after):\n%s", diff)
			}
			for _, m := range always {
				if got := m.by.echoes(t, m.from, m.want); got != m.want {
					t.Errorf("afterwards %s: %d of 3 came back, want %d", m.from, got, m.want)
				}
			}
		})
	}
}

// TestNodeNetworkWithoutKubelet: it is unknown what the node needs.
func TestNodeNetworkWithoutKubelet(t *testing.T) {
	n := newNode(t)
	p := n.newPod(false)
	app := p.start("app")
	check := func() error {
		return must(backend(app.cmd.Process.Pid).New(nodeRequest("network", `{"drop": 100}`), &inject.Notes{}))(t).
			Check(t.Context())
	}
	want := func(text string) {
		t.Helper()
		if err := check(); err == nil || err.Error() != text {
			t.Errorf("%v, want %s", err, text)
		}
	}
	want("unsupported: no kubelet listens at port 10250 of the node, so it is unknown what it needs")
	var l, local net.Listener
	n.check(p.ns.do(func() (err error) {
		if l, err = net.Listen("tcp", ":10250"); err == nil {
			local, err = net.Listen("tcp", "127.0.0.1:6443")
		}
		return err
	}))
	defer l.Close()
	defer local.Close()
	want("the kubelet has no connection to an API server")
	defer must(p.dial(t.Context(), "tcp", "127.0.0.1:6443"))(t).Close()
	want("unsupported: the kubelet reaches its API servers through 127.0.0.1:6443 on the node, which would be cut " +
		"off from them")
}

// TestKeptGrows: the kubelet connects to another API server while the disruption lasts.
func TestKeptGrows(t *testing.T) {
	_, w := newWhole(t)
	k := must(w.backend.Node.withDefaults().kept(w.ns))(t)
	if k.update(w.backend.Node.withDefaults(), w.ns) {
		t.Errorf("nothing is new: %+v", k)
	}
	defer must(w.dial(t.Context(), "tcp", host2+":6443"))(t).Close()
	want := []netip.AddrPort{netip.MustParseAddrPort(apiServer), netip.MustParseAddrPort(host2 + ":6443")}
	if !k.update(w.backend.Node.withDefaults(), w.ns) || !slices.Equal(k.peers, want) {
		t.Errorf("%+v", k)
	}
}

// TestKeptCgroup: the kubelet's packets are those of its cgroup.
func TestKeptCgroup(t *testing.T) {
	n := newNode(t)
	root := n.roots["unified"]
	if root == "" {
		t.Skip("there are no cgroups of version 2 here")
	}
	p := n.newPod(false)
	c := p.start("kubelet")
	here := Node{Host: os.Getpid()}.withDefaults()
	got := must(here.cgroupOfProcess(c.cmd.Process.Pid))(t)
	var stat unix.Stat_t
	n.check(unix.Stat(c.cgroups["unified"], &stat))
	below := must(filepath.Rel("/sys/fs/cgroup/unified", c.cgroups["unified"]))(t)
	if got == nil || got.id != stat.Ino || int(got.level) != strings.Count(below, "/")+1 {
		t.Errorf("%+v of %s", got, below)
	}
	if got := must(here.cgroupOfProcess(os.Getpid()))(t); got != nil {
		t.Errorf("the root: %+v", got)
	}
}

func TestParseSocket(t *testing.T) {
	for line, want := range map[string]socket{
		"  0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0 0 4711 1 x": {
			netip.MustParseAddrPort("127.0.0.1:8080"), netip.MustParseAddrPort("0.0.0.0:0"), true, 4711},
		" 1: 0000000000000000FFFF0000020011AC:C350 0000000000000000FFFF0000010011AC:192B 01 0:0 0:0 0 0 0 42 1 x": {
			netip.MustParseAddrPort("172.17.0.2:50000"), netip.MustParseAddrPort("172.17.0.1:6443"), false, 42},
		" 2: 0100007F:1F90 0100007F:0001 06 0:0 0:0 0 0 0 0 1 x": {},
		"sl local_address rem_address st tx_queue":               {},
	} {
		got, ok := parseSocket(line)
		if ok != (want.inode != 0) || ok && got != want {
			t.Errorf("%s: %+v, %t", line, got, ok)
		}
	}
}

// TestNodeBandwidth limits what passes the node.
func TestNodeBandwidth(t *testing.T) {
	n, w := newWhole(t)
	s := &servers{}
	s.listen(n, 7100)
	remove := injectingBy(t, w.backend, nodeRequest("network", `{"bandwidthLimit": 400000}`))
	limited := s.throughput(w.runningPod, host2+":7100", 's')
	remove()
	free := s.throughput(w.runningPod, host2+":7100", 's')
	t.Logf("%d bytes per second, and %d afterwards", limited, free)
	if limited > 800_000 || free < 4*limited { // on a busy machine a second is not exact
		t.Errorf("%d bytes per second, and %d afterwards", limited, free)
	}
}
