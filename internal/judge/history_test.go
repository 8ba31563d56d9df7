package judge

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/judge/invariant"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// tale is what a run has recorded, one change a line: the second, perhaps the controller under test that made it, and
// the change: "3.5 op: created pod/default/a {…}". "op@default/db" made it in the reconcile of that request. The
// workload ends at second 10, and the recording at second 30.
func tale(t *testing.T, lines ...string) *record.Run {
	t.Helper()
	r := &record.Run{Meta: record.Meta{
		WorkloadStart: time.Unix(0, 0), WorkloadEnd: time.Unix(10, 0), Calm: time.Unix(10, 0),
		GivenBack: time.Unix(12, 0), Observed: time.Unix(30, 0),
		Controllers: []record.Controller{{Name: "op", Hooks: true}},
	}}
	marked := map[string]bool{}
	for i, line := range lines {
		second, rest, _ := strings.Cut(line, " ")
		at := secondOf(t, second)
		by := ""
		if before, after, ok := strings.Cut(rest, ": "); ok && !strings.Contains(before, " ") {
			by, rest = before, after
		}
		by, request, _ := strings.Cut(by, "@")
		event, rest, _ := strings.Cut(rest, " ")
		name, text, _ := strings.Cut(rest, " ")
		key, err := plan.ParseResourceKey(name)
		if err != nil {
			t.Fatal(err)
		}
		object := map[string]any{}
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		object["kind"], object["apiVersion"] = strings.ToUpper(key.Type[:1])+key.Type[1:], "v1"
		if key.Group != "" {
			object["apiVersion"] = key.Group + "/v1"
		}
		meta, _ := object["metadata"].(map[string]any)
		if meta == nil {
			meta = map[string]any{}
		}
		meta["namespace"], meta["name"], meta["resourceVersion"] = key.Namespace, key.Name, strconv.Itoa(i+1)
		object["metadata"] = meta
		data, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		was := marked[name]
		marked[name] = meta["deletionTimestamp"] != nil && event != record.Deleted
		r.History = append(r.History, record.HistoryEntry{
			Time: at, ResourceVersion: uint64(i + 1), Event: event, Type: key.Type, Group: key.Group,
			Namespace: key.Namespace, Name: key.Name, Object: data,
		})
		if by == "" {
			continue
		}
		o := record.Observation{
			By: by, Session: 1, Call: uint64(i + 1), Point: wire.ControllerWrite, Phase: wire.After, Op: wire.Update,
			Kind: key.Type, Resource: key.Type + "s", Group: key.Group, GroupKnown: true, Namespace: key.Namespace,
			Name: key.Name, Object: data, Request: request,
		}
		if request != "" {
			o.ReconcileID = strconv.Itoa(i)
		}
		// A controller that deletes an object with finalizers marks it only. Its object is gone when it removes them.
		switch {
		case was && event == record.Deleted:
			o.Object = json.RawMessage(`{"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}`)
		case !was && (event == record.Deleted || meta["deletionTimestamp"] != nil):
			o.Op, o.Object = wire.Delete, nil
		}
		began := o
		began.Phase, began.Object = wire.Before, nil
		for _, o := range []*record.Observation{&began, &o} {
			r.Events = append(r.Events, record.Event{Time: at, Observation: o})
		}
	}
	return r
}

// A title that the history contradicts is a mistake of the judge.
func init() { contradicted = func(what string) { panic(what) } }

func secondOf(t *testing.T, text string) time.Time {
	t.Helper()
	s, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.UnixMilli(int64(s * 1000))
}

func evidence(r *record.Run) Evidence {
	return Evidence{
		Plan: &plan.Plan{}, Meta: r.Meta, History: r.History, Events: r.Events, Actions: r.Actions, Dir: r.Dir,
		Processes: r.Processes,
	}
}

// usual is a baseline made of two runs, or of one twice.
func usual(t *testing.T, runs ...*record.Run) *baseline.Baseline {
	t.Helper()
	if len(runs) == 1 {
		runs = append(runs, runs[0])
	}
	ref, err := baseline.Learn("w", runs)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// judged returns the findings of a judge, one line each.
func judged(t *testing.T, j Judge, e Evidence) []string {
	t.Helper()
	findings, err := j.Judge(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	e.bear(findings)
	var got []string
	for _, f := range findings {
		if f.Time.IsZero() || f.Subject == "" || f.Judge == "" {
			t.Errorf("incomplete: %+v", f)
		}
		if first := firstNamed(e, f.Detail); !first.IsZero() && !f.Cause.Equal(first) {
			t.Errorf("the cause is at %s, but the first change that it names at %s: %+v", f.Cause, first, f)
		}
		got = append(got, string(f.Severity)+" "+f.Title)
	}
	return got
}

var happened = regexp.MustCompile(`\(resource version (\d+)\)`)

// firstNamed is when the first change happened that a detail names; zero: it names none.
func firstNamed(e Evidence, detail string) (first time.Time) {
	for _, m := range happened.FindAllStringSubmatch(detail, -1) {
		for _, h := range e.History {
			if fmt.Sprint(h.ResourceVersion) == m[1] && (first.IsZero() || h.Time.Before(first)) {
				first = h.Time
			}
		}
	}
	return first
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// patches is a plan that writes objects, and deletes one that deletes them.
var (
	pod      = plan.Writing{ResourceKey: plan.ResourceKey{Type: "pod", Name: "x"}}
	patches  = &plan.Plan{Actions: []plan.Action{{Type: plan.PatchObject, Writing: pod}}}
	conflict = &plan.Plan{Actions: []plan.Action{{Type: plan.PatchObject, Writing: plan.Writing{
		ResourceKey: plan.ResourceKey{Type: "job", Name: "a"},
		Patch: map[string]any{"metadata": map[string]any{"annotations": map[string]any{
			baseline.ConflictAnnotation: "changed by another client",
		}}},
	}}}}
	deletes = &plan.Plan{Actions: []plan.Action{{Type: plan.DeleteObject, Writing: pod}}}
	kills   = &plan.Plan{Actions: []plan.Action{{Type: plan.RestartController, Target: "op"}}}
)

const (
	set = `set/default/web {"metadata": {"uid": "u", "generation": 1}, "spec": {"replicas": 2}}`
	// A set that asks for no number.
	anySet = `set/default/web {"metadata": {"uid": "u"}, "spec": {}}`
)

// member is a pod of the set with a generated name, by the letter a, b or c.
func member(name, more string) string {
	generated := "bcdf" + string(name[0]+1) // generated names have no vowels
	return `pod/default/web-` + generated + ` {"metadata": {"generateName": "web-", "uid": "` + name +
		`", "ownerReferences": [{"controller": true, "uid": "u"}]` + more + `}}`
}

func TestDuplicates(t *testing.T) {
	two := []string{"1 created " + set, "2 op: created " + member("a", ""), "2 op: created " + member("b", "")}
	three := slices.Concat(two, []string{"3 op: created " + member("c", ""), "4 op: deleted " + member("c", "")})
	others := []string{
		"1 created " + set,
		"2 created " + member("a", ""), "2 created " + member("b", ""), "2 created " + member("c", ""),
	}
	anyTwo, anyThree := slices.Clone(two), slices.Clone(three)
	anyTwo[0], anyThree[0] = "1 created "+anySet, "1 created "+anySet
	named := []string{"1 created " + set}
	for _, n := range []string{"a", "b", "c"} {
		named = append(named, "2 op: created "+strings.Replace(member(n, ""), `"generateName": "web-", `, "", 1))
	}
	const finding = "set/default/web had too many objects at a time: 3 of type pod instead of 2"
	for _, tt := range []struct {
		name     string
		lines    []string
		baseline []string
		plan     *plan.Plan
		want     string
	}{
		{name: "as many as wanted", lines: two, baseline: two},
		{name: "too many", lines: three, baseline: two, want: "bug " + finding + ", without faults 2 at most"},
		{name: "too many at the end", lines: three[:4], baseline: two,
			want: "bug " + finding + ", without faults 2 at most"},
		{name: "without faults too", lines: three, baseline: three},
		{name: "without a baseline", lines: three, want: "note " + finding},
		{name: "nothing says how many", lines: anyThree, baseline: anyTwo,
			want: "note set/default/web had too many objects at a time: 3 of type pod, without faults 2 at most"},
		{name: "nothing says anything", lines: anyThree},
		{name: "the plan has written", lines: three, baseline: two, plan: patches},
		{name: "the plan has deleted", lines: three, baseline: two, plan: deletes,
			want: "note " + finding + ", without faults 2 at most"},
		{name: "somebody else made them", lines: others, baseline: two},
		{name: "each has a purpose", lines: named, baseline: two},
		{name: "fewer are wanted now", baseline: two, lines: slices.Concat(two, []string{
			`3 updated set/default/web {"metadata": {"uid": "u"}, "spec": {"replicas": 1}}`,
		})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(tale(t, tt.lines...))
			if tt.baseline != nil {
				e.Baseline = usual(t, tale(t, tt.baseline...))
			}
			if tt.plan != nil {
				e.Plan = tt.plan
			}
			var want []string
			if tt.want != "" {
				want = []string{tt.want}
			}
			expect(t, judged(t, duplicates{}, e), want...)
		})
	}
}

func TestDependents(t *testing.T) {
	const pod = `pod/default/web-0 {"metadata": {"uid": "p", "ownerReferences": [{"controller": true, "uid": "u"}]}`
	again := []string{
		"1 created " + set, "2 op: created " + pod + "}", "5 op: deleted " + pod + "}", "6 op: created " + pod + "}",
	}
	with := func(at int, line string) []string { return slices.Insert(slices.Clone(again), at, line) }
	const finding = "note pod/default/web-0 was deleted by op and created again, although its owner was alive and " +
		"its spec had not changed: deleted at +5s"
	for _, tt := range []struct {
		name  string
		lines []string
		plan  *plan.Plan
		want  string
	}{
		{name: "created again", lines: again, want: finding},
		{name: "marked first", want: finding, lines: []string{
			again[0], again[1],
			`5 op: updated pod/default/web-0 {"metadata": {"uid": "p", "deletionTimestamp": "now",
				"ownerReferences": [{"controller": true, "uid": "u"}]}}`,
			`5 deleted pod/default/web-0 {"metadata": {"uid": "p", "deletionTimestamp": "now",
				"ownerReferences": [{"controller": true, "uid": "u"}]}}`,
			again[3],
		}},
		{name: "the owner's status has changed", want: finding, lines: with(2,
			`4 updated set/default/web {"metadata": {"uid": "u"}, "spec": {"replicas": 2}, "status": {"x": 1}}`)},
		{name: "the spec has changed",
			lines: with(2, `4 updated set/default/web {"metadata": {"uid": "u"}, "spec": {"replicas": 3}}`)},
		{name: "the owner is being deleted", lines: with(2, `4 updated set/default/web `+
			`{"metadata": {"uid": "u", "deletionTimestamp": "now"}, "spec": {"replicas": 2}}`)},
		{name: "it is not created again", lines: again[:3]},
		{name: "somebody else has deleted it", lines: []string{
			again[0], again[1], "5 deleted " + pod + "}", again[3],
		}},
		{name: "it had failed", lines: []string{
			again[0], again[1], "5 op: deleted " + pod + `, "status": {"phase": "Failed"}}`, again[3],
		}},
		{name: "the plan has written", lines: again, plan: patches},
		{name: "after an action", lines: again, plan: kills, want: finding + " after action 1 (restartController op)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(tale(t, tt.lines...))
			e.Actions = []record.Action{{Type: "restartController", Target: "op", Began: time.Unix(4, 0)}}
			if tt.plan != nil {
				e.Plan = tt.plan
			}
			var want []string
			if tt.want != "" {
				want = []string{tt.want}
			}
			expect(t, judged(t, dependents{}, e), want...)
			e.Baseline = usual(t, tale(t, again...))
			expect(t, judged(t, dependents{}, e))
		})
	}
}

func TestOrphans(t *testing.T) {
	const child = `secret/default/s {"metadata": {"uid": "s", "ownerReferences": [{"uid": "u"}]}}`
	const both = `secret/default/s {"metadata": {"uid": "s", "ownerReferences": [{"uid": "u"}, {"uid": "v"}]}}`
	const unknown = `secret/default/s {"metadata": {"uid": "s", "ownerReferences": [{"uid": "w"}]}}`
	for _, tt := range []struct {
		name  string
		lines []string
		want  []string
	}{
		{name: "left", lines: []string{"1 created " + set, "2 created " + child, "3 deleted " + set}, want: []string{
			"note secret/default/s is still there although its owner set/default/web is gone: " +
				"the owner was deleted at +3s",
		}},
		{
			name: "left by an owner that has a successor",
			lines: []string{"1 created " + set, "2 created " + child, "3 deleted " + set,
				"4 created " + strings.Replace(set, `"u"`, `"v"`, 1)},
			want: []string{"note secret/default/s is still there although its owner set/default/web was replaced by " +
				"another one of that name: the owner was deleted at +3s"},
		},
		{name: "collected", lines: []string{
			"1 created " + set, "2 created " + child, "3 deleted " + set, "4 deleted " + child,
		}},
		{name: "another owner", lines: []string{"1 created " + set, "2 created " + both, "3 deleted " + set}},
		{name: "an owner that is not recorded", lines: []string{"2 created " + unknown}},
		{name: "just now", lines: []string{"1 created " + set, "2 created " + child, "27 deleted " + set}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			expect(t, judged(t, orphans{}, evidence(tale(t, tt.lines...))), tt.want...)
		})
	}
}

// flips is an object whose field changes back and forth, from one second to another.
func flips(from, to float64, step float64, by string) []string {
	lines := []string{`1 created pod/default/a {"spec": {"x": 0}}`}
	for i := 0; ; i++ {
		at := from + float64(i)*step
		if at > to {
			return lines
		}
		who := ""
		if i%2 == 0 {
			who = by
		}
		lines = append(lines, fmt.Sprintf(`%g %supdated pod/default/a {"spec": {"x": %d}}`, at, who, (i+1)%2))
	}
}

func TestReverts(t *testing.T) {
	create := `1 op: created job/default/a {"spec": {"suspend": true}, "status": {"n": 0}}`
	set := func(at int, by string, value bool) string {
		return fmt.Sprintf(`%d %supdated job/default/a {"spec": {"suspend": %t}, "status": {"n": 0}}`, at, by, value)
	}
	status := func(at, n int) string {
		return fmt.Sprintf(`%d op: updated job/default/a {"spec": {"suspend": false}, "status": {"n": %d}}`, at, n)
	}
	data := func(at int, by, meta, password string) string {
		return fmt.Sprintf(`%d %supdated secret/default/s {"metadata": {%s}, "data": {"password": %q}}`, at, by, meta,
			password)
	}
	secret := []string{strings.Replace(data(1, "op: ", "", "a"), "updated", "created", 1), data(2, "op: ", "", "b")}
	resumed := []string{create, set(2, "op: ", false)}
	const finding = "bug spec.suspend of job/default/a is set back to what it was before %s by op; without faults: %s"
	for _, tt := range []struct {
		name     string
		lines    []string
		baseline []string
		also     []string // an alternative
		plan     *plan.Plan
		want     []string
	}{
		{name: "for a while", lines: append(slices.Clone(resumed), set(3, "op: ", true), set(4, "op: ", false)),
			baseline: resumed, want: []string{fmt.Sprintf(finding, "2 times", "never")}},
		{name: "data", lines: append(slices.Clone(secret), data(3, "op: ", "", "a"), data(4, "op: ", "", "b")),
			baseline: secret, want: []string{`bug data.password of secret/default/s is set back to what it was ` +
				`before 2 times by op; without faults: never`}},
		{name: "a label", lines: append(slices.Clone(secret), data(3, "op: ", `"labels": {"v": "1"}`, "b"),
			data(4, "op: ", `"labels": {"v": "2"}`, "b"), data(5, "op: ", `"labels": {"v": "1"}`, "b")),
			baseline: secret, want: []string{`bug metadata.labels.v of secret/default/s is set back to what it was ` +
				`before once by op; without faults: never`}},
		{name: "a label for as long as something goes on", lines: append(slices.Clone(secret),
			data(3, "op: ", `"labels": {"busy": "1"}`, "b"), data(4, "op: ", "", "b")), baseline: secret},
		{name: "finalizers", lines: append(slices.Clone(secret), data(3, "op: ", `"finalizers": ["x"]`, "b"),
			data(4, "op: ", "", "b")), baseline: secret},
		{name: "a conflict", lines: append(slices.Clone(resumed), set(3, "op: ", true), set(4, "op: ", false)),
			baseline: resumed, plan: conflict, want: []string{fmt.Sprintf(finding, "2 times", "never")}},
		{name: "a conflict whose annotation is copied",
			lines: append(slices.Clone(resumed), set(3, "op: ", true), set(4, "op: ", false),
				`5 op: created pod/default/a {"metadata": {"annotations": {"trommel.dev/conflict": "x"}}}`),
			baseline: resumed, plan: conflict},
		{name: "once more than without faults",
			lines:    append(slices.Clone(resumed), set(3, "op: ", true), set(4, "op: ", false)),
			baseline: append(slices.Clone(resumed), set(3, "op: ", true)),
			want:     []string{fmt.Sprintf(finding, "2 times", "once")}},
		{name: "as without faults", lines: append(slices.Clone(resumed), set(3, "op: ", true)),
			baseline: append(slices.Clone(resumed), set(3, "op: ", true))},
		{name: "as with slow controllers", lines: append(slices.Clone(resumed), set(3, "op: ", true)),
			baseline: resumed, also: append(slices.Clone(resumed), set(3, "op: ", true))},
		{name: "by somebody else", lines: append(slices.Clone(resumed), set(3, "", true)), baseline: resumed},
		{name: "the plan writes", lines: append(slices.Clone(resumed), set(3, "op: ", true)), baseline: resumed,
			plan: patches},
		{name: "without a baseline", lines: append(slices.Clone(resumed), set(3, "op: ", true))},
		{name: "a status", lines: append(slices.Clone(resumed), status(3, 1), status(4, 0)), baseline: resumed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(tale(t, tt.lines...))
			if tt.baseline != nil {
				e.Baseline = usual(t, tale(t, tt.baseline...))
			}
			if tt.also != nil {
				if err := e.Baseline.Allow(tale(t, tt.also...)); err != nil {
					t.Fatal(err)
				}
			}
			if tt.plan != nil {
				e.Plan = tt.plan
			}
			expect(t, judged(t, reverts{}, e), tt.want...)
		})
	}
}

func TestFights(t *testing.T) {
	quiet := []string{`1 created pod/default/a {"spec": {"x": 0}}`}
	counter := slices.Clone(quiet)
	for i := range 20 {
		counter = append(counter, fmt.Sprintf(`%d op: updated pod/default/a {"spec": {"x": %d}}`, 10+i, i+1))
	}
	const finding = "spec.x of pod/default/a changes back and forth, and op takes part: 20 times in the last 20s"
	for _, tt := range []struct {
		name     string
		lines    []string
		baseline []string
		plan     *plan.Plan
		want     []string
	}{
		{name: "without end", lines: flips(10, 30, 1, "op: "), baseline: quiet, want: []string{"bug " + finding}},
		{name: "without a baseline", lines: flips(10, 30, 1, "op: "), want: []string{"note " + finding}},
		{name: "the plan has written", lines: flips(10, 30, 1, "op: "), baseline: quiet, plan: patches,
			want: []string{"note " + finding}},
		{name: "without faults too", lines: flips(10, 30, 1, "op: "), baseline: flips(10, 30, 1, "op: ")},
		{name: "it ends", lines: flips(10, 20, 1, "op: "), baseline: quiet},
		{name: "while the plan goes on", lines: flips(1, 10, 1, "op: "), baseline: quiet},
		{name: "a few times", lines: flips(26, 30, 1, "op: "), baseline: quiet},
		{name: "among others", lines: flips(10, 30, 1, ""), baseline: quiet},
		{name: "a counter", lines: counter, baseline: quiet},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(tale(t, tt.lines...))
			if tt.baseline != nil {
				e.Baseline = usual(t, tale(t, tt.baseline...))
			}
			if tt.plan != nil {
				e.Plan = tt.plan
			}
			expect(t, judged(t, fights{}, e), tt.want...)
		})
	}
}

func TestLoops(t *testing.T) {
	// often are observations of one kind at the given seconds.
	often := func(o record.Observation, seconds ...float64) []record.Event {
		var all []record.Event
		for _, s := range seconds {
			o := o
			o.By, o.Phase = "op", wire.After
			all = append(all, record.Event{Time: time.UnixMilli(int64(s * 1000)), Observation: &o})
		}
		return all
	}
	every := func(step float64) []float64 {
		var all []float64
		for s := 10.0; s <= 30; s += step {
			all = append(all, s)
		}
		return all
	}
	var slower []float64 // with pauses that double
	for pause, s := 0.005, 10.0; s < 30; pause, s = 2*pause, s+pause {
		slower = append(slower, s)
	}
	status := record.Observation{Point: wire.ControllerWrite, Op: wire.Update, Kind: "Database", Namespace: "default",
		Name: "db", Subresource: "status"}
	failing := status
	failing.Error = "invalid"
	create := record.Observation{Point: wire.ControllerWrite, Op: wire.Create, Kind: "Pod", Namespace: "default",
		Name: "web-x2bcd", Object: []byte(`{"metadata": {"generateName": "web-"}}`)}
	event := status
	event.Kind = "Event"
	lease := status
	lease.Election = true
	reconcile := record.Observation{Point: wire.Reconcile, Reconciler: "database", Request: "default/db"}
	for _, tt := range []struct {
		name     string
		events   []record.Event
		baseline []record.Event
		plan     *plan.Plan
		calm     int64
		want     []string
	}{
		{name: "writes", events: often(status, every(0.25)...),
			want: []string{"bug op writes database/default/db without end: 81 times in the last 20s"}},
		{name: "writes that fail", events: often(failing, every(0.25)...),
			want: []string{"bug op writes database/default/db without end: 81 times in the last 20s"}},
		{name: "generated names", events: often(create, every(0.25)...),
			want: []string{"bug op writes pod/default/web-* without end: 81 times in the last 20s"}},
		{name: "the plan has written", events: often(status, every(0.25)...), plan: patches,
			want: []string{"note op writes database/default/db without end: 81 times in the last 20s"}},
		{name: "without faults too", events: often(status, every(0.25)...), baseline: often(status, every(0.25)...)},
		{name: "now and then", events: often(status, every(1)...)},
		{name: "growing pauses", events: often(failing, slower...)},
		{name: "a burst", events: often(status, every(0.05)[:100]...)},
		{name: "not for long", events: often(status, every(0.25)...), calm: 25},
		{name: "messages", events: often(event, every(0.25)...)},
		{name: "leader election", events: often(lease, every(0.25)...)},
		{name: "reconciles", events: often(reconcile, every(0.05)...),
			want: []string{"note op reconciles default/db in database without end: 400 times in the last 20s"}},
		{name: "reconciles now and then", events: often(reconcile, every(0.5)...)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := tale(t)
			r.Events = tt.baseline
			e := evidence(tale(t))
			e.Events, e.Baseline = tt.events, usual(t, r)
			if tt.calm > 0 {
				e.Meta.Calm = time.Unix(tt.calm, 0)
			}
			if tt.plan != nil {
				e.Plan = tt.plan
			}
			expect(t, judged(t, loops{}, e), tt.want...)
		})
	}
}

// errorLine is an error in a log, and loggedBy a run with that log.
func errorLine(second float64, text string) string {
	return time.UnixMilli(int64(second*1000)).UTC().Format(time.RFC3339Nano) + "\tERROR\t" + text + "\t{}\n"
}

func loggedBy(t *testing.T, log string, changes ...string) *record.Run {
	t.Helper()
	r := tale(t, changes...)
	r.Dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(r.Dir, "op.log"), []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Processes = []record.Process{{Controller: "op", LogFile: "op.log"}}
	return r
}

// A run that ends differently says which error its controller has logged last that it does not log without faults.
func TestErrorOfADifference(t *testing.T) {
	const before, after = "1 op: created pod/default/a {}", "2 op: created pod/default/b {}"
	usualLog := errorLine(1, "usual")
	for _, tt := range []struct {
		name, log, want string
	}{
		{"a new one", errorLine(12, "other") + errorLine(28, "2 pods found") + errorLine(29, "usual"),
			"op logs an error that it does not log without faults, the last time at +28s, in op.log:\n  2 pods found"},
		{"only the usual one", errorLine(29, "usual"), ""},
		{"before it was left alone", errorLine(5, "2 pods found"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(loggedBy(t, tt.log, before, after))
			e.Baseline = usual(t, loggedBy(t, usualLog, before))
			found, err := faultFree{}.Judge(t.Context(), e)
			if err != nil || len(found) != 1 {
				t.Fatalf("%+v, %v", found, err)
			}
			_, said, _ := strings.Cut(found[0].Detail, "op logs")
			if said != strings.TrimPrefix(tt.want, "op logs") {
				t.Errorf("got %q, want %q", said, tt.want)
			}
		})
	}
}

func TestLeases(t *testing.T) {
	write := func(session, version uint64, election bool, holder string) record.Event {
		o := record.Observation{By: "op", Session: session, Point: wire.ControllerWrite, Phase: wire.After,
			Op: wire.Update, Kind: "database", Namespace: "default", Name: "db"}
		if election {
			o.Kind, o.Name, o.Election = "lease", "op", true
		}
		o.Object = fmt.Appendf(nil, `{"metadata": {"resourceVersion": "%d"}, "spec": {"holderIdentity": %q}}`, version,
			holder)
		return record.Event{Time: time.Unix(int64(version), 0), Observation: &o}
	}
	for _, tt := range []struct {
		name   string
		events []record.Event
		want   []string
	}{
		{"after it", []record.Event{
			write(1, 1, true, "a"), write(1, 2, false, ""), write(2, 3, true, "b"), write(2, 4, false, ""),
			write(1, 5, false, ""), write(1, 6, false, ""),
		}, []string{"note a process of op wrote after it had lost its lease: update database/default/db at +5s"}},
		{"observed later", []record.Event{
			write(1, 1, true, "a"), write(2, 3, true, "b"), write(1, 2, false, ""),
		}, nil},
		{"renewed", []record.Event{write(1, 1, true, "a"), write(1, 2, true, "a"), write(1, 3, false, "")}, nil},
		{"given back", []record.Event{write(1, 1, true, "a"), write(1, 2, true, ""), write(1, 3, false, "")}, nil},
		{"never led", []record.Event{write(1, 1, true, "a"), write(2, 2, false, "")}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(tale(t))
			e.Events = tt.events
			expect(t, judged(t, leases{}, e), tt.want...)
		})
	}
}

func TestLoggedErrors(t *testing.T) {
	every := func(from, to, step float64, text string) (log string) {
		for s := from; s <= to; s += step {
			log += errorLine(s, text)
		}
		return log
	}
	const finding = `note op logs an error without end that it does not log without faults: "no #", 41 times in the ` +
		"last 20s"
	for _, tt := range []struct {
		name, log, baseline string
		want                []string
	}{
		{name: "without end", log: every(10, 30, 0.5, "no 1"), want: []string{finding}},
		{name: "without faults too", log: every(10, 30, 0.5, "no 1"), baseline: errorLine(1, "no 2")},
		{
			name: "another one", log: every(10, 30, 0.5, "no 1"), baseline: errorLine(1, "not 2"),
			want: []string{finding},
		},
		{name: "it ends", log: every(10, 25, 0.5, "no 1")},
		{name: "during the plan", log: every(1, 10, 0.1, "no 1")},
		{name: "now and then", log: every(10, 30, 2, "no 1")},
		{name: "mostly at first", log: every(10, 15, 0.1, "no 1") + errorLine(29, "no 1")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(loggedBy(t, tt.log))
			e.Baseline = usual(t, loggedBy(t, tt.baseline))
			expect(t, judged(t, loggedErrors{}, e), tt.want...)
			e.Baseline = nil
			expect(t, judged(t, loggedErrors{}, e))
		})
	}
}

// A finding says what, where, when and after which of the plan's actions.
func TestWhatABaselineFindingSays(t *testing.T) {
	run := func(lines ...string) *record.Run { return tale(t, lines...) }
	const before = `secret/default/a {"data": {"user": "u", "size": 1}}`
	const after = `secret/default/a {"data": {"size": 2}}`
	ref := usual(t, run("1 created "+before, "1 op: created pod/default/p {}"))
	e := evidence(run("1 created "+before, "1 op: created pod/default/p {}", "5 op: updated "+after,
		"6 op: deleted pod/default/p {}", "7 op: created pod/default/p {}"))
	e.Baseline, e.Plan = ref, kills
	e.Actions = []record.Action{{Type: "restartController", Target: "op", Began: time.Unix(4, 0)}}
	findings, err := faultFree{}.Judge(t.Context(), e)
	if err != nil || len(findings) != 2 {
		t.Fatalf("%+v, %v", findings, err)
	}
	expect(t, []string{
		findings[0].Title, findings[0].Detail, findings[0].Time.UTC().Format(time.TimeOnly), findings[1].Title,
		findings[1].Detail,
	},
		"pod default/p was deleted by op and created again: created 2 times; without faults: created once",
		`pod/default/p: created by op at +1s before the plan's first action (resource version 2)
pod/default/p: deleted by op at +6s after action 1 (restartController op) (resource version 4)
pod/default/p: created by op at +7s after action 1 (restartController op) (resource version 5)
action 1 (restartController op): at +4s`,
		"00:00:07",
		"secret/default/a differs from the runs without faults: data.size is 2; without faults: 1",
		`with it: data.user is absent; without faults: "u"
secret/default/a: updated by op at +5s after action 1 (restartController op) (resource version 3)
action 1 (restartController op): at +4s`)
}

// Regression: a claim that a late controller had made for the run before was taken for one with a wrong label.
func TestWhatTheRunBeforeHasLeft(t *testing.T) {
	uid := func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
	run := func(event string, db, of int) *record.Run {
		claim := event + ` persistentvolumeclaim/default/data-db-0 {"metadata": {"labels": {"db": "` + uid(of) + `"}}}`
		made := `created database.example.com/default/db {"metadata": {"uid": "` + uid(db) + `"}}`
		if event == record.Existing {
			bound := strings.Replace(claim, event, "3 updated", 1)
			return tale(t, "0 "+claim, "1 "+made, strings.TrimSuffix(bound, "}")+`, "status": {"phase": "Bound"}}`)
		}
		return tale(t, "1 "+made, "2 "+strings.TrimSuffix(claim, "}")+`, "status": {"phase": "Bound"}}`)
	}
	ref := usual(t, run("created", 1, 1), run("created", 2, 2))
	for _, tt := range []struct {
		name string
		run  *record.Run
		want []string
	}{
		{"of this run", run("created", 3, 3), nil},
		{"there at the start", run(record.Existing, 3, 2), []string{
			"inconclusive persistentvolumeclaim/default/data-db-0 names an object that was there before the run: " +
				"metadata.labels.db has the UID " + uid(2),
			"inconclusive persistentvolumeclaim/default/data-db-0 differs from the runs without faults: " +
				"metadata.labels.db is \"" + uid(2) + `"; without faults: "(UID of database.example.com/default/db)"`,
		}},
		{"made late", run("created", 3, 2), []string{
			"inconclusive persistentvolumeclaim/default/data-db-0 names an object that was there before the run: " +
				"metadata.labels.db has the UID " + uid(2),
			"inconclusive persistentvolumeclaim/default/data-db-0 differs from the runs without faults: " +
				"metadata.labels.db is \"" + uid(2) + `"; without faults: "(UID of database.example.com/default/db)"`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(tt.run)
			e.Baseline = ref
			var got []string
			for _, f := range Hear(t.Context(), e, []Judge{faultFree{}}) {
				got = append(got, string(f.Severity)+" "+f.Title)
			}
			expect(t, got, tt.want...)
		})
	}
}

// Judges of the history are silent where nothing is wrong, and about runs that failed.
func TestHistoryJudgesAreSilent(t *testing.T) {
	r := tale(t, "1 created "+set, "2 op: created "+member("a", ""), "2 op: created "+member("b", ""),
		`3 updated set/default/web {"metadata": {"uid": "u", "generation": 2}, "spec": {"replicas": 1}}`,
		"4 op: deleted "+member("b", ""),
		`5 updated set/default/web {"metadata": {"uid": "u", "generation": 3}, "spec": {"replicas": 2}}`,
		"6 op: created "+member("c", ""), "7 deleted "+set, "8 deleted "+member("a", ""), "8 deleted "+member("c", ""))
	failed := evidence(r)
	failed.Meta.Calm, failed.Meta.GivenBack = time.Time{}, time.Time{}
	withBaseline := evidence(r)
	withBaseline.Baseline = usual(t, r)
	for _, e := range []Evidence{evidence(r), withBaseline, failed} {
		e.Invariants = &invariant.Set{}
		if findings := Hear(t.Context(), e, Judges()); len(findings) > 0 {
			t.Errorf("got %+v", findings)
		}
	}
}
