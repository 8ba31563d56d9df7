package site

import (
	"context"
	"errors"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/history"
	"github.com/trommel-dev/trommel/plan"
)

// Member is one of several clusters of a run, and how the run reaches it.
type Member struct {
	Name    string
	Steady  string // the API server for the run's own requests
	Config  *rest.Config
	Objects *objects.Client
}

// connectMembers sets up the run's own access to each cluster of a group.
func (s *Site) connectMembers(p *plan.Plan) error {
	group, ok := s.Cluster.(*cluster.Group)
	if !ok {
		return nil
	}
	for _, name := range group.Members() {
		m := Member{Name: name, Steady: steadyAPIServer(p, plan.ServersOf(group.APIServers(), name))}
		var err error
		if m.Config, err = group.RESTConfig(m.Steady); err != nil {
			return err
		}
		unthrottle(m.Config)
		if m.Objects, err = objects.New(m.Config); err != nil {
			return err
		}
		s.Members = append(s.Members, m)
	}
	return nil
}

// In returns the client of a cluster; an empty name is that of the first, or the only one.
func (s *Site) In(cluster string) *objects.Client {
	return s.member(cluster).Objects
}

// member returns a cluster; an empty name is the first, or the only one.
func (s *Site) member(name string) Member {
	for _, m := range s.Members {
		if m.Name == name {
			return m
		}
	}
	return Member{Steady: s.Steady, Config: s.Config, Objects: s.Objects}
}

// ClusterOf returns the cluster of that name; an empty one is the first, or the only one.
func (s *Site) ClusterOf(name string) cluster.Cluster {
	if group, ok := s.Cluster.(*cluster.Group); ok {
		return group.Member(name)
	}
	return s.Cluster
}

// All returns the clients of all clusters, the first one first.
func (s *Site) All() []Member {
	if s.Members == nil {
		return []Member{s.member("")}
	}
	return s.Members
}

// Sources are what a history is recorded of; nil: of the only cluster.
func (s *Site) Sources() []history.Source {
	var all []history.Source
	for _, m := range s.Members {
		all = append(all, history.Source{Cluster: m.Name, Objects: m.Objects})
	}
	return all
}

// Served returns what looks up types in all clusters.
func (s *Site) Served() Served { return s.All() }

// Served looks up types in several clusters: the first one that serves a type says what it is.
type Served []Member

// Resolve implements observed.Resolver.
func (a Served) Resolve(ctx context.Context, key plan.ResourceKey) (t objects.Type, err error) {
	for _, m := range a {
		if t, err = m.Objects.Resolve(ctx, key); err == nil || !errors.Is(err, objects.ErrNotServed) {
			return t, err
		}
	}
	return t, err
}

// AllWatchable lists the types of all clusters, each once.
func (a Served) AllWatchable(ctx context.Context) (all []objects.Type, err error) {
	for _, m := range a {
		served, err := m.Objects.AllWatchable(ctx)
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

// List says whether the API servers of all clusters that serve a type can list it now.
func (a Served) List(ctx context.Context, t objects.Type) error {
	for _, m := range a {
		own, err := m.Objects.Resolve(ctx, plan.ResourceKey{Type: t.Resource.Resource, Group: t.Resource.Group})
		if len(a) > 1 && errors.Is(err, objects.ErrNotServed) {
			continue
		}
		if err != nil {
			return err
		}
		if _, err := m.Objects.Resource(own, "").List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return err
		}
	}
	return nil
}
