package linux

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
	"github.com/trommel-dev/trommel/internal/processnode/faults/requests"
)

func init() {
	register(v1alpha1.KindGRPC, func(base injection, spec v1alpha1.GRPC) inject.Injection {
		i := &requestFault{injection: base, fault: requests.Fault{GRPC: spec.Endpoints}}
		i.network.Hosts = []v1alpha1.NetworkHost{{Port: spec.Port, Protocol: "tcp", Flow: "ingress"}}
		return i
	})
}

// newHTTP makes an injection of a network fault of HTTP requests.
func newHTTP(base injection, spec v1alpha1.Network) inject.Injection {
	i := &requestFault{injection: base, network: spec}
	i.fault.Network = &i.network
	return i
}

// requestFault disturbs a pod's HTTP requests or gRPC calls. nftables leads new connections to the proxy of the
// injector in the pod's network namespace, and resets those that are open already, so that clients connect again.
type requestFault struct {
	injection
	network v1alpha1.Network // whose connections, and what happens to HTTP requests
	fault   requests.Fault

	ended     chan struct{}
	proxy     *requests.Proxy
	listeners []net.Listener
	doors     []door
	own       *namespace // in which the proxy connects
	stop      context.CancelFunc
	running   sync.WaitGroup
}

// door is where nftables leads connections.
type door struct {
	six  bool // IPv6
	port uint16
}

// drain is how long the end of the fault waits for requests to complete.
const drain = time.Second

// Check implements inject.Injection.
func (i *requestFault) Check(ctx context.Context) error {
	if err := privileged(); err != nil {
		return err
	}
	for _, e := range i.fault.GRPC {
		if err := requests.CheckGRPC(e); err != nil {
			return err
		}
	}
	if i.network.Duplicate != nil || i.network.Corrupt != nil || i.network.BandwidthLimit != nil {
		return inject.Unsupported("HTTP requests can be dropped and delayed, not duplicated, corrupted or limited")
	}
	wanted, err := endpoints(&i.network)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(i.network.Hosts, func(h v1alpha1.NetworkHost) bool { return h.Protocol == "udp" }) {
		return inject.Unsupported("HTTP over UDP is encrypted, so the proxy cannot read it")
	}
	target, err := i.podNetwork()
	if err != nil {
		return err
	}
	defer target.ns.Close()
	err = scratch(func(ns *namespace) error {
		of := &scope{ns: ns, containers: target.containers}
		return i.redirect(of, resolved(wanted, nil), []door{{port: 1}, {six: true, port: 1}})
	})
	if err != nil {
		return inject.Unsupported("this kernel's nftables cannot redirect: %v", err)
	}
	if i.fault.GRPC == nil {
		return nil
	}
	return i.speaksGRPC(ctx, target.ns)
}

// speaksGRPC reports whether the target's server speaks HTTP/2 without TLS.
func (i *requestFault) speaksGRPC(ctx context.Context, ns *namespace) error {
	own, err := ns.ips()
	if err != nil {
		return err
	}
	at := slices.IndexFunc(own, func(a netip.Addr) bool { return !a.IsLoopback() && !a.IsLinkLocalUnicast() })
	if at < 0 {
		return errors.New("the pod has no address")
	}
	port := uint16(i.network.Hosts[0].Port)
	speaks, err := requests.SpeaksHTTP2(ctx, func(ctx context.Context) (net.Conn, error) {
		return ns.dial(ctx, netip.AddrPortFrom(own[at], port))
	})
	if err == nil && !speaks {
		err = inject.Unsupported("the server at port %d does not speak HTTP/2 without TLS, so the proxy sees no calls",
			port)
	}
	return err
}

// dial opens a connection that nftables does not lead to a proxy of ours.
func (ns *namespace) dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	var conn net.Conn
	err := ns.do(func() (err error) {
		conn, err = (&net.Dialer{Control: controlMark(markForwarded)}).DialContext(ctx, "tcp", to.String())
		return err
	})
	return conn, err
}

// Inject implements inject.Injection.
func (i *requestFault) Inject(ctx context.Context) error {
	target, err := i.podNetwork()
	if err != nil {
		return err
	}
	i.own = target.ns
	if err := i.notes.Save(i.own.place()); err != nil {
		return err
	}
	wanted, err := endpoints(&i.network)
	if err != nil {
		return err
	}
	var names *resolver
	known := map[string][]netip.Addr{}
	if slices.ContainsFunc(wanted, func(e endpoint) bool { return e.name != "" }) {
		if names, err = i.node.newResolver(target.process, i.own); err != nil {
			return err
		}
		if _, err := names.update(ctx, wanted, known); err != nil {
			return err
		}
	}
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	i.stop = cancel
	i.ended = make(chan struct{})
	i.fault.Ended = i.ended
	i.proxy = requests.Start(requests.Config{
		Context: background, Host: "target:80", Log: slog.New(slog.DiscardHandler),
		Disturb: func(_ *requests.Proxy, w http.ResponseWriter, r *http.Request) (
			requests.Consequence, requests.ModifyFunc,
		) {
			return i.fault.Disturb(w, r), nil
		},
	})
	ofOthers := slices.ContainsFunc(wanted, func(e endpoint) bool { return e.ingress })
	if err := i.listen(background, ofOthers); err != nil {
		return err
	}
	if err := i.redirect(target, resolved(wanted, known), i.doors); err != nil {
		return err
	}
	if names == nil {
		return nil
	}
	i.running.Go(func() {
		again := time.NewTicker(lookUpAgain)
		defer again.Stop()
		for {
			select {
			case <-background.Done():
				return
			case <-again.C:
			}
			// Without an answer the addresses stay as they are.
			if changed, _ := names.update(background, wanted, known); changed && background.Err() == nil {
				_ = i.redirect(target, resolved(wanted, known), i.doors) // all or nothing: the old rules stay
			}
		}
	})
	return nil
}

// listen opens the proxy's doors. Connections of others arrive at the address of an interface.
func (i *requestFault) listen(ctx context.Context, ofOthers bool) error {
	for _, at := range []struct{ network, own, any string }{
		{"tcp4", "127.0.0.1", "0.0.0.0"}, {"tcp6", "::1", "::"},
	} {
		host := at.own
		if ofOthers {
			host = at.any
		}
		var l net.Listener
		err := i.own.do(func() (err error) {
			l, err = net.Listen(at.network, net.JoinHostPort(host, "0"))
			return err
		})
		if at.network == "tcp6" && (errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAFNOSUPPORT)) {
			continue // a pod without IPv6
		}
		if err != nil {
			return fmt.Errorf("start the proxy: %w", err)
		}
		ns := i.own
		i.listeners = append(i.listeners, l)
		i.doors = append(i.doors, door{at.network == "tcp6", netip.MustParseAddrPort(l.Addr().String()).Port()})
		i.running.Go(func() {
			for {
				client, err := l.Accept()
				if err != nil {
					return // it is closed
				}
				i.running.Go(func() {
					server, err := connect(ctx, ns, client.(*net.TCPConn))
					if err == nil {
						go i.join(ctx, client, server)
					}
				})
			}
		})
	}
	return nil
}

// connect connects to the server that a client means. If that fails, it closes the client's connection.
func connect(ctx context.Context, ns *namespace, client *net.TCPConn) (net.Conn, error) {
	to, err := meantBy(client)
	if err == nil && to.Port() == netip.MustParseAddrPort(client.LocalAddr().String()).Port() {
		err = errors.New("the client means the proxy")
	}
	var server net.Conn
	if err == nil {
		server, err = ns.dial(ctx, to)
	}
	if err != nil {
		_ = client.SetLinger(0) // as if the server had refused it
		return nil, errors.Join(err, client.Close())
	}
	return server, nil
}

// join disturbs the requests of a connection.
func (i *requestFault) join(ctx context.Context, client, server net.Conn) {
	// The proxy ends connections with requests; others pass as they are.
	stop := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
	defer stop()
	i.proxy.Join(client, server)
}

// meantBy returns the address that a client has connected to, before nftables led it to us.
func meantBy(client *net.TCPConn) (netip.AddrPort, error) {
	raw, err := client.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	four := netip.MustParseAddrPort(client.LocalAddr().String()).Addr().Unmap().Is4()
	const originalDestination = 80 // SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST
	var to netip.AddrPort
	var failed error
	err = raw.Control(func(fd uintptr) {
		var address unix.RawSockaddrInet6 // it is the larger one
		level, size := uintptr(unix.SOL_IPV6), uint32(unsafe.Sizeof(address))
		if four {
			level, size = unix.SOL_IP, uint32(unsafe.Sizeof(unix.RawSockaddrInet4{}))
		}
		_, _, number := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, level, originalDestination,
			uintptr(unsafe.Pointer(&address)), uintptr(unsafe.Pointer(&size)), 0)
		if number != 0 {
			failed = number
			return
		}
		data := unsafe.Slice((*byte)(unsafe.Pointer(&address)), unsafe.Sizeof(address))
		port := binary.BigEndian.Uint16(data[2:])
		if four {
			to = netip.AddrPortFrom(netip.AddrFrom4([4]byte(data[4:8])), port)
			return
		}
		to = netip.AddrPortFrom(netip.AddrFrom16([16]byte(data[8:24])), port)
	})
	return to, errors.Join(err, failed)
}

// statusRedirected is the bit in the status of a connection whose destination was replaced (IPS_DST_NAT).
const statusRedirected = 1 << 5

// redirect writes the rules.
func (i *requestFault) redirect(of *scope, to []endpoint, doors []door) error {
	c, table, err := newTable(of.ns, tableName(i.request.ID()))
	if err != nil {
		return err
	}
	everything := len(i.network.Hosts) == 0 && len(i.network.Services) == 0
	if everything {
		to = []endpoint{{}}
	}
	for _, w := range []way{
		{"redirect_output", nftables.ChainHookOutput, nftables.ChainTypeNAT, nftables.ChainPriorityNATDest, true,
			false},
		{"redirect_input", nftables.ChainHookPrerouting, nftables.ChainTypeNAT, nftables.ChainPriorityNATDest, false,
			false},
		{"reset_output", nftables.ChainHookOutput, nftables.ChainTypeFilter, nftables.ChainPriorityFilter, true, false},
		{"reset_input", nftables.ChainHookInput, nftables.ChainTypeFilter, nftables.ChainPriorityFilter, false, false},
	} {
		all := c.AddChain(&nftables.Chain{
			Table: table, Name: w.name, Hooknum: w.hook, Type: w.kind, Priority: w.priority,
		})
		addRules(c, all, rule(field(w.device()), equals(interfaceName("lo")...), verdict(expr.VerdictReturn)),
			rule(marked(markForwarded), verdict(expr.VerdictReturn)))
		resets := w.kind == nftables.ChainTypeFilter
		if resets {
			addRules(c, all, rule(redirected(), verdict(expr.VerdictReturn)))
		}
		if entries := of.entries(w, nil); entries != nil {
			concerned := c.AddChain(&nftables.Chain{Table: table, Name: w.name + "_concerned"})
			for _, e := range entries {
				addRules(c, all, rule(e, jump(concerned.Name)))
			}
			all = concerned
		}
		for _, e := range to {
			if !resets && e.ingress == w.outgoing || resets && !w.outgoing && !e.ingress {
				continue // replies, or our own connections
			}
			matches := rule(e.asTheyAre(w.outgoing), protocol(unix.IPPROTO_TCP))
			if resets {
				addRules(c, all, rule(matches, &expr.Reject{Type: unix.NFT_REJECT_TCP_RST}))
				continue
			}
			for _, d := range doors {
				family := byte(unix.NFPROTO_IPV4)
				if d.six {
					family = unix.NFPROTO_IPV6
				}
				addRules(c, all, rule(field(expr.MetaKeyNFPROTO), equals(family), matches,
					&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(d.port)},
					&expr.Redir{RegisterProtoMin: 1, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED}))
			}
		}
	}
	if err := i.writeRules(of, c.Flush); err != nil {
		return fmt.Errorf("write nftables' rules: %w", err)
	}
	return nil
}

// redirected lets packets of connections pass whose destination was replaced.
func redirected() []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(statusRedirected), Xor: binaryutil.NativeEndian.PutUint32(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(0)},
	}
}

// Clean implements inject.Injection.
func (i *requestFault) Clean(ctx context.Context) error {
	ns, err := i.noted(ctx)
	if ns != nil {
		defer ns.Close()
		err = deleteTables(ns, tableName(i.request.ID()))
	}
	if i.ended != nil {
		close(i.ended)
		i.ended = nil
		i.proxy.Stop(drain)
	}
	if i.stop != nil {
		i.stop()
	}
	for _, l := range i.listeners {
		_ = l.Close() // or it is closed
	}
	i.running.Wait()
	if i.own != nil {
		i.own.Close()
		i.own = nil
	}
	return err
}
