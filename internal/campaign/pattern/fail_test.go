package pattern

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Each kind of write is refused with each status once, from its first write on, whatever the object.
func TestDeniedWrites(t *testing.T) {
	changes := []facts.Change{
		change("", "", db, record.Created, nil, spec(2)),
		change("op", wire.Create, "secret/default/a", record.Created, nil, object{}),
		change("op", wire.Create, "secret/default/b", record.Created, nil, object{}),
		change("op", wire.Create, set, record.Created, nil, spec(2)),
	}
	ref := &baseline.Baseline{Workload: "w", Changes: changes, Objects: facts.Objects(changes)}
	var got []plan.CallFailure
	for _, c := range Generate(suite(t), ref, "denied") {
		if c.Plan == nil {
			t.Errorf("dropped: %s: %s", c.Why, c.Dropped)
			continue
		}
		f := *plan.EffectOf[*plan.CallFailure](&c.Plan.Actions[0])
		if r := plan.EffectOf[*plan.Restore](&c.Plan.Actions[1]); r.By != f.By || r.Scope != f.Scope {
			t.Errorf("%+v is ended by %+v", f, r)
		}
		got = append(got, f)
	}
	refused := func(scope string, status int) plan.CallFailure {
		return plan.CallFailure{By: "op", Scope: plan.MustScope(scope), Operations: []plan.Operation{"create"},
			Answer: plan.Refused, Status: status}
	}
	const secrets, sets = "secret/*/*", "statefulset.apps/*/*"
	want := []plan.CallFailure{
		refused(secrets, 403), refused(sets, 403), refused(secrets, 500), refused(sets, 500),
		refused(secrets, 409), refused(sets, 409), refused(secrets, 429), refused(sets, 429),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLostAnswerOfOneWrite(t *testing.T) {
	changes := []facts.Change{change("op", wire.Delete, key, record.Deleted, object{}, nil)}
	ref := &baseline.Baseline{Workload: "w", Changes: changes}
	all := Generate(suite(t), ref, "lost-answer")
	if len(all) != 1 || all[0].Plan == nil {
		t.Fatalf("%+v", all)
	}
	want := &plan.CallFailure{By: "op", Scope: plan.MustScope(string(key)), Operations: []plan.Operation{"delete"},
		Answer: plan.Lost, Times: 1}
	if diff := cmp.Diff(want, plan.EffectOf[*plan.CallFailure](&all[0].Plan.Actions[0])); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
