package processnode

import "net/netip"

// PodAddress returns the loopback address at which a pod on this node listens; on a machine with only one loopback
// address it is always that one. ok is false for a pod that does not run here or is terminating.
func (n *Node) PodAddress(namespace, name string) (ip netip.Addr, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		if p.namespace == namespace && p.name == name && !p.ending.begun {
			return p.address.IP, true
		}
	}
	return netip.Addr{}, false
}
