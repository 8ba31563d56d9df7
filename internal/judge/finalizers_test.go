package judge

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// running is a process of the controller from the second on, planned one that the plan killed at another.
func running(from int64) record.Process {
	return record.Process{Controller: "op", Started: time.Unix(from, 0)}
}

func ended(at int64, planned bool) record.Process {
	return record.Process{Controller: "op", Started: time.Unix(0, 0), Ended: time.Unix(at, 0), Planned: planned}
}

// A plan without a baseline: an object that is marked for deletion stays because of a finalizer that its controller
// does not remove.
func TestFinalizers(t *testing.T) {
	of := func(name, more string) string {
		return name + ` {"metadata": {"uid": "` + name + `", "labels": {"x": "y"}` + more + `}}`
	}
	object := func(more string) string { return of("database.example.com/default/db", more) }
	const ours, mark = `, "finalizers": ["example.com/op"]`, `, "deletionTimestamp": "now"`
	const foreground = `, "finalizers": ["foregroundDeletion"]`
	const inUse = `, "finalizers": ["kubernetes.io/pvc-protection"]`
	const byDB = `, "ownerReferences": [{"uid": "database.example.com/default/db", "controller": true,
		"apiVersion": "example.com/v1", "kind": "Database", "name": "db"}]`
	stuck := []string{"1 created " + object(""), "2 op: updated " + object(ours), "9 updated " + object(ours+mark)}
	and := func(lines ...string) []string { return slices.Concat(stuck, lines) }
	const finding = "database default/db is marked for deletion, and stays because of its finalizer example.com/op, " +
		"which op set and does not remove: marked for deletion at +9s after action 1 (restartController op)"
	const child = "service default/db-0 of database default/db is marked for deletion, and stays because of its " +
		"finalizer example.com/op, which op set and does not remove: marked for deletion at +9s after action 1 " +
		"(restartController op)"
	const bug, note = "bug " + finding, "note " + finding
	for _, tt := range []struct {
		name  string
		lines []string
		with  func(e *Evidence)
		want  string
		why   string // the note's detail says this
	}{
		{name: "stuck", lines: stuck, want: bug},
		{name: "gone", lines: and("11 op: deleted " + object(ours+mark))},
		{name: "not marked", lines: stuck[:2]},
		{name: "set when it was created", want: bug,
			lines: []string{"1 op: created " + object(ours), "9 updated " + object(ours+mark)}},
		{name: "marked by the controller itself", want: bug, lines: []string{stuck[0], stuck[1], "9 op: updated " +
			object(ours+mark)}},
		{name: "another finalizer is removed", want: bug, lines: []string{
			stuck[0], "2 op: updated " + object(`, "finalizers": ["a/b", "example.com/op"]`),
			"9 updated " + object(`, "finalizers": ["a/b", "example.com/op"]`+mark),
			"9.5 op: updated " + object(ours+mark),
		}},

		// Whose finalizer it is.
		{name: "set by nobody knows whom", lines: []string{stuck[0], "2 updated " + object(ours), stuck[2]}},
		{name: "set by the workload", lines: []string{stuck[0], "2 updated " + object(ours), stuck[2]},
			with: writer("trommel-workload")},
		{name: "set by kubectl", lines: []string{stuck[0], "2 updated " + object(ours), stuck[2]},
			with: writer("kubectl-client-side-apply")},
		{name: "set by Kubernetes", lines: []string{stuck[0], "2 updated " + object(ours), stuck[2]},
			with: writer("kube-controller-manager")},
		{name: "set by a controller that is not under test", with: writer("other"),
			lines: []string{stuck[0], "2 updated " + object(ours), stuck[2]},
			want:  strings.Replace(note, "which op set", "which other set", 1),
			why:   "no controller under test set it, or removed one like it"},
		{name: "set by another one than removes it", with: writer("other"), lines: []string{
			stuck[0], "2 updated " + object(ours), stuck[2],
			"3 created " + of("database.example.com/default/b", ours),
			"4 op: updated " + of("database.example.com/default/b", ""),
		}, want: strings.Replace(bug, "which op set", "which other set", 1)},
		{name: "set by another one than removes it, who is away", lines: []string{
			stuck[0], "2 updated " + object(ours), stuck[2],
			"3 created " + of("database.example.com/default/b", ours),
			"4 op: updated " + of("database.example.com/default/b", ""),
		}, with: func(e *Evidence) { writer("other")(e); e.Processes = []record.Process{ended(8, true)} }},

		// Kubernetes' own finalizers, for which the workload is responsible.
		{name: "a volume claim in use", lines: []string{
			stuck[0], "2 op: updated " + object(inUse), "9 updated " + object(inUse+mark),
		}},
		{name: "the controller deletes in the foreground", lines: []string{
			stuck[0], "9 op: updated " + object(foreground+mark),
		}},
		{name: "orphaned", lines: []string{stuck[0], "9 op: updated " + object(`, "finalizers": ["orphan"]`+mark)}},

		// The controller must have had its chance.
		{name: "killed by the plan for good", lines: stuck,
			with: func(e *Evidence) { e.Processes = []record.Process{ended(8, true)} }},
		{name: "back too late", lines: stuck,
			with: func(e *Evidence) { e.Processes = []record.Process{ended(8, true), running(97)} }},
		{name: "back in time", lines: stuck, want: bug, with: func(e *Evidence) {
			e.Processes = []record.Process{ended(8, true), running(12)}
			e.Events = append(e.Events, record.Event{Time: time.Unix(13, 0), Observation: &record.Observation{
				By: "op", Session: 2, Point: wire.Reconcile,
			}})
		}},
		{name: "crashed", lines: stuck, want: note, why: "op was not running in the end",
			with: func(e *Evidence) { e.Processes = []record.Process{ended(100, false)} }},
		{name: "marked just now", lines: []string{stuck[0], stuck[1], "97 updated " + object(ours+mark)}},
		{name: "changed just now", lines: and("98 op: updated " + object(ours+mark+`, "generation": 2`))},
		{name: "calm just now", lines: stuck, with: func(e *Evidence) { e.Meta.Calm = time.Unix(97, 0) }},
		{name: "no calm", lines: stuck, with: func(e *Evidence) { e.Meta.Calm = time.Time{} }},
		{name: "not at rest", lines: stuck, want: note, why: "not known to be at rest",
			with: func(e *Evidence) { e.Meta.Rested = false }},
		{name: "a call failed", lines: stuck, want: note, why: "a call of op was made to fail", with: func(
			e *Evidence,
		) {
			e.Events = append(e.Events, record.Event{Time: time.Unix(50, 0), Observation: &record.Observation{
				By: "op", Point: wire.ControllerWrite, Failed: "403",
			}})
		}},
		{name: "it looks again by itself later", lines: stuck, want: note, with: polls(5 * time.Minute),
			why: "op puts something off for longer than it was watched"},
		{name: "it has looked again", lines: stuck, want: bug, with: polls(30 * time.Second)},
		{name: "watched for a short time", lines: stuck, want: note, why: "it was watched for only 50s",
			with: func(e *Evidence) { e.Meta.Observed = time.Unix(60, 0) }},

		// The controller may wait for something.
		{name: "another object names it", want: note, why: "user default/u, which still exists, names it",
			lines: and(`3 created user.example.com/default/u {"spec": {"databases": [{"name": "db"}]}}`)},
		{name: "another object that is gone named it", want: bug,
			lines: and(`3 created user.example.com/default/u {"spec": {"databases": [{"name": "db"}]}}`,
				`4 deleted user.example.com/default/u {"spec": {"databases": [{"name": "db"}]}}`)},
		{name: "a status names it", want: bug,
			lines: and(`3 created user.example.com/default/u {"status": {"database": "db"}}`)},
		{name: "the controller's own object names it", want: bug,
			lines: and(`3 op: created user.example.com/default/u {"spec": {"database": "db"}}`)},
		{name: "what belongs to it names it", want: bug, lines: and(`3 created ` + of("pod/default/p", byDB+
			`, "annotations": {"database": "db"}`))},
		{name: "what belongs to it stays", want: note,
			why: "volume claim default/data-db, which belongs to it, is marked for deletion and stays, too",
			lines: and(`3 created `+of("persistentvolumeclaim/default/data-db", byDB+inUse),
				`9 op: updated `+of("persistentvolumeclaim/default/data-db", byDB+inUse+mark))},
		{name: "what belongs to it is stuck", lines: and(`3 op: created `+of("service/default/db-0", byDB+ours),
			`9 op: updated `+of("service/default/db-0", byDB+ours+mark)),
			want: "bug " + child},

		// What the comparison, or the plan itself, explains.
		{name: "a baseline", lines: stuck, with: func(e *Evidence) { e.Baseline = usual(t, tale(t, stuck...)) }},
		{name: "a baseline without it", lines: stuck, with: func(e *Evidence) {
			e.Baseline = usual(t, tale(t, append(slices.Clone(stuck), "11 op: deleted "+object(ours+mark))...))
		}},
		{name: "the plan has written", lines: stuck, with: func(e *Evidence) { e.Plan = patches }},
		{name: "the plan did nothing", lines: stuck, why: "it is so without faults, too",
			want: strings.Replace(note, " after action 1 (restartController op)", " before the plan's first action", 1),
			with: func(e *Evidence) { e.Actions = nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := tale(t, tt.lines...)
			r.Meta.Rested, r.Meta.Observed = true, time.Unix(100, 0)
			r.Processes = []record.Process{running(0)}
			r.Actions = []record.Action{{Type: string(plan.RestartController), Target: "op", Began: time.Unix(8, 0)}}
			e := evidence(r)
			e.Plan = kills
			if tt.with != nil {
				tt.with(&e)
			}
			var want []string
			if tt.want != "" {
				want = []string{tt.want}
			}
			expect(t, judged(t, finalizers{}, e), want...)
			found, err := finalizers{}.Judge(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				if !strings.Contains(f.Detail, tt.why) || tt.why == "" && strings.Contains(f.Detail, "because") {
					t.Errorf("got %q, want %q", f.Detail, tt.why)
				}
			}
		})
	}
}

// writer makes a field manager the writer of the second change.
func writer(manager string) func(e *Evidence) {
	return func(e *Evidence) {
		e.History[1].Writers = []record.FieldManager{{Manager: manager, Operation: "Update"}}
	}
}

func polls(delay time.Duration) func(e *Evidence) {
	return func(e *Evidence) {
		e.Meta.Polls = []record.Poll{{Controller: "op", Queue: "database", Delay: delay}}
	}
}

// In a run that was not whole, an object that stays is not a bug.
func TestFinalizersOfBrokenRun(t *testing.T) {
	const object = `database/default/db {"metadata": {"uid": "u", "finalizers": ["example.com/op"]`
	r := tale(t, "1 op: created "+object+"}}", `9 updated `+object+`, "deletionTimestamp": "now"}}`)
	r.Meta.Rested, r.Meta.Observed = true, time.Unix(100, 0)
	r.Processes = []record.Process{running(0)}
	r.Actions = []record.Action{{Type: string(plan.RestartController), Target: "op", Began: time.Unix(8, 0)}}
	e := evidence(r)
	e.Plan = kills
	severity := func() record.Severity {
		for _, f := range Hear(t.Context(), e, []Judge{gaps{}, finalizers{}}) {
			if f.Judge == record.JudgeFinalizer {
				return f.Severity
			}
		}
		return ""
	}
	if got := severity(); got != record.SeverityBug {
		t.Errorf("got %q, want a bug", got)
	}
	e.Gaps = []string{"the history may lack states"}
	if got := severity(); got != record.SeverityInconclusive {
		t.Errorf("with a gap: got %q, want inconclusive", got)
	}
}
