package linux

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The queueing discipline that is ours, by its handle, and its only class, into which nftables puts packets. What is in
// no class passes at once.
const (
	shaperMajor = 0x7472
	shapedClass = shaperMajor<<16 | 1
	// largestRate is the most that fits into 32 bits of bytes, in bits per second.
	largestRate = 32_000_000_000
	// queue is how many packets wait at most.
	queue = 10_000
)

// link is an interface of a namespace that is up and not the loopback.
type link struct {
	name  string
	index int
	mtu   int
	kind  string // its type, such as veth
	// qdisc is the queueing discipline that a user gave it; empty: none, or the kernel's default.
	qdisc string
}

func (ns *namespace) links() ([]link, error) {
	h, err := netlink.NewHandleAt(ns.NsHandle, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	all, err := h.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var links []link
	for _, l := range all {
		a := l.Attrs()
		if a.RawFlags&unix.IFF_LOOPBACK != 0 || a.RawFlags&unix.IFF_UP == 0 {
			continue
		}
		root, err := rootQdisc(h, l)
		if err != nil {
			return nil, err
		}
		found := link{name: a.Name, index: a.Index, mtu: a.MTU, kind: l.Type()}
		if root != nil && root.Attrs().Handle != 0 {
			found.qdisc = root.Type()
		}
		links = append(links, found)
	}
	return links, nil
}

// rootQdisc returns an interface's queueing discipline, or nil.
func rootQdisc(h *netlink.Handle, l netlink.Link) (netlink.Qdisc, error) {
	all, err := h.QdiscList(l)
	if err != nil {
		return nil, fmt.Errorf("list queueing disciplines of %s: %w", l.Attrs().Name, err)
	}
	at := slices.IndexFunc(all, func(q netlink.Qdisc) bool { return q.Attrs().Parent == netlink.HANDLE_ROOT })
	if at >= 0 {
		return all[at], nil
	}
	return nil, nil
}

// shapes reports whether the throughput of packets that leave is limited.
func (i *network) shapes() bool { return i.spec.BandwidthLimit != nil }

// shape gives an interface the queueing discipline. There must be none but the kernel's default.
func (i *network) shape(ns *namespace, l link) error {
	h, err := netlink.NewHandleAt(ns.NsHandle, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	root := netlink.NewHtb(netlink.QdiscAttrs{
		LinkIndex: l.index, Handle: netlink.MakeHandle(shaperMajor, 0), Parent: netlink.HANDLE_ROOT,
	})
	direct := uint32(queue)
	root.DirectQlen = &direct
	if err := h.QdiscAdd(root); err != nil {
		return fmt.Errorf("add queueing discipline htb to %s: %w", l.name, err)
	}
	rate := uint64(largestRate)
	if i.spec.BandwidthLimit != nil {
		rate = min(uint64(*i.spec.BandwidthLimit)*8, rate)
	}
	class := netlink.NewHtbClass(
		netlink.ClassAttrs{LinkIndex: l.index, Parent: netlink.MakeHandle(shaperMajor, 0), Handle: shapedClass},
		netlink.HtbClassAttrs{Rate: rate, Quantum: 1 << 16},
	)
	if err := h.ClassAdd(class); err != nil {
		return fmt.Errorf("add class of htb to %s: %w", l.name, err)
	}
	return nil
}

// unshape removes our queueing discipline from all interfaces. The kernel puts its default back.
func (ns *namespace) unshape() error {
	h, err := netlink.NewHandleAt(ns.NsHandle, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	var errs []error
	for _, l := range links {
		root, err := rootQdisc(h, l)
		if err == nil && root != nil && root.Attrs().Handle == netlink.MakeHandle(shaperMajor, 0) {
			err = h.QdiscDel(root)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("remove queueing discipline from %s: %w", l.Attrs().Name, err))
		}
	}
	return errors.Join(errs...)
}
