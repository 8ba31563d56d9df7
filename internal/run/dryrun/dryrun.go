// Package dryrun lists what a run would do to a cluster that exists already.
package dryrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/deploy"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/run/clusters"
	"github.com/trommel-dev/trommel/plan"
)

// List lists what a run of the plan would do to a cluster that exists already. It only reads from the cluster.
func List(ctx context.Context, suite *plan.Suite, p *plan.Plan, options run.Options) (lines []string, err error) {
	if suite, err = run.Choose(suite, options.Variant); err != nil {
		return nil, &run.UserError{Err: err}
	}
	kind, err := cluster.Lookup(string(suite.Cluster.Type))
	if err != nil {
		return nil, &run.UserError{Err: fmt.Errorf("%s: %w", suite.File, err)}
	}
	if kind.Join == nil {
		return nil,
			&run.UserError{Err: fmt.Errorf("%s: a cluster of type %s is the run's own, which ends with it: there is "+
				"nothing to list", suite.File, suite.Cluster.Type)}
	}
	settings := clusters.Settings{Suite: suite, Context: options.Context, Logger: options.Logger}
	config := settings.Join(nil)
	config.DryRun = true
	c, err := kind.Join(ctx, config)
	if err != nil {
		return nil, clusters.Refused(suite.File, err)
	}
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	to, err := c.RESTConfig("")
	if err != nil {
		return nil, err
	}
	client, err := objects.New(to)
	if err != nil {
		return nil, err
	}
	asked, err := discovery.NewDiscoveryClientForConfig(to)
	if err != nil {
		return nil, err
	}
	version, err := asked.ServerVersion()
	if err != nil {
		return nil, err
	}
	f := &foresight{ctx: ctx, client: client}
	all, _, err := manifests.OfSuite(suite, version.GitVersion)
	if err != nil {
		return nil, &run.UserError{Err: fmt.Errorf("manifests: %w", err)}
	}
	var own []*unstructured.Unstructured
	for i := range suite.Controllers {
		var objects []*unstructured.Unstructured
		if objects, all, err = deploy.Controller(&suite.Controllers[i], all, deploy.Programs{}); err != nil {
			return nil, &run.UserError{Err: err}
		}
		own = append(own, objects...)
	}
	all = append(all, manifests.MissingNamespaces(slices.Concat(all, own))...)
	if guarded := cluster.CapabilitiesOf(c).Guarded; guarded != nil {
		if err := guarded.Allow(ctx, all, own); err != nil {
			return nil, clusters.Refused(suite.File, err)
		}
	}
	for _, u := range all {
		if err := f.manifest(u); err != nil {
			return nil, err
		}
	}
	for _, u := range own {
		if err := f.controller(u); err != nil {
			return nil, err
		}
	}
	within, name := p.Within(suite)
	f.workload(within.Workloads[name])
	for i := range p.Actions {
		if plan.Has[*plan.Write](&p.Actions[i]) {
			text, _, _ := strings.Cut(plan.ExplainAction(p, i), "\n")
			f.add("plan", text)
		}
	}
	f.add("delete", "at the end: all that was created, and what the controllers make of it")
	return f.lines, nil
}

// foresight collects what a run would do.
type foresight struct {
	ctx    context.Context
	client *objects.Client
	lines  []string
}

func (f *foresight) add(verb, text string) {
	f.lines = append(f.lines, fmt.Sprintf("%-8s %s", verb, text))
}

// workload lists what the steps of a workload write.
func (f *foresight) workload(w plan.Workload) {
	if len(w.Command) > 0 {
		f.add("command", strings.Join(w.Command, " "))
	}
	for _, s := range w.Steps {
		switch {
		case s.Apply != nil && s.Apply.File != "":
			f.add("apply", s.Apply.File)
		case s.Apply != nil:
			for _, o := range s.Apply.Objects {
				u := &unstructured.Unstructured{Object: o}
				f.add("apply", u.GetKind()+" "+u.GetName()+in(u.GetNamespace()))
			}
		case s.Delete != nil:
			f.add("delete", s.Delete.ResourceKey.String())
		case s.Patch != nil:
			f.add("patch", s.Patch.ResourceKey.String())
		case s.Exec != nil:
			f.add("command", strings.Join(s.Exec.Command, " "))
		}
	}
}

func in(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " in namespace " + namespace
}

// find returns the cluster's object; nil: it has none.
func (f *foresight) find(u *unstructured.Unstructured) (*unstructured.Unstructured, string, error) {
	what := u.GetKind() + " " + u.GetName() + in(u.GetNamespace())
	t, err := f.client.ResolveKind(f.ctx, u.GroupVersionKind())
	if errors.Is(err, objects.ErrNotServed) {
		return nil, what, nil // the manifests define it
	}
	if err != nil {
		return nil, what, err
	}
	got, err := f.client.Resource(t, u.GetNamespace()).Get(f.ctx, u.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, what, nil
	}
	return got, what, err
}

func (f *foresight) manifest(u *unstructured.Unstructured) error {
	got, what, err := f.find(u)
	switch {
	case err != nil:
		return err
	case got == nil:
		f.add("create", what)
	default:
		f.add("keep", what+": it is there; the run is refused if the manifests would change it")
	}
	return nil
}

func (f *foresight) controller(u *unstructured.Unstructured) error {
	got, what, err := f.find(u)
	if err != nil {
		return err
	}
	if got != nil {
		replicas, _, _ := unstructured.NestedInt64(got.Object, "spec", "replicas")
		f.add("replace", fmt.Sprintf("%s: scaled from %d to 0, and back at the end", what, replicas))
	}
	f.add("run", what+": as processes of this machine")
	return nil
}
