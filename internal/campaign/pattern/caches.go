package pattern

import "github.com/trommel-dev/trommel/internal/campaign/pattern/moment"

// The pattern caches does nothing to the controllers, but lets client-go check their caches. The objects of an informer
// belong to all of its readers. A controller that changes one shows the others a state that no API server has sent,
// until the object changes the next time. The controller may also crash, because Go ends a process that reads a map
// while it is being changed.
var caches = Pattern{
	Name: "caches", Finds: "objects of its cache that a controller changes", chance: 1,
	drafts: func(m *moment.Set) drafts {
		return drafts{{
			signature: "workload " + m.Baseline.Workload, chance: 1, checkCaches: true,
			why: "client-go checks each second whether a controller has changed an object in its cache",
		}}
	},
}
