package faults

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster/passthrough"
	"github.com/trommel-dev/trommel/internal/processnode/faults/requests"
)

// connections are a pod's connections and their faults, in two places: the pod's link to the API server, and proxies
// for addresses that a program asks the node for while there is a fault: those that the pod's programs want, and the
// pod's own that others want.
type connections struct {
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
	// Guarded by connections.mu: what the address is on this machine, and what disturbs requests, nil until there is
	// such a fault.
	to       string
	requests *requests.Proxy
}

// changeNetwork changes the faults. They are in effect when it returns.
func (p *Pod) changeNetwork(change func([]*networkFault) []*networkFault) {
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
				d.requests.Retire()
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

// Dial returns where a program of the pod has to connect that wants an address: usually to the address to, where that
// is on this machine. An error says why nothing listens there.
func (p *Pod) Dial(network, wanted, to string) (string, error) {
	if err := p.lies.refuse(wanted); err != nil {
		return "", err
	}
	if network != "tcp" || to == p.APIServer() {
		return to, nil
	}
	p.network.noteDial(wanted, to)
	// The target's faults, and then those of this pod.
	to, err := p.set.toPod(p.config.IP, to)
	if err != nil {
		return "", err
	}
	return p.divert(way{wanted: wanted}, to)
}

// toPod returns where a client has to connect that wants an address of a pod on this node: to that address if nothing
// disturbs the connection, and otherwise to a proxy.
func (s *Set) toPod(from netip.Addr, to string) (string, error) {
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return to, nil
	}
	of := s.findPod(func(p *Pod) bool { return p.hasOwnAddress() && p.config.IP == at.Addr() })
	if of == nil {
		return to, nil
	}
	return of.divert(way{from, to}, to)
}

// Ingress returns where an API server has to connect for an address of a pod on this node, host:port: usually to that
// address.
func (s *Set) Ingress(to string) (string, error) { return s.toPod(s.config.Host, to) }

// divert returns where a client has to connect: to the address if nothing disturbs that, and otherwise to a proxy.
func (p *Pod) divert(w way, to string) (string, error) {
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
		d.proxy, err = passthrough.New(clock.Of(p.set.ctx), func(ctx context.Context) (net.Conn, error) {
			return n.dial(ctx, d)
		})
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
		d.requests = requests.Start(requests.Config{
			Context: p.set.ctx, Host: w.wanted, Log: p.set.log, Disturb: (&requestFaults{n, w}).disturb,
		})
	}
	return d.proxy.Addr(), nil
}

// dial connects to where a diversion leads.
func (n *connections) dial(ctx context.Context, d *diversion) (net.Conn, error) {
	n.mu.Lock()
	to, proxy := d.to, d.requests
	n.mu.Unlock()
	backend, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
	if err != nil || proxy == nil {
		return backend, err
	}
	client, server, err := requests.SocketPair()
	if err != nil {
		_ = backend.Close()
		return nil, err
	}
	go proxy.Join(server, backend)
	return client, nil
}

// current lists the faults of connections.
func (n *connections) current(w way) []*networkFault {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(n.faults), func(f *networkFault) bool { return !f.concerns(w) })
}
