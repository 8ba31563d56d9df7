package processnode

import "net/netip"

// connection is an open one, as a process of a pod sees it.
type connection struct{ local, remote netip.AddrPort }

// reopen ends the open connections whose requests a fault disturbs, so that clients connect again and the node sees the
// requests. It is called when the fault is in effect for new connections.
func (n *Node) reopen(target *pod, f *networkFault) {
	n.mu.Lock()
	pids := map[*pod][]int{}
	for _, p := range n.pods {
		for _, c := range append(p.init[:len(p.init):len(p.init)], p.containers...) {
			if c.current != nil {
				pids[p] = append(pids[p], c.current.process.PID())
			}
		}
	}
	n.mu.Unlock()
	all, err := openConnections()
	if err != nil {
		n.log.Warn("connections that are open stay undisturbed", "error", err)
	}
	for p, of := range pids {
		err := endConnections(all, of, func(c connection) bool {
			switch to := c.remote.Addr(); {
			case p != target:
				return to == target.address.ip && f.concerns(way{p.address.ip, c.remote.String()})
			case c.local.Addr() == p.address.ip:
				// Opened by somebody else. The client may be an API server.
				return f.concerns(way{hostAddress.ip, c.local.String()})
			case to == hostAddress.ip || to == p.address.ip || to == p.address.loopback:
				// To API servers, the coordinator and proxies of the node, and within the pod.
				return false
			}
			return p.wants(c.remote, f)
		})
		if err != nil {
			n.log.Warn("connections that are open stay undisturbed", "namespace", p.namespace, "pod", p.name,
				"error", err)
		}
	}
	target.network.cutStreams(f)
}

// wants reports whether a fault concerns an address that the pod's programs have wanted when they connected to another
// one.
func (p *pod) wants(at netip.AddrPort, f *networkFault) bool {
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
func (n *networkFaults) noteDial(wanted, to string) {
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
func (n *networkFaults) cutStreams(f *networkFault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for w, d := range n.proxies {
		if f.concerns(w) && d.requests == nil {
			d.proxy.Cut()
		}
	}
}
