package faults

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
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
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

// unused are addresses without a host: they are reserved for benchmarks.
var unused = netip.MustParsePrefix("198.18.0.0/15")

var _ = register(v1alpha1.KindDNS, prepareDNS)

func prepareDNS(_ context.Context, p *Pod, f fault.Fault, spec v1alpha1.DNS) (beginFunc, error) {
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

// spare is how much earlier than the program gives up a query without an answer ends. Later the program would ask this
// machine.
const spare = 500 * time.Millisecond

// Resolve returns what faults answer to a program that looks up a name: addresses, "none" if there is no such name, or
// "servfail". ok is false if no fault concerns the name. Resolve may block as long as the context allows.
func (p *Pod) Resolve(ctx context.Context, name string) (answer string, ok bool) {
	l := &p.lies
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
				timer := clock.NewTimer(ctx, p.set.config.Patience-spare)
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
func (p *Pod) absolute(name string) []string {
	name = strings.ToLower(name)
	rest, final := strings.CutSuffix(name, ".")
	if final {
		return []string{rest}
	}
	return []string{name, name + "." + p.config.Namespace + ".svc" + cluster.Domain, name + ".svc" + cluster.Domain,
		name + cluster.Domain}
}

// matchesName reports whether a record's name is meant: with the cluster's domain or without, or below it for "*.".
func matchesName(record, name string) bool {
	record = strings.ToLower(strings.TrimSuffix(record, "."))
	if below, ok := strings.CutPrefix(record, "*."); ok {
		return strings.HasSuffix(name, "."+below)
	}
	return record == name || strings.HasSuffix(record, ".svc") && record+cluster.Domain == name
}

func randomAddress() string {
	base := unused.Addr().As4()
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
	if at, err := netip.ParseAddrPort(to); lying && err == nil && unused.Contains(at.Addr().Unmap()) {
		return fmt.Errorf("no host has the address %s", at.Addr())
	}
	return nil
}
