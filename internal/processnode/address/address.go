// Package address gives each pod its own loopback address, which no other pod on this machine has.
package address

import (
	"fmt"
	"net/netip"
	"sync"
)

// Address is where a pod is on this machine: its own address, and the one that it uses as 127.0.0.1. If a machine has
// only one loopback address, both are that address.
type Address struct{ IP, Loopback netip.Addr }

// HostIP is the machine's own address.
const HostIP = "127.0.0.1"

// Host is the machine's own.
var Host = Address{netip.MustParseAddr(HostIP), netip.MustParseAddr(HostIP)}

// Own reports whether it is the pod's alone.
func (a Address) Own() bool { return a != Host }

// Pool allocates loopback addresses, from blocks of 254 that no other process on the machine uses.
type Pool struct {
	mu     sync.Mutex
	blocks []*addressBlock
	used   map[netip.Addr]bool
	next   int // counts through the blocks, so that an address is not reused immediately
}

const pairsPerBlock = 126

// NewPool returns a pool that has reserved nothing yet.
func NewPool() *Pool { return &Pool{used: map[netip.Addr]bool{}} }

// Take reserves an address until it is released.
func (a *Pool) Take() (Address, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for range 2 {
		for range len(a.blocks) * pairsPerBlock {
			n := a.next % (len(a.blocks) * pairsPerBlock)
			a.next = n + 1
			ip := a.blocks[n/pairsPerBlock].address(2 + 2*(n%pairsPerBlock))
			if !a.used[ip] {
				a.used[ip] = true
				return Address{ip, ip.Next()}, nil
			}
		}
		a.next = len(a.blocks) * pairsPerBlock
		block, err := reserveBlock()
		if err != nil {
			return Address{}, fmt.Errorf("reserve loopback addresses for pods: %w", err)
		}
		if block == nil {
			return Host, nil
		}
		a.blocks = append(a.blocks, block)
	}
	return Address{}, fmt.Errorf("reserve loopback addresses for pods: none is free")
}

// GiveBack makes an address free again.
func (a *Pool) GiveBack(pod Address) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.used, pod.IP)
}

// Close gives back all that the pool has reserved.
func (a *Pool) Close() {
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
