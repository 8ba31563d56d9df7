package cluster

import "github.com/trommel-dev/trommel/internal/clock"

// Capabilities are what only some clusters can do. A nil field means that the cluster cannot. [CapabilitiesOf] finds
// them for a cluster of any type, so that a type of cluster declares a capability by its methods alone.
//
// A new capability is a new field. The two literals of this type name no fields, so that the compiler asks for the new
// one: here, and for several clusters that a run takes for one.
type Capabilities struct {
	Instrumented Instrumented
	Listener     Listener
	Killer       APIServerKiller
	OnDemand     OnDemand
	Processes    ProcessRunner
	Images       ImageLoader
	Deployer     Deployer
	Guarded      Guarded
	Ailing       Ailing
	Equipped     Equipped
	Timed        Timed
	Timekeeper   Timekeeper
	Dialer       Dialer
	Logger       Logger
	Resettable   Resettable
	Shared       Shared
	Pods         PodSimulator
}

// CapabilitiesOf returns what a cluster can do.
func CapabilitiesOf(c Cluster) Capabilities {
	if g, ok := c.(*Group); ok {
		return g.capabilities()
	}
	return Capabilities{
		as[Instrumented](c), as[Listener](c), as[APIServerKiller](c), as[OnDemand](c), as[ProcessRunner](c),
		as[ImageLoader](c), as[Deployer](c), as[Guarded](c), as[Ailing](c), as[Equipped](c), as[Timed](c),
		as[Timekeeper](c), as[Dialer](c), as[Logger](c), as[Resettable](c), as[Shared](c), as[PodSimulator](c),
	}
}

// as returns the cluster as a T; nil: it is not one.
func as[T any](c Cluster) T {
	t, _ := c.(T)
	return t
}

// ProcessNode returns the process node; nil: the cluster has none.
func (c Capabilities) ProcessNode() ProcessNode {
	if c.Processes == nil {
		return nil
	}
	return c.Processes.Processes()
}

// Clock returns the clock of the cluster's processes; nil: they have this machine's.
func (c Capabilities) Clock() *clock.Clock {
	if c.Timed == nil {
		return nil
	}
	return c.Timed.Clock()
}
