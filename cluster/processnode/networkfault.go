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

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/fault"
	"github.com/trommel-dev/trommel/cluster/passthrough"
)

// networkFaults are the faults of a pod's connections, in two places: the pod's link to the API server, and a proxy for
// each address that a program asks the node for while there is a fault.
type networkFaults struct {
	mu      sync.Mutex
	faults  []*networkFault
	proxies map[string]*diversion // by the address that the program wants
}

// diversion is a proxy in front of an address.
type diversion struct {
	proxy *passthrough.Proxy
	to    string // what the address is on this machine; guarded by networkFaults.mu
}

type networkFault struct {
	spec  v1alpha1.Network
	peers []peer
	api   bool // the API server is one of the peers
}

// peer is a set of addresses; a port of 0 is any.
type peer struct {
	net  netip.Prefix
	port int
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

func (f *networkFault) concerns(at netip.AddrPort) bool {
	return slices.ContainsFunc(f.peers, func(p peer) bool {
		return p.net.Contains(at.Addr().Unmap()) && (p.port == 0 || p.port == int(at.Port()))
	})
}

// prepareNetwork disturbs connections that the target opens. The node sees streams and no packets.
func prepareNetwork(ctx context.Context, p *pod, f fault.Fault) (func() func(), error) {
	n := &networkFault{}
	if err := decodeSpec(f, &n.spec); err != nil {
		return nil, err
	}
	switch {
	case n.spec.Duplicate != nil || n.spec.Corrupt != nil:
		return nil, unsupported("it sees the data of connections and no packets that could be duplicated or corrupted")
	case n.spec.HTTP != nil:
		return nil, unsupported("it does not look for HTTP in connections; for API servers use apiFault")
	}
	if err := p.wholePod(f); err != nil {
		return nil, err
	}
	if err := n.findPeers(ctx, p); err != nil {
		return nil, err
	}
	if len(n.peers) > 0 {
		if err := p.asksNode(); err != nil {
			return nil, err
		}
	}
	return func() func() {
		p.changeNetwork(func(faults []*networkFault) []*networkFault { return append(faults, n) })
		return func() {
			p.changeNetwork(func(faults []*networkFault) []*networkFault {
				return slices.DeleteFunc(faults, func(o *networkFault) bool { return o == n })
			})
		}
	}, nil
}

// Names of the Service in front of the API servers.
var apiServerNames = []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc",
	"kubernetes.default.svc" + clusterDomain}

const apiServerPort = 443

// findPeers sets peers and api.
func (f *networkFault) findPeers(ctx context.Context, p *pod) error {
	if len(f.spec.Hosts) == 0 && len(f.spec.Services) == 0 {
		f.api = true
		// A program without hooks has no other connections that the node could see.
		if p.asksNode() == nil {
			f.peers = everybody(0)
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
			if err := f.addService(ctx, p, s.Namespace, s.Name, int(port)); err != nil {
				return err
			}
		}
	}
	return nil
}

func everybody(port int) []peer {
	return []peer{{netip.MustParsePrefix("0.0.0.0/0"), port}, {netip.MustParsePrefix("::/0"), port}}
}

func (f *networkFault) addHost(ctx context.Context, p *pod, h v1alpha1.NetworkHost) error {
	port, host := int(h.Port), strings.TrimSuffix(strings.ToLower(h.Host), ".")
	api := port == 0 || port == apiServerPort
	switch {
	case h.Protocol == "udp":
		return unsupported("it does not see UDP")
	case h.Flow == "ingress":
		return unsupported("connections to a pod's own address do not pass it; choose the clients as targets, with egress")
	case host == "":
		f.api = f.api || api
		f.peers = append(f.peers, everybody(port)...)
		return nil
	case slices.Contains(apiServerNames, host):
		f.api = f.api || api
		return nil
	}
	if prefix, err := parsePrefix(host); err == nil {
		service := p.node.apiService()
		switch {
		case prefix.Addr().IsLoopback():
			return unsupported("connections to a loopback address, and so to a pod's own, do not pass it: " +
				"name a service")
		case service.IsValid() && prefix.Contains(service) && prefix.IsSingleIP():
			f.api = f.api || api
			return nil
		case service.IsValid() && prefix.Contains(service):
			f.api = f.api || api
		}
		f.peers = append(f.peers, peer{prefix, port})
		return nil
	}
	inCluster, _ := strings.CutSuffix(host, clusterDomain)
	inCluster, isService := strings.CutSuffix(inCluster, ".svc")
	if parts := strings.Split(inCluster, "."); isService {
		if len(parts) != 2 {
			return unsupported("connections to a pod's own address do not pass it: %s", h.Host)
		}
		return f.addService(ctx, p, parts[1], parts[0], port)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return fmt.Errorf("look up %s: %w", h.Host, err)
	}
	for _, ip := range ips {
		ip = ip.Unmap()
		if ip.IsLoopback() {
			return unsupported("%s is this machine: connections to a loopback address do not pass it", h.Host)
		}
		f.peers = append(f.peers, peer{netip.PrefixFrom(ip, ip.BitLen()), port})
	}
	return nil
}

func (f *networkFault) addService(ctx context.Context, p *pod, namespace, name string, port int) error {
	if namespace == metav1.NamespaceDefault && name == "kubernetes" {
		f.api = f.api || port == 0 || port == apiServerPort
		return nil
	}
	service, err := p.node.client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("service %s/%s: %w", namespace, name, err)
	}
	ip, err := netip.ParseAddr(service.Spec.ClusterIP)
	if err != nil || service.Spec.ClusterIP == corev1.ClusterIPNone {
		return unsupported("connections to a pod's own address do not pass it, and service %s/%s has no other one",
			namespace, name)
	}
	f.peers = append(f.peers, peer{netip.PrefixFrom(ip, ip.BitLen()), port})
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
	for address, d := range n.proxies {
		at, _ := netip.ParseAddrPort(address)
		d.proxy.Shape(choose(n.faults, func(f *networkFault) bool { return f.concerns(at) }))
		if len(n.faults) == 0 {
			// Its connections stay, undisturbed.
			d.proxy.Retire()
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
		if concerned(f) {
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

// divert returns where a program that wants an address has to connect: to itself if nothing disturbs that, and
// otherwise to a proxy.
func (n *networkFaults) divert(wanted, to string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at, err := netip.ParseAddrPort(wanted)
	if err != nil || len(n.faults) == 0 {
		return to, nil
	}
	shape := choose(n.faults, func(f *networkFault) bool { return f.concerns(at) })
	if shape == nil {
		return to, nil
	}
	if d := n.proxies[wanted]; d != nil {
		d.to = to
		return d.proxy.Addr(), nil
	}
	d := &diversion{to: to}
	d.proxy, err = passthrough.New(func(ctx context.Context) (net.Conn, error) {
		n.mu.Lock()
		to := d.to
		n.mu.Unlock()
		return (&net.Dialer{}).DialContext(ctx, "tcp", to)
	})
	if err != nil {
		return "", errors.Join(errors.New("the process node has no proxy"), err)
	}
	d.proxy.Shape(shape)
	if n.proxies == nil {
		n.proxies = map[string]*diversion{}
	}
	n.proxies[wanted] = d
	return d.proxy.Addr(), nil
}
