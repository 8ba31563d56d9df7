package campaign

import (
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// If a webhook denies a write of another client, plans with the same write of other objects are left out.
func TestDeniedWritesAreNotTriedAgain(t *testing.T) {
	f := &fake{answer: func(
		p *plan.Plan, _ int, meta *record.Meta, _ *[]record.Finding, history *[]string,
	) error {
		*history = []string{"configmap/default/a", "op secret/default/a", "op secret/default/b", "op service/default/c"}
		for i := range p.Actions {
			if w := &p.Actions[i]; w.Type == plan.DeleteObject && w.ResourceKey.Type == "secret" {
				meta.Verdict, meta.ActionsFired = record.Inconclusive, 0
				meta.Reason = `action 1 (delete secret/default/a) failed: admission webhook "guard.example.com" ` +
					`denied the request: only its controller deletes it`
			}
		}
		return nil
	}}
	c := config(t, f, "w")
	c.Patterns = []string{"drift"}
	r := mustRun(t, c)
	denied := r.With(result.Inconclusive)
	if len(denied) != 1 || r.Dropped[deniedRule] == 0 {
		t.Errorf("%d plans denied, %v left out", len(denied), r.Dropped)
	}
	said := c.Progress.(*heard).String()
	if !strings.Contains(said, `the webhook "guard.example.com" denies other clients such a write; `) {
		t.Error(said)
	}
	for _, o := range r.Outcomes {
		if o.Status != result.Inconclusive && o.Status != result.Passed {
			t.Errorf("%+v", o)
		}
	}
	if len(r.With(result.Passed)) == 0 {
		t.Error("other writes were left out, too")
	}
}

func TestClientWrites(t *testing.T) {
	of := func(actions ...*build.Action) clientWrite {
		for _, a := range actions {
			a.When(build.AtOnce())
		}
		p, err := build.Plan("p").Then(actions...).Build()
		if err != nil {
			t.Fatal(err)
		}
		w, _ := clientWriteOf(p)
		return w
	}
	remove := func(name string) *build.Action { return build.Delete("pod/default/" + name) }
	patch := func(name, field string) *build.Action {
		return build.Patch("pod/default/"+name, map[string]any{"spec": map[string]any{field: 1}})
	}
	operation := func(path string) *build.Action {
		return build.PatchJSON("pod/default/a", map[string]any{"op": "remove", "path": path})
	}
	if of(remove("a")) != of(remove("b")) || of(patch("a", "x")) != of(patch("b", "x")) ||
		of(operation("/metadata/labels/x")) != of(operation("/metadata/labels/y")) {
		t.Error("writes of other objects differ")
	}
	if of(patch("a", "x")) == of(patch("a", "y")) || of(remove("a")) == of(patch("a", "x")) ||
		of(operation("/spec/x")) == of(operation("/spec/y")) || of(remove("a"), remove("b")) != (clientWrite{}) {
		t.Error("different writes are the same")
	}
}
