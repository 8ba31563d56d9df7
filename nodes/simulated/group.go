package simulated

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

// This file decides what happens to a group, by calls and by time, without I/O.

// group is a group at a time.
type group struct {
	*nodes.SimulatedNodeGroup
	nodes []corev1.Node // that the group's instances have, as the cache knows them
	now   time.Time
	// retry is the time after which the group tries again to start instances.
	retry time.Duration
}

func (g *group) at() metav1.MicroTime { return metav1.NewMicroTime(g.now) }

func (g *group) instance(providerID string) *nodes.SimulatedInstance {
	for i := range g.Status.Instances {
		if g.Status.Instances[i].ProviderID == providerID {
			return &g.Status.Instances[i]
		}
	}
	return nil
}

// member reports whether an instance counts for the desired capacity.
func member(i *nodes.SimulatedInstance) bool {
	return i.State == nodes.InstanceStarting || i.State == nodes.InstanceInService
}

func (g *group) members() int64 {
	var n int64
	for i := range g.Status.Instances {
		if member(&g.Status.Instances[i]) {
			n++
		}
	}
	return n
}

// fault returns the first fault of one of the types that concerns a call and an instance, and counts it. Both may be
// empty: a fault of one instance does not concern what has none.
func (g *group) fault(call nodes.Call, providerID string, of ...nodes.SimulatedFaultType) *nodes.SimulatedFault {
	for i := range g.Spec.Faults {
		f := &g.Spec.Faults[i]
		if !slices.Contains(of, f.Type) || f.ProviderID != "" && f.ProviderID != providerID ||
			len(f.Calls) > 0 && !slices.Contains(f.Calls, call) {
			continue
		}
		at := slices.IndexFunc(g.Status.Faults, func(c nodes.FaultCount) bool { return c.Name == f.Name })
		if at < 0 {
			g.Status.Faults = append(g.Status.Faults, nodes.FaultCount{Name: f.Name})
			at = len(g.Status.Faults) - 1
		}
		c := &g.Status.Faults[at]
		if f.Times > 0 && c.Times >= f.Times {
			continue
		}
		c.Times++
		return f
	}
	return nil
}

// held reports whether a fault of the type, which happened to the instance, is still there.
func (g *group) held(i *nodes.SimulatedInstance, of nodes.SimulatedFaultType) bool {
	return i.Fault != "" && slices.ContainsFunc(g.Spec.Faults, func(f nodes.SimulatedFault) bool {
		return f.Name == i.Fault && f.Type == of
	})
}

// set gives an instance another state, in which it is held if there is a fault that the call brings about.
func (g *group) set(i *nodes.SimulatedInstance, state nodes.InstanceState, call nodes.Call) {
	i.State, i.Since, i.Fault = state, g.at(), ""
	if call == nodes.CallDetach || call == nodes.CallRemove || call == nodes.CallTerminate {
		if f := g.fault(call, i.ProviderID, nodes.FaultHangs); f != nil {
			i.Fault = f.Name
		}
	}
}

// refuse is the answer of a call that nothing was done for.
func refuse(result nodes.CallResult, format string, args ...any) nodes.ProviderCallStatus {
	return nodes.ProviderCallStatus{Result: result, Message: fmt.Sprintf(format, args...)}
}

// halfDone returns the call that has changed the desired capacity, while its instance is not in the group yet, or still
// in it.
func (g *group) halfDone() types.UID {
	if uid := types.UID(g.Annotations[AnnotationAttached]); uid != g.Status.Attached {
		return uid
	}
	return ""
}

// carryOut changes the status as the call asks, and returns the answer, and by how much the desired capacity
// must be changed for it before the status is written.
func (g *group) carryOut(c *nodes.ProviderCall) (answer nodes.ProviderCallStatus, more int64) {
	counted := g.halfDone() == c.UID
	if counted { // what has happened already cannot be refused any more
		g.Status.Attached = c.UID
	} else {
		if f := g.fault(c.Spec.Call, c.Spec.ProviderID, nodes.FaultThrottled, nodes.FaultError); f != nil {
			answer = refuse(nodes.CallError, "internal error (fault %s)", f.Name)
			if f.Type == nodes.FaultThrottled {
				answer = refuse(nodes.CallThrottled, "rate exceeded (fault %s)", f.Name)
				answer.RetryAfter = f.RetryAfter
			}
			answer.Fault = f.Name
			return answer, 0
		}
	}
	answer = nodes.ProviderCallStatus{Result: nodes.CallDone}
	i := g.instance(c.Spec.ProviderID)
	switch c.Spec.Call {
	case nodes.CallDetach, nodes.CallRemove:
		switch remove := c.Spec.Call == nodes.CallRemove; {
		case i == nil || i.State != nodes.InstanceStarting && i.State != nodes.InstanceInService:
		case i.State == nodes.InstanceStarting:
			return refuse(nodes.CallConflict, "the instance is Starting: it must be InService"), 0
		case remove && !counted && g.Spec.DesiredCapacity <= g.Spec.MinSize:
			return refuse(nodes.CallConflict, "the group has its minimal size, %d", g.Spec.MinSize), 0
		default:
			g.set(i, nodes.InstanceDetaching, c.Spec.Call)
			answer.Changed = true
			if remove {
				g.Status.Attached = c.UID
				if !counted {
					more = -1
				}
			}
		}
	case nodes.CallAttach:
		switch {
		case i == nil && strings.HasPrefix(c.Spec.ProviderID, providerIDPrefix) &&
			!strings.HasPrefix(c.Spec.ProviderID, ProviderID(g.Name, "")):
			return refuse(nodes.CallConflict, "the instance is of another group"), 0
		case i == nil:
			return refuse(nodes.CallNotFound, "there is no such instance"), 0
		case member(i):
		case i.State != nodes.InstanceRunning:
			return refuse(nodes.CallConflict, "the instance is %s: it must be Running", i.State), 0
		case !counted && g.Spec.DesiredCapacity >= g.Spec.MaxSize:
			return refuse(nodes.CallConflict, "the group has its maximal size, %d", g.Spec.MaxSize), 0
		default:
			g.set(i, nodes.InstanceInService, c.Spec.Call)
			i.Detached = false
			g.Status.Attached = c.UID
			answer.Changed = true
			if !counted {
				more = 1
			}
		}
	case nodes.CallTerminate:
		if i != nil && i.State != nodes.InstanceTerminating {
			g.set(i, nodes.InstanceTerminating, c.Spec.Call)
			answer.Changed = true
		}
	default:
		return refuse(nodes.CallError, "unknown call %s", c.Spec.Call), 0
	}
	if f := g.fault(c.Spec.Call, c.Spec.ProviderID, nodes.FaultAnswerLost); f != nil {
		answer.Result, answer.Fault = nodes.CallLost, f.Name
		answer.Message = fmt.Sprintf("the connection was closed before the answer (fault %s)", f.Name)
	}
	return answer, more
}

// advance does what time does: states end, and the group starts or terminates instances. It returns when it has to be
// called again at the latest (zero: when something changes), and which instances have ended.
func (g *group) advance() (next time.Time, ended []string) {
	due := func(since metav1.MicroTime, delay time.Duration) bool {
		at := since.Add(delay)
		if !g.now.Before(at) {
			return true
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
		return false
	}
	known := func(name string) bool {
		return slices.ContainsFunc(g.Spec.Faults, func(f nodes.SimulatedFault) bool { return f.Name == name })
	}
	g.Status.Faults = slices.DeleteFunc(g.Status.Faults, func(c nodes.FaultCount) bool { return !known(c.Name) })
	for n := range g.Status.Instances {
		i := &g.Status.Instances[n]
		if i.Fault != "" && !known(i.Fault) {
			i.Fault = ""
		}
		hangs := g.held(i, nodes.FaultHangs)
		switch {
		case i.State == nodes.InstanceStarting && due(i.Since, g.Spec.Delays.Launch.Duration()):
			i.State, i.Since = nodes.InstanceInService, g.at() // and its fault stays
		case i.State == nodes.InstanceDetaching && !hangs && due(i.Since, g.Spec.Delays.Detach.Duration()):
			g.set(i, nodes.InstanceRunning, "")
			i.Detached = true
		case i.State == nodes.InstanceTerminating && !hangs && due(i.Since, g.Spec.Delays.Terminate.Duration()):
			ended = append(ended, i.ProviderID)
		}
		// Calls that are carried out next may detach it; its Node comes and becomes Ready all the same.
		if i.Registered && !i.Connected && i.State != nodes.InstanceTerminating {
			due(*i.RegisteredAt, g.Spec.Delays.Ready.Duration())
		}
	}
	if g.halfDone() == "" {
		g.scale(due)
	}
	return next, ended
}

// scale gives the group its desired number of instances.
func (g *group) scale(due func(metav1.MicroTime, time.Duration) bool) {
	missing := g.Spec.DesiredCapacity - g.members()
	if missing <= 0 {
		g.Status.Message, g.Status.NextLaunch = "", nil
		for ; missing < 0; missing++ {
			g.set(g.surplus(), nodes.InstanceTerminating, nodes.CallTerminate)
		}
		return
	}
	if g.Status.NextLaunch != nil && !due(*g.Status.NextLaunch, 0) &&
		slices.ContainsFunc(g.Spec.Faults, func(f nodes.SimulatedFault) bool {
			return f.Type == nodes.FaultNoCapacity
		}) {
		return
	}
	if f := g.fault("", "", nodes.FaultNoCapacity); f != nil {
		at := metav1.NewMicroTime(g.now.Add(g.retry))
		g.Status.NextLaunch = &at
		g.Status.Message = fmt.Sprintf("%d instances cannot be started: no capacity (fault %s)", missing, f.Name)
		due(at, 0)
		return
	}
	g.Status.Message, g.Status.NextLaunch = "", nil
	for range missing {
		g.Status.Started++
		i := nodes.SimulatedInstance{
			ProviderID: ProviderID(g.Name, fmt.Sprintf("i-%04d", g.Status.Started)),
			NodeName:   fmt.Sprintf("%s-%04d", g.Name, g.Status.Started),
			State:      nodes.InstanceStarting, Since: g.at(), Version: g.Spec.Template.Version,
			TemplateHash: templateHash(&g.Spec.Template),
		}
		if f := g.fault("", i.ProviderID, nodes.FaultNeverReady, nodes.FaultNoNode); f != nil {
			i.Fault = f.Name
		}
		g.Status.Instances = append(g.Status.Instances, i)
		due(i.Since, g.Spec.Delays.Launch.Duration())
	}
}

// surplus is the instance that a group which is too large terminates first: one that is out of date, or else the
// oldest.
func (g *group) surplus() *nodes.SimulatedInstance {
	current := templateHash(&g.Spec.Template)
	var members []*nodes.SimulatedInstance
	for i := range g.Status.Instances {
		if member(&g.Status.Instances[i]) {
			members = append(members, &g.Status.Instances[i])
		}
	}
	return slices.MinFunc(members, func(a, b *nodes.SimulatedInstance) int {
		if a, b := a.TemplateHash == current, b.TemplateHash == current; a != b {
			if b {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.NodeName, b.NodeName)
	})
}
