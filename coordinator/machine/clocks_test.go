package machine

import (
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func TestSkewsAndDisturbancesLast(t *testing.T) {
	now := trigger(t, "now", "now@none")
	p := &plan.Plan{Actions: []plan.Action{
		{Type: plan.SkewClock, Target: "db", Own: &plan.Clocking{By: plan.Offset(time.Minute)}, Trigger: now},
		{Type: plan.SkewClock, Target: "db", Own: &plan.Clocking{By: plan.Offset(-time.Minute)}, Trigger: now},
		{Type: plan.EndSkew, Target: "db", Trigger: now},
		{Type: plan.DisturbConnection, Target: "db", Cluster: "west", Trigger: now},
		{Type: plan.DisturbConnection, Target: "db", Cluster: "north", Trigger: now},
		{Type: plan.RestoreConnection, Target: "db", Cluster: "west", Trigger: now},
	}}
	start := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	var events []record.Event
	for i := range p.Actions {
		for _, e := range []record.Event{{Began: &i}, {Completed: &i}} {
			e.Seq = len(events) + 1
			e.Time = start.Add(time.Duration(e.Seq) * time.Second)
			events = append(events, e)
		}
	}
	account, err := Account(p, nil, events)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range account.Effects {
		if e.To.IsZero() {
			e.To = start.Add(time.Hour) // it lasts
		}
		got = append(got, e.By+" "+e.To.Sub(e.From).String())
	}
	if text := strings.Join(got, ", "); text != "db 2s, db 2s, db 4s, db 59m51s" {
		t.Errorf("in force: %s", text)
	}

	m, err := New(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Start()
	stuck := func() string { return m.Stuck(time.Time{}, func(string) bool { return true }) }
	for _, e := range events[:2] {
		m.Step(e)
	}
	if text := stuck(); !strings.Contains(text, "the clock of db has been wrong by action 1 (skewClock db), which "+
		"action 2 (skewClock db) ends") {
		t.Error(text)
	}
	for _, e := range events[2:6] {
		m.Step(e)
	}
	if text := stuck(); text != "" {
		t.Error(text)
	}
	for _, e := range events[6:8] {
		m.Step(e)
	}
	if text := stuck(); !strings.Contains(text, "a connection of db has been disturbed by action 4 "+
		"(disturbConnection db), which action 6 (restoreConnection db) ends") {
		t.Error(text)
	}
	for _, e := range events[8:] {
		m.Step(e)
	}
	if text := stuck(); !strings.Contains(text, "action 5 (disturbConnection db), which only the end of the plan "+
		"ends") {
		t.Error(text)
	}
	m.end()
	if text := stuck(); text != "" {
		t.Error(text)
	}
}
