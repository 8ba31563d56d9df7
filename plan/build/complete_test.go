package build_test

import (
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// everything uses each constructor and each method of the builder.
func everything() *build.PlanBuilder {
	const op, key = "op", "pod/default/a"
	now := build.AtOnce
	return build.Plan("all").Description("a").Suite("../x").Variant("v").From("v1").CheckCaches().Pace(plan.PaceRest).
		Steps(plan.Step{Sleep: time.Second}).History("secret/default/*").
		Invariants(plan.Invariant{Name: "i", Never: "false"}).Then(
		build.RestartController(op).WaitBefore(1).WaitAfter(1).Async().When(
			build.Created(key).To(build.State{"a": 1}).Where("true").Repeat(2).At(plan.AfterControllerWrite, op).
				InReconciler("r").InCluster("east")),
		build.KillController(op).When(build.Updated(key).From(build.State{"a": 1}).At(plan.AfterControllerRecv, op)),
		build.StartController(op).When(build.Deleted(key).At(plan.AfterControllerRecv, op)),
		build.PauseController(op, plan.BeforeControllerRead).Scope(key).AvoidOngoingRead().When(
			build.AnyFieldModified(key, build.State{"a": 1}).At(plan.AfterControllerRecv, op)),
		build.ResumeController(op, plan.BeforeControllerRead).Scope(key).When(
			build.AllFieldsModified(key, build.State{"a": 1}).At(plan.AfterControllerRecv, op)),
		build.ReconnectController(op, "apiserver-2").ByCutting().WithoutStreamingLists().When(
			build.Called("f").At(plan.AfterAnnotatedCall, op)),
		build.PauseAPIServer("apiserver-1").InCluster("west").When(build.Reconciled("").At(plan.AfterReconcile, op)),
		build.ResumeAPIServer("apiserver-1").OneByOne().When(build.Timeout(time.Second).Extend(time.Minute)),
		build.FailCall(op, plan.Refused, 429).Scope(key).Operations("create").RetryAfter(1).UntilRestored().When(now()),
		build.RestoreCalls(op).Scope(key).When(now()),
		build.FailCall(op, plan.Lost, 0).Times(2).When(now()),
		build.FailCall(op, plan.Lost, 0).Call("f").UntilRestored().When(now()),
		build.RestoreCalls(op).Call("f").When(now()),
		build.FreezeController(op).When(now()),
		build.ThawController(op).Killing().When(now()),
		build.KillAPIServer("apiserver-1").When(now()),
		build.StartAPIServer("apiserver-1").When(now()),
		build.RestartAPIServer("apiserver-1").When(now()),
		build.Apply(build.State{"apiVersion": "v1", "kind": "Pod", "metadata": build.State{"name": "a"}}).When(now()),
		build.ApplyFile("build.go").When(now()),
		build.Patch(key, build.State{"status": nil}).Subresource("status").When(now()),
		build.PatchJSON(key, build.State{"op": "remove", "path": "/spec"}).When(now()),
		build.PatchStrategic(key, build.State{"spec": nil}).When(now()),
		build.Delete(key).When(now()),
		build.Disrupt(build.State{"name": "slow", "selector": build.State{"app": "a"},
			"apiFault": build.State{"verbs": []string{"update"}, "delay": "3s"}}).
			AcceptPartial().AcceptNoTargets().When(now()),
		build.EndDisruption("slow").When(now()),
		build.CycleNodes(build.State{"name": "roll", "simulatedGroup": build.State{"desiredCapacity": 3}}).
			WaitFor(plan.CycleFailed).AcceptFailure().When(now()),
		build.EndCycle("roll").When(now()),
		build.AdvanceTime(time.Hour).When(now()),
		build.SkewClock(op, -time.Minute).When(now()),
		build.EndSkew(op).When(now()),
		build.DisturbConnection(op, "west", time.Second).When(now()),
		build.RestoreConnection(op, "west").When(now()),
	)
}

// The builder can say all that YAML can say: each type of action and trigger, and each field.
func TestComplete(t *testing.T) {
	p, err := everything().Build()
	if err != nil {
		t.Fatal(err)
	}
	used := map[reflect.Type]map[string]bool{}
	see := func(v any) {
		r := reflect.ValueOf(v)
		fields := used[r.Type()]
		if fields == nil {
			fields = map[string]bool{}
			used[r.Type()] = fields
		}
		for _, f := range reflect.VisibleFields(r.Type()) {
			if name := f.Tag.Get("yaml"); name != "" {
				fields[name] = fields[name] || !r.FieldByIndex(f.Index).IsZero()
			}
		}
	}
	see(*p)
	see(*build.Plan("p").Workload("w").MustBuild())
	see(*build.Plan("p").Workload("w").Schedule(plan.Schedule{Strategy: plan.Swarm, Seed: 1}).MustBuild())
	var actions []plan.ActionType
	triggers := map[plan.TriggerType]bool{}
	for _, a := range p.Actions {
		actions = append(actions, a.Type)
		see(a)
		if a.Own != nil {
			see(reflect.ValueOf(a.Own).Elem().Interface())
		}
		see(a.Trigger)
		for _, d := range a.Trigger.Definitions {
			triggers[d.Condition.Type] = true
			see(d)
			see(d.Condition)
			see(d.Observe)
		}
	}
	for _, typ := range plan.ActionTypes() {
		if !slices.Contains(actions, typ) && plan.OwnFields(typ) == nil { // with fields of its own: see TestOf
			t.Errorf("the builder has no action %s", typ)
		}
	}
	for _, typ := range []plan.TriggerType{
		plan.OnObjectCreation, plan.OnObjectUpdate, plan.OnObjectDeletion, plan.OnAnyFieldModified,
		plan.OnAllFieldsModified, plan.OnAnnotatedCall, plan.OnReconcile, plan.OnTimeout, plan.OnNone,
	} {
		if !triggers[typ] {
			t.Errorf("the builder has no trigger %s", typ)
		}
	}
	for typ, fields := range used {
		for name, set := range fields {
			if !set {
				t.Errorf("the builder cannot set the field %s of %s", name, typ)
			}
		}
	}
	text, err := plan.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Parse(text, "p.yaml"); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// hop has the fields of a type of action that the builder has no function for.
type hop struct {
	Height int `yaml:"height"`
}

var registerHop = sync.OnceFunc(func() {
	plan.RegisterKind(plan.ActionKind{
		Type: "hop", Target: plan.TargetController, Own: func() any { return &hop{} },
	})
})

// Of makes actions of types that the builder has no function for.
func TestOf(t *testing.T) {
	registerHop()
	own := plan.OwnFields("hop").(*hop)
	own.Height = 2
	p, err := build.Plan("hops").Then(
		build.Of(plan.Action{Type: "hop", Target: "op", Own: own}).Async().When(build.AtOnce())).Build()
	if err != nil {
		t.Fatal(err)
	}
	own.Height = 3 // the plan shares nothing with the builder
	if a := p.Actions[0]; !a.Async || a.Own.(*hop).Height != 2 {
		t.Errorf("%+v", a)
	}
}
