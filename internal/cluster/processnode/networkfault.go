package processnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/internal/cluster/passthrough"
)

// networkFaults are the faults of a pod's connections, in two places: the pod's link to the API server, and proxies for
// addresses that a program asks the node for while there is a fault: those that the pod's programs want, and the pod's
// own that others want.
type networkFaults struct {
	mu      sync.Mutex
	faults  []*networkFault
	proxies map[way]*diversion
	wanted  map[string]map[string]struct{} // what programs wanted that have connected to an address
}

// way is what connections have in common that a diversion is for.
type way struct {
	from   netip.Addr // of connections to the pod: the client's address; invalid for those that the pod opens
	wanted string     // the address that the client wants
}

// diversion is a proxy in front of an address.
type diversion struct {
	proxy *passthrough.Proxy
	// Guarded by networkFaults.mu: what the address is on this machine, and what disturbs requests, nil until there is
	// such a fault.
	to       string
	requests *terminator
}

type networkFault struct {
	spec v1alpha1.Network
	// Peers of connections that the pod opens, and of those that others open to it, with the pod's own port.
	egress, ingress []peer
	api             bool // the API server is one of the peers
	// grpc are calls to the pod's server that are disturbed.
	grpc  []v1alpha1.GRPCEndpoint
	ended chan struct{} // closed at its end
}

// ofRequests reports whether the fault disturbs requests, and not the connections that they come over.
func (f *networkFault) ofRequests() bool { return f.spec.HTTP != nil || f.grpc != nil }

// peer is a set of addresses; a port of 0 is any.
type peer struct {
	net  netip.Prefix
	pods func(netip.Addr) bool // or: whether the address is one of these pods'
	port int
}

func (p peer) matches(address netip.Addr, port int) bool {
	if p.port != 0 && p.port != port {
		return false
	}
	if p.pods != nil {
		return p.pods(address)
	}
	return p.net.Contains(address)
}

// onLoopback reports whether programs must ask before they connect to addresses of other pods.
func (p peer) onLoopback() bool {
	return p.pods != nil || p.net.Overlaps(netip.MustParsePrefix("127.0.0.0/8"))
}

func (f *networkFault) shape() passthrough.Shape {
	var s passthrough.Shape
	if !drawn(f.spec.Percentage) {
		return s
	}
	if f.spec.Delay != nil {
		s.Delay = f.spec.Delay.Duration()
	}
	if f.spec.DelayJitter != nil {
		s.Jitter = f.spec.DelayJitter.Duration()
	}
	if f.spec.BandwidthLimit != nil {
		s.Bandwidth = *f.spec.BandwidthLimit
	}
	s.Hang = f.spec.Drop != nil && drawn(f.spec.Drop)
	return s
}

// concerns reports whether the fault disturbs connections.
func (f *networkFault) concerns(w way) bool {
	at, err := netip.ParseAddrPort(w.wanted)
	if err != nil {
		return false
	}
	peers, address := f.egress, at.Addr().Unmap()
	if w.from.IsValid() {
		peers, address = f.ingress, w.from
	}
	return slices.ContainsFunc(peers, func(p peer) bool { return p.matches(address, int(at.Port())) })
}

// prepareNetwork disturbs connections that the target opens, or that others open to it. The node sees streams and no
// packets.
func prepareNetwork(ctx context.Context, p *pod, f fault.Fault) (func() (func(), error), error) {
	n := &networkFault{ended: make(chan struct{})}
	if err := decodeSpec(f, &n.spec); err != nil {
		return nil, err
	}
	switch {
	case n.spec.Duplicate != nil || n.spec.Corrupt != nil:
		return nil, unsupported("it sees the data of connections and no packets that could be duplicated or corrupted")
	case n.spec.HTTP != nil && n.spec.BandwidthLimit != nil:
		return nil, unsupported("it does not limit the bandwidth of HTTP requests: leave http or bandwidthLimit out")
	}
	if err := p.wholePod(f); err != nil {
		return nil, err
	}
	if err := n.findPeers(ctx, p); err != nil {
		return nil, err
	}
	if n.spec.HTTP != nil {
		if n.api && len(n.egress) == 0 && len(n.ingress) == 0 {
			return nil, unsupported("connections to API servers use TLS, so it sees no HTTP in them: use apiFault")
		}
		n.api = false
	}
	return p.prepareConnections(n)
}

// prepareConnections checks whether the node sees the connections, after the fault's peers are known.
func (p *pod) prepareConnections(f *networkFault) (func() (func(), error), error) {
	if len(f.egress) > 0 {
		if err := p.asksNode(); err != nil {
			return nil, err
		}
	}
	if len(f.ingress) > 0 && !p.address.own() {
		return nil, unsupported("this machine has only one loopback address, so pods have none of their own")
	}
	asking := 0
	if len(f.ingress) > 0 || slices.ContainsFunc(f.egress, peer.onLoopback) {
		asking = 1
	}
	return func() (func(), error) {
		if err := p.node.askBeforeDialing(asking); err != nil {
			return nil, errors.Join(err, p.node.askBeforeDialing(-asking))
		}
		p.changeNetwork(func(faults []*networkFault) []*networkFault { return append(faults, f) })
		if f.ofRequests() {
			p.node.reopen(p, f)
		}
		return func() {
			p.changeNetwork(func(faults []*networkFault) []*networkFault {
				return slices.DeleteFunc(faults, func(o *networkFault) bool { return o == f })
			})
			close(f.ended)
			if err := p.node.askBeforeDialing(-asking); err != nil {
				p.node.log.Error("end a fault of connections", "namespace", p.namespace, "pod", p.name, "error", err)
			}
		}, nil
	}, nil
}

// Names of the Service in front of the API servers.
var apiServerNames = []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc",
	"kubernetes.default.svc" + clusterDomain}

const apiServerPort = 443

// findPeers sets the peers and api.
func (f *networkFault) findPeers(ctx context.Context, p *pod) error {
	if len(f.spec.Hosts) == 0 && len(f.spec.Services) == 0 {
		f.api = true
		// A program without hooks has no other connections that the node could see.
		if p.asksNode() == nil {
			f.egress = everybody(0)
		}
		return nil
	}
	for _, h := range f.spec.Hosts {
		if err := f.addHost(ctx, p, h); err != nil {
			return err
		}
	}
	for _, s := range f.spec.Services {
		ports := s.Ports
		if len(ports) == 0 {
			ports = []int32{0}
		}
		for _, port := range ports {
			if err := f.addService(ctx, p, s.Namespace, s.Name, "", int(port)); err != nil {
				return err
			}
		}
	}
	return nil
}

func everybody(port int) []peer {
	return []peer{
		{net: netip.MustParsePrefix("0.0.0.0/0"), port: port}, {net: netip.MustParsePrefix("::/0"), port: port},
	}
}

func (f *networkFault) addHost(ctx context.Context, p *pod, h v1alpha1.NetworkHost) error {
	port, host := int(h.Port), strings.TrimSuffix(strings.ToLower(h.Host), ".")
	api := port == 0 || port == apiServerPort
	switch {
	case h.Protocol == "udp":
		return unsupported("it does not see UDP")
	case h.Flow == "ingress":
		return f.addClient(host, port)
	case host == "":
		f.api = f.api || api
		f.egress = append(f.egress, everybody(port)...)
		return nil
	case slices.Contains(apiServerNames, host):
		f.api = f.api || api
		return nil
	}
	if prefix, err := parsePrefix(host); err == nil {
		service := p.node.apiService()
		switch {
		case prefix.Addr().IsLoopback():
			return f.addPod(p, prefix, port)
		case service.IsValid() && prefix.Contains(service) && prefix.IsSingleIP():
			f.api = f.api || api
			return nil
		case service.IsValid() && prefix.Contains(service):
			f.api = f.api || api
		}
		f.egress = append(f.egress, peer{net: prefix, port: port})
		return nil
	}
	inCluster, _ := strings.CutSuffix(host, clusterDomain)
	inCluster, isService := strings.CutSuffix(inCluster, ".svc")
	if parts := strings.Split(inCluster, "."); isService {
		switch len(parts) {
		case 2:
			return f.addService(ctx, p, parts[1], parts[0], "", port)
		case 3:
			return f.addService(ctx, p, parts[2], parts[1], parts[0], port)
		}
		return fmt.Errorf("%w: %s is not the name of a service", errInvalid, h.Host)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return fmt.Errorf("look up %s: %w", h.Host, err)
	}
	for _, ip := range ips {
		ip = ip.Unmap()
		if ip.IsLoopback() {
			return unsupported("%s is this machine: connections to its own loopback address do not pass the node",
				h.Host)
		}
		f.egress = append(f.egress, peer{net: netip.PrefixFrom(ip, ip.BitLen()), port: port})
	}
	return nil
}

// addClient adds a peer that opens connections to the target. Its address is known, and nothing else.
func (f *networkFault) addClient(host string, port int) error {
	if host == "" {
		f.ingress = append(f.ingress, everybody(port)...)
		return nil
	}
	prefix, err := parsePrefix(host)
	if err != nil {
		return unsupported("it knows clients by their addresses only: %s is a name", host)
	}
	f.ingress = append(f.ingress, peer{net: prefix, port: port})
	return nil
}

// addPod adds other pods' own addresses, which are loopback addresses.
func (f *networkFault) addPod(p *pod, prefix netip.Prefix, port int) error {
	isOther := func(o *pod) bool { return o != p && o.address.own() && o.address.ip == prefix.Addr() }
	if prefix.IsSingleIP() && p.node.findPod(isOther) == nil {
		return unsupported("%s is this machine's or the target's own loopback address: connections to it do not pass "+
			"the node", prefix.Addr())
	}
	containers, _ := p.targets(fault.Fault{})
	if err := p.heedsFaults(containers); err != nil {
		return err
	}
	f.egress = append(f.egress, peer{net: prefix, port: port})
	return nil
}

// findPod returns a pod on this node that satisfies the condition, or nil. The condition is called with Node.mu locked.
func (n *Node) findPod(is func(*pod) bool) *pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		if is(p) {
			return p
		}
	}
	return nil
}

// addService adds a service or, if a host is given, that host of a headless service.
func (f *networkFault) addService(ctx context.Context, p *pod, namespace, name, host string, port int) error {
	if namespace == metav1.NamespaceDefault && name == "kubernetes" {
		f.api = f.api || port == 0 || port == apiServerPort
		return nil
	}
	service, err := p.node.client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("service %s/%s: %w", namespace, name, err)
	}
	ip, err := netip.ParseAddr(service.Spec.ClusterIP)
	if err == nil && host == "" {
		f.egress = append(f.egress, peer{net: netip.PrefixFrom(ip, ip.BitLen()), port: port})
		return nil
	}
	if service.Spec.ClusterIP != corev1.ClusterIPNone {
		return fmt.Errorf("%w: service %s/%s is not headless, so it has no host %q", errInvalid, namespace, name, host)
	}
	containers, _ := p.targets(fault.Fault{})
	if err := p.heedsFaults(containers); err != nil {
		return err
	}
	ports := map[int]bool{port: true} // clients connect to the pods' port
	for _, s := range service.Spec.Ports {
		if int(s.Port) == port && s.TargetPort.IntValue() != 0 {
			ports[s.TargetPort.IntValue()] = true
		}
	}
	if len(service.Spec.Selector) == 0 {
		ips, err := p.node.headless(ctx, service, host)
		if err != nil {
			return err
		}
		for _, ip := range ips {
			for port := range ports {
				if prefix, err := parsePrefix(ip); err == nil {
					f.egress = append(f.egress, peer{net: prefix, port: port})
				}
			}
		}
		return nil
	}
	// The service's pods change while the fault lasts.
	selector := labels.SelectorFromSet(service.Spec.Selector)
	pods := func(address netip.Addr) bool {
		return nil != p.node.findPod(func(o *pod) bool {
			return o.namespace == namespace && o.address.ip == address &&
				selector.Matches(labels.Set(o.object.Labels)) &&
				(host == "" || o.spec.Hostname == host && o.spec.Subdomain == name)
		})
	}
	for port := range ports {
		f.egress = append(f.egress, peer{pods: pods, port: port})
	}
	return nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	if prefix, err := netip.ParsePrefix(s); err == nil {
		return prefix.Masked(), nil
	}
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	ip = ip.Unmap()
	return netip.PrefixFrom(ip, ip.BitLen()), nil
}

// apiService is the address of the Service in front of the API servers: the first one of the range.
func (n *Node) apiService() netip.Addr {
	if !n.config.ServiceCIDR.IsValid() {
		return netip.Addr{}
	}
	return n.config.ServiceCIDR.Masked().Addr().Next()
}

// changeNetwork changes the faults. They are in effect when it returns.
func (p *pod) changeNetwork(change func([]*networkFault) []*networkFault) {
	n := &p.network
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = change(slices.Clone(n.faults))
	p.link.proxy.Shape(choose(n.faults, func(f *networkFault) bool { return f.api }))
	for w, d := range n.proxies {
		d.proxy.Shape(choose(n.faults, func(f *networkFault) bool { return f.concerns(w) }))
		if len(n.faults) == 0 {
			// Its connections stay, undisturbed.
			d.proxy.Retire()
			if d.requests != nil {
				d.requests.retire()
			}
		}
	}
	if len(n.faults) == 0 {
		n.proxies = nil
	}
}

// choose returns the shape of connections with these faults; nil without any.
func choose(faults []*networkFault, concerned func(*networkFault) bool) func() passthrough.Shape {
	var of []*networkFault
	for _, f := range faults {
		if concerned(f) && !f.ofRequests() {
			of = append(of, f)
		}
	}
	if len(of) == 0 {
		return nil
	}
	return func() passthrough.Shape {
		var s passthrough.Shape
		for _, f := range of {
			s = s.Plus(f.shape())
		}
		return s
	}
}

// toPod returns where a client has to connect that wants an address of a pod on this node: to that address if nothing
// disturbs the connection, and otherwise to a proxy.
func (n *Node) toPod(from netip.Addr, to string) (string, error) {
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return to, nil
	}
	of := n.findPod(func(p *pod) bool { return p.address.own() && p.address.ip == at.Addr() })
	if of == nil {
		return to, nil
	}
	return of.divert(way{from, to}, to)
}

// Ingress returns where an API server has to connect for an address of a pod on this node, host:port: usually to that
// address.
func (n *Node) Ingress(to string) (string, error) { return n.toPod(hostAddress.ip, to) }

// divert returns where a client has to connect: to the address if nothing disturbs that, and otherwise to a proxy.
func (p *pod) divert(w way, to string) (string, error) {
	n := &p.network
	n.mu.Lock()
	defer n.mu.Unlock()
	var of []*networkFault
	for _, f := range n.faults {
		if f.concerns(w) {
			of = append(of, f)
		}
	}
	if len(of) == 0 {
		return to, nil
	}
	d := n.proxies[w]
	if d == nil {
		d = &diversion{to: to}
		var err error
		d.proxy, err = passthrough.New(func(ctx context.Context) (net.Conn, error) { return n.dial(ctx, d) })
		if err != nil {
			return "", errors.Join(errors.New("the process node has no proxy"), err)
		}
		d.proxy.Shape(choose(of, func(*networkFault) bool { return true }))
		if n.proxies == nil {
			n.proxies = map[way]*diversion{}
		}
		n.proxies[w] = d
	}
	d.to = to
	if d.requests == nil && slices.ContainsFunc(of, (*networkFault).ofRequests) {
		d.requests = startTerminator(terminatorConfig{
			ctx: p.node.ctx, host: w.wanted, log: p.node.log, disturb: (&requestFaults{n, w, p}).disturb,
		})
	}
	return d.proxy.Addr(), nil
}

// dial connects to where a diversion leads.
func (n *networkFaults) dial(ctx context.Context, d *diversion) (net.Conn, error) {
	n.mu.Lock()
	to, requests := d.to, d.requests
	n.mu.Unlock()
	backend, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err != nil || requests == nil {
		return backend, err
	}
	client, server, err := socketPair()
	if err != nil {
		_ = backend.Close()
		return nil, err
	}
	go requests.join(server, backend)
	return client, nil
}

// current lists the faults of connections.
func (n *networkFaults) current(w way) []*networkFault {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(n.faults), func(f *networkFault) bool { return !f.concerns(w) })
}
