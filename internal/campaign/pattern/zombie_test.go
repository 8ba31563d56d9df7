package pattern

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

const opLease = "lease.coordination.k8s.io/default/op"

// elected is a baseline of a controller with that many processes and these leases.
func elected(changes []facts.Change, replicas int, leases ...string) *baseline.Baseline {
	ref := baselines(changes, changes)
	ref.Controllers = []string{"op"}
	ref.Replicas, ref.Leases = map[string]int{"op": replicas}, map[string][]string{"op": leases}
	return ref
}

// zombies describes the generated plans, a line each: what freezes the process, and what thaws it.
func zombies(all []Candidate) []string {
	var lines []string
	for _, c := range all {
		if c.Plan == nil {
			lines = append(lines, "dropped: "+c.Dropped)
			continue
		}
		var parts []string
		for _, a := range c.Plan.Actions {
			said := []string{string(a.Type), a.Target, a.Trigger.Expression}
			for _, d := range a.Trigger.Definitions {
				text := fmt.Sprintf("%s: %s %s %s", d.Name, d.Condition.Type, d.Condition.ResourceKey, d.Observe.Timing)
				if d.Condition.Type == plan.OnTimeout {
					text = fmt.Sprintf("%s: %s", d.Name, d.Condition.Timeout)
				}
				if d.Condition.Repeat > 1 {
					text += fmt.Sprintf(" #%d", d.Condition.Repeat)
				}
				said = append(said, text)
			}
			parts = append(parts, strings.Join(said, ", "))
		}
		lines = append(lines, strings.Join(parts, " / "))
	}
	return lines
}

func TestZombies(t *testing.T) {
	created := change("op", wire.Create, key, record.Created, nil, object{})
	deleted := change("op", wire.Delete, key, record.Deleted, object{}, nil)
	database := change("", "", db, record.Created, nil, spec(2))
	generated := change("op", wire.Create, "pod/default/web-#1", record.Created, nil, object{
		"metadata": object{"name": "web-x", "generateName": "web-"},
	})
	generated.Generated = true
	const (
		freezes = "freezeController, op, write, write: onObject"
		taken   = "taken: onObjectUpdate " + opLease + " afterControllerWrite, "
		undone  = "thawController, op, taken&undone|(taken;late), " + taken + "undone: onObject"
		again   = "thawController, op, taken;again|late, " + taken + "again: onObject"
		secret  = " secret/default/db "
	)
	for _, tt := range []struct {
		name    string
		changes []facts.Change
		want    []string
	}{
		{"a write that is not undone goes on when it was made again", []facts.Change{database, created}, []string{
			freezes + "Creation" + secret + "beforeControllerWrite / " +
				again + "Creation" + secret + "afterControllerWrite, late: 5s",
		}},
		{"one that is undone goes on then", []facts.Change{database, created, deleted, created}, []string{
			freezes + "Deletion" + secret + "beforeControllerWrite / " +
				undone + "Creation" + secret + "afterAPIServerRecv, late: 5s",
			freezes + "Creation" + secret + "beforeControllerWrite / " +
				undone + "Deletion" + secret + "afterAPIServerRecv, late: 5s",
			freezes + "Creation" + secret + "beforeControllerWrite #2 / " +
				again + "Creation" + secret + "afterControllerWrite, late: 5s",
		}},
		{"a generated name", []facts.Change{generated}, []string{
			"dropped: the API server generates its name: nothing names it before the call",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := slices.DeleteFunc(zombies(Generate(suite(t), elected(tt.changes, 2, opLease), "zombie")),
				func(line string) bool { return strings.Contains(line, "failCall") }) // another test's
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The leader of one plan for each controller cannot renew its lease. It is frozen just before it would stop, as long as
// its lease lasts, and goes on when another one leads, which can renew the lease.
func TestZombieAtTheEndOfItsLease(t *testing.T) {
	created := change("op", wire.Create, key, record.Created, nil, object{})
	generated := change("op", wire.Create, "pod/default/web-#1", record.Created, nil, object{
		"metadata": object{"name": "web-x", "generateName": "web-"},
	})
	generated.Generated = true
	const write = "write: onObjectCreation secret/default/db beforeControllerWrite"
	for _, tt := range []struct {
		name    string
		changes []facts.Change
		lasts   time.Duration
		stops   string // "": there is no such plan
	}{
		{"the usual lease", []facts.Change{created}, 0, "9.5s"},
		{"a long lease", []facts.Change{created}, 150 * time.Second, "1m39.5s"},
		{"one plan for all writes", []facts.Change{
			created, change("op", wire.Create, "secret/default/other", record.Created, nil, object{}),
		}, 0, "9.5s"},
		{"what has the write's name is not known", []facts.Change{generated}, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ref := elected(tt.changes, 2, opLease)
			ref.LeaseLasts = map[string]time.Duration{"op": tt.lasts}
			var got []string
			for _, c := range Generate(suite(t), ref, "zombie") {
				if c.Plan == nil || c.Plan.Actions[0].Type != plan.PauseController {
					continue
				}
				for _, a := range c.Plan.Actions {
					text := fmt.Sprintln(a.Type, a.PauseScope, a.CallScope, a.Status, a.UntilRestored)
					got = append(got, strings.Join(strings.Fields(text), " "))
				}
				line := zombies([]Candidate{c})[0]
				for _, part := range []string{
					write + " / failCall", tt.stops + " / restoreCalls",
					"thawController, op, taken;again|late, taken: ",
				} {
					if !strings.Contains(line, part) {
						t.Errorf("%s\ndoes not have %q", line, part)
					}
				}
			}
			var want []string
			if tt.stops != "" {
				want = []string{
					"pauseController secret/default/db 0 false", "failCall " + opLease + " 503 true",
					"freezeController 0 false", "restoreCalls " + opLease + " 0 false",
					"resumeController secret/default/db 0 false", "thawController 0 false",
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestControllersWithoutZombies(t *testing.T) {
	writes := []facts.Change{change("op", wire.Create, key, record.Created, nil, object{})}
	for _, tt := range []struct {
		name string
		ref  *baseline.Baseline
		want []string
	}{
		{"one process", elected(writes, 1, opLease),
			[]string{"dropped: the controller runs only one process (replicas: of the suite)"}},
		{"unknown", elected(writes, 0, opLease),
			[]string{"dropped: the controller runs only one process (replicas: of the suite)"}},
		{"no lease", elected(writes, 2), []string{"dropped: the controller has no leader election by a lease"}},
		{"two leases", elected(writes, 2, opLease, opLease+"-2"), []string{
			"dropped: the controller has several leases, and which of them is for its writes is not known",
		}},
		{"it writes nothing", elected([]facts.Change{change("", "", db, record.Created, nil, spec(2))}, 1), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, zombies(Generate(suite(t), tt.ref, "zombie"))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A takeover takes long: plans that are quicker come first.
func TestZombiesComeLater(t *testing.T) {
	writes := []facts.Change{change("op", wire.Create, key, record.Created, nil, object{})}
	var got []string
	for _, c := range Generate(suite(t), elected(writes, 2, opLease), "zombie", "lost-answer", "intermediate") {
		got = append(got, c.Pattern)
	}
	if diff := cmp.Diff([]string{"lost-answer", "intermediate", "zombie", "zombie"}, got); diff != "" {
		t.Error(diff)
	}
}
