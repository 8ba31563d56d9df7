package machine

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/coordinator/machine/plantest"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Short names for the tables below.
var (
	trigger        = plantest.Trigger
	restart        = plantest.Restart
	async          = plantest.Async
	pauseServer    = plantest.PauseServer
	resumeOneByOne = plantest.ResumeOneByOne
	mustGraph      = plantest.Graph
	creates        = plantest.Creates
)

func pauseReads(tr plan.Trigger, scope string, avoid bool) plan.Action {
	return plan.Action{Type: plan.PauseController, Target: "db",
		Pausing: plan.Pausing{PauseAt: plan.BeforeControllerRead, PauseScope: plan.MustScope(scope),
			AvoidOngoingRead: avoid},
		Trigger: tr}
}

func resumeReads(tr plan.Trigger) plan.Action {
	return plan.Action{Type: plan.ResumeController, Target: "db",
		Pausing: plan.Pausing{PauseAt: plan.BeforeControllerRead}, Trigger: tr}
}

// Events for the tables.
func created(name string) record.Event {
	return record.Event{Observation: &record.Observation{
		By: "apiserver-1", Session: 1, Point: wire.APIServerRecv, Phase: wire.After, Op: wire.Create,
		Kind: "pod", GroupKnown: true, Namespace: "default", Name: name,
		Object: json.RawMessage(`{"metadata":{"name":"` + name + `"}}`),
	}}
}

func read(name string, phase wire.Phase, call uint64) record.Event {
	return record.Event{Observation: &record.Observation{
		By: "db", Session: 2, Call: call, Point: wire.ControllerRead, Phase: phase, Op: wire.Get,
		Kind: "pod", GroupKnown: true, Namespace: "default", Name: name,
	}}
}

func pauseWrites(tr plan.Trigger, scope string) plan.Action {
	return plan.Action{Type: plan.PauseController, Target: "db",
		Pausing: plan.Pausing{PauseAt: plan.BeforeControllerWrite, PauseScope: plan.MustScope(scope)},
		Trigger: tr}
}

func goOn(action int, all bool) record.Event {
	return record.Event{Resumed: &record.Resumed{Action: action, All: all}}
}

func scoped(a plan.Action, scope string) plan.Action { a.PauseScope = plan.MustScope(scope); return a }

func at(timing plan.Timing, a plan.Action) plan.Action { a.PauseAt = timing; return a }

func in(cluster string, a plan.Action) plan.Action { a.Cluster = cluster; return a }

func of(cluster string, e record.Event) record.Event { e.Observation.Cluster = cluster; return e }

func waitingAfter(a plan.Action) plan.Action { a.WaitAfter = time.Second; return a }

func by(name string, e record.Event) record.Event { e.Observation.By = name; return e }

func waiting(a plan.Action) plan.Action { a.WaitBefore = time.Second; return a }

func pauseReconciles(tr plan.Trigger, scope string) plan.Action {
	return plan.Action{Type: plan.PauseController, Target: "db",
		Pausing: plan.Pausing{PauseAt: plan.BeforeReconcile, PauseScope: plan.MustScope(scope)},
		Trigger: tr}
}

// looks returns a trigger that waits for a read of a pod, before the read.
func looks(t *testing.T, name string) plan.Trigger {
	return plan.Trigger{Expression: "looks", Graph: mustGraph(t, "looks"), Definitions: []plan.Definition{{
		Name: "looks", Condition: plan.Condition{Type: plan.OnObjectUpdate,
			ResourceKey: plan.ResourceKey{Type: "pod", Namespace: "default", Name: name}, Repeat: 1},
		Observe: plan.ObservationPoint{Timing: plan.BeforeControllerRead, ObserveBy: "db"},
	}}}
}

func reconciling(request string, phase wire.Phase) record.Event {
	namespace, name, _ := strings.Cut(request, "/")
	return record.Event{Observation: &record.Observation{
		By: "db", Session: 2, Call: 7, Point: wire.Reconcile, Phase: phase, Request: request, Namespace: namespace,
		Name: name, ReconcileID: "r",
	}}
}

func lease(name string, op wire.Operation, reconcile string) record.Event {
	return record.Event{Observation: &record.Observation{
		By: "db", Session: 2, Call: 9, Point: wire.ControllerWrite, Phase: wire.Before, Op: op, ReconcileID: reconcile,
		Group: "coordination.k8s.io", GroupKnown: true, Resource: "leases", Kind: "lease", Namespace: "default",
		Name: name,
	}}
}

func leaseRead(name string) record.Event {
	e := lease(name, wire.Get, "")
	e.Observation.Point, e.Observation.Live = wire.ControllerRead, true
	return e
}

func inGroup(e record.Event, group string) record.Event {
	e.Observation.Group = group
	return e
}

func typed(kind, resource string, e record.Event) record.Event {
	e.Observation.Kind, e.Observation.Resource = kind, resource
	return e
}

func list(kind, namespace string) record.Event {
	e := typed(kind, kind+"s", read("", wire.Before, 1))
	e.Observation.Op, e.Observation.Namespace = wire.List, namespace
	return e
}

func timeout(action, node int) record.Event {
	return record.Event{Timeout: &record.Timeout{Action: action, Node: node}}
}
func completed(i int) record.Event { return record.Event{Completed: &i} }
func began(i int) record.Event     { return record.Event{Began: &i} }

func show(effects []Effect) string {
	var s []string
	for _, e := range effects {
		switch e := e.(type) {
		case StartTimer:
			s = append(s, fmt.Sprintf("timer %d.%d", e.Action, e.Node))
		case Fire:
			s = append(s, fmt.Sprintf("fire %d", e.Action))
		case Release:
			if e.Fail != nil {
				s = append(s, fmt.Sprintf("fail %d (%s)", e.Seq, e.Fail.Answer))
				continue
			}
			s = append(s, fmt.Sprintf("release %d", e.Seq))
		case Hold:
			s = append(s, fmt.Sprintf("hold %d", e.Seq))
		case Pausing:
			s = append(s, fmt.Sprintf("pausing %d", e.Action))
		case Note:
			s = append(s, fmt.Sprintf("note %d", e.Action))
		}
	}
	return strings.Join(s, ", ")
}

func TestMachine(t *testing.T) {
	none := func() plan.Trigger { return trigger(t, "now", "now@none") }
	for _, test := range []struct {
		name    string
		actions []plan.Action
		start   string
		events  []record.Event
		want    []string // effects of each event; event n has Seq n
		done    bool
	}{
		{
			name:    "a synchronous action is complete before what fired it is released",
			actions: []plan.Action{restart(trigger(t, "a", "a"))},
			events:  []record.Event{created("b"), created("a"), created("c"), completed(0)},
			want:    []string{"release 1", "fire 0, hold 2", "release 3", "release 2"},
			done:    true,
		},
		{
			name:    "an asynchronous action holds nothing and enables the next trigger at once",
			actions: []plan.Action{async(restart(trigger(t, "a", "a"))), restart(trigger(t, "b", "b"))},
			events:  []record.Event{created("a"), created("b"), completed(1), completed(0)},
			want:    []string{"fire 0, release 1", "fire 1, hold 2", "release 2", ""},
			done:    true,
		},
		{
			name:    "the next trigger is enabled when the action before it has completed",
			actions: []plan.Action{restart(trigger(t, "a", "a")), restart(trigger(t, "b", "b"))},
			events:  []record.Event{created("a"), created("b"), completed(0), created("b"), completed(1)},
			want:    []string{"fire 0, hold 1", "release 2", "release 1", "fire 1, hold 4", "release 4"},
			done:    true,
		},
		{
			name:    "one event never walks two steps of a sequence",
			actions: []plan.Action{restart(trigger(t, "a;a", "a"))},
			events:  []record.Event{created("a"), created("a")},
			want:    []string{"release 1", "fire 0, hold 2"},
		},
		{
			name:    "one event satisfies both arms of a conjunction",
			actions: []plan.Action{restart(trigger(t, "a&a", "a"))},
			events:  []record.Event{created("a")},
			want:    []string{"fire 0, hold 1"},
		},
		{
			name:    "both arms of an alternative fire, what follows needs one more",
			actions: []plan.Action{restart(trigger(t, "(a|b);c", "a", "b", "c"))},
			events:  []record.Event{created("a"), created("b"), created("c")},
			want:    []string{"release 1", "release 2", "fire 0, hold 3"},
		},
		{
			name:    "a timeout in the first action starts with the plan",
			actions: []plan.Action{restart(trigger(t, "t", "t@timeout"))},
			start:   "timer 0.0",
			events:  []record.Event{timeout(0, 0), completed(0)},
			want:    []string{"fire 0", ""},
			done:    true,
		},
		{
			name:    "a timeout starts when its trigger becomes enabled, once",
			actions: []plan.Action{restart(trigger(t, "a;t", "a", "t@timeout"))},
			events:  []record.Event{created("a"), created("a"), timeout(0, 1)},
			want:    []string{"timer 0.1, release 1", "release 2", "fire 0"},
		},
		{
			name:    "a late timer of another action is ignored",
			actions: []plan.Action{restart(trigger(t, "a|t", "a", "t@timeout")), restart(trigger(t, "b|c", "b", "c"))},
			start:   "timer 0.1",
			events:  []record.Event{created("a"), timeout(0, 1), completed(0), timeout(0, 1), created("b")},
			want:    []string{"fire 0, hold 1", "", "release 1", "", "fire 1, hold 5"},
		},
		{
			name:    "none fires at once, one action after the other",
			actions: []plan.Action{restart(none()), restart(none())},
			start:   "fire 0",
			events:  []record.Event{completed(0), completed(1)},
			want:    []string{"fire 1", ""},
			done:    true,
		},
		{
			name:    "repeat counts since the trigger became enabled",
			actions: []plan.Action{restart(trigger(t, "b;a", "b", "a*2"))},
			events:  []record.Event{created("a"), created("b"), created("a"), created("a")},
			want:    []string{"release 1", "release 2", "release 3", "fire 0, hold 4"},
		},
		{
			name: "a pause holds what comes after it, a resume releases it",
			actions: []plan.Action{pauseReads(trigger(t, "a", "a"), "pod/default/x", false),
				resumeReads(trigger(t, "b", "b"))},
			events: []record.Event{
				read("x", wire.Before, 1), created("a"), began(0), completed(0),
				read("x", wire.Before, 2), read("y", wire.Before, 3), created("b"), began(1), completed(1),
			},
			want: []string{
				"release 1", "fire 0, hold 2", "pausing 0", "release 2",
				"hold 5", "release 6", "fire 1, hold 7", "pausing 1", "release 5, release 7",
			},
			done: true,
		},
		{
			name: "pausing twice",
			actions: []plan.Action{
				pauseReads(none(), "", false), resumeReads(trigger(t, "a", "a")), pauseReads(none(), "", false),
				resumeReads(trigger(t, "a", "a")),
			},
			start: "fire 0",
			events: []record.Event{
				began(0), completed(0), read("x", wire.Before, 1), created("a"), began(1), completed(1),
				began(2), completed(2), read("x", wire.Before, 2), created("a"), began(3), completed(3),
			},
			want: []string{
				"pausing 0", "", "hold 3", "fire 1, hold 4", "pausing 1", "fire 2, hold 4, release 3",
				"pausing 2", "release 4", "hold 9", "fire 3, hold 10", "pausing 3", "release 9, release 10",
			},
			done: true,
		},
		{
			name:    "avoidOngoingRead waits for the running read",
			actions: []plan.Action{pauseReads(trigger(t, "a", "a"), "", true)},
			events: []record.Event{
				read("x", wire.Before, 1), created("a"), began(0), read("y", wire.Before, 2), read("x", wire.After, 1),
				read("y", wire.After, 2), read("z", wire.Before, 3), completed(0),
			},
			want: []string{"release 1", "fire 0, hold 2", "", "release 4", "release 5", "release 6, pausing 0",
				"hold 7", "release 2"},
			done: true,
		},
		{
			name:    "avoidOngoingRead waits neither for writes nor for another controller's reads",
			actions: []plan.Action{pauseReads(trigger(t, "a", "a"), "", true)},
			events: []record.Event{writing(wire.Create, "x", wire.Before, 1), by("web", read("x", wire.Before, 2)),
				created("a"), began(0)},
			want: []string{"release 1", "release 2", "fire 0, hold 3", "pausing 0"},
		},
		{
			name: "the next trigger is enabled although a pause waits for a running read",
			actions: []plan.Action{async(waiting(pauseReads(trigger(t, "a", "a"), "", true))),
				restart(trigger(t, "t", "t@timeout"))},
			events: []record.Event{read("x", wire.Before, 1), created("a"), began(0), read("x", wire.After, 1)},
			want:   []string{"release 1", "fire 0, release 2", "timer 1.0", "release 4, pausing 0"},
		},
		{
			name:    "an asynchronous action that begins leaves what the next trigger has seen",
			actions: []plan.Action{async(restart(trigger(t, "a", "a"))), restart(trigger(t, "b;c", "b", "c"))},
			events:  []record.Event{created("a"), created("b"), began(0), created("c")},
			want:    []string{"fire 0, release 1", "release 2", "", "fire 1, hold 4"},
		},
		{
			name: "a resume at one point leaves pauses at others in force",
			actions: []plan.Action{pauseReads(none(), "", false), pauseWrites(none(), ""), pauseReconciles(none(), ""),
				at(plan.AfterControllerRead, pauseReads(none(), "", false)), resumeReads(trigger(t, "a", "a"))},
			start: "fire 0",
			events: []record.Event{began(0), completed(0), began(1), completed(1), began(2), completed(2), began(3),
				completed(3), created("a"), began(4), completed(4), read("x", wire.Before, 1), read("x", wire.After, 1),
				asked(writing(wire.Create, "x", wire.Before, 2)), reconciling("default/x", wire.Before)},
			want: []string{"pausing 0", "fire 1", "pausing 1", "fire 2", "pausing 2", "fire 3", "pausing 3", "",
				"fire 4, hold 9", "pausing 4", "release 9", "release 12", "hold 13", "hold 14", "hold 15"},
			done: true,
		},
		{
			name: "a resume without a point ends the pauses at all points",
			actions: []plan.Action{pauseReads(none(), "", false), pauseWrites(none(), ""),
				at("", resumeReads(trigger(t, "a", "a")))},
			start: "fire 0",
			events: []record.Event{began(0), completed(0), began(1), completed(1), read("x", wire.Before, 1),
				asked(writing(wire.Create, "x", wire.Before, 2)), created("a"), began(2), completed(2)},
			want: []string{"pausing 0", "fire 1", "pausing 1", "", "hold 5", "hold 6", "fire 2, hold 7", "pausing 2",
				"release 5, release 6, release 7"},
			done: true,
		},
		{
			name: "a resume of one cluster leaves pauses of others in force",
			actions: []plan.Action{in("west", pauseReads(none(), "", false)), in("east", pauseReads(none(), "", false)),
				in("west", resumeReads(trigger(t, "a", "a")))},
			start: "fire 0",
			events: []record.Event{began(0), completed(0), began(1), completed(1),
				of("west", read("x", wire.Before, 1)), of("east", read("x", wire.Before, 2)), created("a"), began(2),
				completed(2)},
			want: []string{"pausing 0", "fire 1", "pausing 1", "", "hold 5", "hold 6", "fire 2, hold 7", "pausing 2",
				"release 5, release 7"},
			done: true,
		},
		{
			name:    "a resume of no cluster ends the pauses of all",
			actions: []plan.Action{in("west", pauseReads(none(), "", false)), resumeReads(trigger(t, "a", "a"))},
			start:   "fire 0",
			events: []record.Event{began(0), completed(0), of("west", read("x", wire.Before, 1)), created("a"),
				began(1), completed(1)},
			want: []string{"pausing 0", "", "hold 3", "fire 1, hold 4", "pausing 1", "release 3, release 4"},
			done: true,
		},
		{
			name:    "a resume that waits afterwards holds what fired it until it is complete",
			actions: []plan.Action{waitingAfter(resumeReads(trigger(t, "a", "a")))},
			events:  []record.Event{created("a"), began(0), completed(0)},
			want:    []string{"fire 0, hold 1", "note 0, pausing 0", "release 1"},
			done:    true,
		},
		{
			name:    "a pause of one object's reads holds lists that may contain it",
			actions: []plan.Action{pauseReads(none(), "pod/default/db", false)},
			start:   "fire 0",
			events: []record.Event{began(0), completed(0), list("pod", "default"), list("pod", ""),
				list("pod", "other"), list("service", "default"), {End: true}},
			want: []string{"pausing 0", "", "hold 3", "hold 4", "release 5", "release 6", "release 3, release 4"},
			done: true,
		},
		{
			name:    "a pause of no cluster holds calls to all",
			actions: []plan.Action{pauseReads(none(), "", false)},
			start:   "fire 0",
			events:  []record.Event{began(0), completed(0), of("west", read("x", wire.Before, 1))},
			want:    []string{"pausing 0", "", "hold 3"},
			done:    true,
		},
		{
			name:    "reconciles are in no cluster",
			actions: []plan.Action{in("west", pauseReconciles(none(), ""))},
			start:   "fire 0",
			events:  []record.Event{began(0), completed(0), of("east", reconciling("default/db", wire.Before))},
			want:    []string{"pausing 0", "", "hold 3"},
			done:    true,
		},
		{
			name:    "leases are known by their kind or their resource",
			actions: []plan.Action{pauseWrites(none(), "")},
			start:   "fire 0",
			events: []record.Event{began(0), completed(0), typed("lease", "", lease("db", wire.Update, "")),
				typed("", "leases", lease("db", wire.Update, "")),
				typed("leasecandidate", "leasecandidates", lease("db", wire.Update, ""))},
			want: []string{"pausing 0", "", "release 3", "release 4", "hold 5"},
			done: true,
		},
		{
			name:    "a pause of a controller leaves others running",
			actions: []plan.Action{pauseReads(none(), "", false)},
			start:   "fire 0",
			events: []record.Event{began(0), completed(0), by("web", read("x", wire.Before, 1)),
				read("x", wire.Before, 1)},
			want: []string{"pausing 0", "", "release 3", "hold 4"},
			done: true,
		},
		{
			name: "a resume that waits afterwards releases at once",
			actions: []plan.Action{pauseWrites(none(), "lease/*/*"), pauseReads(none(), "", false),
				waitingAfter(resumeReads(trigger(t, "a", "a")))},
			start: "fire 0",
			events: []record.Event{began(0), completed(0), began(1), completed(1), read("x", wire.Before, 1),
				lease("db", wire.Update, ""), created("a"), began(2), completed(2)},
			want: []string{"pausing 0", "fire 1", "pausing 1", "", "hold 5", "hold 6", "fire 2, hold 7",
				"release 5, pausing 2", "release 7"},
			done: true,
		},
		{
			name:    "the end of a session ends its holds and its reads",
			actions: []plan.Action{pauseReads(trigger(t, "a", "a"), "", true)},
			events: []record.Event{
				read("x", wire.Before, 1), created("a"), began(0),
				{SessionEnd: &record.SessionEnd{By: "db", Session: 2}}, completed(0),
			},
			want: []string{"release 1", "fire 0, hold 2", "", "pausing 0", "release 2"},
			done: true,
		},
		{
			name:    "the end of another session does not end a read",
			actions: []plan.Action{pauseReads(trigger(t, "a", "a"), "", true)},
			events: []record.Event{
				read("x", wire.Before, 1), created("a"), began(0),
				{SessionEnd: &record.SessionEnd{By: "web", Session: 3}}, read("x", wire.After, 1),
			},
			want: []string{"release 1", "fire 0, hold 2", "", "", "release 5, pausing 0"},
		},
		{
			name: "a held read that expires is running",
			actions: []plan.Action{pauseReads(none(), "pod/default/x", false),
				pauseReads(trigger(t, "a", "a"), "pod/default/y", true)},
			start: "fire 0",
			events: []record.Event{began(0), completed(0), read("x", wire.Before, 1), {Expired: new(3)}, created("a"),
				began(1), read("x", wire.After, 1)},
			want: []string{"pausing 0", "", "hold 3", "release 3", "fire 1, hold 5", "", "release 7, pausing 1"},
		},
		{
			name:    "of two holds one expires",
			actions: []plan.Action{pauseReads(none(), "", false)},
			start:   "fire 0",
			events: []record.Event{began(0), completed(0), read("x", wire.Before, 1), read("y", wire.Before, 2),
				{Expired: new(4)}, {End: true}},
			want: []string{"pausing 0", "", "hold 3", "hold 4", "release 4", "release 3"},
			done: true,
		},
		{
			name:    "the end of the plan releases everything and fires nothing more",
			actions: []plan.Action{pauseReads(none(), "", false), restart(trigger(t, "a", "a"))},
			start:   "fire 0",
			events: []record.Event{began(0), completed(0), read("x", wire.Before, 1), {End: true}, created("a"),
				read("x", wire.Before, 2)},
			want: []string{"pausing 0", "", "hold 3", "release 3", "release 5", "release 6"},
		},
		{
			name:    "a hold that expires is released",
			actions: []plan.Action{pauseReads(none(), "", false)},
			start:   "fire 0",
			events:  []record.Event{began(0), completed(0), read("x", wire.Before, 1), {Expired: new(3)}},
			want:    []string{"pausing 0", "", "hold 3", "release 3"},
			done:    true,
		},
		{
			name: "a pause holds the observation that fired it, if it is in its scope",
			actions: []plan.Action{{Type: plan.PauseAPIServer, Target: "apiserver-1",
				Pausing: plan.Pausing{PauseScope: plan.MustScope("pod/default/a")},
				Trigger: trigger(t, "a", "a")}},
			events: []record.Event{
				created("a"), began(0), completed(0), before(created("a")), before(created("b")),
			},
			want: []string{"fire 0, hold 1", "pausing 0", "release 1", "hold 4", "release 5"},
			done: true,
		},
		{
			name:    "a resume one by one ends the pause when nothing is held",
			actions: []plan.Action{pauseServer(none(), ""), resumeOneByOne(trigger(t, "a", "a"), "")},
			start:   "fire 0",
			events: []record.Event{
				began(0), completed(0), before(created("x")), before(created("y")), created("a"), began(1),
				goOn(1, false), before(created("z")), goOn(1, false), goOn(1, false), before(created("w")),
				goOn(1, false), goOn(1, false), before(created("v")), completed(1),
			},
			want: []string{
				"pausing 0", "", "hold 3", "hold 4", "fire 1, hold 5", "", "release 3", "hold 8", "release 4",
				"release 8", "hold 11", "release 11", "pausing 1", "release 14", "release 5",
			},
			done: true,
		},
		{
			name: "a resume one by one leaves what another pause holds, and may end at once",
			actions: []plan.Action{
				pauseServer(none(), "pod/default/x"), pauseServer(none(), "pod/default/*"),
				resumeOneByOne(none(), "pod/default/*"),
			},
			start: "fire 0",
			events: []record.Event{
				began(0), completed(0), began(1), completed(1), before(created("x")), before(created("y")),
				before(created("z")), began(2), goOn(2, false), goOn(2, true), completed(2), {End: true},
				goOn(2, false),
			},
			want: []string{
				"pausing 0", "fire 1", "pausing 1", "fire 2", "hold 5", "hold 6", "hold 7", "", "release 6",
				"pausing 2", "release 7", "release 5", "",
			},
			done: true,
		},
		{
			name:    "a resume one by one without a pause says so",
			actions: []plan.Action{resumeOneByOne(none(), "")},
			start:   "fire 0",
			events:  []record.Event{began(0), goOn(0, false), completed(0)},
			want:    []string{"", "note 0, pausing 0", ""},
			done:    true,
		},
		{
			name:    "a pause of everything excludes leader election, but no other lease",
			actions: []plan.Action{pauseWrites(none(), "*")},
			start:   "fire 0",
			events: []record.Event{
				began(0), completed(0), lease("db", wire.Update, ""), lease("db", wire.Update, "a reconcile's"),
				inGroup(lease("db", wire.Update, ""), "example.com"), {End: true},
			},
			want: []string{"pausing 0", "", "release 3", "hold 4", "hold 5", "release 4, release 5"},
			done: true,
		},
		{
			name:    "a pause of reads excludes leader election too",
			actions: []plan.Action{pauseReads(none(), "", false)},
			start:   "fire 0",
			events:  []record.Event{began(0), completed(0), leaseRead("db"), read("x", wire.Before, 1)},
			want:    []string{"pausing 0", "", "release 3", "hold 4"},
			done:    true,
		},
		{
			name:    "a pause that names leases holds them",
			actions: []plan.Action{pauseWrites(none(), "lease/default/d*"), pauseReads(none(), "lease/*/*", false)},
			start:   "fire 0",
			events: []record.Event{
				began(0), completed(0), began(1), completed(1), lease("db", wire.Update, ""),
				lease("web", wire.Update, ""), leaseRead("web"), {End: true},
			},
			want: []string{"pausing 0", "fire 1", "pausing 1", "", "hold 5", "release 6", "hold 7",
				"release 5, release 7"},
			done: true,
		},
		{
			name:    "a held read that fires a pause with avoidOngoingRead does not count as running",
			actions: []plan.Action{pauseReads(looks(t, "x"), "", true)},
			events: []record.Event{read("x", wire.Before, 1), began(0), completed(0), read("y", wire.Before, 2),
				{End: true}},
			want: []string{"fire 0, hold 1", "pausing 0", "hold 1", "hold 4", "release 1, release 4"},
			done: true,
		},
		{
			name:    "an asynchronous action that waits first enables the next trigger when it begins",
			actions: []plan.Action{async(waiting(restart(trigger(t, "a", "a")))), restart(trigger(t, "b", "b"))},
			events:  []record.Event{created("a"), created("b"), began(0), created("b"), completed(0), completed(1)},
			want:    []string{"fire 0, release 1", "release 2", "", "fire 1, hold 4", "", "release 4"},
			done:    true,
		},
		{
			name: "an action with trigger type none happens at the moment of the one before it",
			actions: []plan.Action{restart(trigger(t, "a", "a")), restart(none()), restart(none()),
				restart(trigger(t, "b", "b"))},
			events: []record.Event{created("a"), completed(0), completed(1), completed(2), created("b")},
			want:   []string{"fire 0, hold 1", "fire 1, hold 1", "fire 2, hold 1", "release 1", "fire 3, hold 5"},
		},
		{
			name:    "of a conjunction the last event's caller is held",
			actions: []plan.Action{restart(trigger(t, "a&b", "a", "b"))},
			events:  []record.Event{created("b"), created("a"), completed(0)},
			want:    []string{"release 1", "fire 0, hold 2", "release 2"},
			done:    true,
		},
		{
			name: "a resume of everything leaves a pause of one object in force",
			actions: []plan.Action{pauseReads(none(), "*", false), pauseReads(none(), "pod/default/x", false),
				scoped(resumeReads(trigger(t, "a", "a")), "*")},
			start: "fire 0",
			events: []record.Event{
				began(0), completed(0), began(1), completed(1), read("x", wire.Before, 1), read("y", wire.Before, 2),
				created("a"), began(2), completed(2), {End: true},
			},
			want: []string{"pausing 0", "fire 1", "pausing 1", "", "hold 5", "hold 6", "fire 2, hold 7", "pausing 2",
				"release 6, release 7", "release 5"},
			done: true,
		},
		{
			name: "a resume of one object leaves a pause of everything in force",
			actions: []plan.Action{pauseReads(none(), "", false),
				scoped(resumeReads(trigger(t, "a", "a")), "pod/default/x")},
			start: "fire 0",
			events: []record.Event{began(0), completed(0), read("x", wire.Before, 1), created("a"), began(1),
				completed(1), {End: true}},
			want: []string{"pausing 0", "", "hold 3", "fire 1, hold 4", "note 1, pausing 1", "release 4", "release 3"},
			done: true,
		},
		{
			name: "a resume without a scope ends all pauses at its point",
			actions: []plan.Action{pauseReads(none(), "*", false), pauseReads(none(), "pod/default/x", false),
				resumeReads(trigger(t, "a", "a"))},
			start: "fire 0",
			events: []record.Event{
				began(0), completed(0), began(1), completed(1), read("x", wire.Before, 1), created("a"), began(2),
				completed(2),
			},
			want: []string{"pausing 0", "fire 1", "pausing 1", "", "hold 5", "fire 2, hold 6", "pausing 2",
				"release 5, release 6"},
			done: true,
		},
		{
			name:    "a pause of reconciles is compared with their request",
			actions: []plan.Action{pauseReconciles(none(), "database/default/db")},
			start:   "fire 0",
			events: []record.Event{
				began(0), completed(0), reconciling("default/db", wire.Before), reconciling("default/web", wire.Before),
				reconciling("other/db", wire.Before), {End: true},
			},
			want: []string{"pausing 0", "", "hold 3", "release 4", "release 5", "release 3"},
			done: true,
		},
		{
			name:    "a hold ends when its caller has gone on",
			actions: []plan.Action{pauseWrites(none(), "lease/*/*")},
			start:   "fire 0",
			events: []record.Event{began(0), completed(0), lease("db", wire.Update, ""), {Abandoned: new(3)},
				{End: true}},
			want: []string{"pausing 0", "", "hold 3", "release 3", ""},
			done: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := New(&plan.Plan{Actions: test.actions}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := show(m.Start()); got != test.start {
				t.Errorf("start: %q, want %q", got, test.start)
			}
			var got []string
			for i, e := range test.events {
				e.Seq = i + 1
				got = append(got, show(m.Step(e)))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("effects by event (-want +got):\n%s", diff)
			}
			if m.Done() != test.done {
				t.Errorf("done: %v, want %v", m.Done(), test.done)
			}
		})
	}
}

func before(e record.Event) record.Event {
	o := *e.Observation
	o.Phase = wire.Before
	e.Observation = &o
	return e
}

// An action knows the object whose observation has satisfied the last part of its trigger, also if a timeout fires it.
func TestFireKnowsItsObject(t *testing.T) {
	p := &plan.Plan{Actions: []plan.Action{
		restart(trigger(t, "a;b;later", "a", "b", "later@timeout")), restart(trigger(t, "now", "now@none")),
	}}
	m, err := New(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Start()
	var fires []Fire
	for _, e := range []record.Event{created("a"), inGroup(created("b"), "example.com"), created("other"),
		timeout(0, 2), completed(0)} {
		for _, effect := range m.Step(e) {
			if f, ok := effect.(Fire); ok {
				fires = append(fires, f)
			}
		}
	}
	b := plan.ResourceKey{Type: "pod", Group: "example.com", Namespace: "default", Name: "b"}
	if len(fires) != 2 || fires[0].About != b || !fires[1].About.IsZero() {
		t.Errorf("fired %v, want the first about %s, and the second about nothing", fires, b)
	}
}

// A list that satisfies the last part of a trigger names no object.
func TestFireAfterAList(t *testing.T) {
	looks := looks(t, "b")
	tr := trigger(t, "a;looks", "a")
	tr.Definitions = append(tr.Definitions, looks.Definitions...)
	m, err := New(&plan.Plan{Actions: []plan.Action{restart(tr)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Start()
	m.Step(created("a"))
	list := read("", wire.Before, 1)
	list.Observation.Op = wire.List
	want := Fire{About: plan.ResourceKey{Type: "pod", Namespace: "default", Name: "a"}}
	if effects := m.Step(list); len(effects) == 0 || effects[0] != want {
		t.Errorf("got %+v, want %+v", effects, want)
	}
}

// An action is fired by the event that satisfied the last part of its trigger, also if other actions, with type none,
// came between; by none at the start of the plan and when another action begins or completes.
func TestFiredBy(t *testing.T) {
	none := trigger(t, "now", "now@none")
	m, err := New(&plan.Plan{Actions: []plan.Action{
		restart(none), restart(none), async(waiting(restart(trigger(t, "a&b", "a", "b")))), restart(none),
		async(restart(trigger(t, "soon", "soon@timeout"))), restart(none),
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	effects := m.Start()
	for i, e := range []record.Event{completed(0), completed(1), created("b"), created("a"), began(2), completed(3),
		timeout(4, 0)} {
		e.Seq = i + 1
		effects = append(effects, m.Step(e)...)
	}
	var got []string
	for _, e := range effects {
		if f, ok := e.(Fire); ok {
			got = append(got, fmt.Sprintf("%d by %d", f.Action, f.FiredBy))
		}
	}
	if diff := cmp.Diff([]string{"0 by 0", "1 by 0", "2 by 4", "3 by 0", "4 by 7", "5 by 7"}, got); diff != "" {
		t.Error(diff)
	}
}

// The user learns why a call is held.
func TestWhyACallIsHeld(t *testing.T) {
	m, err := New(&plan.Plan{Actions: []plan.Action{pauseReads(looks(t, "x"), "", false)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Start()
	var got []string
	for i, e := range []record.Event{read("x", wire.Before, 1), began(0), completed(0), read("y", wire.Before, 2)} {
		e.Seq = i + 1
		for _, effect := range m.Step(e) {
			if h, ok := effect.(Hold); ok {
				got = append(got, fmt.Sprintf("%d %s", h.Seq, h.Why))
			}
		}
	}
	if diff := cmp.Diff([]string{"1 until action 1 (pauseController db at beforeControllerRead) is complete",
		"1 paused by action 1 (pauseController db at beforeControllerRead)",
		"4 paused by action 1 (pauseController db at beforeControllerRead)"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWaitingNamesTheNearestMiss(t *testing.T) {
	update := plan.Trigger{Expression: "scaled", Graph: mustGraph(t, "scaled"), Definitions: []plan.Definition{{
		Name: "scaled",
		Condition: plan.Condition{
			Type: plan.OnObjectUpdate, ResourceKey: plan.ResourceKey{Type: "pod", Namespace: "default", Name: "a"},
			CurState: map[string]any{"spec": map[string]any{"replicas": 2}}, Repeat: 1,
		},
		Observe: plan.ObservationPoint{Timing: plan.AfterAPIServerRecv, ObserveBy: "apiserver-1"},
	}}}
	m, err := New(&plan.Plan{Actions: []plan.Action{restart(update)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Start()
	if got := m.Waiting(); len(got) != 1 || !strings.HasSuffix(got[0], "nothing like it was observed") {
		t.Errorf("with no observation: %q", got)
	}
	m.Step(record.Event{Seq: 1, Observation: created("b").Observation})
	if got := m.Waiting(); len(got) != 1 ||
		!strings.Contains(got[0], "create of pod/default/b (after apiServerRecv at apiserver-1) is another object") {
		t.Errorf("with another object: %q", got)
	}
	o := *created("a").Observation
	o.Op = wire.Update
	o.OldObject = json.RawMessage(`{"spec":{"replicas":1}}`)
	o.Object = json.RawMessage(`{"spec":{"replicas":3}}`)
	m.Step(record.Event{Seq: 2, Observation: &o})
	if got := m.Waiting(); len(got) != 1 || !strings.Contains(got[0], "spec.replicas") ||
		!strings.Contains(got[0], "3") {
		t.Errorf("with another state: %q", got)
	}
	m.Step(record.Event{Seq: 3, Observation: created("b").Observation})
	if got := m.Waiting(); !strings.Contains(got[0], "spec.replicas") {
		t.Errorf("a farther miss replaced the nearest: %q", got)
	}
}

func TestNearestMissIsNotTheLatest(t *testing.T) {
	of := func(repeat int, cur map[string]any) *Machine {
		d := plan.Definition{
			Name: "scaled", Observe: plan.ObservationPoint{Timing: plan.AfterAPIServerRecv, ObserveBy: "apiserver-1"},
			Condition: plan.Condition{Type: plan.OnObjectUpdate,
				ResourceKey: plan.ResourceKey{Type: "pod", Namespace: "default", Name: "a"}, CurState: cur,
				Repeat: repeat},
		}
		m, err := New(&plan.Plan{Actions: []plan.Action{restart(plan.Trigger{Expression: "scaled",
			Graph: mustGraph(t, "scaled"), Definitions: []plan.Definition{d}})}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Start()
		return m
	}
	update := func(m *Machine, object string) {
		o := *created("a").Observation
		o.Op, o.OldObject, o.Object = wire.Update, json.RawMessage(`{}`), json.RawMessage(object)
		m.Step(record.Event{Seq: 1, Observation: &o})
	}
	for _, test := range []struct {
		name    string
		repeat  int
		cur     map[string]any
		objects []string
		count   int // of the misses that are as near as the nearest, but for the state
		want    string
	}{
		{"a count before a state", 5, map[string]any{"n": 1},
			[]string{`{"n":1}`, `{"n":1}`, `{"n":1}`, `{"n":1}`, `{"n":2}`}, 4, " matched 4 of 5 times"},
		{"a state, where none has matched", 5, map[string]any{"n": 1}, []string{`{"n":2}`}, 1, ": n is 2, not 1"},
		{"a count after states", 5, map[string]any{"n": 1}, []string{`{"n":2}`, `{"n":2}`, `{"n":1}`}, 1,
			" matched 1 of 5 times"},
		{"a value of another type before another value", 1, map[string]any{"n": 2}, []string{`{"n":"2"}`, `{"n":3}`},
			2, `: n is "2", not 2`},
		{"one field before two", 1, map[string]any{"n": 2, "m": 3}, []string{`{"n":2,"m":4}`, `{"n":5,"m":4}`},
			2, ": m is 4, not 3"},
		{"the later of two equally near misses", 1, map[string]any{"n": 2}, []string{`{"n":3}`, `{"n":4}`},
			2, ": n is 4, not 2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := of(test.repeat, test.cur)
			for _, o := range test.objects {
				update(m, o)
			}
			want := fmt.Sprintf("; nearest miss of %d: update of pod/default/a (after apiServerRecv at apiserver-1)%s",
				test.count, test.want)
			if got := m.Waiting(); len(got) != 1 || !strings.HasSuffix(got[0], want) {
				t.Errorf("got %q, want ... %s", got, want)
			}
		})
	}
}

func TestErrorsOfNew(t *testing.T) {
	with := func(change func(*plan.Definition)) plan.Action {
		a := restart(trigger(t, "a", "a"))
		change(&a.Trigger.Definitions[0])
		return a
	}
	for _, tt := range []struct {
		action plan.Action
		want   string
	}{
		{restart(plan.Trigger{}), "action 2: the plan is not complete: its trigger has no graph"},
		{with(func(d *plan.Definition) { d.Observe.Timing = "ControllerRead" }),
			`action 2, trigger "a": unknown timing "ControllerRead"`},
		{with(func(d *plan.Definition) { d.Observe.Timing = "afterwards" }),
			`action 2, trigger "a": unknown timing "afterwards"`},
		{with(func(d *plan.Definition) { d.Condition.CurState = 5 }),
			`action 2, trigger "a": curState: a state must be a mapping, a part of the object`},
	} {
		p := &plan.Plan{Actions: []plan.Action{restart(trigger(t, "now", "now@none")), tt.action}}
		if _, err := New(p, nil); err == nil || err.Error() != tt.want {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}

// A definition is satisfied only at its timing, by its observer.
func TestWhenAndByWhom(t *testing.T) {
	timings := []plan.Timing{
		plan.BeforeAPIServerRecv, plan.AfterAPIServerRecv, plan.BeforeControllerRecv, plan.AfterControllerRecv,
		plan.BeforeControllerRead, plan.AfterControllerRead, plan.BeforeControllerWrite, plan.AfterControllerWrite,
		plan.BeforeReconcile, plan.AfterReconcile, plan.BeforeAnnotatedCall, plan.AfterAnnotatedCall,
	}
	at := func(timing plan.Timing) record.Observation {
		o := record.Observation{By: "db", Op: wire.Update, Kind: "pod", GroupKnown: true, Namespace: "default",
			Name: "a", Request: "default/a", CallName: "backup", Reconciler: "database", Object: json.RawMessage(`{}`)}
		o.Phase = wire.After
		name, before := strings.CutPrefix(string(timing), "before")
		if before {
			o.Phase = wire.Before
		}
		name = strings.TrimPrefix(name, "after")
		o.Point = map[string]wire.Point{
			"APIServerRecv": wire.APIServerRecv, "ControllerRecv": wire.ControllerRecv,
			"ControllerRead": wire.ControllerRead, "ControllerWrite": wire.ControllerWrite,
			"Reconcile": wire.Reconcile, "AnnotatedCall": wire.AnnotatedCall,
		}[name]
		return o
	}
	definition := func(timing plan.Timing) plan.Definition {
		d := plan.Definition{Name: "it", Observe: plan.ObservationPoint{Timing: timing, ObserveBy: "db"},
			Condition: plan.Condition{Type: plan.OnObjectUpdate,
				ResourceKey: plan.ResourceKey{Type: "pod", Namespace: "default", Name: "a"}}}
		switch timing {
		case plan.BeforeReconcile, plan.AfterReconcile:
			d.Condition.Type = plan.OnReconcile
		case plan.BeforeAnnotatedCall, plan.AfterAnnotatedCall:
			d.Condition = plan.Condition{Type: plan.OnAnnotatedCall, Call: "backup"}
		}
		return d
	}
	judge := func(d plan.Definition, o record.Observation) (fired bool, waiting string) {
		m, err := New(&plan.Plan{Actions: []plan.Action{restart(plan.Trigger{Expression: "it",
			Graph: mustGraph(t, "it"), Definitions: []plan.Definition{d}})}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Start()
		m.Step(record.Event{Seq: 1, Observation: &o})
		return m.Fired() == 1, strings.Join(m.Waiting(), "\n")
	}
	for _, want := range timings {
		for _, is := range timings {
			if fired, waiting := judge(definition(want), at(is)); fired != (want == is) {
				t.Errorf("%s at %s: %t %s", want, is, fired, waiting)
			}
		}
		o := at(want)
		o.By = "web"
		if fired, waiting := judge(definition(want), o); fired ||
			!strings.HasSuffix(waiting, "; nothing like it was observed") {
			t.Errorf("%s by another process: %t %s", want, fired, waiting)
		}
		d := definition(want)
		d.Observe.Reconciler = "database"
		if fired, waiting := judge(d, at(want)); !fired {
			t.Errorf("%s of its reconciler: %s", want, waiting)
		}
		d.Observe.Reconciler = "backup"
		if fired, waiting := judge(d, at(want)); fired ||
			!strings.HasSuffix(waiting, ` came from reconciler "database" (), not "backup"`) {
			t.Errorf("%s of another reconciler: %t %s", want, fired, waiting)
		}
	}
	o := at(plan.BeforeReconcile)
	o.Request = "default/b"
	if fired, waiting := judge(definition(plan.BeforeReconcile), o); fired ||
		!strings.HasSuffix(waiting, "before reconcile of default/b is another object") {
		t.Errorf("another request: %t %s", fired, waiting)
	}
	o = at(plan.BeforeReconcile)
	account, err := Account(&plan.Plan{Actions: []plan.Action{restart(plan.Trigger{Expression: "it",
		Graph: mustGraph(t, "it"), Definitions: []plan.Definition{definition(plan.BeforeReconcile)}})}}, nil,
		[]record.Event{{Seq: 1, Observation: &o}})
	if err != nil || account.Triggers[0].Nodes[0].Missed != 0 {
		t.Errorf("what satisfies a trigger counts as a miss of it: %+v, %v", account, err)
	}
	o = at(plan.AfterAnnotatedCall)
	o.CallName = "restore"
	if fired, _ := judge(definition(plan.AfterAnnotatedCall), o); fired {
		t.Error("another function's call fired the action")
	}
}

// A plan that waits for a timeout, or for an action of its own, goes on although nothing is observed.
func TestWaitsForTimer(t *testing.T) {
	m, err := New(&plan.Plan{Actions: []plan.Action{
		restart(trigger(t, "a;soon", "a", "soon@timeout")), async(restart(trigger(t, "b", "b"))),
		restart(trigger(t, "c|d", "c", "d")),
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.WaitsForTimer() {
		t.Error("before the start")
	}
	m.Start()
	for i, step := range []struct {
		e    record.Event
		want bool
		why  string
	}{
		{created("x"), false, "a is awaited"},
		{created("a"), true, "the timeout is awaited"},
		{timeout(0, 1), true, "action 1 is carried out"},
		{completed(0), false, "b is awaited"},
		{created("b"), true, "action 2 is carried out, beside the waiting for c or d"},
		{completed(1), false, "c or d is awaited"},
		{record.Event{End: true}, false, "the plan has ended"},
	} {
		step.e.Seq = i + 1
		m.Step(step.e)
		if got := m.WaitsForTimer(); got != step.want {
			t.Errorf("%s: %t", step.why, got)
		}
	}
}

// The messages for the user: what the plan waits for next, and, if it ends before that, what it still waits for.
func TestWhatIsAwaited(t *testing.T) {
	m, err := New(&plan.Plan{Actions: []plan.Action{
		restart(trigger(t, "soon|a", "soon@timeout", "a")), restart(trigger(t, "b;c", "b", "c")),
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The text is made anew only when wants has changed.
	told, said := m.wants, ""
	next := func() (int, string) {
		i, text := m.Next()
		if now := fmt.Sprint(i, text); now != said {
			if said != "" && m.wants == told {
				t.Errorf("%s has become %s, and wants is still %d", said, now, told)
			}
			told, said = m.wants, now
		}
		return i, text
	}
	const c = "onObjectCreation of pod/default/c, afterAPIServerRecv at apiserver-1"
	const b = "onObjectCreation of pod/default/b, afterAPIServerRecv at apiserver-1"
	check := func(when string, index int, text string, waiting ...string) {
		t.Helper()
		if i, got := next(); i != index || got != text {
			t.Errorf("%s: next is %d, %q, want %d, %q", when, i, got, index, text)
		}
		if diff := cmp.Diff(waiting, m.Waiting()); diff != "" {
			t.Errorf("%s, waiting (-want +got):\n%s", when, diff)
		}
	}
	if i, got := next(); i != 0 || got != "" {
		t.Errorf("before the start: next is %d, %q", i, got)
	}
	m.Start()
	check("at the start", 0, "when: its timeout of 1s; or: onObjectCreation of pod/default/a, afterAPIServerRecv at "+
		"apiserver-1",
		`action 1 (restartController db): trigger "soon" still waits for its timeout of 1s`,
		`action 1 (restartController db): trigger "a" still waits for onObjectCreation of pod/default/a, `+
			"afterAPIServerRecv at apiserver-1; nothing like it was observed")
	m.Step(record.Event{Seq: 1, Timeout: &record.Timeout{}})
	check("while action 1 is carried out", 1, "after action 1 (restartController db)",
		"action 2 (restartController db): its trigger was not enabled, because the action before it did not complete")
	m.Step(record.Event{Seq: 2, Completed: new(0)})
	check("when action 1 is complete", 1, "when: "+b,
		`action 2 (restartController db): trigger "b" still waits for `+b+"; nothing like it was observed")
	m.Step(created("b"))
	check("when b was created", 1, "when: "+c,
		`action 2 (restartController db): trigger "c" still waits for `+c+"; nothing like it was observed")
	m.Step(created("c"))
	check("when all have fired", -1, "")

	if m, err = New(m.plan, nil); err != nil {
		t.Fatal(err)
	}
	m.Start()
	told, said = m.wants, ""
	next()
	m.Step(record.Event{Seq: 1, End: true})
	if i, got := next(); i != -1 || got != "" {
		t.Errorf("at the end: next is %d, %q", i, got)
	}
}

// What processes are asked to report for the plan itself.
func TestRules(t *testing.T) {
	resolve := func(k plan.ResourceKey) wire.Rule {
		return wire.Rule{Kind: k.Type, Namespace: k.Namespace, Name: k.Name}
	}
	observes := func(typ plan.TriggerType, timing plan.Timing, key string) plan.Trigger {
		tr := trigger(t, "it", "it")
		c := &tr.Definitions[0].Condition
		*c = plan.Condition{Type: typ}
		if typ == plan.OnAnnotatedCall {
			c.Call = key
		} else {
			var err error
			if c.ResourceKey, err = plan.ParseResourceKey(key); err != nil {
				t.Fatal(err)
			}
		}
		tr.Definitions[0].Observe = plan.ObservationPoint{Timing: timing, ObserveBy: "db"}
		return tr
	}
	pause := func(at plan.Timing, scope string) plan.Action {
		return plan.Action{Type: plan.PauseController, Target: "web", Trigger: trigger(t, "soon", "soon@timeout"),
			Pausing: plan.Pausing{PauseAt: at, PauseScope: plan.MustScope(scope)}}
	}
	const collections = " of [list deleteCollection] with pod default/a"
	for _, tt := range []struct {
		name   string
		action plan.Action
		start  string
		paused string // when it has begun, too
	}{
		{"received", restart(observes(plan.OnObjectUpdate, plan.AfterControllerRecv, "pod/default/a")),
			"db: after controllerRecv pod default/a", ""},
		{"a received deletion", restart(observes(plan.OnObjectDeletion, plan.AfterControllerRecv, "pod/default/a")),
			"db: after controllerRecv pod default/a", ""},
		{"read", restart(observes(plan.OnObjectUpdate, plan.BeforeControllerRead, "pod/default/a")),
			"db: before controllerRead pod default/a; db: before controllerRead pod /" + collections, ""},
		{"before a write", restart(observes(plan.OnObjectUpdate, plan.BeforeControllerWrite, "pod/default/a")),
			"db: before controllerWrite pod default/a", ""},
		{"after a write, which is looked up before",
			restart(observes(plan.OnObjectUpdate, plan.AfterControllerWrite, "pod/default/a")),
			"db: after controllerWrite pod default/a; db: before controllerWrite pod default/a", ""},
		{"a deletion may be one of a collection",
			restart(observes(plan.OnObjectDeletion, plan.AfterControllerWrite, "pod/default/a")),
			"db: after controllerWrite pod default/a; db: after controllerWrite pod /" + collections +
				"; db: before controllerWrite pod default/a; db: before controllerWrite pod /" + collections, ""},
		{"a reconcile, whose request has no type",
			restart(observes(plan.OnReconcile, plan.BeforeReconcile, "pod/default/a")),
			"db: before reconcile any  /", ""},
		{"a call of a function", restart(observes(plan.OnAnnotatedCall, plan.AfterAnnotatedCall, "backup")),
			"db: after annotatedCall any  / call backup", ""},
		{"a timeout", restart(trigger(t, "soon", "soon@timeout")), "", ""},
		{"a pause of all reads", pause(plan.BeforeControllerRead, ""), "", "web: before controllerRead any  /"},
		{"a pause of reads", pause(plan.BeforeControllerRead, "pod/default/a"), "",
			"web: before controllerRead pod /" + collections + "; web: before controllerRead pod default/a"},
		{"a pause of writes", pause(plan.AfterControllerWrite, "pod/default/a"), "",
			"web: after controllerWrite pod /" + collections + "; web: after controllerWrite pod default/a"},
		{"a pause of what is received", pause(plan.BeforeControllerRecv, "pod/default/a"), "",
			"web: before controllerRecv pod default/a"},
		{"a pause of reconciles", pause(plan.BeforeReconcile, "pod/default/a"), "",
			"web: before reconcile any  default/a"},
		{"a pause that waits for running reads", pauseReads(trigger(t, "soon", "soon@timeout"), "pod/default/a", true),
			"db: before controllerRead any  /; db: after controllerRead any  /",
			"db: before controllerRead pod /" + collections + "; db: before controllerRead pod default/a"},
	} {
		m, err := New(&plan.Plan{Actions: []plan.Action{tt.action}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		show := func() string {
			var all []string
			for by, rules := range m.Rules(resolve) {
				for _, r := range rules {
					text := fmt.Sprintf("%s: %s %s ", by, r.Phase, r.Point)
					if r.AnyGroup {
						text += "any "
					}
					text += fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, r.Name)
					if r.Call != "" {
						text += " call " + r.Call
					}
					if r.Items {
						text += fmt.Sprintf(" of %v with pod %s/%s", r.Operations, r.ItemNamespace, r.ItemName)
					}
					all = append(all, text)
				}
			}
			return strings.Join(all, "; ")
		}
		m.Start()
		if got := show(); got != tt.start {
			t.Errorf("%s, from the start:\n%s, want\n%s", tt.name, got, tt.start)
		}
		m.Step(record.Event{Seq: 1, Timeout: &record.Timeout{}})
		m.Step(record.Event{Seq: 2, Began: new(0)})
		want := tt.start
		if tt.paused != "" {
			want = strings.TrimPrefix(tt.start+"; "+tt.paused, "; ")
		}
		if got := show(); got != want {
			t.Errorf("%s, when it has begun:\n%s, want\n%s", tt.name, got, want)
		}
		m.Step(record.Event{Seq: 3, End: true})
		if got := show(); got != "" {
			t.Errorf("%s, at the end: %s", tt.name, got)
		}
	}
}
