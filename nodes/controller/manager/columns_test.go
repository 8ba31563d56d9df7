package manager

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

// TestColumns is about what kubectl get shows of a request that waits for a pod, with another node beside it: the
// columns of Cyclops' documentation, and with -o wide the others.
func TestColumns(t *testing.T) {
	f := newFixture(t, 2, nil)
	node := f.nodeNames()[0]
	pod := f.pod("waited", node, nil)
	other := f.pod("other", f.nodeNames()[1], nil)
	f.start(limits(), false, nil)
	q := f.request("columns", func(s *nodes.CycleNodeRequestSpec) {
		wait(s)
		s.CycleSettings.Concurrency = 2
	})
	s := f.child(q, "waits until these pods end: "+f.namespace+"/waited")
	second := f.child(q, "waits until these pods end: "+f.namespace+"/other")
	f.await(q, "told", func(q *nodes.CycleNodeRequest) bool {
		return q.Status.Message == "waits until 2 nodes are drained and terminated: node "+node+": "+
			s.Status.Message+", node "+second.Spec.Node.Name+": "+second.Status.Message
	})
	to, list := must(shared.RESTConfig("")), "/apis/"+nodes.GroupVersion.String()+"/namespaces/"+f.namespace+"/"
	want := [][]string{
		{"Name", "Node group name", "Node selector", "Method", "Concurrency", "Status", "Age", "Cycled+",
			"Current nodes+", "Message+"},
		{"columns", f.namespace, `{"matchLabels":{"group":"` + f.namespace + `"}}`, "Wait", "2", "WaitingTermination",
			"AGE", "0/2", node + ", " + second.Spec.Node.Name, q.Status.Message},
	}
	if diff := cmp.Diff(want, clustertest.Table(t, to, list+"cyclenoderequests")); diff != "" {
		t.Errorf("requests (-want +got)\n%s", diff)
	}
	want = [][]string{
		{"Name", "Node", "Phase", "Provider ID+", "Method+", "Message", "Age"},
		{s.Name, node, "WaitingPods", s.Spec.Node.ProviderID, "Wait",
			"waits until these pods end: " + f.namespace + "/waited", "AGE"},
		{second.Name, second.Spec.Node.Name, "WaitingPods", second.Spec.Node.ProviderID, "Wait",
			"waits until these pods end: " + f.namespace + "/other", "AGE"},
	}
	if diff := cmp.Diff(want, clustertest.Table(t, to, list+"cyclenodestatuses")); diff != "" {
		t.Errorf("statuses (-want +got)\n%s", diff)
	}
	f.delete(pod)
	f.delete(other)
	f.ends(q, nodes.RequestSuccessful)
}
