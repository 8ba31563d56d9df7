package linux

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
)

func init() {
	register(v1alpha1.KindDNS, func(base injection, spec v1alpha1.DNS) inject.Injection {
		return &dnsFault{injection: base, spec: spec}
	})
}

// dnsFault answers a pod's DNS queries. nftables leads them to a server of ours in the pod's network namespace, which
// asks the pod's own server what no record is for.
type dnsFault struct {
	injection
	spec v1alpha1.DNS

	search  []string // domains that the pod adds to names
	servers []*dns.Server
	serving sync.WaitGroup
	ctx     context.Context
	stop    context.CancelFunc
}

const (
	// markForwarded is the bit in the mark of our own queries, which are not led back to us.
	markForwarded = 1 << 29
	dnsPort       = 53
)

// controlMark gives sockets a mark.
func controlMark(bit int) func(string, string, syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, bit)
		})
		return errors.Join(err, failed)
	}
}

// redirection leads queries to one of our ports.
type redirection struct {
	// to is the server that the pod asks; invalid: any.
	to       netip.Addr
	six      bool // IPv6
	protocol byte
	port     uint16
}

// Check implements inject.Injection.
func (i *dnsFault) Check(context.Context) error {
	if err := privileged(); err != nil {
		return err
	}
	for _, r := range i.spec.Records {
		for _, a := range r.Addresses {
			if _, err := netip.ParseAddr(a); err != nil {
				return fmt.Errorf("record %s: %w", r.Name, err)
			}
		}
	}
	target, err := i.podNetwork()
	if err != nil {
		return err
	}
	defer target.ns.Close()
	err = scratch(func(ns *namespace) error {
		return i.redirect(&scope{ns: ns, containers: target.containers}, []redirection{
			{to: netip.MustParseAddr("192.0.2.1"), protocol: unix.IPPROTO_UDP, port: 1},
			{six: true, protocol: unix.IPPROTO_TCP, port: 1},
		})
	})
	if err != nil {
		return inject.Unsupported("this kernel's nftables cannot redirect: %v", err)
	}
	return nil
}

// Inject implements inject.Injection.
func (i *dnsFault) Inject(context.Context) error {
	target, err := i.podNetwork()
	if err != nil {
		return err
	}
	ns := target.ns
	defer ns.Close()
	config, err := i.node.resolverConfig(target.process)
	if err != nil {
		return err
	}
	i.search = config.Search
	if err := i.notes.Save(ns.place()); err != nil {
		return err
	}
	i.ctx, i.stop = context.WithCancel(context.Background())
	var all []redirection
	for _, to := range config.Servers {
		ip, err := netip.ParseAddr(to)
		if err != nil {
			return fmt.Errorf("the target's /etc/resolv.conf: %w", err)
		}
		all = append(all, redirection{to: ip, six: ip.Is6()})
	}
	all = append(all, redirection{}, redirection{six: true})
	var complete []redirection
	for _, r := range all {
		for _, r.protocol = range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
			if r.port, err = i.serve(ns, r); errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT) {
				continue // a pod without IPv6
			}
			if err != nil {
				return err
			}
			complete = append(complete, r)
		}
	}
	if err := i.redirect(target, complete); err != nil {
		return err
	}
	// Connections that are known already do not come to the rules any more.
	return forget(ns, func(f *netlink.ConntrackFlow) bool {
		return f.Forward.DstPort == dnsPort && f.Forward.Protocol == unix.IPPROTO_UDP
	})
}

// redirect writes the rules.
func (i *dnsFault) redirect(of *scope, to []redirection) error {
	c, err := nftables.New(nftables.WithNetNSFd(int(of.ns.NsHandle)))
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: tableName(i.request.ID())})
	chain := c.AddChain(&nftables.Chain{
		Table: table, Name: "output", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookOutput,
		Priority: nftables.ChainPriorityNATDest,
	})
	addRules(c, chain, rule(marked(markForwarded), verdict(expr.VerdictReturn)))
	if len(of.containers) > 0 {
		redirected := c.AddChain(&nftables.Chain{Table: table, Name: "containers"})
		for _, g := range of.containers {
			addRules(c, chain, rule(g.matches(), jump(redirected.Name)))
		}
		chain = redirected
	}
	for _, r := range to {
		family := byte(unix.NFPROTO_IPV4)
		if r.six {
			family = unix.NFPROTO_IPV6
		}
		match := rule(field(expr.MetaKeyNFPROTO), equals(family))
		if r.to.IsValid() {
			match = address(netip.PrefixFrom(r.to, r.to.BitLen()), false)
		}
		addRules(c, chain, rule(match, protocol(r.protocol), port(dnsPort, false),
			&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(r.port)},
			&expr.Redir{RegisterProtoMin: 1, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED}))
	}
	if err := i.writeRules(of, c.Flush); err != nil {
		return fmt.Errorf("write nftables' rules: %w", err)
	}
	return nil
}

// forget removes connections from the connection tracking of a namespace, if the kernel lets us.
func forget(ns *namespace, which func(*netlink.ConntrackFlow) bool) error {
	h, err := netlink.NewHandleAt(ns.NsHandle, unix.NETLINK_NETFILTER)
	if err != nil {
		if errors.Is(err, unix.EPROTONOSUPPORT) {
			return nil
		}
		return fmt.Errorf("open the connection tracking: %w", err)
	}
	defer h.Close()
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		_, err := h.ConntrackDeleteFilters(netlink.ConntrackTable, family, flowFilter(which))
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("remove connections from the connection tracking: %w", err)
		}
	}
	return nil
}

type flowFilter func(*netlink.ConntrackFlow) bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f flowFilter) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool { return f(flow) }

// serve starts a server in the namespace and returns its port.
func (i *dnsFault) serve(ns *namespace, r redirection) (uint16, error) {
	host := "127.0.0.1"
	if r.six {
		host = "::1"
	}
	// The handler asks in the namespace, also when Inject has returned.
	handle, err := unix.FcntlInt(uintptr(ns.NsHandle), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	own := &namespace{netns.NsHandle(handle), ns.inode}
	server := &dns.Server{UDPSize: dns.MaxMsgSize}
	server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) { i.answer(own, r, w, query) })
	var at net.Addr
	err = own.do(func() (err error) {
		if r.protocol == unix.IPPROTO_TCP {
			if server.Listener, err = net.Listen("tcp", net.JoinHostPort(host, "0")); err == nil {
				at = server.Listener.Addr()
			}
			return err
		}
		if server.PacketConn, err = net.ListenPacket("udp", net.JoinHostPort(host, "0")); err == nil {
			at = server.PacketConn.LocalAddr()
		}
		return err
	})
	if err != nil {
		own.Close()
		return 0, fmt.Errorf("start the DNS server: %w", err)
	}
	started := make(chan struct{})
	server.NotifyStartedFunc = func() { close(started) }
	i.servers = append(i.servers, server)
	i.serving.Go(func() {
		defer own.Close()
		_ = server.ActivateAndServe() // until Shutdown
	})
	<-started
	return netip.MustParseAddrPort(at.String()).Port(), nil
}

// matches reports whether a record is for a query's name: as it is, or without a domain that the pod adds to names.
func (i *dnsFault) matches(record, name string) bool {
	record = strings.ToLower(strings.TrimSuffix(record, "."))
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	candidates := []string{name}
	for _, domain := range i.search {
		if short, ok := strings.CutSuffix(name, "."+strings.ToLower(strings.TrimSuffix(domain, "."))); ok {
			candidates = append(candidates, short)
		}
	}
	return slices.ContainsFunc(candidates, func(name string) bool {
		if below, ok := strings.CutPrefix(record, "*"); ok {
			return strings.HasSuffix(name, below)
		}
		return name == record
	})
}

// answer answers a query.
func (i *dnsFault) answer(ns *namespace, r redirection, w dns.ResponseWriter, query *dns.Msg) {
	if len(query.Question) == 1 {
		q := query.Question[0]
		at := slices.IndexFunc(i.spec.Records, func(r v1alpha1.DNSRecord) bool { return i.matches(r.Name, q.Name) })
		if at >= 0 && i.lie(w, query, i.spec.Records[at]) {
			return
		}
	}
	answer, err := i.forward(ns, r, w.RemoteAddr(), query)
	if err != nil {
		answer = new(dns.Msg).SetRcode(query, dns.RcodeServerFailure)
	}
	_ = w.WriteMsg(answer) // or the program has given up
}

// lie answers a query as a record says; false if the record says nothing about it.
func (i *dnsFault) lie(w dns.ResponseWriter, query *dns.Msg, record v1alpha1.DNSRecord) bool {
	q := query.Question[0]
	answer := new(dns.Msg).SetReply(query)
	answer.RecursionAvailable = true
	addresses := record.Addresses
	switch record.Fault {
	case "nxdomain":
		answer.Rcode = dns.RcodeNameError
	case "servfail":
		answer.Rcode = dns.RcodeServerFailure
	case "drop":
		return true
	case "random":
		addresses = []string{randomAddress().String()}
	}
	if record.Fault == "" || record.Fault == "random" {
		if q.Qtype != dns.TypeA && q.Qtype != dns.TypeAAAA {
			return false
		}
		for _, a := range addresses {
			ip, err := netip.ParseAddr(a)
			head := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET} // for this query only
			switch {
			case err != nil:
			case ip.Unmap().Is4() && q.Qtype == dns.TypeA:
				answer.Answer = append(answer.Answer, &dns.A{Hdr: head, A: net.IP(ip.Unmap().AsSlice())})
			case !ip.Unmap().Is4() && q.Qtype == dns.TypeAAAA:
				answer.Answer = append(answer.Answer, &dns.AAAA{Hdr: head, AAAA: net.IP(ip.AsSlice())})
			}
		}
	}
	_ = w.WriteMsg(answer) // or the program has given up
	return true
}

// randomAddress is one of 198.18.0.0/15, which are unused.
func randomAddress() netip.Addr {
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], 198<<24|18<<16|rand.Uint32N(1<<17-2)+1)
	return netip.AddrFrom4(ip)
}

// forward asks the server that the program meant.
func (i *dnsFault) forward(ns *namespace, r redirection, from net.Addr, query *dns.Msg) (*dns.Msg, error) {
	network := "udp"
	if r.protocol == unix.IPPROTO_TCP {
		network = "tcp"
	}
	to := r.to
	if !to.IsValid() {
		var err error
		if to, err = meant(ns, r, from); err != nil {
			return nil, err
		}
	}
	return ns.exchange(i.ctx, network, netip.AddrPortFrom(to, dnsPort).String(), query, markForwarded)
}

// meant returns the address to which a query was sent, before we got it.
func meant(ns *namespace, r redirection, from net.Addr) (netip.Addr, error) {
	peer, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return netip.Addr{}, err
	}
	h, err := netlink.NewHandleAt(ns.NsHandle, unix.NETLINK_NETFILTER)
	if err != nil {
		return netip.Addr{}, err
	}
	defer h.Close()
	family := netlink.InetFamily(unix.AF_INET)
	if r.six {
		family = unix.AF_INET6
	}
	flows, err := h.ConntrackTableList(netlink.ConntrackTable, family)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, f := range flows {
		source, _ := netip.AddrFromSlice(f.Forward.SrcIP)
		if f.Forward.Protocol == r.protocol && f.Forward.DstPort == dnsPort && f.Forward.SrcPort == peer.Port() &&
			source.Unmap() == peer.Addr().Unmap() {
			to, _ := netip.AddrFromSlice(f.Forward.DstIP)
			return to.Unmap(), nil
		}
	}
	return netip.Addr{}, errors.New("it is unknown which server was asked")
}

// Clean implements inject.Injection.
func (i *dnsFault) Clean(ctx context.Context) error {
	ns, err := i.noted(ctx)
	if err != nil {
		return err
	}
	if ns != nil {
		defer ns.Close()
		// A redirected connection stays so, even without the rules, for as long as the kernel knows it.
		err = errors.Join(deleteTables(ns, tableName(i.request.ID())), forget(ns, func(f *netlink.ConntrackFlow) bool {
			return f.Forward.DstPort == dnsPort && f.Reverse.SrcPort != dnsPort && f.Reverse.SrcIP.IsLoopback()
		}))
	}
	if i.stop != nil {
		i.stop()
	}
	for _, s := range i.servers {
		_ = s.ShutdownContext(ctx) // or it has ended
	}
	i.serving.Wait()
	i.servers = nil
	return err
}
