package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// LeaderAnnotation is where client-go before 0.24 stores the leader election record if the lock is a ConfigMap or an
// Endpoints object (LeaderElectionRecordAnnotationKey in tools/leaderelection/resourcelock).
const LeaderAnnotation = "control-plane.alpha.kubernetes.io/leader"

const leaseGroup = "coordination.k8s.io"

// Writes of locks are reported from the start: the locks of a killed controller must be released, and leader election
// must not count as activity.
var (
	leaseRule = wire.Rule{Point: wire.ControllerWrite, Phase: wire.After, Group: leaseGroup, Resource: "leases",
		Kind: "lease"}
	// annotatedLockRules are used only for client-go before 0.24, because they report every write of these types.
	annotatedLockRules = []wire.Rule{
		{Point: wire.ControllerWrite, Phase: wire.After, Resource: "configmaps", Kind: "configmap"},
		{Point: wire.ControllerWrite, Phase: wire.After, Resource: "endpoints", Kind: "endpoints"},
	}
)

func lockRules(controller record.Controller) []wire.Rule {
	if controller.ClientGo != "" && semver.Compare(controller.ClientGo, "v0.24.0-0") < 0 {
		return append([]wire.Rule{leaseRule}, annotatedLockRules...)
	}
	return []wire.Rule{leaseRule}
}

// elections tracks the controllers' leader elections.
type elections struct {
	locks map[string]map[plan.ResourceKey]bool // written by a controller, by identity
	leads map[uint64]bool                      // sessions that have written a lock
	lasts map[string]time.Duration             // how long a lease lasts, by identity
	// newest is what each session has last written of a lock.
	newest map[uint64]*record.Observation
}

func newElections() elections {
	return elections{
		locks: map[string]map[plan.ResourceKey]bool{}, leads: map[uint64]bool{}, lasts: map[string]time.Duration{},
		newest: map[uint64]*record.Observation{},
	}
}

// note records a write of a lock. One without an answer may have made the lock of a process that is not there any more,
// but only who gets an answer leads.
func (e *elections) note(s *monitor.Session, o *wire.Observation) {
	if o.Point != wire.ControllerWrite || o.Phase != wire.After || o.Error != "" && o.Code != 0 {
		return
	}
	if e.locks[s.Identity] == nil {
		e.locks[s.Identity] = map[plan.ResourceKey]bool{}
	}
	e.locks[s.Identity][lockKey(o)] = true
	if o.Error != "" {
		return
	}
	e.leads[s.ID] = true
	e.newest[s.ID] = recordObservation(s, o)
	var lock struct {
		Spec struct{ LeaseDurationSeconds int }
	}
	if json.Unmarshal(o.Object, &lock) == nil && lock.Spec.LeaseDurationSeconds > 0 {
		e.lasts[s.Identity] = time.Duration(lock.Spec.LeaseDurationSeconds) * time.Second
	}
}

// lease is how long a lease of the controller's lasts without being renewed.
func (e *elections) lease(identity string) time.Duration {
	return cmp.Or(e.lasts[identity], 15*time.Second) // client-go's default
}

// forget drops a session that has ended.
func (e *elections) forget(s *monitor.Session) {
	delete(e.leads, s.ID)
	delete(e.newest, s.ID)
}

// about reports whether a controller's read or write belongs to its leader election.
func (e *elections) about(identity string, o *wire.Observation) bool {
	if o.Point != wire.ControllerRead && o.Point != wire.ControllerWrite || o.ReconcileID != "" {
		return false
	}
	key := lockKey(o)
	switch key.Type {
	case "lease":
		return true
	case "configmap", "endpoints":
		return e.locks[identity][key] || isAnnotatedLock(o.Object)
	}
	return false
}

// delivers reports whether an observation is the delivery of any controller's lock.
func (e *elections) delivers(o *wire.Observation) bool {
	if o.Point != wire.ControllerRecv {
		return false
	}
	key := lockKey(o)
	for _, locks := range e.locks {
		if locks[key] {
			return true
		}
	}
	return false
}

// lockKey returns the key of an observation's object. Its type is empty if the object cannot be a lock.
func lockKey(o *wire.Observation) plan.ResourceKey {
	key := plan.ResourceKey{Namespace: o.Namespace, Name: o.Name}
	switch {
	case o.Group == leaseGroup && (o.Resource == "leases" || o.Kind == "lease"):
		key.Type, key.Group = "lease", leaseGroup
	case o.Group == "" && (o.Resource == "configmaps" || o.Kind == "configmap"):
		key.Type = "configmap"
	case o.Group == "" && (o.Resource == "endpoints" || o.Kind == "endpoints"):
		key.Type = "endpoints"
	}
	return key
}

func isAnnotatedLock(object []byte) bool {
	var about struct {
		Metadata struct{ Annotations map[string]string }
	}
	return json.Unmarshal(object, &about) == nil && about.Metadata.Annotations[LeaderAnnotation] != ""
}

// Locks lists the objects that the controller has written so far to be elected leader, in order: leases, and ConfigMaps
// and Endpoints with a [LeaderAnnotation].
func (c *Coordinator) Locks(ctx context.Context, controller string) ([]plan.ResourceKey, error) {
	var list []plan.ResourceKey
	err := c.loop.do(ctx, func(context.Context) { list = c.elections.of(controller) })
	return list, err
}

// LeaseLasts is how long the controller's Lease lasts without being renewed; 0: it has written none so far.
func (c *Coordinator) LeaseLasts(ctx context.Context, controller string) (lasts time.Duration, err error) {
	err = c.loop.do(ctx, func(context.Context) { lasts = c.elections.lasts[controller] })
	return lasts, err
}

func (e *elections) of(controller string) []plan.ResourceKey {
	return slices.SortedFunc(maps.Keys(e.locks[controller]), func(a, b plan.ResourceKey) int {
		return strings.Compare(a.String(), b.String())
	})
}

// elected lists those of the live sessions of an identity that have been elected leader.
func (e *elections) elected(live []*monitor.Session, identity string) []*monitor.Session {
	var all []*monitor.Session
	for _, s := range live {
		if s.Identity == identity && e.leads[s.ID] {
			all = append(all, s)
		}
	}
	return all
}

// electing returns a sentence about a controller that was leader before and waits to be elected again; empty if it does
// not.
func (c *Coordinator) electing(name string) string {
	locks := c.elections.of(name)
	if len(locks) == 0 || !c.sessions.connected(name) || c.machine.Down(name) ||
		len(c.elections.elected(c.config.Monitor.Sessions(), name)) > 0 {
		return ""
	}
	var names []string
	for _, l := range locks {
		names = append(names, l.String())
	}
	return fmt.Sprintf("%s waits for leader election: it has not acquired %s again", name, strings.Join(names, ", "))
}

// allElecting is [Coordinator.electing] for all controllers.
func (c *Coordinator) allElecting() []string {
	var all []string
	for _, controller := range c.config.Controllers {
		if s := c.electing(controller.Name); s != "" {
			all = append(all, s)
		}
	}
	return all
}
