package judge

import (
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// A bug that names no write names the call that the plan has disturbed.
func TestLocate(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(0, 0).Add(time.Duration(seconds) * time.Second) }
	from := func(line int) record.Callers {
		return record.Callers{{Function: "main.f", File: "main.go", Line: line}}
	}
	write := func(second int, call uint64, by string, line int) record.Event {
		return record.Event{Time: at(second), Observation: &record.Observation{
			By: by, Session: 1, Call: call, Point: wire.ControllerWrite, Phase: wire.Before, Callers: from(line),
		}}
	}
	failed := record.Event{Time: at(4), Observation: &record.Observation{
		By: "op", Session: 1, Call: 2, Point: wire.ControllerWrite, Phase: wire.After, Failed: wire.Refused,
	}}
	lease := write(3, 9, "op", 99)
	lease.Observation.Election = true
	kill := &plan.Plan{Actions: []plan.Action{{Type: plan.RestartController, Target: "op"}}}
	disrupt := &plan.Plan{Actions: []plan.Action{
		{Type: plan.Disrupt, Disrupting: plan.Disrupting{Disruption: plan.Disruption{"name": "d"}}},
	}}
	unanswered := record.Event{Time: at(7), Observation: &record.Observation{
		By: "op", Session: 1, Call: 2, Point: wire.ControllerWrite, Phase: wire.After, Error: "stream error",
	}}
	upgrade := &plan.Plan{Actions: []plan.Action{{Type: plan.Upgrade}}}
	server := &plan.Plan{Actions: []plan.Action{{Type: plan.RestartAPIServer, Target: "apiserver-1"}}}
	for _, tt := range []struct {
		name   string
		plan   *plan.Plan
		events []record.Event
		call   record.CallKind
		line   int
	}{
		{"a call fails", &plan.Plan{}, []record.Event{write(1, 1, "op", 10), write(2, 2, "op", 20), failed},
			record.FailedCall, 20},
		{"the controller is killed", kill, []record.Event{
			write(1, 1, "op", 10), write(2, 2, "op", 20), lease, write(4, 3, "other", 30), write(6, 4, "op", 40),
		}, record.KilledAfter, 20},
		{"the controllers are upgraded", upgrade, []record.Event{write(1, 1, "op", 10), write(2, 2, "other", 20)},
			record.KilledAfter, 20},
		{"a disruption loses an answer", disrupt, []record.Event{
			write(1, 1, "op", 10), write(6, 2, "op", 20), unanswered,
		}, record.FailedCall, 20},
		{"an API server is restarted", server, []record.Event{write(1, 1, "op", 10)}, "", 0},
		{"nothing happens", &plan.Plan{}, []record.Event{write(1, 1, "op", 10)}, "", 0},
	} {
		e := Evidence{
			Plan: tt.plan, Events: tt.events, Meta: record.Meta{Controllers: []record.Controller{{Name: "op"}}},
		}
		for i, a := range tt.plan.Actions {
			e.Actions = append(e.Actions, record.Action{Index: i, Target: a.Target, Fired: at(5), Began: at(5)})
		}
		all := []record.Finding{
			{Severity: record.SeverityBug},
			{Severity: record.SeverityBug, Origin: record.Origin{Callers: from(7)}},
			{Severity: record.SeverityNote},
		}
		e.locate(all)
		if all[0].Call != tt.call || all[0].Callers[0].Line != tt.line {
			t.Errorf("%s: %q, line %d", tt.name, all[0].Call, all[0].Callers[0].Line)
		}
		if all[1].Callers != from(7) || all[1].Call != record.NamedWrite || all[2].Callers.Known() {
			t.Errorf("%s: the others have %v and %v", tt.name, all[1].Callers, all[2].Callers)
		}
	}
}
