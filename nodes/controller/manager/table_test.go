package manager

import (
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller/request"
	"github.com/trommel-dev/trommel/nodes/controller/status"
)

// tableOf reads the table of phases in a package's comment: each phase with those that can follow it.
func tableOf(t *testing.T, file string) map[string][]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	table, phase := map[string][]string{}, ""
	for line := range strings.Lines(f.Doc.Text()) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || strings.TrimSpace(cells[0]) == "Phase" ||
			strings.HasPrefix(strings.TrimSpace(cells[0]), "--") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] != "" {
			if phase = cells[0]; phase == "(none)" {
				phase = ""
			}
			table[phase] = nil
			if cells[1] == "" || cells[3] == "" {
				t.Errorf("%s: phase %q has no way in, or no timeout (nor \"none\")", file, phase)
			}
		}
		for next := range strings.SplitSeq(cells[2], ",") {
			if next = strings.TrimSpace(next); next != "" && next != "none" {
				table[phase] = append(table[phase], next)
			}
		}
	}
	return table
}

func texts[P ~string](transitions map[P][]P) map[string][]string {
	all := map[string][]string{}
	for from, to := range transitions {
		all[string(from)] = nil
		for _, p := range to {
			all[string(from)] = append(all[string(from)], string(p))
		}
	}
	return all
}

// TestTableOfPhases compares the tables in the package comments with the code, and with the phases that there are;
// TestEveryTransition walks them.
func TestTableOfPhases(t *testing.T) {
	for _, test := range []struct {
		file string
		want map[string][]string
		all  []string
	}{
		{"../request/request.go", texts(request.Transitions), []string{
			"", string(nodes.RequestPending), string(nodes.RequestInitialised), string(nodes.RequestScalingUp),
			string(nodes.RequestCordoningNode), string(nodes.RequestWaitingTermination),
			string(nodes.RequestSuccessful),
			string(nodes.RequestHealing), string(nodes.RequestFailed),
		}},
		{"../status/status.go", texts(status.Transitions), []string{
			"", string(nodes.StatusPending), string(nodes.StatusWaitingPods),
			string(nodes.StatusRemovingLabelsFromPods),
			string(nodes.StatusDrainingPods), string(nodes.StatusDeletingNode), string(nodes.StatusTerminatingNode),
			string(nodes.StatusSuccessful), string(nodes.StatusFailed),
		}},
	} {
		got := tableOf(t, test.file)
		if !maps.EqualFunc(got, test.want, slices.Equal) {
			t.Errorf("%s: the table says %v, the code %v", test.file, got, test.want)
		}
		if phases := slices.Sorted(maps.Keys(got)); !slices.Equal(phases, slices.Sorted(slices.Values(test.all))) {
			t.Errorf("%s: the table has phases %v, want %v", test.file, phases, test.all)
		}
	}
}
