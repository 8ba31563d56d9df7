package pattern

import (
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// cluster is the one of several in which the i-th change's object is; empty: there is only one.
func (g *generator) cluster(i int) string { return g.ref.Changes[i].Key.Cluster() }

// home is the cluster in which a controller runs.
func (g *generator) home(by string) string {
	i := slices.IndexFunc(g.suite.Controllers, func(c plan.Controller) bool { return c.Name == by })
	if i < 0 {
		return g.suite.FirstCluster()
	}
	return g.suite.Controllers[i].Cluster
}

// servers are the API servers of a cluster.
func (g *generator) servers(cluster string) []string {
	return plan.ServersOf(g.suite.APIServerNames(), cluster)
}

// server is the first API server of the cluster in which the i-th change's object is.
func (g *generator) server(i int) string { return g.servers(g.cluster(i))[0] }

// namesakeOf is another cluster in which there is an object of the same type and name as that of the i-th change, at
// any time of the first run; empty: none.
func (g *generator) namesakeOf(i int) (cluster string) {
	c := &g.ref.Changes[i]
	for k := range g.ref.Changes {
		if in := g.cluster(k); in != c.Key.Cluster() && g.ref.Changes[k].Key.Local() == c.Key.Local() &&
			(cluster == "" || in < cluster) {
			cluster = in
		}
	}
	return cluster
}

// staleElsewhere shows a controller the state before the i-th change, of an object in another cluster than its own, and
// the present of its own one. Before the change, its connection is moved to an API server that is paused, until the
// controller has made the first write after it that follows from something else: it should have taken the change into
// account. Whoever else works in that cluster is not held up: its controllers read from the first API server.
func (g *generator) staleElsewhere(i int, by string) {
	c := &g.ref.Changes[i]
	cluster := g.cluster(i)
	why := fmt.Sprintf("%s is shown the past of %s, where it does not see: %s", by, cluster, g.describe(i))
	signature := g.signature(i)
	servers := g.servers(cluster)
	all := g.runs[0].byKey[c.Key]
	at, _ := slices.BinarySearch(all, i)
	k := g.unaware(i, by)
	switch {
	case len(servers) < 2:
		g.drop(signature, why, onlyServer(cluster))
		return
	case at == 0:
		g.drop(signature, why, "before that there is no state of the object to show")
		return
	case k < 0:
		g.drop(signature, why, "the controller writes nothing after it because of something else")
		return
	}
	was := all[at-1]
	why += fmt.Sprintf(". The API server stops at: %s; until %s has made its write: %s", g.describe(was), by,
		g.describe(k))
	signature += " / " + g.signature(k)
	server := g.behind(cluster)
	seen, acted, rule := g.both(
		was, point{"seen", plan.AfterAPIServerRecv, server}, k, point{"acted", plan.AfterControllerWrite, by},
	)
	if rule != "" {
		g.drop(signature, why, rule)
		return
	}
	chance := 0.5
	if g.deletes(k) || slices.ContainsFunc(g.followUps(i, by), g.deletes) {
		chance = 1
	}
	limit := staleFor + 2*g.between(was, k)
	scope, _ := g.object(i)
	g.addWith(chance, signature, fmt.Sprintf("%s; for %s at most", why, plan.FormatDuration(limit)),
		build.PauseAPIServer(server).InCluster(cluster).Scope(scope).When(seen),
		g.toPast(by, cluster).When(build.AtOnce()),
		build.ResumeAPIServer(server).InCluster(cluster).Scope(scope).
			When(build.Either(acted, build.Timeout(limit).Named("late"))))
}

// unaware is the first write of a controller that takes the i-th change into account, and would also be made without
// it: it follows from another change that the controller takes in after that one. -1: there is none.
func (g *generator) unaware(i int, by string) int {
	for _, k := range g.followUps(i, by) {
		for j := i + 1; j < k; j++ {
			c := &g.ref.Changes[j]
			if c.By != by && c.Key != g.ref.Changes[i].Key && slices.Contains(c.Taken, by) &&
				g.ref.Changes[k].MayFollowFrom(c) {
				return k
			}
		}
	}
	return -1
}

// partitionFor is how long another cluster does not answer. A client of client-go gives its connection up after 45 s.
const partitionFor = time.Minute

// partition lets another cluster not answer a controller, from one of its effective writes on, if the reconcile goes on
// with a write in that cluster. The controller must try again.
func (g *generator) partition() {
	for i := range g.ref.Changes {
		by := g.ref.Changes[i].By
		for _, cluster := range g.goesOnIn(i) {
			why := fmt.Sprintf("%s does not answer %s for %s, right after its own write: %s", cluster, by,
				plan.FormatDuration(partitionFor), g.describe(i))
			signature := cluster + " / " + g.signature(i)
			d, rule := g.when("written", start, i, plan.AfterControllerWrite, by)
			if rule != "" {
				g.drop(signature, why, rule)
				continue
			}
			g.add(signature, why,
				build.DisturbConnection(by, cluster, 0).When(d),
				build.RestoreConnection(by, cluster).When(g.window(partitionFor)))
		}
	}
}

// goesOnIn lists the clusters, other than its own, in which the reconcile that made a change writes after it.
func (g *generator) goesOnIn(i int) (clusters []string) {
	home := g.home(g.ref.Changes[i].By)
	for _, k := range g.goingOn(i) {
		if in := g.cluster(k); in != home && !slices.Contains(clusters, in) {
			clusters = append(clusters, in)
		}
	}
	return clusters
}

// onlyServer is the rule by which nobody is shown the past of a cluster.
func onlyServer(cluster string) string {
	if cluster == "" {
		return "there is only one API server (apiServers: of the suite's cluster)"
	}
	return fmt.Sprintf("there is only one API server in %s (apiServers: of the suite's cluster %s)", cluster, cluster)
}
