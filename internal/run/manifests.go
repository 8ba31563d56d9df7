package run

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/objects/deploy"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/internal/run/clusters"
	"github.com/trommel-dev/trommel/internal/run/site"
	"github.com/trommel-dev/trommel/internal/run/webhooks"
	"github.com/trommel-dev/trommel/plan"
)

// suiteManifests are the manifests of a suite in one run.
type suiteManifests struct {
	suite      *plan.Suite
	plan       *plan.Plan
	binaries   []builds.Binary     // of the suite's controllers, in order
	kubernetes string              // the cluster's version
	build      string              // of the suite
	cluster    string              // of several, of which these are the manifests; empty: there is only one
	access     *site.Access        // to other clusters
	kept       *clusters.Manifests // what the cluster's runs have read already
	// Address and token are those with which instrumented processes connect to the coordinator.
	address, token string
	info           func(text string)
	clock          *clock.Clock
	// allow refuses manifests that must not be applied to the cluster; nil: all may be.
	allow func(ctx context.Context, all, own []*unstructured.Unstructured) error
}

// installed says what the manifests contain that the run has to know.
type installed struct {
	own        map[string][]*unstructured.Unstructured // the controllers' own objects, by controller; not applied yet
	containers map[string]*corev1.Container            // those that run the controllers, by controller
	given      map[string]cluster.Given                // what the process node gives each of them; not given yet
	webhooks   []webhooks.Declaration
	runsPods   bool // some of the applied objects are pods or make pods
}

// install applies the manifests, except the controllers' own objects. A nil apply says that the cluster has them
// already.
func (m *suiteManifests) install(
	ctx context.Context, apply func(ctx context.Context, all []*unstructured.Unstructured) error,
) (*installed, error) {
	all, err := m.read()
	if err != nil {
		return nil, err
	}
	suite := m.suite.In(m.cluster)
	done := &installed{
		own: map[string][]*unstructured.Unstructured{}, containers: map[string]*corev1.Container{},
		given: map[string]cluster.Given{}, webhooks: webhooks.Declared(m.cluster, all),
	}
	for i := range m.suite.Controllers {
		if m.suite.Controllers[i].Cluster != m.cluster {
			continue
		}
		c, secrets, err := m.access.Give(m.suite.Controllers[i])
		if err != nil {
			return nil, err
		}
		programs, err := deploy.ProgramsOf(m.suite, &c, m.binaries[i].Path)
		if err != nil {
			return nil, err
		}
		if done.own[c.Name], all, err = deploy.Controller(&c, all, programs); err != nil {
			return nil, &UserError{Err: err}
		}
		container, err := deploy.Container(&c, done.own[c.Name])
		if err != nil {
			return nil, err
		}
		var to *deploy.Coordinator
		if m.binaries[i].Manifest != nil {
			to = &deploy.Coordinator{Address: m.address, Token: m.token}
		}
		done.containers[c.Name] = container
		done.given[c.Name] = deploy.Given(&c, container, m.plan, to)
		done.own[c.Name] = append(secrets, done.own[c.Name]...)
	}
	if apply == nil {
		return done, nil
	}
	var own []*unstructured.Unstructured
	for _, c := range suite.Controllers {
		own = append(own, done.own[c.Name]...)
		_, beside := deploy.Missing(m.suite, done.own[c.Name])
		for _, idle := range beside {
			m.info(fmt.Sprintf("the container %s beside controller %s does nothing: the suite names no executable of "+
				"its image %s (executables:)", idle.Name, c.Name, idle.Image))
		}
	}
	for _, u := range manifests.MissingNamespaces(slices.Concat(all, own)) {
		m.info(fmt.Sprintf("creating namespace %s: the manifests use it, but do not contain it", u.GetName()))
		all = append(all, u)
	}
	done.runsPods = slices.ContainsFunc(all, runsPods)
	if m.allow != nil {
		if err := m.allow(ctx, all, own); err != nil {
			return nil, clusters.Refused(m.suite.File, err)
		}
	}
	return done, apply(ctx, all)
}

// read returns the manifests, with certificates. The runs of a session read them once: a cluster that is kept has the
// certificates of the first run.
func (m *suiteManifests) read() ([]*unstructured.Unstructured, error) {
	key := m.build + "\x00" + m.cluster
	if m.kept.Of[key] == nil {
		all, notes, err := manifests.OfSuite(m.suite.In(m.cluster), m.kubernetes)
		if err != nil {
			return nil, &UserError{Err: fmt.Errorf("manifests: %w", err)}
		}
		for _, note := range notes {
			m.info(note)
		}
		if all, err = m.kept.Issuer.Certificates(all, m.clock.Now()); err != nil {
			return nil, &UserError{Err: fmt.Errorf("manifests: %w", err)}
		}
		if m.kept.Of == nil {
			m.kept.Of = map[string][]*unstructured.Unstructured{}
		}
		m.kept.Of[key] = all
	}
	var all []*unstructured.Unstructured
	for _, u := range m.kept.Of[key] {
		all = append(all, u.DeepCopy())
	}
	return all, nil
}

// runsPods reports whether the object is a pod or makes pods.
func runsPods(u *unstructured.Unstructured) bool {
	switch u.GetKind() {
	case "Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController":
		return true
	}
	return false
}
