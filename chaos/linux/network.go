package linux

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
)

func init() {
	register(v1alpha1.KindNetwork, func(base injection, spec v1alpha1.Network) inject.Injection {
		if spec.HTTP != nil {
			return newHTTP(base, spec)
		}
		return &network{injection: base, spec: spec}
	})
}

// network disturbs packets in a pod's network namespace. A table of nftables chooses and drops packets that come and
// go. A queueing discipline limits those that go, and a delayer holds them back.
type network struct {
	injection
	spec v1alpha1.Network

	able    abilities // set by Check
	delayer *delayer  // if there is a delay

	stop    context.CancelFunc // of the goroutine that looks names up again
	stopped sync.WaitGroup
}

// abilities are what this kernel has.
type abilities struct {
	// egress: nftables sees packets when they leave by an interface. What is dropped there has been sent, as far as a
	// program can see; what is dropped earlier is an error of its send (EPERM).
	egress bool
	// shaper: there is the queueing discipline HTB.
	shaper bool
}

const (
	// markDrop is the bit in a packet's mark that says that it does not leave.
	markDrop = 1 << 28
	// lookUpAgain is how often names are looked up.
	lookUpAgain = 10 * time.Second
)

// endpoint is a peer as packets show it.
type endpoint struct {
	name     string       // to be looked up, or
	prefix   netip.Prefix // the addresses; invalid: any
	protocol byte         // 0: any
	port     uint16       // 0: any
	ingress  bool
}

// endpoints translates hosts and services. None means all traffic.
func endpoints(spec *v1alpha1.Network) ([]endpoint, error) {
	var all []endpoint
	for _, h := range spec.Hosts {
		e := endpoint{port: uint16(h.Port), ingress: h.Flow == "ingress"}
		if prefix, err := netip.ParsePrefix(h.Host); err == nil {
			e.prefix = prefix
		} else if ip, err := netip.ParseAddr(h.Host); err == nil {
			ip = ip.Unmap()
			e.prefix = netip.PrefixFrom(ip, ip.BitLen())
		} else if h.Host != "" {
			e.name = h.Host
		}
		switch h.Protocol {
		case "tcp":
			e.protocol = unix.IPPROTO_TCP
		case "udp":
			e.protocol = unix.IPPROTO_UDP
		case "":
		default:
			return nil, fmt.Errorf("invalid protocol %q", h.Protocol)
		}
		all = append(all, withProtocols(e)...)
	}
	for _, s := range spec.Services {
		e := endpoint{name: s.Name + "." + s.Namespace + ".svc"}
		if len(s.Ports) == 0 {
			all = append(all, e)
		}
		for _, p := range s.Ports {
			e.port = uint16(p)
			all = append(all, withProtocols(e)...)
		}
	}
	return all, nil
}

// withProtocols: a port is one of TCP or UDP.
func withProtocols(e endpoint) []endpoint {
	if e.port == 0 || e.protocol != 0 {
		return []endpoint{e}
	}
	tcp, udp := e, e
	tcp.protocol, udp.protocol = unix.IPPROTO_TCP, unix.IPPROTO_UDP
	return []endpoint{tcp, udp}
}

// matches lets packets of the endpoint pass, those that leave the target or those that arrive. Each list is one way to
// know them. The port shows which side has opened a connection; without one the connection tracking does, which knows
// connections since it began. translated: the addresses of services may have been replaced already.
func (e endpoint) matches(outgoing, translated bool) [][]expr.Any {
	all := [][]expr.Any{e.asTheyAre(outgoing)}
	if !translated || e.ingress || !e.prefix.IsValid() {
		return all
	}
	meant := rule(meantForAddress(e.prefix), e.towards(outgoing))
	if e.protocol != 0 {
		meant = append(meant, protocol(e.protocol)...)
	}
	if e.port != 0 {
		meant = append(meant, meantForPort(e.port)...)
	}
	return append(all, meant)
}

// asTheyAre lets packets pass with the endpoint's address and port.
func (e endpoint) asTheyAre(outgoing bool) []expr.Any {
	var exprs []expr.Any
	if e.prefix.IsValid() {
		exprs = append(exprs, address(e.prefix, !outgoing)...)
	}
	if e.protocol != 0 {
		exprs = append(exprs, protocol(e.protocol)...)
	}
	if e.port != 0 {
		// The peer's port (egress) is the destination of what leaves, and the source of what arrives.
		return append(exprs, port(e.port, outgoing == e.ingress)...)
	}
	return append(exprs, e.towards(outgoing)...)
}

// towards lets packets of connections pass that the right side has opened.
func (e endpoint) towards(outgoing bool) []expr.Any {
	if outgoing == e.ingress {
		return direction(reply)
	}
	return direction(original)
}

// Check implements inject.Injection. It tries all that will be needed in a network namespace of its own.
func (i *network) Check(ctx context.Context) error {
	if err := privileged(); err != nil {
		return err
	}
	if _, err := endpoints(&i.spec); err != nil {
		return err
	}
	if i.request.Target.NodeLevel {
		switch {
		case i.delays():
			return inject.Unsupported("packets that a node forwards for its pods cannot be delayed, duplicated or " +
				"corrupted: choose pods, or drop or bandwidthLimit")
		case len(i.spec.Services) > 0:
			return inject.Unsupported("a node does not look up the names of services: choose hosts")
		}
	}
	target, err := i.network()
	if err != nil {
		return err
	}
	defer target.ns.Close()
	err = scratch(func(ns *namespace) error {
		return i.try(&scope{ns: ns, containers: target.containers, kept: target.kept})
	})
	if err != nil {
		return err
	}
	links, err := i.links(target)
	if err != nil || !i.shapes() {
		return err
	}
	// Ours must not replace what others have made.
	for _, l := range links {
		if l.qdisc != "" {
			i.able.shaper = false // packets beyond the limit are dropped instead
		}
	}
	return nil
}

// links lists the interfaces whose packets are disturbed.
func (i *network) links(of *scope) ([]link, error) {
	if of.kept != nil {
		return of.ns.outside()
	}
	return of.ns.links()
}

// try finds out what the kernel can do.
func (i *network) try(of *scope) error {
	everything := []endpoint{
		{prefix: netip.MustParsePrefix("192.0.2.0/24"), protocol: unix.IPPROTO_TCP, port: 1},
		{prefix: netip.MustParsePrefix("2001:db8::/32")},
	}
	lo := []link{{name: "lo", index: 1}}
	i.able = abilities{egress: true}
	err := i.apply(of, everything, lo)
	if err != nil {
		i.able.egress = false
		err = i.apply(of, everything, lo)
	}
	if err != nil {
		return inject.Unsupported("this kernel's nftables cannot do it: %v", err)
	}
	i.able.shaper = i.shape(of.ns, link{name: "lo", index: 1}) == nil
	if !i.delays() {
		return nil
	}
	d, err := newDelayer(of.ns, &i.spec, 1500)
	if err != nil {
		return inject.Unsupported("delay, duplicate and corrupt need /dev/net/tun and rules of routing: %v", err)
	}
	return d.close()
}

// Inject implements inject.Injection.
func (i *network) Inject(ctx context.Context) error {
	target, err := i.network()
	if err != nil {
		return err
	}
	if err := i.notes.Save(target.ns.place()); err != nil {
		target.ns.Close()
		return err
	}
	if err := i.begin(ctx, target); err != nil {
		target.ns.Close()
		return err
	}
	return nil
}

// begin injects the fault. It owns the namespace if it succeeds.
func (i *network) begin(ctx context.Context, target *scope) error {
	ns := target.ns
	links, err := i.links(target)
	if err != nil {
		return err
	}
	wanted, err := endpoints(&i.spec)
	if err != nil {
		return err
	}
	var names *resolver
	known := map[string][]netip.Addr{}
	if slices.ContainsFunc(wanted, func(e endpoint) bool { return e.name != "" }) {
		if names, err = i.node.newResolver(target.process, ns); err != nil {
			return err
		}
		if _, err := names.update(ctx, wanted, known); err != nil {
			return err
		}
	}
	if i.able.shaper && i.shapes() {
		for _, l := range links {
			if err := i.shape(ns, l); err != nil {
				return err
			}
		}
	}
	if i.delays() {
		mtu := 1280
		for _, l := range links {
			mtu = max(mtu, l.mtu)
		}
		if i.delayer, err = newDelayer(ns, &i.spec, mtu); err != nil {
			return err
		}
		i.delayer.start()
		// Packets that are lost must not pass there either.
		all, err := ns.links()
		if err != nil {
			return err
		}
		links = all
	}
	if err := i.apply(target, resolved(wanted, known), links); err != nil {
		return err
	}
	if names == nil && target.kept == nil {
		ns.Close()
		return nil
	}
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	i.stop = cancel
	i.stopped.Go(func() {
		defer ns.Close()
		again := time.NewTicker(lookUpAgain)
		defer again.Stop()
		for {
			select {
			case <-background.Done():
				return
			case <-again.C:
			}
			changed := false
			if names != nil {
				// Without an answer the addresses stay as they are.
				changed, _ = names.update(background, wanted, known)
			}
			if target.kept != nil && target.kept.update(i.node, ns) {
				changed = true
			}
			if changed && background.Err() == nil {
				_ = i.apply(target, resolved(wanted, known), links) // all or nothing: the old rules stay
			}
		}
	})
	return nil
}

// resolved replaces names by their addresses.
func resolved(wanted []endpoint, known map[string][]netip.Addr) []endpoint {
	var all []endpoint
	for _, e := range wanted {
		if e.name == "" {
			all = append(all, e)
			continue
		}
		for _, ip := range known[e.name] {
			e.prefix = netip.PrefixFrom(ip, ip.BitLen())
			all = append(all, e)
		}
	}
	return all
}

// apply replaces the injection's rules at once.
func (i *network) apply(of *scope, endpoints []endpoint, links []link) error {
	c, table, err := newTable(of.ns, tableName(i.request.ID()))
	if err != nil {
		return err
	}
	chosen := map[bool]*nftables.Chain{}
	for _, outgoing := range []bool{true, false} {
		name := map[bool]string{true: "output", false: "input"}[outgoing]
		disturbed := c.AddChain(&nftables.Chain{Table: table, Name: name + "_disturbed"})
		chosen[outgoing] = c.AddChain(&nftables.Chain{Table: table, Name: name + "_chosen"})
		addRules(c, disturbed, i.disturbances(outgoing)...)
		addRules(c, chosen[outgoing], rule(share(percent(i.spec.Percentage, 100)), jump(disturbed.Name)))
	}
	rerouted := c.AddChain(&nftables.Chain{Table: table, Name: "rerouted"})
	addRules(c, rerouted, rule(share(percent(i.spec.Percentage, 100)), mark(markDelay)))
	for _, way := range i.ways(of) {
		all := c.AddChain(&nftables.Chain{
			Table: table, Name: way.name, Hooknum: way.hook, Type: way.kind, Priority: way.priority,
		})
		addRules(c, all, rule(field(way.device()), equals(interfaceName("lo")...), verdict(expr.VerdictReturn)))
		to := chosen[way.outgoing]
		if way.kind == nftables.ChainTypeRoute {
			to = rerouted
		}
		if way.outgoing && i.delays() {
			// A packet that was delayed comes by again. Only now it gets into the queue of the limit.
			again := marked(markDelayed)
			if way.kind == nftables.ChainTypeFilter && i.able.shaper && i.shapes() {
				again = append(again, set(expr.MetaKeyPRIORITY, shapedClass)...)
			}
			addRules(c, all, rule(again, verdict(expr.VerdictReturn)))
		}
		if way.kind == nftables.ChainTypeRoute {
			for _, to := range unrouted {
				addRules(c, all, rule(address(to, false), verdict(expr.VerdictReturn)))
			}
		}
		if entries := of.entries(way, links); entries != nil {
			concerned := c.AddChain(&nftables.Chain{Table: table, Name: way.name + "_concerned"})
			for _, e := range entries {
				addRules(c, all, rule(e, jump(concerned.Name)))
			}
			all = concerned
		}
		if of.kept != nil {
			addRules(c, all, of.kept.rules(way.outgoing, way.forwarded)...)
		}
		if len(i.spec.Hosts) == 0 && len(i.spec.Services) == 0 {
			addRules(c, all, rule(jump(to.Name)))
		}
		for _, e := range endpoints {
			for _, matches := range e.matches(way.outgoing, of.kept != nil) {
				addRules(c, all, rule(matches, jump(to.Name)))
			}
		}
	}
	if i.able.egress {
		table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyNetdev, Name: table.Name})
		for _, l := range links {
			ch := c.AddChain(&nftables.Chain{
				Table: table, Name: fmt.Sprintf("egress_%d", l.index), Hooknum: nftables.ChainHookEgress,
				Type: nftables.ChainTypeFilter, Priority: nftables.ChainPriorityFilter, Device: l.name,
			})
			addRules(c, ch, rule(marked(markDrop), verdict(expr.VerdictDrop)))
		}
	}
	if err := i.writeRules(of, c.Flush); err != nil {
		return fmt.Errorf("write nftables' rules: %w", err)
	}
	return nil
}

// way is a place where packets come by.
type way struct {
	name     string
	hook     *nftables.ChainHook
	kind     nftables.ChainType
	priority *nftables.ChainPriority
	// outgoing: they leave the target; forwarded: a node forwards them for its pods.
	outgoing, forwarded bool
}

// device is which interface is meant: that by which packets leave, or that by which they arrive.
func (w way) device() expr.MetaKey {
	if w.outgoing {
		return expr.MetaKeyOIFNAME
	}
	return expr.MetaKeyIIFNAME
}

// ways lists where packets of the target come by.
func (i *network) ways(of *scope) []way {
	filter := nftables.ChainTypeFilter
	all := []way{
		{"output", nftables.ChainHookOutput, filter, nftables.ChainPriorityFilter, true, false},
		{"input", nftables.ChainHookInput, filter, nftables.ChainPriorityFilter, false, false},
	}
	if of.kept != nil {
		all = append(all,
			way{"forward_output", nftables.ChainHookForward, filter, nftables.ChainPriorityFilter, true, true},
			way{"forward_input", nftables.ChainHookForward, filter, nftables.ChainPriorityFilter, false, true})
	}
	if i.delays() {
		// A mark that such a chain sets changes a packet's way.
		all = append(all, way{"reroute", nftables.ChainHookOutput, nftables.ChainTypeRoute,
			nftables.ChainPriorityMangle, true, false})
	}
	return all
}

// entries let the packets pass that the scope is about; nil: all.
func (s *scope) entries(w way, links []link) [][]expr.Any {
	var all [][]expr.Any
	if s.kept != nil {
		for _, l := range links {
			all = append(all, rule(field(w.device()), equals(interfaceName(l.name)...)))
		}
	}
	for _, g := range s.containers {
		all = append(all, g.matches())
	}
	return all
}

// disturbances are the rules for packets that were chosen.
func (i *network) disturbances(outgoing bool) [][]expr.Any {
	lost := rule(verdict(expr.VerdictDrop))
	if outgoing && i.able.egress {
		lost = mark(markDrop)
	}
	var rules [][]expr.Any
	if i.spec.Drop != nil {
		rules = append(rules, rule(share(percent(i.spec.Drop, 0)), lost))
	}
	if limit := i.spec.BandwidthLimit; limit != nil && (!outgoing || !i.able.shaper) {
		rules = append(rules, rule(beyond(uint64(*limit)), lost))
	}
	if outgoing && i.able.shaper && i.shapes() {
		rules = append(rules, rule(set(expr.MetaKeyPRIORITY, shapedClass)))
	}
	return rules
}

func percent(p *v1alpha1.Percentage, otherwise uint32) uint32 {
	if p == nil {
		return otherwise
	}
	return uint32(*p)
}

// Clean implements inject.Injection.
func (i *network) Clean(ctx context.Context) error {
	if i.stop != nil {
		i.stop()
		i.stopped.Wait()
	}
	ns, err := i.noted(ctx)
	if ns != nil {
		defer ns.Close()
		// First no more packets are led to the delayer.
		err = errors.Join(deleteTables(ns, tableName(i.request.ID())), ns.unshape(), ns.removeDelay())
	}
	if i.delayer != nil {
		err = errors.Join(err, i.delayer.close())
		i.delayer = nil
	}
	return err
}

// names lists what must be looked up.
func names(wanted []endpoint) []string {
	all := map[string]bool{}
	for _, e := range wanted {
		if e.name != "" {
			all[strings.TrimSuffix(e.name, ".")] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
