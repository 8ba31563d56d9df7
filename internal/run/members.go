package run

import (
	"context"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/history"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// memberSite is one of several clusters of a run, and how the run reaches it.
type memberSite struct {
	name    string
	steady  string // the API server for the run's own requests
	config  *rest.Config
	objects *objects.Client
}

// connectMembers sets up the run's own access to each cluster of a group.
func (s *site) connectMembers(p *plan.Plan) error {
	group, ok := s.cluster.(*cluster.Group)
	if !ok {
		return nil
	}
	for _, name := range group.Members() {
		m := memberSite{name: name, steady: steadyAPIServer(p, plan.ServersOf(group.APIServers(), name))}
		var err error
		if m.config, err = group.RESTConfig(m.steady); err != nil {
			return err
		}
		unthrottle(m.config)
		if m.objects, err = objects.New(m.config); err != nil {
			return err
		}
		s.members = append(s.members, m)
	}
	return nil
}

// in returns the client of a cluster; an empty name is that of the first, or the only one.
func (s *site) in(cluster string) *objects.Client {
	return s.member(cluster).objects
}

// member returns a cluster; an empty name is the first, or the only one.
func (s *site) member(name string) memberSite {
	for _, m := range s.members {
		if m.name == name {
			return m
		}
	}
	return memberSite{steady: s.steady, config: s.config, objects: s.objects}
}

// clusterOf returns the cluster of that name; an empty one is the first, or the only one.
func (s *site) clusterOf(name string) cluster.Cluster {
	if group, ok := s.cluster.(*cluster.Group); ok {
		return group.Member(name)
	}
	return s.cluster
}

// all returns the clients of all clusters, the first one first.
func (s *site) all() []memberSite {
	if s.members == nil {
		return []memberSite{s.member("")}
	}
	return s.members
}

// sources are what a history is recorded of; nil: of the only cluster.
func (s *site) sources() []history.Source {
	var all []history.Source
	for _, m := range s.members {
		all = append(all, history.Source{Cluster: m.name, Objects: m.objects})
	}
	return all
}

// served looks up types in all clusters.
func (s *site) served() anyServed { return s.all() }

// anyServed looks up types in several clusters: the first one that serves a type says what it is.
type anyServed []memberSite

// Resolve implements observed.Resolver.
func (a anyServed) Resolve(ctx context.Context, key plan.ResourceKey) (t objects.Type, err error) {
	for _, m := range a {
		if t, err = m.objects.Resolve(ctx, key); err == nil || !errors.Is(err, objects.ErrNotServed) {
			return t, err
		}
	}
	return t, err
}

// AllWatchable lists the types of all clusters, each once.
func (a anyServed) AllWatchable(ctx context.Context) (all []objects.Type, err error) {
	for _, m := range a {
		served, err := m.objects.AllWatchable(ctx)
		if err != nil {
			return nil, err
		}
		for _, t := range served {
			if !slices.ContainsFunc(all, func(o objects.Type) bool {
				return o.Resource.GroupResource() == t.Resource.GroupResource()
			}) {
				all = append(all, t)
			}
		}
	}
	return all, nil
}

// list says whether the API servers of all clusters that serve a type can list it now.
func (a anyServed) list(ctx context.Context, t objects.Type) error {
	for _, m := range a {
		own, err := m.objects.Resolve(ctx, plan.ResourceKey{Type: t.Resource.Resource, Group: t.Resource.Group})
		if len(a) > 1 && errors.Is(err, objects.ErrNotServed) {
			continue
		}
		if err != nil {
			return err
		}
		if _, err := m.objects.Resource(own, "").List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return err
		}
	}
	return nil
}

// origins says in which of several clusters observed objects are.
type origins struct {
	names   []string          // of the clusters, in the order of their resource versions; nil: there is only one
	servers map[string]string // the cluster of each API server, by host:port
	own     map[string]string // the cluster in which a controller runs, by the controller
}

// newOrigins also takes the addresses by which controllers know API servers, with their clusters. It becomes their
// owner.
func newOrigins(at *site, suite *plan.Suite, proxies map[string]string) (*origins, error) {
	o := &origins{servers: proxies, own: map[string]string{}}
	for _, m := range at.members {
		o.names = append(o.names, m.name)
		for _, server := range plan.ServersOf(at.cluster.APIServers(), m.name) {
			u, err := at.address(server)
			if err != nil {
				return nil, err
			}
			o.servers[u.Host] = m.name
		}
	}
	for _, c := range suite.Controllers {
		o.own[c.Name] = c.Cluster
	}
	return o, nil
}

// of returns the cluster of an observation's object, see record.Observation.
func (o *origins) of(identity string, w *wire.Observation) string {
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
