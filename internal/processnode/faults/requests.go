package faults

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/internal/processnode/faults/requests"
)

var _ = register(v1alpha1.KindGRPC, prepareGRPC)

// prepareGRPC disturbs calls of the target's gRPC server.
func prepareGRPC(ctx context.Context, p *Pod, f fault.Fault, spec v1alpha1.GRPC) (beginFunc, error) {
	for _, e := range spec.Endpoints {
		if err := requests.CheckGRPC(e); err != nil {
			return nil, fmt.Errorf("%w: %w", errInvalid, err)
		}
	}
	n := &networkFault{ingress: everybody(int(spec.Port)), grpc: spec.Endpoints, ended: make(chan struct{})}
	begin, err := p.prepareConnections(n)
	if err == nil {
		err = p.wholePod(f)
	}
	if err != nil {
		return begin, err
	}
	address := netip.AddrPortFrom(p.config.IP, uint16(spec.Port)).String()
	speaks, err := requests.SpeaksHTTP2(ctx, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	})
	if err == nil && !speaks {
		err = unsupported("the server at port %d does not speak HTTP/2 without TLS, so the node sees no calls",
			spec.Port)
	}
	return begin, err
}

// requestFaults disturb the requests of connections that a diversion leads.
type requestFaults struct {
	faults *connections
	way    way
}

func (q *requestFaults) disturb(
	_ *requests.Proxy, w http.ResponseWriter, r *http.Request,
) (requests.Consequence, requests.ModifyFunc) {
	for _, f := range q.faults.current(q.way) {
		of := requests.Fault{Network: &f.spec, GRPC: f.grpc, Ended: f.ended}
		if did := of.Disturb(w, r); did != requests.None {
			return did, nil
		}
	}
	return requests.None, nil
}
