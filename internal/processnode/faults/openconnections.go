package faults

import (
	"net/netip"
	"slices"
)

// connection is an open one, as a process of a pod sees it.
type connection struct{ local, remote netip.AddrPort }

// reopen ends the open connections whose requests a fault disturbs, so that clients connect again and the node sees the
// requests. It is called when the fault is in effect for new connections.
func (p *Pod) reopen(f *networkFault) {
	s := p.set
	all, err := openConnections()
	if err != nil {
		s.log.Warn("connections that are open stay undisturbed", "error", err)
	}
	for _, of := range s.allPods() {
		var pids []int
		for _, c := range slices.Concat(of.config.Init, of.config.Containers) {
			if pid := c.PID(); pid != 0 {
				pids = append(pids, pid)
			}
		}
		err := endConnections(all, pids, func(c connection) bool {
			switch to := c.remote.Addr(); {
			case of != p:
				return to == p.config.IP && f.concerns(way{of.config.IP, c.remote.String()})
			case c.local.Addr() == p.config.IP:
				// The other end has opened it. The client may be an API server.
				return f.concerns(way{s.config.Host, c.local.String()})
			case to == s.config.Host || to == p.config.IP || to == p.config.Loopback:
				// To API servers, the coordinator and proxies of the node, and within the pod.
				return false
			}
			return p.wants(c.remote, f)
		})
		if err != nil {
			s.log.Warn("connections that are open stay undisturbed", "namespace", of.config.Namespace,
				"pod", of.config.Name, "error", err)
		}
	}
	p.network.cutStreams(f)
}

// wants reports whether a fault concerns an address that the pod's programs have wanted when they connected to another
// one.
func (p *Pod) wants(at netip.AddrPort, f *networkFault) bool {
	if f.concerns(way{wanted: at.String()}) {
		return true
	}
	n := &p.network
	n.mu.Lock()
	wanted := n.wanted[at.String()]
	n.mu.Unlock()
	for w := range wanted {
		if f.concerns(way{wanted: w}) {
			return true
		}
	}
	return false
}

// noteDial notes where a program connects that wants an address.
func (n *connections) noteDial(wanted, to string) {
	if wanted == to {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.wanted == nil {
		n.wanted = map[string]map[string]struct{}{}
	}
	if n.wanted[to] == nil {
		n.wanted[to] = map[string]struct{}{}
	}
	n.wanted[to][wanted] = struct{}{}
}

// cutStreams resets connections that pass proxies which do not see requests.
func (n *connections) cutStreams(f *networkFault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w, d := range n.proxies {
		if f.concerns(w) && d.requests == nil {
			d.proxy.Cut()
		}
	}
}
