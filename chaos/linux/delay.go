package linux

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// A delayer holds packets back that leave a network namespace. nftables marks them, a rule of the routing leads those
// with the mark to a TUN interface, and we read them there and send them on with a raw socket. Unlike sch_netem, which
// many kernels do not have, this needs nothing special. The interface ends with its process, and then packets take
// their usual way.
type delayer struct {
	spec *v1alpha1.Network
	tun  *os.File
	// sockets send whole IP packets, of IPv4 and IPv6; 0: there is none.
	sockets [2]int
	// waiting are packets in their order. What finds no room is lost, as in a real queue.
	waiting chan packet
	stop    context.CancelFunc
	running sync.WaitGroup
}

type packet struct {
	data []byte
	due  time.Time
}

const (
	tunName = "trommel-delay"
	// delayTable is the routing table whose only route is through the interface, and delayPriority that of its rule,
	// before all but the one for local addresses.
	delayTable, delayPriority = 0x7472, 1
	// markDelay is the bit in a packet's mark that leads to the interface, and markDelayed that of those that were
	// there.
	markDelay   = 1 << 27
	markDelayed = 1 << 26
)

// unrouted are addresses whose packets cannot be sent without an interface's name. Neighbours find each other by them.
var unrouted = []netip.Prefix{
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// delays reports whether packets that leave are held back.
func (i *network) delays() bool {
	return i.spec.Delay != nil || i.spec.Duplicate != nil || i.spec.Corrupt != nil
}

// newDelayer makes the interface and leads marked packets there. mtu is the largest packet. What it has made is not
// removed if it fails.
func newDelayer(ns *namespace, spec *v1alpha1.Network, mtu int) (_ *delayer, err error) {
	d := &delayer{spec: spec, waiting: make(chan packet, queue)}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if err := ns.do(d.open); err != nil {
		return nil, err
	}
	h, err := netlink.NewHandleAt(ns.NsHandle, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	l, err := h.LinkByName(tunName)
	if err != nil {
		return nil, fmt.Errorf("find interface %s: %w", tunName, err)
	}
	if err := errors.Join(h.LinkSetMTU(l, mtu), h.LinkSetTxQLen(l, queue), h.LinkSetUp(l)); err != nil {
		return nil, fmt.Errorf("set up interface %s: %w", tunName, err)
	}
	for at, family := range []int{unix.AF_INET, unix.AF_INET6} {
		if d.sockets[at] == 0 {
			continue // a pod without IPv6
		}
		everything := netip.PrefixFrom([]netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}[at], 0)
		to, err := netlink.ParseIPNet(everything.String())
		if err != nil {
			return nil, err
		}
		route := &netlink.Route{LinkIndex: l.Attrs().Index, Table: delayTable, Dst: to, Scope: netlink.SCOPE_LINK}
		if at == 1 {
			route.Scope = netlink.SCOPE_UNIVERSE
		}
		if err := h.RouteAdd(route); err != nil {
			return nil, fmt.Errorf("add route to %s: %w", tunName, err)
		}
		mask := uint32(markDelay)
		rule := netlink.NewRule()
		rule.Family, rule.Table, rule.Priority = family, delayTable, delayPriority
		rule.Mark, rule.Mask = markDelay, &mask
		if err := h.RuleAdd(rule); err != nil {
			return nil, fmt.Errorf("add rule of routing to %s: %w", tunName, err)
		}
	}
	return d, nil
}

// open opens the interface and the sockets in the namespace of the thread.
func (d *delayer) open() error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(tunName)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make interface %s: %w", tunName, err), unix.Close(fd))
	}
	d.tun = os.NewFile(uintptr(fd), tunName)
	for at, family := range []int{unix.AF_INET, unix.AF_INET6} {
		s, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
		if err != nil {
			if at == 1 && errors.Is(err, unix.EAFNOSUPPORT) {
				break
			}
			return fmt.Errorf("open raw socket: %w", err)
		}
		d.sockets[at] = s
		err = unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_MARK, markDelayed)
		if at == 1 && err == nil {
			err = unix.SetsockoptInt(s, unix.IPPROTO_IPV6, unix.IPV6_HDRINCL, 1)
		}
		if err != nil {
			return fmt.Errorf("set up raw socket: %w", err)
		}
	}
	return nil
}

// start begins to send packets on.
func (d *delayer) start() {
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	d.running.Go(func() {
		defer close(d.waiting)
		d.receive()
	})
	d.running.Go(func() {
		for p := range d.waiting {
			timer := time.NewTimer(time.Until(p.due))
			select {
			case <-timer.C:
			case <-ctx.Done(): // what waits goes on at once
				timer.Stop()
			}
			d.send(p.data)
		}
	})
}

// receive reads packets until the interface is closed.
func (d *delayer) receive() {
	buffer := make([]byte, 1<<16)
	var last time.Time
	for {
		size, err := d.tun.Read(buffer)
		if err != nil {
			return
		}
		p := packet{data: append([]byte(nil), buffer[:size]...), due: time.Now().Add(d.delay())}
		// They keep their order, as on most real ways.
		if p.due.Before(last) {
			p.due = last
		}
		last = p.due
		if chance(d.spec.Corrupt) {
			corrupt(p.data)
		}
		copies := 1
		if chance(d.spec.Duplicate) {
			copies = 2
		}
		for range copies {
			select {
			case d.waiting <- p:
			default:
			}
		}
	}
}

// delay chooses a packet's delay.
func (d *delayer) delay() time.Duration {
	if d.spec.Delay == nil {
		return 0
	}
	delay := d.spec.Delay.Duration()
	if d.spec.DelayJitter != nil {
		if jitter := d.spec.DelayJitter.Duration(); jitter > 0 {
			delay += rand.N(2*jitter+1) - jitter
		}
	}
	return max(delay, 0)
}

func chance(p *v1alpha1.Percentage) bool { return p != nil && rand.N(int32(100)) < int32(*p) }

// corrupt changes a bit behind the IP header, so that the packet arrives and its checksum is wrong.
func corrupt(data []byte) {
	header := 40
	if len(data) > 0 && data[0]>>4 == 4 {
		header = int(data[0]&0xf) * 4
	}
	if len(data) > header {
		data[header+rand.N(len(data)-header)] ^= 1 << rand.N(8)
	}
}

// send sends an IP packet. What cannot be sent is lost.
func (d *delayer) send(data []byte) {
	switch {
	case len(data) >= 20 && data[0]>>4 == 4:
		to := &unix.SockaddrInet4{Addr: [4]byte(data[16:20])}
		_ = unix.Sendto(d.sockets[0], data, 0, to)
	case len(data) >= 40 && data[0]>>4 == 6 && d.sockets[1] != 0:
		to := &unix.SockaddrInet6{Addr: [16]byte(data[24:40])}
		_ = unix.Sendto(d.sockets[1], data, 0, to)
	}
}

// close removes the interface. Packets that wait are sent.
func (d *delayer) close() error {
	var errs []error
	if d.tun != nil {
		errs = append(errs, d.tun.Close())
	}
	if d.stop != nil {
		d.stop()
		d.running.Wait()
	}
	for _, s := range d.sockets {
		if s != 0 {
			errs = append(errs, unix.Close(s))
		}
	}
	return errors.Join(errs...)
}

// removeDelay removes the rules of routing, which stay when a delayer's process is killed. Its interface does not.
func (ns *namespace) removeDelay() error {
	h, err := netlink.NewHandleAt(ns.NsHandle, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	var errs []error
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rules, err := h.RuleList(family)
		if err != nil {
			errs = append(errs, fmt.Errorf("list rules of routing: %w", err))
		}
		for _, r := range rules {
			if r.Table != delayTable {
				continue
			}
			r.Family = family
			if err := h.RuleDel(&r); err != nil {
				errs = append(errs, fmt.Errorf("remove rule of routing: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}
