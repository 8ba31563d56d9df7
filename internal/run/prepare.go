package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/deploy"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/plan"
)

// checkServers refuses a plan that names API servers which the cluster does not have: a cluster that was already
// running may have fewer than the suite says.
func (r *runner) checkServers() error {
	servers := r.cluster.APIServers()
	var errs []error
	check := func(name string, where string, action int) {
		if plan.IsAPIServer(name) && !slices.Contains(servers, name) {
			errs = append(errs, fmt.Errorf("%s: action %d: %s %s: cluster %q has %s only",
				r.Plan.File, action+1, where, name, r.cluster.Name(), strings.Join(servers, ", ")))
		}
	}
	for i, a := range r.Plan.Actions {
		check(a.Target, "actionTarget", i)
		check(a.ReconnectAPIServer, "reconnectAPIServer", i)
		for _, d := range a.Trigger.Definitions {
			check(d.Observe.ObserveBy, "observeBy", i)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &UserError{err}
	}
	return nil
}

// checkVersion records the cluster's Kubernetes version and refuses one other than the suite's.
func (r *runner) checkVersion(config *rest.Config) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	info, err := client.ServerVersion()
	if err != nil {
		return fmt.Errorf("get the cluster's version: %w", err)
	}
	r.meta.Kubernetes = info.GitVersion
	want := "v" + strings.TrimPrefix(r.Suite.Cluster.KubernetesVersion, "v")
	if want != "v" && want != info.GitVersion && want != semver.MajorMinor(info.GitVersion) {
		return &UserError{fmt.Errorf("%s: cluster %q runs Kubernetes %s; the suite's kubernetesVersion is %s",
			r.Suite.File, r.cluster.Name(), info.GitVersion, r.Suite.Cluster.KubernetesVersion)}
	}
	return nil
}

// installManifests applies the suite's manifests, unless the cluster has them, except the controllers' own objects,
// which it returns by controller.
func (r *runner) installManifests(ctx context.Context) (map[string][]*unstructured.Unstructured, error) {
	all, err := r.readManifests()
	if err != nil {
		return nil, err
	}
	r.webhooks = declaredWebhooks(all)
	own := map[string][]*unstructured.Unstructured{}
	for i := range r.Suite.Controllers {
		c := &r.Suite.Controllers[i]
		own[c.Name], all, err = deploy.Controller(c, all, deploy.Target{
			Coordinator: r.monitor.Addr(), Token: r.token, Binary: r.Binaries[i].Path,
			Instrumented: r.Binaries[i].Manifest != nil,
		})
		if err != nil {
			return nil, &UserError{err}
		}
	}
	if r.lease.prepared {
		return own, nil
	}
	used := slices.Clone(all)
	for _, c := range r.Suite.Controllers {
		used = append(used, own[c.Name]...)
	}
	for _, u := range manifests.MissingNamespaces(used) {
		r.console.Info(fmt.Sprintf("creating namespace %s: the manifests use it, but do not contain it", u.GetName()))
		all = append(all, u)
	}
	if slices.ContainsFunc(all, runsPods) {
		r.lease.keepPrepared = nil // the pods would be part of the baseline, and run on after the run
	}
	return own, r.applyManifests(ctx, all)
}

// readManifests returns the suite's manifests, with certificates. The runs of a session read them once: a cluster that
// is kept has the certificates of the first run.
func (r *runner) readManifests() ([]*unstructured.Unstructured, error) {
	if *r.lease.manifests == nil {
		all, notes, err := manifests.OfSuite(r.Suite, r.meta.Kubernetes)
		if err != nil {
			return nil, &UserError{fmt.Errorf("manifests: %w", err)}
		}
		for _, note := range notes {
			r.console.Info(note)
		}
		if all, err = deploy.Certificates(all); err != nil {
			return nil, &UserError{fmt.Errorf("manifests: %w", err)}
		}
		*r.lease.manifests = all
	}
	var all []*unstructured.Unstructured
	for _, u := range *r.lease.manifests {
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

// applyAtOnce bounds the number of objects that are applied at the same time.
const applyAtOnce = 8

// applyManifests applies objects rank by rank, whatever their order in the files, so that what others need comes first.
// It applies objects of one rank concurrently.
func (r *runner) applyManifests(ctx context.Context, all []*unstructured.Unstructured) error {
	byRank := map[int][]*unstructured.Unstructured{}
	for _, u := range all {
		byRank[rank(u)] = append(byRank[rank(u)], u)
	}
	for _, at := range slices.Sorted(maps.Keys(byRank)) {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(applyAtOnce)
		for _, u := range byRank[at] {
			group.Go(func() error { return r.applyManifest(ctx, u) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) applyManifest(ctx context.Context, u *unstructured.Unstructured) error {
	// Retry what fails because a webhook or a definition is not ready yet. A call in progress may take longer than
	// that: on a busy machine an API server takes its time for a large definition.
	retry, cancel := context.WithTimeout(ctx, r.Suite.Timeouts.Step)
	defer cancel()
	if err := objects.Retry(retry, func(context.Context) error {
		_, err := r.objects.Apply(ctx, u)
		return err
	}); err != nil {
		err = fmt.Errorf("apply %s %s: %w", u.GetKind(), u.GetName(), err)
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) ||
			errors.Is(err, objects.ErrNotServed) {
			return &UserError{err}
		}
		return err
	}
	return nil
}

func rank(u *unstructured.Unstructured) int {
	switch u.GetKind() {
	case "Namespace":
		return 0
	case "CustomResourceDefinition":
		return 1
	case "ServiceAccount", "ClusterRole", "Role":
		return 2
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "APIService":
		return 4 // last: their servers do not run yet, and would be called for objects applied after them
	}
	return 3
}

// keys lists every resource key in the plan, without duplicates.
func (r *runner) keys() []plan.ResourceKey {
	var keys []plan.ResourceKey
	add := func(k plan.ResourceKey) {
		if k.Type != "" && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	for _, a := range r.Plan.Actions {
		for _, d := range a.Trigger.Definitions {
			add(d.Condition.ResourceKey)
		}
		add(a.ResourceKey)
		for _, scope := range []string{a.PauseScope, a.CallScope} {
			if scope != "" && scope != "*" {
				key, _ := plan.ParseResourceKey(scope) // validated with the plan
				add(key)
			}
		}
	}
	return keys
}

// resolveTypes looks up every type in the plan; it reports all that the cluster does not serve at once.
func (r *runner) resolveTypes(ctx context.Context) (func(plan.ResourceKey) wire.Rule, error) {
	rules := map[plan.ResourceKey]wire.Rule{}
	var errs []error
	for _, key := range r.keys() {
		t, err := r.objects.Resolve(ctx, key)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if kind := strings.ToLower(t.Kind.Kind); kind != key.Type {
			// Observations name an object's kind; its definition may have another singular.
			right := key
			right.Type = kind
			errs = append(errs, &objects.NotServedError{What: key.Type,
				Hint: fmt.Sprintf(" by that name: its kind is %s; write %s", t.Kind.Kind, right)})
			continue
		}
		rules[key] = wire.Rule{
			Kind: strings.ToLower(t.Kind.Kind), Resource: t.Resource.Resource, Group: t.Resource.Group,
			Namespace: key.Namespace, Name: key.Name,
		}
	}
	if err := errors.Join(errs...); err != nil {
		if errors.Is(err, objects.ErrNotServed) {
			return nil, &UserError{fmt.Errorf("%s: %w", r.Plan.File, err)}
		}
		return nil, err
	}
	return func(key plan.ResourceKey) wire.Rule { return rules[key] }, nil
}

// waitForAPIServers waits until every instrumented API server has connected; a running one tries to connect several
// times a second.
func (r *runner) waitForAPIServers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.Suite.Timeouts.Ready)
	defer cancel()
	c, ok := r.cluster.(cluster.Instrumented)
	if !ok {
		return nil
	}
	for _, name := range c.InstrumentedAPIServers() {
		if err := r.coordinator.WaitConnected(ctx, name, 0, 1); err != nil {
			return fmt.Errorf("%s did not connect to the coordinator within %s: is its binary instrumented?",
				name, r.Suite.Timeouts.Ready)
		}
	}
	return nil
}

// warmWatchCaches lists every type that the plan or the suite names, on every API server: a server creates the watch
// cache of a custom resource only at the first request for it, and without a cache nothing can be stale.
func (r *runner) warmWatchCaches(ctx context.Context) error {
	types := map[schema.GroupVersionResource]bool{}
	for _, key := range r.keys() {
		t, err := r.objects.Resolve(ctx, key)
		if err != nil {
			return err
		}
		types[t.Resource] = true
	}
	for _, key := range r.watchedKeys() {
		// A pause of everything includes these. The recorder reports types that are not served.
		if t, err := r.objects.Resolve(ctx, key); err == nil {
			types[t.Resource] = true
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range r.cluster.APIServers() {
		config, err := r.cluster.RESTConfig(name)
		if err != nil {
			return err
		}
		unthrottle(config)
		config.Wrap(atOnce)
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return err
		}
		for gvr := range types {
			group.Go(func() error { return warm(ctx, client, gvr, name) })
		}
	}
	return group.Wait()
}

// atOnce makes client-go return a response that it would otherwise retry a second later: a watch cache that is being
// filled is ready much sooner.
func atOnce(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err == nil {
			response.Header.Del("Retry-After")
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// warm lists until the watch cache responds. Each server serves a new custom resource only once it has seen its
// definition.
func warm(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, server string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		_, err := client.Resource(gvr).List(ctx, metav1.ListOptions{ResourceVersion: "0", Limit: 1})
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || !(apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) ||
			apierrors.IsServiceUnavailable(err)) {
			return fmt.Errorf("fill the watch cache of %s on %s: %w", gvr.Resource, server, err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// startControllers applies the controllers' Deployments and waits until each controller runs and, if instrumented, has
// connected.
func (r *runner) startControllers(ctx context.Context, own map[string][]*unstructured.Unstructured) error {
	node := r.node()
	if node == nil && len(r.Suite.Controllers) > 0 {
		return fmt.Errorf("run controllers: %w", cluster.ErrNotSupported)
	}
	for i := range r.Suite.Controllers {
		c := &r.Suite.Controllers[i]
		for _, u := range own[c.Name] {
			if err := r.applyManifest(ctx, u); err != nil {
				return err
			}
		}
	}
	for i := range r.Suite.Controllers {
		if err := r.awaitController(ctx, r.Suite.Controllers[i].Name, r.Binaries[i].Manifest != nil, 0); err != nil {
			return err
		}
	}
	if err := r.awaitAlive(ctx); err != nil {
		return err
	}
	return r.awaitWebhooks(ctx)
}

// awaitAlive waits until every controller has run for Timeouts.Alive; it returns an error if one keeps exiting. The
// hook connects before main runs, so a session alone does not show that the controller works.
func (r *runner) awaitAlive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.Suite.Timeouts.Ready)
	defer cancel()
	for _, c := range r.Suite.Controllers {
		for {
			processes, err := r.node().Status(ctx, c.Name)
			if err != nil {
				return fmt.Errorf("status of controller %q: %w", c.Name, err)
			}
			if err := r.exitsAtOnce(c.Name, processes); err != nil {
				return err
			}
			if slices.ContainsFunc(processes, func(p cluster.Process) bool {
				return p.Running() && time.Since(p.Started) >= r.Suite.Timeouts.Alive
			}) {
				break
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return r.notConnected(ctx, c.Name)
			}
		}
	}
	return nil
}

// exitsAtOnce returns an error if the controller has exited unplanned more than once. One early exit may be due to a
// cluster that is not fully ready.
func (r *runner) exitsAtOnce(name string, processes []cluster.Process) error {
	exits := slices.DeleteFunc(slices.Clone(processes),
		func(p cluster.Process) bool { return p.Running() || p.Planned })
	if len(exits) < 2 {
		return nil
	}
	p := exits[len(exits)-1]
	tail := r.logTail(p)
	if p.MetMachine != "" {
		tail += "\n(" + p.MetMachine + ")"
	}
	return fmt.Errorf("controller %q exits at once (exit code %d, %d starts); the end of its log:\n%s",
		name, p.ExitCode, len(processes), tail)
}

// replicas is how many processes the controller has.
func (r *runner) replicas(controller string) int {
	for _, c := range r.meta.Controllers {
		if c.Name == controller {
			return max(c.Replicas, 1)
		}
	}
	return 1
}

// awaitController waits until the controller runs and, if instrumented, each of its processes has a session that is not
// among the first `after` ones. If the controller keeps exiting instead, the error contains the end of its log.
func (r *runner) awaitController(ctx context.Context, name string, instrumented bool, after int) error {
	ctx, cancel := context.WithTimeout(ctx, r.Suite.Timeouts.Ready)
	defer cancel()
	connected := make(chan error, 1)
	if instrumented {
		go func() { connected <- r.coordinator.WaitConnected(ctx, name, after, r.replicas(name)) }()
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-connected:
			if err == nil {
				return nil
			}
			return r.notConnected(ctx, name)
		case <-tick.C:
		case <-ctx.Done():
			return r.notConnected(ctx, name)
		}
		processes, err := r.node().Status(ctx, name)
		if err != nil {
			continue // until the deadline
		}
		if !instrumented && slices.ContainsFunc(processes, cluster.Process.Running) {
			return nil
		}
		if err := r.exitsAtOnce(name, processes); err != nil {
			return err
		}
	}
}

func (r *runner) notConnected(ctx context.Context, name string) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	processes, err := r.node().Status(context.WithoutCancel(ctx), name)
	if err != nil || len(processes) == 0 {
		return fmt.Errorf("controller %q did not start within %s (timeouts.ready); its Deployment's pods:\n%s",
			name, r.Suite.Timeouts.Ready, r.describePods(context.WithoutCancel(ctx), name))
	}
	p := processes[len(processes)-1]
	state := "runs but did not connect"
	if !p.Running() {
		state = fmt.Sprintf("exited with code %d", p.ExitCode)
	}
	return fmt.Errorf("controller %q %s within %s (timeouts.ready); the end of its log:\n%s",
		name, state, r.Suite.Timeouts.Ready, r.logTail(p))
}

// describePods lists a controller's pods with their status, for a controller that did not start.
func (r *runner) describePods(ctx context.Context, name string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	pods, err := r.objects.List(ctx, plan.ResourceKey{Type: "pod", Namespace: "*", Name: "*"})
	if err != nil {
		return err.Error()
	}
	var lines []string
	for _, p := range pods {
		if p.GetAnnotations()[cluster.AnnotationController] != name {
			continue
		}
		phase, _, _ := unstructured.NestedString(p.Object, "status", "phase")
		message, _, _ := unstructured.NestedString(p.Object, "status", "message")
		lines = append(lines, fmt.Sprintf("  %s/%s: %s %s", p.GetNamespace(), p.GetName(), phase, message))
	}
	if len(lines) == 0 {
		return "  none (does its service account exist? was the pod rejected at admission?)"
	}
	return strings.Join(lines, "\n")
}
