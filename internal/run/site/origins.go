package site

import (
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Origins says in which of several clusters observed objects are.
type Origins struct {
	names   []string          // of the clusters, in the order of their resource versions; nil: there is only one
	servers map[string]string // the cluster of each API server, by host:port
	own     map[string]string // the cluster in which a controller runs, by the controller
}

// NewOrigins also takes the addresses by which controllers know API servers, with their clusters. It becomes their
// owner.
func NewOrigins(at *Site, suite *plan.Suite, proxies map[string]string) (*Origins, error) {
	o := &Origins{servers: proxies, own: map[string]string{}}
	for _, m := range at.Members {
		o.names = append(o.names, m.Name)
		for _, server := range plan.ServersOf(at.Cluster.APIServers(), m.Name) {
			u, err := at.address(server)
			if err != nil {
				return nil, err
			}
			o.servers[u.Host] = m.Name
		}
	}
	for _, c := range suite.Controllers {
		o.own[c.Name] = c.Cluster
	}
	return o, nil
}

// Of returns the cluster of an observation's object, see record.Observation.
func (o *Origins) Of(identity string, w *wire.Observation) string {
	if o.names == nil || w.Point == wire.Reconcile || w.Point == wire.AnnotatedCall {
		return ""
	}
	if in, _ := plan.SplitServer(identity); in != "" {
		return in
	}
	in := o.servers[w.Server]
	if w.Server == wire.OwnServer {
		in = o.own[identity]
	}
	if in != "" {
		return in
	}
	for _, object := range append([][]byte{w.Object, w.OldObject}, w.Objects...) {
		if version := metadata.ResourceVersion(object); version > 0 {
			if i := int(version / cluster.RevisionSpan); i < len(o.names) {
				return o.names[i]
			}
		}
	}
	return record.UnknownCluster
}
