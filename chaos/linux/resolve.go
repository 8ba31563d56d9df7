package linux

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// openIn opens a file as a process sees it. Links cannot lead out of the process's root.
func (n Node) openIn(pid int, path string, flags uint64) (*os.File, error) {
	dir := filepath.Join(n.Proc, strconv.Itoa(pid), "root")
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the target's root: %w", err)
	}
	defer unix.Close(root) //nolint:errcheck // it was only a place to begin
	fd, err := unix.Openat2(root, path, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return nil, fmt.Errorf("open %s in the target: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// resolverConfig reads a process's /etc/resolv.conf.
func (n Node) resolverConfig(pid int) (*dns.ClientConfig, error) {
	f, err := n.openIn(pid, "/etc/resolv.conf", unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	config, err := dns.ClientConfigFromReader(f)
	if err != nil {
		return nil, fmt.Errorf("read the target's /etc/resolv.conf: %w", err)
	}
	return config, nil
}

// resolver looks names up as a pod does.
type resolver struct {
	ns     *namespace
	config *dns.ClientConfig
}

func (n Node) newResolver(pid int, ns *namespace) (*resolver, error) {
	config, err := n.resolverConfig(pid)
	if err != nil {
		return nil, err
	}
	return &resolver{ns, config}, nil
}

// dnsTimeout is for one server.
const dnsTimeout = 2 * time.Second

// exchange sends a query from the namespace and returns the answer. bit, if it is not 0, is the mark of its packets.
func (ns *namespace) exchange(ctx context.Context, network, server string, query *dns.Msg, bit int) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	dialer := &net.Dialer{}
	if bit != 0 {
		dialer.Control = controlMark(bit)
	}
	var conn net.Conn
	err := ns.do(func() (err error) {
		conn, err = dialer.DialContext(ctx, network, server)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := &dns.Client{Net: network, Timeout: dnsTimeout, UDPSize: dns.MaxMsgSize}
	answer, _, err := client.ExchangeWithConnContext(ctx, query, &dns.Conn{Conn: conn, UDPSize: dns.MaxMsgSize})
	return answer, err
}

// lookUp returns a name's addresses.
func (r *resolver) lookUp(ctx context.Context, name string) ([]netip.Addr, error) {
	var errs []error
	for _, full := range r.config.NameList(name) {
		var found []netip.Addr
		for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
			answer, err := r.ask(ctx, full, kind)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			for _, record := range answer.Answer {
				switch record := record.(type) {
				case *dns.A:
					found = appendAddress(found, record.A)
				case *dns.AAAA:
					found = appendAddress(found, record.AAAA)
				}
			}
		}
		if len(found) > 0 {
			return found, nil
		}
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("no such name"))
	}
	return nil, fmt.Errorf("look up %s: %w", name, errors.Join(errs...))
}

func appendAddress(all []netip.Addr, ip net.IP) []netip.Addr {
	if a, ok := netip.AddrFromSlice(ip); ok {
		return append(all, a.Unmap())
	}
	return all
}

// ask asks one server after the other. A dns fault of the same pod does not lead its queries elsewhere.
func (r *resolver) ask(ctx context.Context, name string, kind uint16) (*dns.Msg, error) {
	query := new(dns.Msg).SetQuestion(name, kind)
	errs := []error{errors.New("no server has answered")}
	for _, server := range r.config.Servers {
		server = net.JoinHostPort(server, r.config.Port)
		answer, err := r.ns.exchange(ctx, "udp", server, query, markForwarded)
		if err == nil && answer.Truncated {
			answer, err = r.ns.exchange(ctx, "tcp", server, query, markForwarded)
		}
		if err == nil && answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNameError {
			err = fmt.Errorf("%s answers %s", server, dns.RcodeToString[answer.Rcode])
		}
		if err == nil {
			return answer, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// update adds new addresses of the endpoints' names to the known ones, and reports whether there were any. Addresses
// that a name has no longer are kept: there may be connections to them.
func (r *resolver) update(ctx context.Context, wanted []endpoint, known map[string][]netip.Addr) (bool, error) {
	changed := false
	var errs []error
	for _, name := range names(wanted) {
		found, err := r.lookUp(ctx, name)
		if err != nil {
			errs = append(errs, err)
		}
		for _, ip := range found {
			if !slices.Contains(known[name], ip) {
				known[name], changed = append(known[name], ip), true
			}
		}
	}
	return changed, errors.Join(errs...)
}
