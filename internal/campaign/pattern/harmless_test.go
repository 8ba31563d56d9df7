package pattern

import (
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func TestHarmless(t *testing.T) {
	db := object{"apiVersion": "example.com/v1", "kind": "Db"}
	ref := &baseline.Baseline{
		Workload: "w", Setup: baseline.Setup{Controllers: []string{"op", "idle"}},
		Timing: baseline.Timing{Pace: plan.PaceRest},
		Changes: []facts.Change{
			change("op", wire.Create, "db.example.com/default/other", record.Created, nil, db),
			change("op", wire.Update, "service/default/a", record.Updated, spec(1), spec(2)),
			change("op", wire.Create, "secret/default/a", record.Created, nil, spec(1)),
			change("op", wire.Update, "service/default/a", record.Updated, spec(2), spec(3)),
			change("op", wire.Delete, "secret/default/a", record.Deleted, spec(1), nil),
		},
	}
	all := Harmless(suite(t), nil, ref)
	var got []string
	for _, c := range all {
		if c.Plan.Pace != plan.PaceRest {
			t.Errorf("%s has the pace %q", c.Plan.TestName, c.Plan.Pace)
		}
		got = append(got, c.Plan.TestName+" "+c.Why)
	}
	got = append(got, plans(all)...)
	want := []string{
		"w-harmless-1 if op is restarted when it has nothing to do, in the steady state",
		"w-harmless-2 if one write of op is refused (secret/default/a is created)",
		"w-harmless-3 if one write of each kind of op is refused (service/default/a changes (spec.replicas); " +
			"secret/default/a is deleted)",
		"restartController at onObjectDeletion secret/default/a #1 afterControllerWrite",
		"failCall at onObjectCreation secret/default/a #1 beforeControllerWrite",
		"failCall at onObjectUpdate service/default/a #1 beforeControllerWrite",
	}
	if len(got) != len(want) || slices.ContainsFunc(want, func(w string) bool {
		return !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, w) })
	}) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}
