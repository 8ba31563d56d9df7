package judge

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trommel-dev/trommel/internal/judge/invariant"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// history parses lines of "event type/namespace/name object"; resource versions count from 1.
func history(t *testing.T, lines string) []record.HistoryEntry {
	t.Helper()
	var all []record.HistoryEntry
	for i, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		key, err := plan.ParseResourceKey(f[1])
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid([]byte(f[2])) {
			t.Fatalf("line %d: not JSON: %s", i+1, f[2])
		}
		all = append(all, record.HistoryEntry{
			Time: time.Unix(int64(i), 0), ResourceVersion: uint64(i + 1), Event: f[0], Type: key.Type, Group: key.Group,
			Namespace: key.Namespace, Name: key.Name, Object: json.RawMessage(f[2]),
		})
	}
	return all
}

// What the plan itself writes says nothing about the controllers, until the invariant holds again.
func TestViolationsByThePlan(t *testing.T) {
	database := &plan.ResourceKey{Type: "database", Namespace: "*", Name: "*"}
	c, err := invariant.Compile([]plan.Invariant{{Name: "i", On: database, Never: "object.spec.replicas > 2"}})
	if err != nil {
		t.Fatal(err)
	}
	spec := func(n int) string {
		return fmt.Sprintf("\nupdated database/default/db {\"spec\": {\"replicas\": %d}}", n)
	}
	for _, tt := range []struct {
		name   string
		lines  string
		byPlan []int // which of them
		want   bool
	}{
		{"the controller", spec(1) + spec(3), nil, true},
		{"the plan", spec(1) + spec(3), []int{1}, false},
		{"what follows from the plan's write", spec(3) + spec(4) + spec(1), []int{0}, false},
		{"the controller, after it has held again", spec(3) + spec(1) + spec(3), []int{0}, true},
		{"the controller, before the plan", spec(3) + spec(4), []int{1}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := history(t, tt.lines)
			for _, i := range tt.byPlan {
				all[i].Writers = []record.FieldManager{{Manager: "trommel"}}
			}
			found, err := invariantJudge{}.Judge(context.Background(), Evidence{
				History: all, Invariants: c, Plan: &plan.Plan{},
			})
			if err != nil || len(found) > 0 != tt.want {
				t.Errorf("%v, %v", found, err)
			}
		})
	}
}

func TestVerdict(t *testing.T) {
	bug := record.Finding{Severity: record.SeverityBug, Judge: record.JudgeCrash, Title: "crash"}
	held := record.Finding{Severity: record.SeverityInconclusive, Judge: record.JudgeHold, Title: "held too long"}
	note := record.Finding{Severity: record.SeverityNote, Judge: record.JudgeCrash, Title: "as planned"}
	for _, test := range []struct {
		findings []record.Finding
		complete bool
		verdict  record.Verdict
		reason   string
	}{
		{nil, true, record.Pass, ""},
		{nil, false, record.Inconclusive, "not every action of the plan was carried out"},
		{[]record.Finding{held}, true, record.Inconclusive, "held too long"},
		{[]record.Finding{note}, true, record.Pass, ""},
		{[]record.Finding{held, bug, bug}, true, record.Bug, "crash (and 1 more)"},
		{[]record.Finding{bug}, false, record.Bug, "crash"},
		{[]record.Finding{{Title: "lost"}}, true, record.Inconclusive, "lost"},
	} {
		verdict, reason := Verdict(test.findings, test.complete)
		if verdict != test.verdict || reason != test.reason {
			t.Errorf("%v, %v: got %s %q, want %s %q", test.findings, test.complete, verdict, reason, test.verdict,
				test.reason)
		}
	}
}
