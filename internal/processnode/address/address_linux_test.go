package address

import (
	"net"
	"net/netip"
	"testing"
)

// Two clusters on a machine never have an address in common, and an address that was released is not the next one to be
// allocated.
func TestAddresses(t *testing.T) {
	one, two := NewPool(), NewPool()
	defer one.Close()
	defer two.Close()
	seen := map[netip.Addr]bool{}
	for range 3 * pairsPerBlock / 2 { // more than in one block
		for _, a := range []*Pool{one, two} {
			got, err := a.Take()
			if err != nil {
				t.Fatal(err)
			}
			if !got.Own() || !got.IP.IsLoopback() || !got.Loopback.IsLoopback() || got.IP == got.Loopback ||
				seen[got.IP] || seen[got.Loopback] {
				t.Fatalf("%+v was allocated before, or is not a pod's own address", got)
			}
			seen[got.IP], seen[got.Loopback] = true, true
		}
	}
	if len(one.blocks) != 2 || len(two.blocks) != 2 || one.blocks[0].prefix == two.blocks[0].prefix {
		t.Errorf("%d and %d blocks", len(one.blocks), len(two.blocks))
	}
	last, err := one.Take()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(last.IP.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	one.GiveBack(last)
	if next, err := one.Take(); err != nil || next == last {
		t.Errorf("%v again (%v)", next, err)
	}
}
