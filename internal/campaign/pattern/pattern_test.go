package pattern

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

func suite(t testing.TB) *plan.Suite {
	t.Helper()
	file := filepath.Join(t.TempDir(), plan.SuiteFile)
	text := "controllers: [{name: op, build: {dir: .}}]\nworkloads: {w: [{sleep: 1s}]}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := plan.LoadSuite(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func spec(replicas int) object { return object{"spec": object{"replicas": float64(replicas)}} }

func finalized(o object) object {
	return object{"spec": o["spec"], "metadata": object{"finalizers": []any{"example.com/keep"}}}
}

// sending is a write that rests on a version.
func sending(c facts.Change, version string) facts.Change {
	meta := object{"resourceVersion": version}
	if of := metadata.Of(c.Cur); of != nil {
		meta = maps.Clone(of)
		meta["resourceVersion"] = version
	}
	c.Sent = object{"metadata": meta}
	for field, value := range c.Cur {
		if field != "metadata" {
			c.Sent[field] = value
		}
	}
	return c
}

func reading(c facts.Change, read ...string) facts.Change {
	c.Read = read
	return c
}

func marked(o object) object {
	return object{"spec": o["spec"], "metadata": object{"deletionTimestamp": "2026-01-01T00:00:00Z"}}
}

// change is one of an object that the operator takes in; by is empty for another client's.
func change(by string, op wire.Operation, key facts.Key, event string, prev, cur object) facts.Change {
	return facts.Change{Key: key, Event: event, Prev: prev, Cur: cur, By: by, Op: op, Taken: []string{"op"}}
}

// apart lets a reconcile of its own make each change.
func apart(changes []facts.Change) {
	for i := range changes {
		changes[i].Reconcile = fmt.Sprint(i)
	}
}

// plans describes the generated plans, a line each.
func plans(all []Candidate) []string {
	var lines []string
	for _, c := range all {
		if c.Plan == nil {
			lines = append(lines, fmt.Sprintf("dropped: %s", c.Dropped))
			continue
		}
		var actions []string
		for _, a := range c.Plan.Actions {
			at := awaited(a.Trigger.Definitions[0])
			for _, d := range a.Trigger.Definitions[1:] {
				link := "; then "
				switch {
				case strings.Contains(a.Trigger.Expression, "|"):
					link = " or "
				case strings.Contains(a.Trigger.Expression, "&"):
					link = " and "
				}
				at += link + awaited(d)
			}
			what := string(a.Type)
			if a.Patch != nil {
				what += fmt.Sprintf(" %s %v", a.ResourceKey, a.Patch)
			}
			if scope := a.PauseScope.String(); strings.HasSuffix(scope, "*") {
				what += " " + scope
			}
			actions = append(actions, fmt.Sprintf("%s at %s", what, at))
		}
		lines = append(lines, strings.Join(actions, "; "))
	}
	return lines
}

// awaited describes what a trigger waits for.
func awaited(d plan.Definition) string {
	c := d.Condition
	switch {
	case c.Type == plan.OnTimeout:
		return c.Timeout.String()
	case c.Type == plan.OnAnnotatedCall:
		return fmt.Sprintf("%s %s #%d %s", c.Type, c.Call, c.Repeat, d.Observe.Timing)
	}
	at := fmt.Sprintf("%s %s #%d %s", c.Type, c.ResourceKey, c.Repeat, d.Observe.Timing)
	if c.CurState != nil || c.PrevState != nil {
		at += fmt.Sprintf(" %v→%v", c.PrevState, c.CurState)
	}
	return at
}

const (
	db  = facts.Key("database/default/db")
	set = facts.Key("statefulset.apps/default/db")
	key = facts.Key("secret/default/db")
)

func TestPatterns(t *testing.T) {
	scaled := []facts.Change{
		change("", "", db, record.Created, nil, spec(2)),
		change("op", wire.Create, set, record.Created, nil, spec(2)),
		change("", "", db, record.Updated, spec(2), spec(1)),
		change("op", wire.Update, set, record.Updated, spec(2), spec(1)),
		change("", "", db, record.Updated, spec(1), spec(2)),
		change("op", wire.Update, set, record.Updated, spec(1), spec(2)),
	}
	recreated := []facts.Change{
		change("", "", db, record.Created, nil, spec(2)),
		change("op", wire.Create, key, record.Created, nil, object{}),
		change("", "", db, record.Updated, spec(2), marked(spec(2))),
		change("op", wire.Delete, key, record.Deleted, object{}, nil),
		change("", "", db, record.Deleted, marked(spec(2)), nil),
		change("", "", db, record.Created, nil, spec(2)),
		change("op", wire.Create, key, record.Created, nil, object{}),
	}
	claimed := []facts.Change{
		change("", "", db, record.Created, nil, spec(2)),
		sending(change("op", wire.Update, db, record.Updated, spec(2), finalized(spec(2))), "7"),
		change("op", wire.Create, set, record.Created, nil, spec(2)),
		sending(change("op", wire.Update, set, record.Updated, spec(2), spec(3)), "8"),
		change("op", wire.Patch, set, record.Updated, spec(3), spec(4)),
	}
	for _, tt := range []struct {
		pattern string
		changes []facts.Change
		want    []string
	}{
		{"lost-answer", recreated, []string{
			"failCall at onObjectCreation secret/default/db #1 beforeControllerWrite",
			"failCall at onObjectDeletion secret/default/db #1 beforeControllerWrite",
			"failCall at onObjectCreation secret/default/db #2 beforeControllerWrite",
		}},
		{"denied", scaled, []string{
			"failCall at onObjectCreation statefulset.apps/default/db #1 beforeControllerWrite; restoreCalls at 3s",
			"failCall at onObjectUpdate statefulset.apps/default/db #1 beforeControllerWrite " +
				"map[spec:map[replicas:2]]→map[spec:map[replicas:1]]; restoreCalls at 3s",
		}},
		{"conflict", claimed, []string{
			"patch database/default/db map[metadata:map[annotations:map[trommel.dev/conflict:changed by another " +
				"client]]] at onObjectUpdate database/default/db #1 beforeControllerWrite " +
				"<nil>→map[metadata:map[finalizers:[example.com/keep]]]",
			"patch statefulset.apps/default/db map[metadata:map[annotations:map[trommel.dev/conflict:changed by " +
				"another client]]] at onObjectUpdate statefulset.apps/default/db #1 beforeControllerWrite " +
				"map[spec:map[replicas:2]]→map[spec:map[replicas:3]]",
			"dropped: the write does not say which version it rests on: nothing can conflict with it",
		}},
		{"skew", slices.Insert(slices.Clone(scaled), 4,
			change("", "", "pod/default/old", record.Updated, spec(1), spec(2))), []string{
			"pauseController database/*/* at onObjectUpdate database/default/db #1 beforeControllerRecv " +
				"map[spec:map[replicas:2]]→map[spec:map[replicas:1]]; " +
				"resumeController database/*/* at onObjectUpdate statefulset.apps/default/db #1 afterControllerWrite " +
				"map[spec:map[replicas:2]]→map[spec:map[replicas:1]] or 3s",
		}},
		{"drift", claimed, []string{
			"patch database/default/db [map[op:remove path:/metadata/finalizers]] at onObjectUpdate " +
				"statefulset.apps/default/db #1 afterControllerWrite " +
				"map[spec:map[replicas:3]]→map[spec:map[replicas:4]]; then 1s",
			"patch statefulset.apps/default/db [map[op:replace path:/spec/replicas value:3]] at onObjectUpdate " +
				"statefulset.apps/default/db #1 afterControllerWrite " +
				"map[spec:map[replicas:3]]→map[spec:map[replicas:4]]; then 1s",
			"patch statefulset.apps/default/db [map[op:replace path:/spec/replicas value:0]] at onObjectUpdate " +
				"statefulset.apps/default/db #1 afterControllerWrite " +
				"map[spec:map[replicas:3]]→map[spec:map[replicas:4]]; then 1s",
		}},
		{"intermediate", scaled, []string{
			"restartController at onObjectCreation statefulset.apps/default/db #1 afterControllerWrite",
			"restartController at onObjectUpdate statefulset.apps/default/db #1 afterControllerWrite " +
				"map[spec:map[replicas:2]]→map[spec:map[replicas:1]]",
			"restartController at onObjectUpdate statefulset.apps/default/db #1 afterControllerWrite " +
				"map[spec:map[replicas:1]]→map[spec:map[replicas:2]]",
		}},
		{"unobserved", scaled, []string{
			"pauseController at onObjectUpdate database/default/db #1 afterControllerRecv " +
				"map[spec:map[replicas:2]]→map[spec:map[replicas:1]]; " +
				"resumeController at onObjectUpdate database/default/db #1 afterControllerRecv " +
				"map[spec:map[replicas:1]]→map[spec:map[replicas:2]] or 3s",
			"pauseController at onObjectUpdate statefulset.apps/default/db #1 afterControllerWrite " +
				"map[spec:map[replicas:2]]→map[spec:map[replicas:1]]; " +
				"resumeController at onObjectUpdate database/default/db #1 afterControllerRecv " +
				"map[spec:map[replicas:1]]→map[spec:map[replicas:2]] or 3s",
		}},
		{"own-write-unseen", recreated, []string{
			"pauseController at onObjectCreation secret/default/db #1 beforeControllerWrite; resumeController at 3s",
			"pauseController at onObjectDeletion secret/default/db #1 beforeControllerWrite; resumeController at 3s",
		}},
		{"drift", recreated, []string{
			"delete at onObjectCreation secret/default/db #2 afterControllerWrite and " +
				"onObjectCreation secret/default/db #2 afterControllerRecv",
			"delete at onObjectCreation secret/default/db #2 afterControllerWrite; then 1s",
		}},
		{"stale", recreated, []string{
			"pauseAPIServer at onObjectUpdate database/default/db #1 afterAPIServerRecv " +
				"map[metadata:map[deletionTimestamp:$absent]]→map[metadata:map[deletionTimestamp:$present]]; " +
				"reconnectController at onObjectCreation secret/default/db #1 afterAPIServerRecv; resumeController " +
				"at 5s",
		}},
	} {
		t.Run(tt.pattern, func(t *testing.T) {
			ref := &baseline.Baseline{Workload: "w", Changes: tt.changes, Objects: facts.Objects(tt.changes)}
			got := plans(Generate(suite(t), ref, tt.pattern))
			for _, want := range tt.want {
				want = strings.Replace(want, "resumeController at 5s", "resumeAPIServer at 5s", 1)
				if !slices.Contains(got, want) {
					t.Errorf("no plan\n%s\nbut\n%s", want, strings.Join(got, "\n"))
				}
			}
		})
	}
}

// A fault that ends after a time lasts for longer if the controllers are slow, but ends before held calls go on.
func TestWindowsWaitForSlowControllers(t *testing.T) {
	for hold, want := range map[time.Duration]time.Duration{
		time.Minute: 27 * time.Second, 20 * time.Second: 12 * time.Second, 4 * time.Second: 0,
	} {
		s := suite(t)
		s.Timeouts.Hold = hold
		d := (&moment.Set{Topology: moment.Topology{Suite: s}}).Window(3 * time.Second)
		p, err := build.Plan("w").Workload("w").Then(build.AdvanceTime(time.Second).When(d)).Build()
		if err != nil {
			t.Fatal(err)
		}
		if c := p.Actions[0].Trigger.Definitions[0].Condition; c.Timeout != 3*time.Second || c.Extend != want {
			t.Errorf("hold %s: %s and %s more, want 3s and %s", hold, c.Timeout, c.Extend, want)
		}
	}
}

// A hold of a plan ends before the suite's limit for holds.
func TestHoldsEndBeforeTheirLimit(t *testing.T) {
	for usual, want := range map[time.Duration]time.Duration{
		time.Second: 5 * time.Second, 20 * time.Second: 43 * time.Second, 29 * time.Second: 45 * time.Second,
		time.Minute: 0,
	} {
		s := suite(t)
		s.Timeouts.Hold = time.Minute
		limit, rule := (&moment.Set{Topology: moment.Topology{Suite: s}}).Limit(usual, 3*time.Second)
		if limit != want || (rule != "") != (want == 0) {
			t.Errorf("usually %s: %s, want %s (%s)", usual, limit, want, rule)
		}
	}
}

// The first plan of each kind comes before the second.
func TestFirstOneOfEachKind(t *testing.T) {
	var changes []facts.Change
	for i := range 5 {
		changes = append(changes, change("op", wire.Create, facts.Key(fmt.Sprintf("pod/default/p%d", i)),
			record.Created, nil, object{}))
	}
	changes = append(changes, change("op", wire.Create, "secret/default/s", record.Created, nil, object{}))
	apart(changes)
	var got []string
	for _, c := range Generate(suite(t), &baseline.Baseline{Workload: "w", Changes: changes}, "intermediate") {
		text := c.Dropped
		if c.Plan != nil {
			text = c.Plan.Actions[0].Trigger.Definitions[0].Condition.ResourceKey.String()
		}
		got = append(got, text)
	}
	want := []string{
		"secret/default/s", "pod/default/p0", "pod/default/p1", "pod/default/p2", "pod/default/p3", "pod/default/p4",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// baselines makes a baseline of runs without faults.
func baselines(runs ...[]facts.Change) *baseline.Baseline {
	return &baseline.Baseline{
		Workload: "w", Changes: runs[0], Others: runs[1:], Objects: facts.Objects(runs[0]),
	}
}

// A plan must happen in its run, so what it waits for must happen in every run without faults.
func TestTriggersHoldInAllRuns(t *testing.T) {
	status := func(ready int) object { return object{"status": object{"ready": float64(ready)}} }
	ready := func(from, to int) facts.Change {
		return change("op", wire.Update, db, record.Updated, status(from), status(to))
	}
	at := func(ip string) facts.Change {
		return change("op", wire.Update, db, record.Updated, object{"status": object{}},
			object{"status": object{"ip": ip}})
	}
	created := change("op", wire.Create, set, record.Created, nil, object{})
	const (
		once  = "restartController at onObjectUpdate database/default/db #1 afterControllerWrite "
		twice = "restartController at onObjectUpdate database/default/db #2 afterControllerWrite "
		up    = "<nil>→map[status:map[ready:1]]"
		whole = "<nil>→map[status:map[ready:2]]"
		made  = "restartController at onObjectCreation statefulset.apps/default/db #1 afterControllerWrite"
		never = "dropped: it does not happen in all runs without faults, or not in the same order"
		set   = "<nil>→map[status:map[ready:$present]]"
	)
	for _, tt := range []struct {
		name string
		runs [][]facts.Change
		want []string
	}{
		{"the same", [][]facts.Change{{created, ready(0, 1)}, {ready(0, 1), created}}, []string{made, once + up}},
		{"a step is skipped", [][]facts.Change{{created, ready(0, 1)}, {created, ready(0, 2)}},
			[]string{made, once + set}},
		{"reached in another way", [][]facts.Change{{ready(0, 2)}, {ready(0, 1), ready(1, 2)}},
			[]string{once + whole}},
		{"not there", [][]facts.Change{{created, ready(0, 2)}, {ready(0, 2)}}, []string{once + whole, never}},
		{"an address, which is the same by chance", [][]facts.Change{{at("10.128.0.5")}, {at("10.128.0.5")}},
			[]string{once + "<nil>→map[status:map[ip:$present]]"}},
		{"equally often", [][]facts.Change{
			{ready(0, 1), ready(1, 0), ready(0, 1)}, {ready(0, 1), ready(1, 0), ready(0, 1)},
		}, []string{once + up, twice + up}},
		{"not equally often", [][]facts.Change{
			{ready(0, 1), ready(1, 0), ready(0, 1)},
			{ready(0, 1), ready(1, 0), ready(0, 1), ready(1, 0), ready(0, 1)},
		}, []string{
			once + up,
			once + "<nil>→map[status:map[ready:0]]; then " + strings.TrimPrefix(once, "restartController at ") + up,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := plans(Generate(suite(t), baselines(tt.runs...), "intermediate"))
			for _, want := range tt.want {
				if !slices.Contains(got, want) {
					t.Errorf("no plan\n%s\nbut\n%s", want, strings.Join(got, "\n"))
				}
			}
		})
	}
}

// A change in a list only is identified by its place there, and a value may take more than one step back.
func TestListsAndManySteps(t *testing.T) {
	image := func(tag string) object {
		return object{"spec": object{"containers": []any{
			object{"name": "side", "image": "s:1"}, object{"name": "main", "image": "m:" + tag},
		}}}
	}
	change := func(from, to string) facts.Change {
		return change("", "", db, record.Updated, image(from), image(to))
	}
	changes := []facts.Change{change("2", "1"), change("1", "3"), change("3", "2")}
	got := plans(Generate(suite(t), baselines(changes, changes), "unobserved"))
	state := func(tag string) string {
		return "map[spec:map[containers:[$present map[image:m:" + tag + "]]]]"
	}
	want := "pauseController at onObjectUpdate database/default/db #1 afterControllerRecv " +
		state("2") + "→" + state("1") + "; resumeController at onObjectUpdate database/default/db #1 " +
		"afterControllerRecv " + state("3") + "→" + state("2") + " or 3s"
	if !slices.Contains(got, want) {
		t.Errorf("no plan\n%s\nbut\n%s", want, strings.Join(got, "\n"))
	}
}

// A write counts as following from a change only if the reconcile that made it, or the one before, had read the object.
func TestFollowUps(t *testing.T) {
	write := func(read ...string) []facts.Change {
		w := change("op", wire.Create, key, record.Created, nil, object{})
		w.Read = read
		return []facts.Change{
			change("", "", db, record.Updated, spec(2), marked(spec(2))), w,
			change("", "", db, record.Deleted, marked(spec(2)), nil),
			change("", "", db, record.Created, nil, spec(2)), w,
		}
	}
	for _, tt := range []struct {
		name string
		read []string
		want bool
	}{
		{"read by name", []string{"database/default/db"}, true},
		{"listed", []string{"database/default/*"}, true},
		{"listed in all namespaces", []string{"database/*/*"}, true},
		{"unknown", nil, true},
		{"something else", []string{"database/default/other", "secret/default/*"}, false},
		{"another namespace", []string{"database/other/*"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			changes := write(tt.read...)
			all := Generate(suite(t), baselines(changes, changes), "stale")
			got := slices.ContainsFunc(all, func(c Candidate) bool { return c.Plan != nil })
			if got != tt.want {
				t.Errorf("a plan: %t, want %t\n%s", got, tt.want, strings.Join(plans(all), "\n"))
			}
		})
	}
}

// Names that differ between runs cannot be written by a plan, and its triggers leave them open.
func TestGeneratedNames(t *testing.T) {
	run := func(suffixes ...string) []facts.Change {
		var all []facts.Change
		for i, suffix := range suffixes {
			c := change("op", wire.Create, facts.Key(fmt.Sprintf("pod/default/web-#%d", i+1)), record.Created, nil,
				object{"metadata": object{"name": "web-" + suffix}})
			c.Generated = true
			all = append(all, c)
		}
		apart(all)
		return all
	}
	ref := baselines(run("bbbbb", "ccccc"), run("ddddd", "fffff"))
	got := plans(Generate(suite(t), ref, "intermediate"))
	want := []string{
		"restartController at onObjectCreation pod/default/web-* #1 afterControllerWrite",
		"restartController at onObjectCreation pod/default/web-* #2 afterControllerWrite",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got = plans(Generate(suite(t), ref, "drift"))
	for _, want := range []string{
		"delete at onObjectCreation pod/default/web-* #2 afterControllerWrite and " +
			"onObjectCreation pod/default/web-* #2 afterControllerRecv", "dropped: " + nameless,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no %q, but %q", want, got)
		}
	}
}

// Fields that the controller sets only when it creates an object are changed on request: it may leave them to others.
func TestDriftOfWhatIsNotUpdated(t *testing.T) {
	secret := object{
		"data":     object{"password": "cA==", "user": "dQ=="},
		"metadata": object{"labels": object{"app": "db"}, "ownerReferences": []any{object{"name": "db"}}},
	}
	made := change("op", wire.Create, key, record.Created, nil, secret)
	made.Sent = secret
	unheard := change("op", wire.Create, "configmap/default/db", record.Created, nil, object{})
	unheard.Taken = nil
	ref := baselines([]facts.Change{made, unheard})
	moment := " at onObjectCreation configmap/default/db #1 afterControllerWrite; then 1s"
	got := plans(Generate(suite(t), ref, "drift-any"))
	for _, want := range []string{
		"patch secret/default/db [map[op:replace path:/data/password value:dHJvbW1lbA==]]" + moment,
		"patch secret/default/db [map[op:remove path:/metadata/labels]]" + moment,
		"patch secret/default/db [map[op:remove path:/metadata/ownerReferences]]" + moment,
		"delete" + moment,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no plan\n%s\nbut\n%s", want, strings.Join(got, "\n"))
		}
	}
	for _, c := range Generate(suite(t), ref) {
		patches := func(a plan.Action) bool { return a.Type == plan.PatchObject }
		if c.Pattern == "drift-any" || c.Plan != nil && slices.ContainsFunc(c.Plan.Actions, patches) {
			t.Errorf("not asked for: %s", c.Why)
		}
	}
}

// There is no plan where a difference at the end would say nothing against the controller.
func TestDriftRules(t *testing.T) {
	deployment := facts.Key("deployment.apps/default/db")
	template := func(image string) object {
		return object{"spec": object{
			"template": object{"spec": object{"containers": []any{object{"image": image}}}}, "replicas": 1.0,
		}}
	}
	applied := change("op", wire.Apply, deployment, record.Created, nil, template("a"))
	applied.Sent, applied.AppliedAgain = object{"spec": object{"template": object{}}}, true
	unheard := change("op", wire.Create, key, record.Created, nil, object{})
	unheard.Taken = nil
	for _, tt := range []struct {
		name    string
		changes []facts.Change
		want    string
	}{
		{"others change it", []facts.Change{
			change("op", wire.Create, set, record.Created, nil, spec(1)),
			change("op", wire.Update, set, record.Updated, spec(1), spec(2)),
			change("", "", set, record.Updated, spec(2), spec(3)),
		}, "others change the field too"},
		{"immutable", []facts.Change{
			change("op", wire.Create, "job.batch/default/db", record.Created, nil, template("a")),
			change("op", wire.Update, "job.batch/default/db", record.Updated, template("a"), template("b")),
		}, "the API server does not allow a change of the field, or not in this way"},
		{"set only at creation", []facts.Change{change("op", wire.Create, set, record.Created, nil, spec(1))},
			"the controller sets the field only when it creates the object (see drift-any)"},
		{"not heard of", []facts.Change{unheard},
			"the controller does not take in changes of the type, and may not notice (see drift-any)"},
		{"finished", []facts.Change{change("op", wire.Create, "pod/default/db", record.Created, nil,
			object{"status": object{"phase": "Succeeded"}})},
			"the object has done its work at the end: it is not needed again"},
		{"of something finished", []facts.Change{
			change("", "", "mpijob.kubeflow.org/default/m", record.Created, nil, object{
				"metadata": object{"uid": "m"}, "kind": "MPIJob",
				"status": object{"conditions": []any{object{"type": "Succeeded", "status": "True"}}},
			}),
			change("op", wire.Create, "service/default/m", record.Created, nil, object{
				"metadata": object{"ownerReferences": []any{object{"uid": "m", "controller": true}}},
			}),
		}, idleOwner},
		{"what asked for it is gone", []facts.Change{
			change("", "", "db.example.com/default/a", record.Created, nil, object{}),
			reading(change("op", wire.Create, "pod/default/db", record.Created, nil, object{}), "db/default/a",
				"pod/default/db"),
			change("", "", "db.example.com/default/a", record.Deleted, object{}, nil),
		}, unasked},
		{"a record", []facts.Change{
			change("op", wire.Create, "controllerrevision.apps/default/db-1", record.Created, nil, object{}),
		}, "the object is a record: it is made again when it is needed"},
		{"a machine", []facts.Change{change("op", wire.Create, "node//a", record.Created, nil, object{})},
			"a Node stands for a machine, which does not register again"},
		{"revisions", []facts.Change{
			applied, change("", "", "replicaset.apps/default/db-1", record.Created, nil, object{}),
		}, "a revision of each template is kept: the end state differs in any case"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := plans(Generate(suite(t), baselines(tt.changes), "drift"))
			if !slices.Contains(got, "dropped: "+tt.want) {
				t.Errorf("not dropped because %s\n%s", tt.want, strings.Join(got, "\n"))
			}
			for _, line := range got {
				if strings.HasPrefix(line, "patch") {
					t.Errorf("a plan: %s", line)
				}
			}
		})
	}
	if got := plans(Generate(suite(t), baselines([]facts.Change{applied}), "drift")); !slices.Contains(got,
		"patch deployment.apps/default/db [map[op:replace path:/spec/template/spec/containers/0/image "+
			"value:registry.example/trommel:1.0]] at onObjectCreation deployment.apps/default/db #1 "+
			"afterControllerWrite; then 1s") {
		t.Errorf("no plan for a template without revisions\n%s", strings.Join(got, "\n"))
	}
}

// The controller keeps up the parts that it applies again and again, even if that changes nothing without faults.
func TestDriftOfWhatIsApplied(t *testing.T) {
	made := change("op", wire.Apply, set, record.Created, nil, object{
		"spec": object{"replicas": 2.0, "minReadySeconds": 0.0, "podManagementPolicy": "Parallel"},
	})
	made.Sent, made.AppliedAgain = object{"spec": object{"replicas": 2.0, "podManagementPolicy": "Parallel"}}, true
	got := plans(Generate(suite(t), baselines([]facts.Change{made}), "drift"))
	const created = "onObjectCreation statefulset.apps/default/db #1 "
	moment := " at " + created + "afterControllerWrite"
	want := []string{
		"delete" + moment + " and " + created + "afterControllerRecv",
		"patch statefulset.apps/default/db [map[op:replace path:/spec/replicas value:0]]" + moment + "; then 1s",
		"delete" + moment + "; then 1s",
		"dropped: the API server does not allow a change of the field, or not in this way",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Regression: another client set a field back in the same millisecond in which the controller had set it.
func TestDriftAfterTheControllerHasSeenItsWrite(t *testing.T) {
	const update = "onObjectUpdate statefulset.apps/default/db #1 "
	const states = " map[spec:map[replicas:3]]→map[spec:map[replicas:4]]"
	for _, tt := range []struct {
		name  string
		taken []string
		want  string
	}{
		{"it takes in its write", []string{"op"}, update + "afterControllerWrite" + states + " and " + update +
			"afterControllerRecv" + states},
		{"it does not", nil, update + "afterControllerWrite" + states + "; then 1s"},
	} {
		scaled := change("op", wire.Update, set, record.Updated, spec(3), spec(4))
		scaled.Taken = tt.taken
		changes := []facts.Change{
			change("op", wire.Create, set, record.Created, nil, spec(3)), scaled,
			change("op", wire.Create, key, record.Created, nil, object{}),
		}
		want := "patch statefulset.apps/default/db [map[op:replace path:/spec/replicas value:3]] at " + tt.want
		got := plans(Generate(suite(t), baselines(changes), "drift"))
		if !slices.Contains(got, want) {
			t.Errorf("%s: no plan\n%s\nbut\n%s", tt.name, want, strings.Join(got, "\n"))
		}
	}
}

// A missing object that a client asks for is noticed first where the controller has just begun to make it.
func TestOrderOfUnobserved(t *testing.T) {
	database := facts.Key("database.example.org/default/db")
	changes := []facts.Change{
		change("", "", database, record.Created, nil, spec(2)),
		change("op", wire.Create, set, record.Created, nil, spec(2)),
		change("", "", database, record.Updated, spec(2), spec(1)),
		change("op", wire.Update, set, record.Updated, spec(2), spec(1)),
		change("op", wire.Delete, key, record.Deleted, object{}, nil),
		change("", "", database, record.Updated, spec(1), spec(2)),
		change("op", wire.Update, set, record.Updated, spec(1), spec(2)),
	}
	changes = append([]facts.Change{change("op", wire.Create, key, record.Created, nil, object{})}, changes...)
	var got []string
	for _, c := range Generate(suite(t), baselines(changes), "unobserved") {
		if c.Plan != nil && strings.HasPrefix(c.Signature, "database") {
			_, from, _ := strings.Cut(c.Signature, " / ")
			got = append(got, from)
		}
	}
	want := []string{
		"statefulset.apps updated spec.replicas", "database.example.org updated spec.replicas", "secret deleted",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
