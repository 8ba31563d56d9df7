package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/passthrough"
	"github.com/trommel-dev/trommel/internal/processnode/faults/requests"
)

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
	if !requests.Drawn(f.spec.Percentage) {
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
	s.Hang = f.spec.Drop != nil && requests.Drawn(f.spec.Drop)
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

var _ = register(v1alpha1.KindNetwork, prepareNetwork)

// prepareNetwork disturbs connections that the target opens, or that others open to it. The node sees streams and no
// packets.
func prepareNetwork(ctx context.Context, p *Pod, f fault.Fault, spec v1alpha1.Network) (beginFunc, error) {
	n := &networkFault{spec: spec, ended: make(chan struct{})}
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
func (p *Pod) prepareConnections(f *networkFault) (beginFunc, error) {
	if len(f.egress) > 0 {
		if err := p.asksNode(); err != nil {
			return nil, err
		}
	}
	if len(f.ingress) > 0 && !p.hasOwnAddress() {
		return nil, unsupported("this machine has only one loopback address, so pods have none of their own")
	}
	asking := 0
	if len(f.ingress) > 0 || slices.ContainsFunc(f.egress, peer.onLoopback) {
		asking = 1
	}
	return func() (func(), error) {
		if err := p.set.askBeforeDialing(asking); err != nil {
			return nil, errors.Join(err, p.set.askBeforeDialing(-asking))
		}
		p.changeNetwork(func(faults []*networkFault) []*networkFault { return append(faults, f) })
		if f.ofRequests() {
			p.reopen(f)
		}
		return func() {
			p.changeNetwork(func(faults []*networkFault) []*networkFault {
				return slices.DeleteFunc(faults, func(o *networkFault) bool { return o == f })
			})
			close(f.ended)
			if err := p.set.askBeforeDialing(-asking); err != nil {
				p.set.log.Error("end a fault of connections", "namespace", p.config.Namespace, "pod", p.config.Name,
					"error", err)
			}
		}, nil
	}, nil
}

// Names of the Service in front of the API servers.
var apiServerNames = []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc",
	"kubernetes.default.svc" + cluster.Domain}

const apiServerPort = 443

// findPeers sets the peers and api.
func (f *networkFault) findPeers(ctx context.Context, p *Pod) error {
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

func (f *networkFault) addHost(ctx context.Context, p *Pod, h v1alpha1.NetworkHost) error {
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
		service := p.set.apiService()
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
	inCluster, _ := strings.CutSuffix(host, cluster.Domain)
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
func (f *networkFault) addPod(p *Pod, prefix netip.Prefix, port int) error {
	isOther := func(o *Pod) bool { return o != p && o.hasOwnAddress() && o.config.IP == prefix.Addr() }
	if prefix.IsSingleIP() && p.set.findPod(isOther) == nil {
		return unsupported("%s is this machine's or the target's own loopback address: connections to it do not pass "+
			"the node", prefix.Addr())
	}
	if err := p.heedsFaults(p.config.Containers); err != nil {
		return err
	}
	f.egress = append(f.egress, peer{net: prefix, port: port})
	return nil
}

// addService adds a service or, if a host is given, that host of a headless service.
func (f *networkFault) addService(ctx context.Context, p *Pod, namespace, name, host string, port int) error {
	if namespace == metav1.NamespaceDefault && name == "kubernetes" {
		f.api = f.api || port == 0 || port == apiServerPort
		return nil
	}
	service, err := p.set.config.Service(ctx, namespace, name)
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
	if err := p.heedsFaults(p.config.Containers); err != nil {
		return err
	}
	ports := map[int]bool{port: true} // clients connect to the pods' port
	for _, s := range service.Spec.Ports {
		if int(s.Port) == port && s.TargetPort.IntValue() != 0 {
			ports[s.TargetPort.IntValue()] = true
		}
	}
	if len(service.Spec.Selector) == 0 {
		ips, err := p.set.config.Headless(ctx, service, host)
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
		return nil != p.set.findPod(func(o *Pod) bool {
			return o.config.Namespace == namespace && o.config.IP == address &&
				selector.Matches(labels.Set(o.config.Labels())) &&
				(host == "" || o.config.Hostname == host && o.config.Subdomain == name)
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
func (s *Set) apiService() netip.Addr {
	if !s.config.ServiceCIDR.IsValid() {
		return netip.Addr{}
	}
	return s.config.ServiceCIDR.Masked().Addr().Next()
}
