package build_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

func show(b *build.PlanBuilder) {
	p, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := plan.Marshal(p)
	if err != nil {
		fmt.Println(err)
		return
	}
	os.Stdout.Write(text)
}

func ExampleRestartAfterWrite() {
	show(build.RestartAfterWrite("restart-after-scale-down", "db-operator",
		build.Updated("statefulset/default/db").
			From(build.State{"spec": build.State{"replicas": 3}}).
			To(build.State{"spec": build.State{"replicas": 2}})))
	// Output:
	// apiVersion: trommel.dev/v1alpha1
	// kind: TestPlan
	// testName: restart-after-scale-down
	// actions:
	//   - actionType: restartController
	//     actionTarget: db-operator
	//     trigger:
	//       definitions:
	//         - triggerName: trigger1
	//           condition:
	//             triggerType: onObjectUpdate
	//             resourceKey: statefulset/default/db
	//             prevState:
	//               spec:
	//                 replicas: 3
	//             curState:
	//               spec:
	//                 replicas: 2
	//           observationPoint:
	//             timing: afterControllerWrite
	//             observeBy: db-operator
	//       expression: trigger1
}

func ExampleStaleRead() {
	show(build.StaleRead("stale-deletion", build.Stale{
		Controller: "db-operator",
		APIServer:  "apiserver-2",
		Scope:      "database/default/db",
		Seen: build.Updated("database/default/db").To(
			build.State{"metadata": build.State{"deletionTimestamp": plan.Present}}),
		Reconnect:  build.Created("statefulset/default/db"),
		WaitBefore: time.Second,
	}).Workload("recreate"))
	// Output:
	// apiVersion: trommel.dev/v1alpha1
	// kind: TestPlan
	// testName: stale-deletion
	// workload: recreate
	// actions:
	//   - actionType: pauseAPIServer
	//     actionTarget: apiserver-2
	//     pauseScope: database/default/db
	//     trigger:
	//       definitions:
	//         - triggerName: trigger1
	//           condition:
	//             triggerType: onObjectUpdate
	//             resourceKey: database/default/db
	//             curState:
	//               metadata:
	//                 deletionTimestamp: $present
	//           observationPoint:
	//             timing: afterAPIServerRecv
	//             observeBy: apiserver-2
	//       expression: trigger1
	//   - actionType: reconnectController
	//     actionTarget: db-operator
	//     reconnectAPIServer: apiserver-2
	//     waitBefore: 1s
	//     async: true
	//     trigger:
	//       definitions:
	//         - triggerName: trigger1
	//           condition:
	//             triggerType: onObjectCreation
	//             resourceKey: statefulset/default/db
	//           observationPoint:
	//             timing: afterAPIServerRecv
	//             observeBy: apiserver-1
	//       expression: trigger1
	//   - actionType: resumeAPIServer
	//     actionTarget: apiserver-2
	//     pauseScope: database/default/db
	//     trigger:
	//       definitions:
	//         - triggerName: trigger1
	//           condition:
	//             triggerType: onTimeout
	//             timeout: 20s
	//       expression: trigger1
}

func ExampleSkipObservation() {
	show(build.SkipObservation("unseen-scale-down", "db-operator", "database/default/db",
		build.Updated("database/default/db").To(build.State{"spec": build.State{"replicas": 2}})))
	// Output:
	// apiVersion: trommel.dev/v1alpha1
	// kind: TestPlan
	// testName: unseen-scale-down
	// actions:
	//   - actionType: pauseController
	//     actionTarget: db-operator
	//     pauseAt: beforeControllerRead
	//     pauseScope: database/default/db
	//     avoidOngoingRead: true
	//     trigger:
	//       definitions:
	//         - triggerName: trigger1
	//           condition:
	//             triggerType: onObjectUpdate
	//             resourceKey: database/default/db
	//             curState:
	//               spec:
	//                 replicas: 2
	//           observationPoint:
	//             timing: beforeControllerRecv
	//             observeBy: db-operator
	//       expression: trigger1
	//   - actionType: resumeController
	//     actionTarget: db-operator
	//     pauseAt: beforeControllerRead
	//     pauseScope: database/default/db
	//     trigger:
	//       definitions:
	//         - triggerName: trigger1
	//           condition:
	//             triggerType: onAnyFieldModified
	//             resourceKey: database/default/db
	//             prevState:
	//               spec:
	//                 replicas: 2
	//           observationPoint:
	//             timing: afterControllerRecv
	//             observeBy: db-operator
	//         - triggerName: trigger2
	//           condition:
	//             triggerType: onObjectDeletion
	//             resourceKey: database/default/db
	//           observationPoint:
	//             timing: afterControllerRecv
	//             observeBy: db-operator
	//       expression: trigger1|trigger2
}

func ExamplePlan() {
	created := build.Created("pod/default/db-*").Where("object.spec.nodeName != ''").Repeat(3).At(
		plan.AfterControllerRecv, "db-operator").Named("pods")
	show(build.Plan("delete-while-down").
		Workload("scale").
		Then(
			build.KillController("db-operator").When(build.Either(build.Sequence(created, created),
				build.Timeout(30*time.Second))),
			build.Delete("pod/default/db-0").When(build.AtOnce()),
			build.StartController("db-operator").WaitBefore(2*time.Second).When(build.AtOnce()),
		))
	// Output:
	// apiVersion: trommel.dev/v1alpha1
	// kind: TestPlan
	// testName: delete-while-down
	// workload: scale
	// actions:
	//   - actionType: killController
	//     actionTarget: db-operator
	//     trigger:
	//       definitions:
	//         - triggerName: pods
	//           condition:
	//             triggerType: onObjectCreation
	//             resourceKey: pod/default/db-*
	//             where: object.spec.nodeName != ''
	//             repeat: 3
	//           observationPoint:
	//             timing: afterControllerRecv
	//             observeBy: db-operator
	//         - triggerName: trigger2
	//           condition:
	//             triggerType: onTimeout
	//             timeout: 30s
	//       expression: (pods;pods)|trigger2
	//   - actionType: delete
	//     resourceKey: pod/default/db-0
	//     trigger:
	//       definitions:
	//         - triggerName: trigger1
	//           condition:
	//             triggerType: none
	//       expression: trigger1
	//   - actionType: startController
	//     actionTarget: db-operator
	//     waitBefore: 2s
	//     trigger:
	//       definitions:
	//         - triggerName: trigger1
	//           condition:
	//             triggerType: none
	//       expression: trigger1
}

func ExampleFailCall() {
	const db, secrets = "db-operator", "secret/default/*"
	show(build.Plan("denied").Then(
		build.FailCall(db, plan.Refused, 429).RetryAfter(1).UntilRestored().Scope(secrets).Operations("create").When(
			build.Created("secret/default/a").At(plan.BeforeControllerWrite, db)),
		build.RestoreCalls(db).Scope(secrets).When(build.Timeout(3*time.Second)),
		build.FailCall(db, plan.Lost, 0).Times(2).When(build.AtOnce()),
	))
	// Output:
	// apiVersion: trommel.dev/v1alpha1
	// kind: TestPlan
	// testName: denied
	// actions:
	//   - actionType: failCall
	//     actionTarget: db-operator
	//     callScope: secret/default/*
	//     callOperations:
	//       - create
	//     status: 429
	//     retryAfterSeconds: 1
	//     untilRestored: true
	//     trigger:
	//       definitions:
	//         - triggerName: trigger1
	//           condition:
	//             triggerType: onObjectCreation
	//             resourceKey: secret/default/a
	//           observationPoint:
	//             timing: beforeControllerWrite
	//             observeBy: db-operator
	//       expression: trigger1
	//   - actionType: restoreCalls
	//     actionTarget: db-operator
	//     callScope: secret/default/*
	//     trigger:
	//       definitions:
	//         - triggerName: trigger1
	//           condition:
	//             triggerType: onTimeout
	//             timeout: 3s
	//       expression: trigger1
	//   - actionType: failCall
	//     actionTarget: db-operator
	//     answer: lost
	//     times: 2
	//     trigger:
	//       definitions:
	//         - triggerName: trigger1
	//           condition:
	//             triggerType: none
	//       expression: trigger1
}

func TestErrors(t *testing.T) {
	now := build.AtOnce
	tests := []struct {
		name string
		plan *build.PlanBuilder
		want string
	}{
		{"key", build.Plan("p").Then(build.Delete("pods/default/a").When(now())),
			`plan "p": actions[0]: "pods/default/a": a type must be singular; write pod/default/a`},
		{"condition's key",
			build.Plan("p").Then(build.KillController("a").When(build.Sequence(now(), build.Created("x")))),
			`plan "p": actions[0].trigger: trigger2: "x" is not a type/namespace/name such as pod/default/web-0 ` +
				`or node//n1`},
		{"the first", build.Plan("p").Then(build.KillController("a").When(build.Updated("pod/default/a").Repeat(0)),
			build.Delete("x")), `plan "p": actions[0].trigger: trigger1: repeat is 0; it must be at least 1`},
		{"value", build.Plan("p").Then(build.Apply(build.State{"a": func() {}}).When(now())),
			`plan "p": actions[0]: json: unsupported type: func()`},
		{"no trigger", build.Plan("p").Then(build.KillController("a")),
			`plan "p": actions[0].trigger: the action has no trigger; When(build.AtOnce()) makes it act at once`},
		{"nil action", build.Plan("p").Then(build.KillController("a").When(now()), nil),
			`plan "p": actions[1]: the action is nil`},
		{"nil change", build.SkipObservation("p", "a", "pod/default/a", nil),
			`plan "p": actions[0].trigger: the action has no trigger`},
		{"nil operand", build.Plan("p").Then(build.KillController("a").When(build.Both(now(), nil))),
			`plan "p": actions[0].trigger: the trigger is nil`},
		{"nil condition", build.RestartAfterWrite("p", "a", nil),
			`plan "p": actions[0].trigger: the action has no trigger`},
		{"disruption", build.Plan("p").Then(build.Delete("pod/default/a").AcceptPartial().When(now())),
			`plan "p": actions[0].acceptPartial: delete has no acceptPartial`},
		{"history", build.Plan("p").History("pod/default/a", "x"),
			`plan "p": history[1]: "x" is not a type/namespace/name`},
		{"nil operations", build.Plan("p").Then(build.PatchJSON("pod/default/a").When(now())),
			`plan "p": actions[0].patch: `},
		{"nil object", build.Plan("p").Then(build.Apply(nil).When(now())), `plan "p": actions[0]`},
		{"nil disruption", build.Plan("p").Then(build.Disrupt(nil).When(now())), `plan "p": actions[0]`},
		{"nil stale read", build.StaleRead("p", build.Stale{Controller: "a", APIServer: "apiserver-2"}),
			`plan "p": actions[0].trigger: the action has no trigger`},
		{"nothing joined", build.Plan("p").Then(build.KillController("a").When(build.Both())),
			`plan "p": actions[0].trigger: "&" has no operands`},
		{"names", build.Plan("p").Then(build.KillController("a").When(build.Both(now().Named("x"), now().Named("x")))),
			`plan "p": actions[0].trigger.definitions[1].triggerName: duplicate triggerName "x" in this trigger`},
		{"target", build.Plan("p").Then(build.PauseAPIServer("db").When(now())),
			`plan "p": actions[0].actionTarget: pauseAPIServer needs an API server such as apiserver-1, not "db"`},
		{"point", build.Plan("p").Then(build.KillController("a").When(build.Created("pod/default/a"))),
			`plan "p": actions[0].trigger.definitions[0].observationPoint: onObjectCreation has no observationPoint`},
		{"where",
			build.Plan("p").Then(
				build.KillController("a").When(build.Created("pod/default/a").Where("a").At(plan.AfterControllerRecv,
					""))),
			`plan "p": actions[0].trigger.definitions[0].condition.where: at 0 of "a": where: CEL: ` +
				`undeclared reference to 'a'`},
	}
	for _, tt := range tests {
		_, err := tt.plan.Build()
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: got %v\nwant %s", tt.name, err, tt.want)
		}
	}
}

// Names that the builder makes leave those alone that the caller has given.
func TestNamesOfTriggers(t *testing.T) {
	p, err := build.Plan("p").Then(build.KillController("a").When(build.Sequence(build.AtOnce(),
		build.AtOnce().Named("trigger2"), build.AtOnce(), build.AtOnce().Named("trigger1")))).Build()
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Actions[0].Trigger.Expression; got != "trigger3;trigger2;trigger4;trigger1" {
		t.Errorf("expression %q", got)
	}
}

// Writing a plan as YAML and reading it gives the same plan.
func TestRoundTrip(t *testing.T) {
	p := build.Plan("all").Description("a\nb").Suite("../x").Variant("v").Workload("w").Then(
		build.PauseController("c", plan.BeforeReconcile).When(build.Reconciled("").At(plan.AfterReconcile,
			"c").InReconciler("X")),
		build.ResumeController("c", plan.BeforeReconcile).When(build.Called("f").At(plan.BeforeAnnotatedCall, "c")),
		build.ReconnectController("c", "apiserver-2").ByCutting().WaitAfter(time.Minute).When(build.AllFieldsModified(
			"pod/default/a", build.State{"a": []string{"x"}, "n": 1.5}).At(plan.AfterControllerWrite, "c")),
		build.KillAPIServer("apiserver-1").When(build.Deleted("pod/*/a*").At(plan.BeforeAPIServerRecv, "apiserver-1")),
		build.StartAPIServer("apiserver-1").When(build.AtOnce()),
		build.Apply(build.State{"apiVersion": "v1", "kind": "ConfigMap", "metadata": build.State{"name": "a"}}).When(
			build.AtOnce()),
		build.Patch("pod/default/a", build.State{"status": nil}).Subresource("status").When(build.AtOnce()),
		build.RestartController("c").When(build.AtOnce()),
	).MustBuild()
	text, err := plan.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := plan.Parse(text, "p.yaml")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if diff := cmp.Diff(p, again, cmpopts.IgnoreUnexported(plan.Plan{}), cmpopts.IgnoreFields(plan.Plan{}, "File"),
		cmpopts.IgnoreFields(plan.Trigger{}, "Graph")); diff != "" {
		t.Errorf("read again (-before +after):\n%s", diff)
	}
}
