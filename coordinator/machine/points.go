package machine

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// wirePoint splits a plan's timing into the point and the phase that hooks report; both are empty for an unknown
// timing.
func wirePoint(t plan.Timing) (wire.Point, wire.Phase) {
	phase := wire.Before
	name, ok := strings.CutPrefix(string(t), "before")
	if !ok {
		phase = wire.After
		if name, ok = strings.CutPrefix(string(t), "after"); !ok {
			return "", ""
		}
	}
	switch name {
	case "APIServerRecv":
		return wire.APIServerRecv, phase
	case "ControllerRecv":
		return wire.ControllerRecv, phase
	case "ControllerRead":
		return wire.ControllerRead, phase
	case "ControllerWrite":
		return wire.ControllerWrite, phase
	case "Reconcile":
		return wire.Reconcile, phase
	case "AnnotatedCall":
		return wire.AnnotatedCall, phase
	}
	return "", ""
}

// reconcilerMatches compares a plan's reconciler with what the hook reports: the controller's name ("database") or the
// reconciler's type ("example.com/op/controller.(*DatabaseReconciler)"), of which any suffix matches. Sieve writes the
// full name of the Reconcile method.
func reconcilerMatches(want string, o *record.Observation) bool {
	want = strings.TrimSuffix(want, ".Reconcile")
	return want == o.Reconciler || strings.HasSuffix(o.ReconcilerType, want)
}

// requestMatches compares a resource key with the request of a reconcile. The request has no type, so only namespace
// and name are compared; a zero key matches any.
func requestMatches(key plan.ResourceKey, o *record.Observation) bool {
	if key == (plan.ResourceKey{}) {
		return true
	}
	namespace, name, ok := strings.Cut(o.Request, "/")
	if !ok {
		namespace, name = "", o.Request
	}
	return (key.Namespace != "" || namespace == "") && key.Matches(key.Type, key.Group, false, namespace, name)
}

// Describe describes an observation for the user.
func Describe(o *record.Observation) string {
	verb := string(o.Op)
	if o.Subresource != "" {
		verb += " " + o.Subresource
	}
	object := fmt.Sprintf("%s/%s/%s", cmp.Or(o.Kind, o.Resource), o.Namespace, cmp.Or(o.Name, "*"))
	switch o.Point {
	case wire.Reconcile:
		return fmt.Sprintf("%s reconcile of %s", o.Phase, o.Request)
	case wire.AnnotatedCall:
		return fmt.Sprintf("%s call of %s", o.Phase, o.CallName)
	}
	if o.Cluster != "" && o.Cluster != record.UnknownCluster {
		object += " in " + o.Cluster
	}
	return fmt.Sprintf("%s of %s (%s %s at %s)", verb, object, o.Phase, o.Point, o.By)
}

// describeDefinition describes what a trigger waits for.
func describeDefinition(d *plan.Definition) string {
	c := d.Condition
	switch c.Type {
	case plan.OnNone:
		return "nothing"
	case plan.OnTimeout:
		return "its timeout of " + c.Timeout.String()
	case plan.OnAnnotatedCall:
		return fmt.Sprintf("call %s, %s at %s", c.Call, d.Observe.Timing, d.Observe.ObserveBy)
	}
	object := c.ResourceKey.String()
	if d.Observe.Cluster != "" {
		object += " in " + d.Observe.Cluster
	}
	s := fmt.Sprintf("%s of %s, %s at %s", c.Type, object, d.Observe.Timing, d.Observe.ObserveBy)
	if c.Repeat > 1 {
		s += fmt.Sprintf(", %d times", c.Repeat)
	}
	return s
}
