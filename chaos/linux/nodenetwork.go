package linux

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/chaos/inject"
)

// kept are the packets of a node that no fault disturbs, so that the node stays manageable.
type kept struct {
	// ports are those of the node's own servers: of the kubelet, of SSH, and of an API server.
	ports []uint16
	// peers are what the kubelet is connected to: API servers.
	peers []netip.AddrPort
	// service is the address of the API servers' service, which kube-proxy replaces.
	service netip.AddrPort
	// cgroup is the kubelet's own; nil: it has none.
	cgroup *socketCgroup
}

const (
	kubeletPort = 10250
	sshPort     = 22
)

// metadata is the address of the metadata service of clouds.
var metadata = netip.MustParsePrefix("169.254.169.254/32")

// nodeNetwork finds the packets of the whole node.
func (i *injection) nodeNetwork() (*scope, error) {
	ns, err := i.node.networkOf(i.node.Host)
	if err != nil {
		return nil, err
	}
	s := &scope{ns: ns, process: i.node.Host}
	if s.kept, err = i.node.kept(ns); err != nil {
		ns.Close()
		return nil, err
	}
	return s, nil
}

// kept finds out what the node needs.
func (n Node) kept(ns *namespace) (*kept, error) {
	open, err := n.connections()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(open, func(c socket) bool { return c.listens && c.local.Port() == kubeletPort })
	if at < 0 {
		return nil, inject.Unsupported("no kubelet listens at port %d of the node, so it is unknown what it needs",
			kubeletPort)
	}
	pid, sockets, err := n.ownerOf(open[at].inode)
	if err != nil {
		return nil, err
	}
	own, err := ns.ips()
	if err != nil {
		return nil, err
	}
	k := &kept{ports: []uint16{kubeletPort, sshPort}, service: n.APIServers}
	var local []string
	for _, c := range open {
		if c.listens || c.local.Port() == kubeletPort || !sockets[c.inode] {
			continue
		}
		switch to := c.remote; {
		case to.Addr().IsLoopback():
			local = append(local, to.String())
		case slices.Contains(k.peers, to):
		case slices.Contains(own, to.Addr()):
			k.ports = append(k.ports, to.Port())
			k.peers = append(k.peers, to)
		default:
			k.peers = append(k.peers, to)
		}
	}
	switch {
	case len(k.peers) == 0 && len(local) > 0:
		return nil, inject.Unsupported(
			"the kubelet reaches its API servers through %s on the node, which would be cut off from them", local[0])
	case len(k.peers) == 0:
		return nil, errors.New("the kubelet has no connection to an API server")
	}
	k.cgroup, err = n.cgroupOfProcess(pid)
	return k, err
}

// update adds what the kubelet is connected to now, and reports whether that is new.
func (k *kept) update(n Node, ns *namespace) bool {
	now, err := n.kept(ns)
	if err != nil {
		return false // it may be restarting
	}
	before := len(k.peers) + len(k.ports)
	for _, p := range now.peers {
		if !slices.Contains(k.peers, p) {
			k.peers = append(k.peers, p)
		}
	}
	for _, p := range now.ports {
		if !slices.Contains(k.ports, p) {
			k.ports = append(k.ports, p)
		}
	}
	return len(k.peers)+len(k.ports) > before
}

// cgroupOfProcess returns the cgroup of version 2 of a process; nil if it is that of the node.
func (n Node) cgroupOfProcess(pid int) (*socketCgroup, error) {
	root, err := n.unified()
	if root == "" || err != nil || n.seesCgroups() != nil {
		return nil, err
	}
	path, ok := strings.CutPrefix(cgroupOf(root, pid), root+"/")
	if !ok {
		return nil, nil
	}
	found, err := n.cgroupAt(root, path)
	return &found, err
}

// socket is a TCP socket of the node's network.
type socket struct {
	local, remote netip.AddrPort
	listens       bool
	inode         uint64
}

// connections lists the TCP sockets in the node's network that listen, are open or are being opened.
func (n Node) connections() ([]socket, error) {
	var all []socket
	for _, name := range []string{"tcp", "tcp6"} {
		f, err := os.Open(filepath.Join(n.Proc, strconv.Itoa(n.Host), "net", name))
		if errors.Is(err, os.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("list the node's connections: %w", err)
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			if s, ok := parseSocket(lines.Text()); ok {
				all = append(all, s)
			}
		}
		if err := errors.Join(lines.Err(), f.Close()); err != nil {
			return nil, fmt.Errorf("list the node's connections: %w", err)
		}
	}
	return all, nil
}

// parseSocket reads a line of /proc/net/tcp.
func parseSocket(line string) (socket, bool) {
	fields := strings.Fields(line)
	if len(fields) < 10 {
		return socket{}, false
	}
	const established, opening, listening = "01", "02", "0A"
	if !slices.Contains([]string{established, opening, listening}, fields[3]) {
		return socket{}, false
	}
	local, ok := parseAddress(fields[1])
	remote, also := parseAddress(fields[2])
	inode, err := strconv.ParseUint(fields[9], 10, 64)
	return socket{local, remote, fields[3] == listening, inode}, ok && also && err == nil
}

// parseAddress reads an address of /proc/net/tcp, such as 0100007F:1F90: numbers of 32 bits in the machine's order.
func parseAddress(text string) (netip.AddrPort, bool) {
	address, port, _ := strings.Cut(text, ":")
	data, err := hex.DecodeString(address)
	number, also := strconv.ParseUint(port, 16, 16)
	if err != nil || also != nil || len(data)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for at := 0; at < len(data); at += 4 {
		binary.NativeEndian.PutUint32(data[at:], binary.BigEndian.Uint32(data[at:]))
	}
	ip, ok := netip.AddrFromSlice(data)
	return netip.AddrPortFrom(ip.Unmap(), uint16(number)), ok
}

// ownerOf returns the process that has a socket, with all of its sockets.
func (n Node) ownerOf(inode uint64) (pid int, sockets map[uint64]bool, err error) {
	entries, err := os.ReadDir(n.Proc)
	if err != nil {
		return 0, nil, fmt.Errorf("list processes: %w", err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if sockets := n.socketsOf(pid); sockets[inode] {
			return pid, sockets, nil
		}
	}
	return 0, nil, errors.New("the kubelet's process is not found")
}

// socketsOf lists the inodes of a process's sockets.
func (n Node) socketsOf(pid int) map[uint64]bool {
	dir := filepath.Join(n.Proc, strconv.Itoa(pid), "fd")
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil // it has ended
	}
	found := map[uint64]bool{}
	for _, f := range files {
		var inode uint64
		link, _ := os.Readlink(filepath.Join(dir, f.Name()))
		if _, err := fmt.Sscanf(link, "socket:[%d]", &inode); err == nil {
			found[inode] = true
		}
	}
	return found
}

// ips lists the addresses of a namespace's interfaces.
func (ns *namespace) ips() ([]netip.Addr, error) {
	h, err := netlink.NewHandleAt(ns.NsHandle, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	all, err := h.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var found []netip.Addr
	for _, a := range all {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			found = append(found, ip.Unmap())
		}
	}
	return found, nil
}

// outward lists the types of interfaces that lead out of a node. Others lead to pods, or are tunnels whose packets
// leave by one of these.
var outward = []string{"device", "bond", "team", "vlan"}

// outside lists the interfaces by which packets leave a node: those with a default route, and those of its hardware.
func (ns *namespace) outside() ([]link, error) {
	all, err := ns.links()
	if err != nil {
		return nil, err
	}
	h, err := netlink.NewHandleAt(ns.NsHandle, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer h.Close()
	routed := map[int]bool{}
	routes, err := h.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if ones, _ := maskOf(r); ones > 0 {
			continue
		}
		routed[r.LinkIndex] = true
		for _, hop := range r.MultiPath {
			routed[hop.LinkIndex] = true
		}
	}
	found := slices.DeleteFunc(all, func(l link) bool { return !routed[l.index] && !slices.Contains(outward, l.kind) })
	if len(found) == 0 {
		return nil, inject.Unsupported("the node has no interface by which packets leave it")
	}
	return found, nil
}

// maskOf returns the size of a route's mask; 0 for a default route.
func maskOf(r netlink.Route) (ones, bits int) {
	if r.Dst == nil {
		return 0, 0
	}
	return r.Dst.Mask.Size()
}

// rules let packets return that are not disturbed: those that leave the node or those that arrive, its own ones or
// those that it forwards for pods.
func (k *kept) rules(outgoing, forwarded bool) [][]expr.Any {
	var all [][]expr.Any
	keep := func(parts ...any) { all = append(all, rule(append(parts, verdict(expr.VerdictReturn))...)) }
	for _, p := range k.peers {
		keep(address(netip.PrefixFrom(p.Addr(), p.Addr().BitLen()), !outgoing), protocol(unix.IPPROTO_TCP),
			port(p.Port(), !outgoing))
	}
	if k.service.IsValid() {
		keep(meantFor(k.service))
	}
	keep(address(metadata, !outgoing))
	if forwarded {
		return all
	}
	for _, p := range k.ports {
		keep(protocol(unix.IPPROTO_TCP), port(p, outgoing))
	}
	// A node renews its address (DHCP), and looks for its neighbours.
	for _, p := range []uint16{67, 547} {
		keep(protocol(unix.IPPROTO_UDP), port(p, !outgoing))
	}
	const firstOfNeighbours, lastOfNeighbours = 133, 137
	keep(protocol(unix.IPPROTO_ICMPV6), &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Len: 1},
		&expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: []byte{firstOfNeighbours}},
		&expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: []byte{lastOfNeighbours}})
	if k.cgroup != nil {
		keep(k.cgroup.matches())
	}
	return all
}

// meantFor lets packets of connections pass that their client has opened to an address, whatever it was replaced by.
func meantFor(to netip.AddrPort) []expr.Any {
	return append(meantForAddress(netip.PrefixFrom(to.Addr(), to.Addr().BitLen())), meantForPort(to.Port())...)
}

func meantForAddress(prefix netip.Prefix) []expr.Any {
	family := byte(unix.NFPROTO_IPV4)
	if prefix.Addr().Is6() {
		family = unix.NFPROTO_IPV6
	}
	return append([]expr.Any{field(expr.MetaKeyNFPROTO), equals(family),
		&expr.Ct{Key: expr.CtKeyDST, Direction: uint32(original), Register: 1}}, within(prefix)...)
}

func meantForPort(port uint16) []expr.Any {
	return []expr.Any{&expr.Ct{Key: expr.CtKeyPROTODST, Direction: uint32(original), Register: 1},
		equals(binaryutil.BigEndian.PutUint16(port)...)}
}
