package processnode

import (
	"fmt"
	"net/netip"
	"sync"
)

// address is a pod's place on this machine: its own address, and the one that it uses as 127.0.0.1. If a machine has
// only one loopback address, both are that address.
type address struct{ ip, loopback netip.Addr }

// hostAddress is the machine's own.
var hostAddress = address{netip.MustParseAddr(hostIP), netip.MustParseAddr(hostIP)}

func (a address) own() bool { return a != hostAddress }

// addresses allocates loopback addresses, from blocks of 254 that no other process on the machine uses.
type addresses struct {
	mu     sync.Mutex
	blocks []*addressBlock
	used   map[netip.Addr]bool
	next   int // counts through the blocks, so that an address is not reused immediately
}

const pairsPerBlock = 126

// take reserves an address until it is released.
func (a *addresses) take() (address, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for range 2 {
		for range len(a.blocks) * pairsPerBlock {
			n := a.next % (len(a.blocks) * pairsPerBlock)
			a.next = n + 1
			ip := a.blocks[n/pairsPerBlock].address(2 + 2*(n%pairsPerBlock))
			if !a.used[ip] {
				a.used[ip] = true
				return address{ip, ip.Next()}, nil
			}
		}
		a.next = len(a.blocks) * pairsPerBlock
		block, err := reserveBlock()
		if err != nil {
			return address{}, fmt.Errorf("reserve loopback addresses for pods: %w", err)
		}
		if block == nil {
			return hostAddress, nil
		}
		a.blocks = append(a.blocks, block)
	}
	return address{}, fmt.Errorf("reserve loopback addresses for pods: none is free")
}

func (a *addresses) giveBack(pod address) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.used, pod.ip)
}

func (a *addresses) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.blocks {
		b.release()
	}
	a.blocks = nil
}

// addressBlock is the addresses 127.a.b.0 to 127.a.b.255.
type addressBlock struct {
	prefix  [3]byte
	release func()
}

func (b *addressBlock) address(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{b.prefix[0], b.prefix[1], b.prefix[2], byte(n)})
}

// PodAddress returns the loopback address at which a pod on this node listens; on a machine with only one loopback
// address it is always that one. ok is false for a pod that does not run here or is terminating.
func (n *Node) PodAddress(namespace, name string) (ip netip.Addr, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		if p.namespace == namespace && p.name == name && !p.terminating {
			return p.address.ip, true
		}
	}
	return netip.Addr{}, false
}
