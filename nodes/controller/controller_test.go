package controller

import (
	"fmt"
	"regexp"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

func TestStatusName(t *testing.T) {
	valid := regexp.MustCompile(`^q-1-[bcdfghjklmnpqrstvwxz2456789]{5}$`)
	names := map[string]bool{}
	for i := range 1000 {
		q := &nodes.CycleNodeRequest{}
		q.Name, q.UID = "q", types.UID(fmt.Sprint(i))
		for _, id := range []string{"a", "b"} {
			q.Status.NodesToTerminate = append(q.Status.NodesToTerminate, nodes.CycleNodeRequestNode{
				NodeRef: nodes.NodeRef{ProviderID: id}})
		}
		name := StatusName(q, "b")
		if !valid.MatchString(name) {
			t.Fatalf("%q", name)
		}
		names[name] = true
	}
	if len(names) < 990 {
		t.Errorf("only %d names of 1000 requests", len(names))
	}
}
