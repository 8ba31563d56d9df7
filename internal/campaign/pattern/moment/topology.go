package moment

import (
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/plan"
)

// Topology is where the controllers and the API servers of a suite are.
type Topology struct{ Suite *plan.Suite }

// Home is the cluster in which a controller runs.
func (t Topology) Home(by string) string {
	i := slices.IndexFunc(t.Suite.Controllers, func(c plan.Controller) bool { return c.Name == by })
	if i < 0 {
		return t.Suite.FirstCluster()
	}
	return t.Suite.Controllers[i].Cluster
}

// Servers are the API servers of a cluster.
func (t Topology) Servers(cluster string) []string {
	return plan.ServersOf(t.Suite.APIServerNames(), cluster)
}

// Behind is the API server of a cluster that plans pause; the others go on.
func (t Topology) Behind(cluster string) string {
	names := t.Servers(cluster)
	return names[len(names)-1]
}

// OnlyServer is the rule by which controllers are not shown the past of a cluster.
func OnlyServer(cluster string) string {
	if cluster == "" {
		return "there is only one API server (apiServers: of the suite's cluster)"
	}
	return fmt.Sprintf("there is only one API server in %s (apiServers: of the suite's cluster %s)", cluster, cluster)
}
