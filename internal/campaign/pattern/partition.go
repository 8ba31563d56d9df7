package pattern

import (
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

var partition = Pattern{
	Name: "partition", Finds: "work that is given up because another cluster did not answer", chance: 1,
	needs:  func(s *plan.Suite) bool { return s.FirstCluster() != "" },
	drafts: silenceClusters,
}

// partitionFor is how long another cluster does not answer. A client of client-go gives its connection up after 45 s.
const partitionFor = time.Minute

// silenceClusters lets another cluster not answer a controller, from one of its effective writes on, if the reconcile
// goes on with a write in that cluster. The controller must try again.
func silenceClusters(m *moment.Set) (all drafts) {
	for i := range m.Changes {
		by := m.Changes[i].By
		for _, cluster := range goesOnIn(m, i) {
			why := fmt.Sprintf("%s does not answer %s for %s, right after its own write: %s", cluster, by,
				plan.FormatDuration(partitionFor), m.Describe(i))
			signature := cluster + " / " + m.Signature(i)
			written, rule := m.When(moment.At("written", plan.AfterControllerWrite, by), moment.Start, i)
			if rule != "" {
				all.drop(signature, why, rule)
				continue
			}
			all.add(signature, why,
				build.DisturbConnection(by, cluster, 0).When(written.Trigger),
				build.RestoreConnection(by, cluster).When(m.Window(partitionFor)))
		}
	}
	return all
}

// goesOnIn lists the clusters, other than the controller's own, in which the reconcile that made a change writes after
// it.
func goesOnIn(m *moment.Set, i int) (clusters []string) {
	home := m.Home(m.Changes[i].By)
	for _, k := range m.GoingOn(i) {
		if in := m.Cluster(k); in != home && !slices.Contains(clusters, in) {
			clusters = append(clusters, in)
		}
	}
	return clusters
}
