package controller_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/nodes/controller/request"
	"github.com/trommel-dev/trommel/nodes/controller/status"
	"github.com/trommel-dev/trommel/plan"
)

var (
	diagram = regexp.MustCompile("(?s)```mermaid\n(.*?)```")
	arrow   = regexp.MustCompile(`(?m)^ +(\[\*\]|\w+) --> (\w+)`)
)

// The diagrams of the documentation have the transitions of the controllers.
func TestDocumentedTransitions(t *testing.T) {
	data, err := os.ReadFile("../../docs/node-cycling.md")
	if err != nil {
		t.Fatal(err)
	}
	diagrams := diagram.FindAllStringSubmatch(string(data), -1)
	if len(diagrams) != 2 {
		t.Fatalf("%d diagrams", len(diagrams))
	}
	compare(t, diagrams[0][1], request.Transitions)
	compare(t, diagrams[1][1], status.Transitions)
}

func compare[P ~string](t *testing.T, diagram string, transitions map[P][]P) {
	t.Helper()
	var want, got []string
	for from, all := range transitions {
		for _, to := range all {
			want = append(want, string(from)+" --> "+string(to))
		}
	}
	for _, found := range arrow.FindAllStringSubmatch(diagram, -1) {
		from := found[1]
		if from == "[*]" {
			from = ""
		}
		got = append(got, from+" --> "+found[2])
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) == 0 || !slices.Equal(want, got) {
		t.Errorf("(-controller +documented)\n%s", cmp.Diff(want, got))
	}
}

// A plan can wait for each phase of a request.
func TestPhasesOfPlans(t *testing.T) {
	var want []string
	for phase := range request.Transitions {
		if phase != "" {
			want = append(want, string(phase))
		}
	}
	var got []string
	for _, phase := range plan.CyclePhases {
		got = append(got, string(phase))
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-controller +plan)\n%s", diff)
	}
}
