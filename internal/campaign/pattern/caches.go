package pattern

// caches does nothing to the controllers but to have client-go check their caches. An informer's objects belong to all
// who read them: a controller that changes one makes others see what no API server has said, until the object changes
// the next time, and may die of it, because Go ends a process that reads a map while it is being changed.
func (g *generator) caches() {
	const why = "client-go checks each second whether a controller has changed an object in its cache"
	g.addPlan(g.begin(why).CheckCaches(), 1, "workload "+g.ref.Workload, why)
}
