package processnode

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
)

// lies are the DNS faults of a pod.
type lies struct {
	mu     sync.Mutex
	faults []*dnsFault
}

type dnsFault struct {
	records []v1alpha1.DNSRecord
	ended   chan struct{}
}

// nobody are addresses that nobody has: they are reserved for benchmarks.
var nobody = netip.MustParsePrefix("198.18.0.0/15")

func prepareDNS(_ context.Context, p *pod, f fault.Fault) (func() (func(), error), error) {
	var spec v1alpha1.DNS
	if err := decodeSpec(f, &spec); err != nil {
		return nil, err
	}
	for _, r := range spec.Records {
		for _, a := range r.Addresses {
			if _, err := netip.ParseAddr(a); err != nil {
				return nil, fmt.Errorf("%w: %q is not an IP address", errInvalid, a)
			}
		}
	}
	if err := errors.Join(p.wholePod(f), p.asksNode()); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(spec.Records, func(r v1alpha1.DNSRecord) bool { return r.Fault == "servfail" }) {
		// Programs that an older Trommel built would take the answer for "no such name".
		containers, _ := p.targets(f)
		if err := p.heedsFaults(containers); err != nil {
			return nil, err
		}
	}
	return func() (func(), error) {
		d := &dnsFault{records: spec.Records, ended: make(chan struct{})}
		l := &p.lies
		l.mu.Lock()
		l.faults = append(slices.Clone(l.faults), d)
		l.mu.Unlock()
		return func() {
			l.mu.Lock()
			l.faults = slices.DeleteFunc(slices.Clone(l.faults), func(o *dnsFault) bool { return o == d })
			l.mu.Unlock()
			close(d.ended)
		}, nil
	}, nil
}

// patience is how long a query without an answer hangs. Later the program would ask this machine.
const patience = agentTimeout - 500*time.Millisecond

// answer returns the answer of the first record that matches; ok is false if there is none.
func (l *lies) answer(ctx context.Context, p *pod, name string) (answer string, ok bool) {
	l.mu.Lock()
	faults := l.faults
	l.mu.Unlock()
	if len(faults) == 0 {
		return "", false
	}
	names := p.absolute(name)
	for _, f := range faults {
		for _, r := range f.records {
			if !slices.ContainsFunc(names, func(n string) bool { return matchesName(r.Name, n) }) {
				continue
			}
			switch r.Fault {
			case "nxdomain":
				return "none", true
			case "servfail":
				return "servfail", true
			case "random":
				return randomAddress(), true
			case "drop":
				timer := time.NewTimer(patience)
				defer timer.Stop()
				select {
				case <-f.ended:
					return "", false
				case <-timer.C:
				case <-ctx.Done():
				}
				return "none", true
			}
			return strings.Join(r.Addresses, " "), true
		}
	}
	return "", false
}

// absolute lists what a name can mean in the pod, the name itself first.
func (p *pod) absolute(name string) []string {
	name = strings.ToLower(name)
	rest, final := strings.CutSuffix(name, ".")
	if final {
		return []string{rest}
	}
	return []string{name, name + "." + p.namespace + ".svc" + clusterDomain, name + ".svc" + clusterDomain,
		name + clusterDomain}
}

// matchesName reports whether a record's name is meant: with the cluster's domain or without, or below it for "*.".
func matchesName(record, name string) bool {
	record = strings.ToLower(strings.TrimSuffix(record, "."))
	if below, ok := strings.CutPrefix(record, "*."); ok {
		return strings.HasSuffix(name, "."+below)
	}
	return record == name || strings.HasSuffix(record, ".svc") && record+clusterDomain == name
}

func randomAddress() string {
	base := nobody.Addr().As4()
	host := rand.Uint32N(1<<17-2) + 1
	base[1] |= byte(host >> 16)
	base[2], base[3] = byte(host>>8), byte(host)
	return netip.AddrFrom4(base).String()
}

// refuse returns an error for an address that a fault has made up: no packet may leave the machine because of it.
func (l *lies) refuse(to string) error {
	l.mu.Lock()
	lying := slices.ContainsFunc(l.faults, func(f *dnsFault) bool {
		return slices.ContainsFunc(f.records, func(r v1alpha1.DNSRecord) bool { return r.Fault == "random" })
	})
	l.mu.Unlock()
	if at, err := netip.ParseAddrPort(to); lying && err == nil && nobody.Contains(at.Addr().Unmap()) {
		return fmt.Errorf("nobody has the address %s", at.Addr())
	}
	return nil
}
