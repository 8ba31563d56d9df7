package machine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// observed returns an observation of pod/default/a at that resource version; 0: without an object.
func observed(by string, session uint64, point wire.Point, phase wire.Phase, op wire.Operation, version int,
	change ...func(*record.Observation)) record.Event {
	o := &record.Observation{
		By: by, Session: session, Point: point, Phase: phase, Op: op, Kind: "pod", GroupKnown: true,
		Namespace: "default", Name: "a", Aside: true,
	}
	if version > 0 {
		o.Object = json.RawMessage(fmt.Sprintf(`{"metadata":{"resourceVersion":"%d"}}`, version))
	}
	for _, f := range change {
		f(o)
	}
	return record.Event{Observation: o}
}

func TestStaleness(t *testing.T) {
	pauseAPI := plan.Action{Type: plan.PauseAPIServer, Target: "apiserver-2",
		Pausing: plan.Pausing{PauseScope: plan.MustScope("pod/default/a")},
		Trigger: trigger(t, "now", "now@none")}
	reconnect := func(by plan.Reconnect) plan.Action {
		return plan.Action{Type: plan.ReconnectController, Target: "db",
			Reconnecting: plan.Reconnecting{ReconnectAPIServer: "apiserver-2", ReconnectBy: by},
			Trigger:      trigger(t, "now", "now@none")}
	}
	resume := plan.Action{Type: plan.ResumeAPIServer, Target: "apiserver-2",
		Pausing: plan.Pausing{PauseScope: plan.MustScope("pod/default/a")},
		Trigger: trigger(t, "now", "now@none")}

	paused := []record.Event{began(0), completed(0)}
	moved := []record.Event{began(1), {SessionEnd: &record.SessionEnd{By: "db", Session: 2}}, completed(1)}
	held := func(op wire.Operation, version int) record.Event {
		return observed("apiserver-2", 1, wire.APIServerRecv, wire.Before, op, version)
	}
	received := func(session uint64, op wire.Operation, version int) record.Event {
		return observed("db", session, wire.ControllerRecv, wire.After, op, version)
	}
	got := func(session uint64, version int, change ...func(*record.Observation)) record.Event {
		return observed("db", session, wire.ControllerRead, wire.After, wire.Get, version, change...)
	}
	listed := func(session uint64, namespace string) record.Event {
		return observed("db", session, wire.ControllerRead, wire.After, wire.List, 0, func(o *record.Observation) {
			o.Namespace, o.Name = namespace, ""
		})
	}
	live := func(o *record.Observation) { o.Live = true }
	failed := func(text string) func(*record.Observation) {
		return func(o *record.Observation) { o.Error = text }
	}
	hooked := record.Controller{Name: "db", Hooks: true, APIServer: "apiserver-1", ClientGo: "v0.36.3"}
	streaming := hooked
	streaming.WatchList = true
	there := hooked // from the start
	there.APIServer = "apiserver-2"

	const heldUpdate = "while apiserver-2 held back the update of pod/default/a (version 10)"
	for _, test := range []struct {
		name       string
		controller record.Controller
		actions    []plan.Action // after the pause
		events     [][]record.Event
		reads      []string
		none       []string
	}{
		{
			name: "restarted there, it receives the past", controller: hooked,
			actions: []plan.Action{reconnect(plan.ReconnectRestart)},
			events: [][]record.Event{paused, {held(wire.Update, 10)}, moved,
				{received(3, wire.Create, 7), received(3, wire.Update, 8)}},
			reads: []string{"db received pod/default/a at version 7, while apiserver-2 held back its update at " +
				"version 10"},
		},
		{
			name: "connected there all along, it reads the past from its cache", controller: there,
			events: [][]record.Event{paused, {received(2, wire.Create, 7), held(wire.Update, 10), got(2, 7)}},
			reads: []string{"db read pod/default/a at version 7, while apiserver-2 held back its update at " +
				"version 10"},
		},
		{
			name: "a list shows what was last received", controller: there,
			events: [][]record.Event{paused,
				{received(2, wire.Create, 7), held(wire.Update, 10), listed(2, "other"), listed(2, "")}},
			reads: []string{"db listed pod/default/a at version 7, while apiserver-2 held back its update at " +
				"version 10"},
		},
		{
			name: "it still exists where its deletion is held back", controller: there,
			events: [][]record.Event{paused, {received(2, wire.Create, 7), held(wire.Delete, 10), got(2, 7)}},
			reads: []string{"db read pod/default/a at version 7, while apiserver-2 held back its deletion at " +
				"version 10"},
		},
		{
			name: "it does not exist where its creation is held back", controller: there,
			events: [][]record.Event{paused, {held(wire.Create, 10), got(2, 0, failed(`pods "a" not found`))}},
			reads: []string{"db read pod/default/a as absent, while apiserver-2 held back its creation at " +
				"version 10"},
		},
		{
			name: "a list lacks it where its creation is held back", controller: there,
			events: [][]record.Event{paused,
				{received(2, wire.Delete, 9), held(wire.Create, 10), listed(2, "default")}},
			reads: []string{"db listed pod/default/a as absent, while apiserver-2 held back its creation at " +
				"version 10"},
		},
		{
			name: "absent because it was deleted later", controller: there,
			events: [][]record.Event{paused,
				{held(wire.Create, 10), received(2, wire.Delete, 12), got(2, 0), listed(2, "")}},
			none: []string{"db was connected to apiserver-2, and what it received (1) and read (2) of that object " +
				"was never older, while apiserver-2 held back the creation of pod/default/a (version 10)"},
		},
		{
			name: "a failed read and a live one that finds nothing show nothing", controller: there,
			events: [][]record.Event{paused,
				{held(wire.Create, 10), got(2, 0, failed("the cache is not started")),
					got(2, 0, live, failed("not found"))}},
			none: []string{"db was connected to apiserver-2, but neither received nor read that object while " +
				"apiserver-2 held back the creation of pod/default/a (version 10)"},
		},
		{
			name: "a live read of the past", controller: there,
			events: [][]record.Event{paused, {held(wire.Update, 10), got(2, 9, live)}},
			reads: []string{"db read pod/default/a at version 9, while apiserver-2 held back its update at " +
				"version 10"},
		},
		{
			name: "nothing held back", controller: hooked,
			events: [][]record.Event{paused, {received(2, wire.Create, 7), got(2, 7)}},
			none: []string{"apiserver-2 was paused (action 1) and held nothing back: no event of pod/default/a " +
				"reached it until it was resumed"},
		},
		{
			name: "connected to another API server, lag is not staleness", controller: hooked,
			events: [][]record.Event{paused, {received(2, wire.Create, 7), held(wire.Update, 10), got(2, 7)}},
			none:   []string{"db stayed connected to apiserver-1, " + heldUpdate},
		},
		{
			name: "read before anything was held and after it was released", controller: there,
			actions: []plan.Action{resume},
			events: [][]record.Event{paused,
				{got(2, 7), held(wire.Update, 10), began(1), completed(1), received(2, wire.Update, 9)}},
			none: []string{"db was connected to apiserver-2, but neither received nor read that object " + heldUpdate},
		},
		{
			name: "another object", controller: there,
			events: [][]record.Event{paused,
				{held(wire.Update, 10),
					observed("db", 2, wire.ControllerRecv, wire.After, wire.Create, 7, func(o *record.Observation) {
						o.Name = "b"
					})}},
			none: []string{"db was connected to apiserver-2, but neither received nor read that object " + heldUpdate},
		},
		{
			name: "the same kind of another group", controller: there,
			events: [][]record.Event{paused,
				{held(wire.Update, 10),
					observed("db", 2, wire.ControllerRecv, wire.After, wire.Create, 7, func(o *record.Observation) {
						o.Group = "x"
					})}},
			none: []string{"db was connected to apiserver-2, but neither received nor read that object " + heldUpdate},
		},
		{
			name: "a delivery shows nothing before it is received", controller: there,
			events: [][]record.Event{paused,
				{held(wire.Update, 10), observed("db", 2, wire.ControllerRecv, wire.Before, wire.Create, 7)}},
			none: []string{"db was connected to apiserver-2, but neither received nor read that object " + heldUpdate},
		},
		{
			name: "a streaming list waits", controller: streaming,
			actions: []plan.Action{reconnect(plan.ReconnectRestart)},
			events:  [][]record.Event{paused, {held(wire.Update, 10)}, moved},
			none: []string{"db was started at apiserver-2, " + heldUpdate +
				", but its first sync is a streaming list (client-go v0.36.3, feature WatchListClient), " +
				"which waits until the server has caught up: set `watchList: false` in the action that starts it " +
				"there, or for it in the suite"},
		},
		{
			name: "a cut leaves the cache", controller: hooked, actions: []plan.Action{reconnect(plan.ReconnectCut)},
			events: [][]record.Event{paused,
				{received(2, wire.Update, 12), held(wire.Update, 10), began(1), completed(1), got(2, 12)}},
			none: []string{"db was moved to apiserver-2 by cutting its connections, " + heldUpdate +
				": it keeps its caches, and client-go asks for nothing older (reconnectBy: restart begins with " +
				"empty caches)"},
		},
		{
			name: "a cut session reads from the other server", controller: hooked,
			actions: []plan.Action{reconnect(plan.ReconnectCut)},
			events: [][]record.Event{paused,
				{received(2, wire.Update, 8), held(wire.Update, 10), began(1), completed(1), got(2, 8)}},
			reads: []string{"db read pod/default/a at version 8, while apiserver-2 held back its update at version 10"},
		},
		{
			name: "the session that is being killed is at the old server", controller: hooked,
			actions: []plan.Action{reconnect(plan.ReconnectRestart)},
			events: [][]record.Event{paused,
				{received(2, wire.Update, 8), held(wire.Update, 10), began(1), got(2, 8)}},
			none: []string{"db was connected to apiserver-2, but neither received nor read that object " + heldUpdate},
		},
		{
			name:       "the reads of a controller without hooks are unknown",
			controller: record.Controller{Name: "db", APIServer: "apiserver-2"},
			events:     [][]record.Event{paused, {held(wire.Update, 10)}},
		},
		{
			name:       "the API server of a controller without hooks is known",
			controller: record.Controller{Name: "db", APIServer: "apiserver-1"},
			events:     [][]record.Event{paused, {held(wire.Update, 10)}},
			none:       []string{"db stayed connected to apiserver-1, " + heldUpdate},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &plan.Plan{Actions: append([]plan.Action{pauseAPI}, test.actions...)}
			events := slices.Concat(test.events...)
			for i := range events {
				events[i].Seq = i + 1
			}
			m, err := New(p, []record.Controller{test.controller})
			if err != nil {
				t.Fatal(err)
			}
			m.Start()
			var told []string
			for _, e := range events {
				for _, effect := range m.Step(e) {
					if s, ok := effect.(Stale); ok {
						told = append(told, s.Read.String())
					}
				}
			}
			if diff := cmp.Diff(test.reads, told); diff != "" {
				t.Errorf("effects (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.none, m.NoneStale()); diff != "" {
				t.Errorf("why none (-want +got):\n%s", diff)
			}
			// A replay of the written record gives the same result.
			data, err := json.Marshal(events)
			if err != nil {
				t.Fatal(err)
			}
			var back []record.Event
			if err := json.Unmarshal(data, &back); err != nil {
				t.Fatal(err)
			}
			_, again, err := Replay(p, []record.Controller{test.controller}, back)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(m.StaleReads(), again.StaleReads()); diff != "" {
				t.Errorf("replayed (-run +replay):\n%s", diff)
			}
		})
	}
}

// The reported event is one that the controller could have received, even if the control plane's own came first.
func TestWhatWasHeldBackIsOfTheControllersTypes(t *testing.T) {
	lease := func(o *record.Observation) { o.Kind, o.Namespace, o.Name = "lease", "kube-system", "apiserver-1" }
	for _, test := range []struct{ name, server, want string }{
		{"connected elsewhere", "apiserver-1", "db stayed connected to apiserver-1, while apiserver-2 held back "},
		{"connected", "apiserver-2", "db was connected to apiserver-2, but neither received nor read that object " +
			"while apiserver-2 held back "},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := New(&plan.Plan{Actions: []plan.Action{{Type: plan.PauseAPIServer, Target: "apiserver-2",
				Trigger: trigger(t, "now", "now@none")}}},
				[]record.Controller{{Name: "db", Hooks: true, APIServer: test.server}})
			if err != nil {
				t.Fatal(err)
			}
			for i, e := range []record.Event{began(0), completed(0),
				observed("apiserver-2", 1, wire.APIServerRecv, wire.Before, wire.Update, 9, lease),
				observed("apiserver-2", 1, wire.APIServerRecv, wire.Before, wire.Update, 10)} {
				e.Seq = i + 1
				m.Step(e)
			}
			want := []string{test.want + "the update of lease/kube-system/apiserver-1 (version 9)"}
			if diff := cmp.Diff(want, m.NoneStale()); diff != "" {
				t.Errorf("nothing received (-want +got):\n%s", diff)
			}
			m.Step(record.Event{Seq: 5, Observation: observed("db", 2, wire.ControllerRecv, wire.After, wire.Create, 0,
				func(o *record.Observation) { o.Name = "b" }).Observation})
			want = []string{test.want + "the update of pod/default/a (version 10)"}
			if diff := cmp.Diff(want, m.NoneStale()); diff != "" {
				t.Errorf("a pod received (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlanThatPausesNoAPIServerIsNotAboutStaleness(t *testing.T) {
	m, err := New(&plan.Plan{Actions: []plan.Action{restart(trigger(t, "a", "a"))}},
		[]record.Controller{{Name: "db", Hooks: true}})
	if err != nil {
		t.Fatal(err)
	}
	resolve := func(plan.ResourceKey) wire.Rule { return wire.Rule{} }
	if none, rules := m.NoneStale(), m.SideRules(resolve); none != nil || len(rules) != 0 {
		t.Errorf("none %v, rules %v", none, rules)
	}
}

func TestSideRules(t *testing.T) {
	resolve := func(k plan.ResourceKey) wire.Rule {
		return wire.Rule{Kind: k.Type, Namespace: k.Namespace, Name: k.Name}
	}
	for _, test := range []struct {
		name, scope   string
		before, after string // the pause
	}{
		{"of an object", "pod/default/a", "db after controllerRecv pod default/a []",
			"db after controllerRecv pod default/a [], db after controllerRead pod default/a [], db after " +
				"controllerRead pod / [list deleteCollection]"},
		{"of everything", "", "db after controllerRecv any  / []",
			"db after controllerRecv any  / [], db after controllerRead any  / []"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := New(&plan.Plan{Actions: []plan.Action{
				{Type: plan.PauseAPIServer, Target: "apiserver-2",
					Pausing: plan.Pausing{PauseScope: plan.MustScope(test.scope)},
					Trigger: trigger(t, "a", "a")},
			}}, []record.Controller{{Name: "db", Hooks: true}, {Name: "binary"}})
			if err != nil {
				t.Fatal(err)
			}
			show := func() string {
				var all []string
				for by, list := range m.SideRules(resolve) {
					for _, r := range list {
						kind := r.Kind
						if r.AnyGroup {
							kind = "any " + kind
						}
						all = append(all,
							fmt.Sprintf("%s %s %s %s %s/%s %v", by, r.Phase, r.Point, kind, r.Namespace, r.Name,
								r.Operations))
					}
				}
				return strings.Join(all, ", ")
			}
			if got := show(); got != test.before {
				t.Errorf("before the pause: %s", got)
			}
			for i, e := range []record.Event{created("a"), began(0), completed(0)} {
				e.Seq = i + 1
				m.Step(e)
			}
			if got := show(); got != test.after {
				t.Errorf("while paused: %s", got)
			}
			m.Step(record.Event{Seq: 4, End: true})
			if got := show(); got != "" {
				t.Errorf("at the end: %s", got)
			}
		})
	}
}

// Of a controller that the plan pauses, reconciles are reported from the start, reads and writes while it is paused.
func TestSideRulesOfPausedControllers(t *testing.T) {
	soon := trigger(t, "soon", "soon@timeout")
	later := plan.Action{Type: plan.PauseController, Target: "web", Trigger: soon,
		Pausing: plan.Pausing{PauseAt: plan.BeforeReconcile}}
	m, err := New(&plan.Plan{Actions: []plan.Action{pauseReads(soon, "", false), pauseWrites(soon, ""), later}},
		[]record.Controller{{Name: "db", Hooks: true}})
	if err != nil {
		t.Fatal(err)
	}
	rule := func(point wire.Point, phase wire.Phase) wire.Rule {
		return wire.Rule{Point: point, Phase: phase, AnyGroup: true}
	}
	reconciles := []wire.Rule{rule(wire.Reconcile, wire.Before), rule(wire.Reconcile, wire.After)}
	want := map[string][]wire.Rule{"db": reconciles, "web": reconciles}
	if diff := cmp.Diff(want, m.SideRules(nil)); diff != "" {
		t.Errorf("from the start (-want +got):\n%s", diff)
	}
	m.Start()
	for i, e := range []record.Event{timeout(0, 0), began(0)} {
		e.Seq = i + 1
		m.Step(e)
	}
	want["db"] = append(slices.Clone(reconciles), rule(wire.ControllerRead, wire.Before),
		rule(wire.ControllerWrite, wire.Before))
	if diff := cmp.Diff(want, m.SideRules(nil)); diff != "" {
		t.Errorf("while db is paused (-want +got):\n%s", diff)
	}
}

func TestWhatThePlanDoesNotAskForSatisfiesNothing(t *testing.T) {
	m, err := New(&plan.Plan{Actions: []plan.Action{restart(trigger(t, "a", "a"))}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Start()
	e := created("a")
	e.Seq, e.Observation.Aside = 1, true
	if got := show(m.Step(e)); got != "release 1" {
		t.Errorf("aside: %s", got)
	}
	if w := m.Waiting(); !strings.HasSuffix(w[0], "nothing like it was observed") {
		t.Errorf("a miss was noted: %s", w)
	}
	if got := show(m.Step(record.Event{Seq: 2, Observation: created("a").Observation})); got != "fire 0, hold 2" {
		t.Errorf("asked for: %s", got)
	}
}
