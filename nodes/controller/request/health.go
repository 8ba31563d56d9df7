package request

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"golang.org/x/sync/errgroup"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

// atOnce limits the HTTP requests that are made at the same time.
const atOnce = 16

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func waitPeriod(c *nodes.HealthCheck) time.Duration {
	if d := c.WaitPeriod.Duration(); d > 0 {
		return d
	}
	return 5 * time.Minute
}

// healthy makes the health checks of nodes that have not passed yet, and records those that do: a check that has passed
// is not made again. It reports whether all have passed; one that has not within its wait period is a failure.
func (r *Reconciler) healthy(ctx context.Context, q *nodes.CycleNodeRequest, at []nodes.NodeRef) (bool, error) {
	changed := q.DeepCopy()
	var (
		g      errgroup.Group
		mu     sync.Mutex
		done   = true
		failed []string
	)
	g.SetLimit(atOnce)
	// Entries first: they must not move while requests are made.
	for _, ref := range at {
		if !slices.ContainsFunc(changed.Status.HealthChecks, isOf(ref.ProviderID)) {
			changed.Status.HealthChecks = append(changed.Status.HealthChecks, nodes.HealthCheckStatus{
				ProviderID: ref.ProviderID, Ready: r.Env.Now(), Checks: make([]bool, len(q.Spec.HealthChecks)),
			})
		}
	}
	for _, ref := range at {
		state := &changed.Status.HealthChecks[slices.IndexFunc(changed.Status.HealthChecks, isOf(ref.ProviderID))]
		for i := range q.Spec.HealthChecks {
			if state.Skip || state.Checks[i] {
				continue
			}
			check := &q.Spec.HealthChecks[i]
			g.Go(func() error {
				err := r.checks().Health(ctx, check, ref.PrivateIP)
				mu.Lock()
				defer mu.Unlock()
				if state.Checks[i] = err == nil; err == nil {
					return nil
				}
				done = false
				if r.Env.Over(state.Ready, waitPeriod(check)) {
					failed = append(failed, "node "+ref.Name+": "+err.Error())
				}
				return nil
			})
		}
	}
	_ = g.Wait()
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if len(failed) > 0 {
		slices.Sort(failed)
		return false, failf("health checks did not pass: %s", strings.Join(failed, "; "))
	}
	if equality.Semantic.DeepEqual(changed.Status.HealthChecks, q.Status.HealthChecks) {
		return done, nil
	}
	err := r.statuses().write(ctx, q, func(s *nodes.CycleNodeRequestStatus) {
		s.HealthChecks = changed.Status.HealthChecks
	})
	return false, err // the change wakes the controller
}

func isOf(id string) func(nodes.HealthCheckStatus) bool {
	return func(h nodes.HealthCheckStatus) bool { return h.ProviderID == id }
}

// mayEnd makes the pre-termination checks of detached nodes, and returns those that have passed all. Each check of each
// node is recorded when it passes, and is not made again.
func (r *Reconciler) mayEnd(
	ctx context.Context, q *nodes.CycleNodeRequest, at []nodes.CycleNodeRequestNode,
) (passed []string, states []nodes.PreTerminationCheckStatus, err error) {
	changed := q.DeepCopy()
	spec := q.Spec.PreTerminationChecks
	if q.Spec.SkipPreTerminationChecks {
		spec = nil
	}
	isOf := func(id string) func(nodes.PreTerminationCheckStatus) bool {
		return func(s nodes.PreTerminationCheckStatus) bool { return s.ProviderID == id }
	}
	for _, n := range at {
		if len(spec) > 0 && !slices.ContainsFunc(changed.Status.PreTerminationChecks, isOf(n.ProviderID)) {
			changed.Status.PreTerminationChecks = append(changed.Status.PreTerminationChecks,
				nodes.PreTerminationCheckStatus{
					ProviderID: n.ProviderID, Checks: make([]nodes.PreTerminationCheckState, len(spec)),
				})
		}
	}
	var (
		g      errgroup.Group
		mu     sync.Mutex
		failed []string
	)
	g.SetLimit(atOnce)
	for _, n := range at {
		if len(spec) == 0 {
			passed = append(passed, n.ProviderID)
			continue
		}
		at := slices.IndexFunc(changed.Status.PreTerminationChecks, isOf(n.ProviderID))
		state := &changed.Status.PreTerminationChecks[at]
		for i := range spec {
			check, s := &spec[i], &state.Checks[i]
			if s.Check {
				continue
			}
			g.Go(func() error {
				since := s.Trigger
				if since == nil {
					since = q.Status.PhaseStarted
				}
				err := error(nil)
				if s.Trigger == nil {
					if err = r.checks().Trigger(ctx, check, n.PrivateIP); err == nil {
						s.Trigger = r.Env.Now()
					}
				}
				if err == nil {
					err = r.checks().Health(ctx, &check.HealthCheck, n.PrivateIP)
					s.Check = err == nil
				}
				if err != nil && r.Env.Over(since, waitPeriod(&check.HealthCheck)) {
					mu.Lock()
					defer mu.Unlock()
					failed = append(failed, "node "+n.Name+": "+err.Error())
				}
				return nil
			})
		}
	}
	_ = g.Wait()
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if len(failed) > 0 {
		slices.Sort(failed)
		return nil, nil, failf("pre-termination checks did not pass: %s", strings.Join(failed, "; "))
	}
	for _, s := range changed.Status.PreTerminationChecks {
		if !slices.ContainsFunc(s.Checks, func(c nodes.PreTerminationCheckState) bool { return !c.Check }) &&
			slices.ContainsFunc(at, func(n nodes.CycleNodeRequestNode) bool { return n.ProviderID == s.ProviderID }) {
			passed = append(passed, s.ProviderID)
		}
	}
	return passed, changed.Status.PreTerminationChecks, nil
}
