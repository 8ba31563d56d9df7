package findings

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func bug(subject, owner string, harm record.Harm) record.Finding {
	f := record.Finding{
		Severity: record.SeverityBug, Judge: record.JudgeBaseline, Subject: subject, Owner: owner, Harm: harm,
		Title: subject,
	}
	if harm == record.HarmWrong || harm == record.HarmStatus {
		f.Field = string(harm)
	}
	return f
}

func TestGroups(t *testing.T) {
	const db, db2 = "cluster.example/default/db", "cluster.example/default/db2"
	lost := bug("persistentvolumeclaim/default/a", db, record.HarmLost)
	never := bug("persistentvolumeclaim/default/b", db2, record.HarmMissing)
	once := bug("persistentvolumeclaim/default/c", db, record.HarmReplaced)
	service := bug("service/default/db", db, record.HarmMissing)
	status := bug(db, "", record.HarmStatus)
	rule := record.Finding{
		Severity: record.SeverityBug, Judge: record.JudgeInvariant, Subject: "i", Title: "invariant i: no service",
	}
	one := func(cause string, all ...record.Finding) One { return One{Findings: all, Cause: cause} }
	sure := func(o One) One { o.Sure = true; return o }
	struck := func(write string, o One) One { o.Struck = write; return o }
	in := func(field string, f record.Finding) record.Finding { f.Field = field; return f }
	step := func(harm record.Harm, key, owner string) record.Finding {
		return record.Finding{
			Severity: record.SeverityBug, Judge: record.JudgeWorkload, Subject: "step 2",
			Title: "step 2: wait for " + key, Awaited: key, Owner: owner, Harm: harm,
		}
	}
	absent, isFalse := in("status.conditions[type=Ready]", status), in("status.conditions[type=Ready].status", status)
	for _, tt := range []struct {
		name string
		all  []One
		want string // members of each group, and its title
	}{
		{"nothing", nil, ""},
		{"one bug, told in three ways", []One{one(Stale, never), one(Stale, once), one(Stale, lost)},
			"2,0,1 persistentvolumeclaim/default/a"},
		{"another cause", []One{one(Stale, lost), one(Interrupted, lost)},
			"0 persistentvolumeclaim/default/a; 1 persistentvolumeclaim/default/a"},
		{"another type", []One{one(Stale, service), one(Stale, lost)},
			"1 persistentvolumeclaim/default/a; 0 service/default/db"},
		{"what most show does not hide the worst", []One{one(Stale, status), one(Stale, status), one(Stale, status,
			lost)},
			"2,0,1 persistentvolumeclaim/default/a"},
		{"what follows from something worse", []One{one(Stale, service), one(Stale, service, rule)},
			"1,0 invariant i: no service"},
		{"something worse than what they have in common",
			[]One{one(Stale, status, service), one(Stale, status, lost)},
			"1 persistentvolumeclaim/default/a; 0 service/default/db"},
		{"one that was confirmed comes first", []One{one(Stale, service), sure(one(Stale, service))},
			"1,0 service/default/db"},
		{"the same write refused or lost", []One{struck("w", one(Interrupted, absent)), struck("w", one(Interrupted,
			isFalse)), struck("w", one(Interrupted, step("", db, "")))}, "2,0,1 step 2: wait for " + db},
		{"other writes refused or lost", []One{struck("v", one(Interrupted, absent)), struck("w", one(Interrupted,
			isFalse))}, "0 " + db + "; 1 " + db},
		{"the same write, another object", []One{struck("w", one(Interrupted, absent)), struck("w", one(Interrupted,
			service))}, "1 service/default/db; 0 " + db},
		{"the same write, an object that nobody knows", []One{struck("w", one(Interrupted, rule)), struck("w",
			one(Interrupted, record.Finding{Severity: record.SeverityBug, Judge: record.JudgePanic, Subject: "op",
				Title: "panic"}))}, "0 invariant i: no service; 1 panic"},
		{"a step lacks what is missing", []One{one(Stale, never), one(Stale, step(record.HarmMissing,
			"persistentvolumeclaim/default/b", db2))}, "0,1 persistentvolumeclaim/default/b"},
		{"a step lacks something else", []One{one(Stale, never), one(Stale, step(record.HarmMissing,
			"service/default/b", db2))}, "0 persistentvolumeclaim/default/b; 1 step 2: wait for service/default/b"},
		{"no finding", []One{one(Stale), one(Stale)}, "0,1 "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, g := range Groups(tt.all) {
				got = append(got, strings.Trim(strings.ReplaceAll(fmt.Sprint(g.Members), " ", ","),
					"[]")+" "+g.Finding.Title)
			}
			if strings.Join(got, "; ") != tt.want {
				t.Errorf("%q, want %q", strings.Join(got, "; "), tt.want)
			}
		})
	}
}

func TestJoins(t *testing.T) {
	const cron = "cron.example/default/a"
	of := func(subject string, harm record.Harm, field string) record.Finding {
		f := bug(subject, "", harm)
		f.Field = field
		return f
	}
	loop := record.Finding{Severity: record.SeverityBug, Judge: record.JudgeLoop, Subject: cron, Title: "5 times"}
	for _, tt := range []struct {
		name           string
		found, without record.Finding
		want           bool
	}{
		{"the same", of(cron, record.HarmStatus, "status.a"), of(cron, record.HarmStatus, "status.a"), true},
		{"another field of the status", of(cron, record.HarmStatus, "status.a"),
			of(cron, record.HarmStatus, "status.b"), true},
		{"a message of a wrong status", of(cron, record.HarmRemark, "status.message"),
			of(cron, record.HarmStatus, "status.a"), true},
		{"a wrong status, where only a message differed", of(cron, record.HarmStatus, "status.a"),
			of(cron, record.HarmRemark, "status.message"), false},
		{"the status of another object", of(cron, record.HarmStatus, "status.a"),
			of(cron+"b", record.HarmStatus, "status.a"), false},
		{"the spec, with a field in common", of(cron, record.HarmWrong, "spec.a spec.b"),
			of(cron, record.HarmWrong, "spec.b"), true},
		{"another field of the spec", of(cron, record.HarmWrong, "spec.a"), of(cron, record.HarmWrong, "spec.b"),
			false},
		{"the spec, where the status differed", of(cron, record.HarmWrong, "spec.a"),
			of(cron, record.HarmStatus, "status.a"), false},
		{"missing, where it was replaced", of("secret/default/a", record.HarmMissing, ""),
			of("secret/default/a", record.HarmReplaced, ""), false},
		{"replaced, where it was missing", of("secret/default/a", record.HarmReplaced, ""),
			of("secret/default/a", record.HarmMissing, ""), true},
		{"another judge", of(cron, record.HarmStatus, "status.a"), loop, false},
		{"the same of another judge", loop, loop, true},
	} {
		if got := Joins(tt.found, tt.without); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

func TestCauseOf(t *testing.T) {
	for _, tt := range []struct {
		want    string
		actions []plan.ActionType
	}{
		{Undisturbed, nil},
		{Interrupted, []plan.ActionType{plan.KillController, plan.StartController}},
		{Stale, []plan.ActionType{plan.KillController, plan.PauseAPIServer, plan.ResumeAPIServer}},
		{Disturbed, []plan.ActionType{plan.DeleteObject, plan.KillController}},
		{Upgraded, []plan.ActionType{plan.KillController, plan.Upgrade}},
		{Disturbed, []plan.ActionType{plan.Upgrade, plan.DeleteObject}},
	} {
		var actions []plan.Action
		for _, a := range tt.actions {
			actions = append(actions, plan.Action{Type: a, Target: "op"})
		}
		if got := CauseOf(actions); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.actions, got, tt.want)
		}
	}
	for at, want := range map[plan.Timing]string{
		plan.BeforeControllerRecv: Stale, plan.AfterControllerRead: Stale, plan.BeforeControllerWrite: Stale,
		plan.AfterControllerWrite: Interrupted, // a late answer
	} {
		pause := plan.Action{Type: plan.PauseController, Target: "op", Pausing: plan.Pausing{PauseAt: at}}
		if got := CauseOf([]plan.Action{pause}); got != want {
			t.Errorf("paused %s: %s, want %s", at, got, want)
		}
	}
}

func TestStruckBy(t *testing.T) {
	write := func(kind plan.ActionType, key, phase string) plan.Action {
		a := plan.Action{Type: kind, Target: "op"}
		a.Trigger.Definitions = []plan.Definition{{Name: fmt.Sprint("t", kind), Condition: plan.Condition{
			Type: plan.OnObjectUpdate, ResourceKey: plan.ResourceKey{Type: "db", Name: key}, Repeat: 1,
			CurState: map[string]any{"status": map[string]any{"phase": phase}},
		}}}
		return a
	}
	lost, refused := write(plan.FailCall, "a", "Ready"), write(plan.FailCall, "a", "Ready")
	lost.Failing.Answer, refused.Failing.Answer = plan.Lost, plan.Refused
	want := StruckBy([]plan.Action{lost})
	if want == "" || want != StruckBy([]plan.Action{write(plan.KillController, "b", ""), refused}) {
		t.Errorf("%q", want)
	}
	for _, other := range []plan.Action{write(plan.FailCall, "b", "Ready"), write(plan.FailCall, "a", "Failed")} {
		if got := StruckBy([]plan.Action{other}); got == want || got == "" {
			t.Errorf("%q", got)
		}
	}
	if got := StruckBy([]plan.Action{write(plan.KillController, "a", "Ready")}); got != "" {
		t.Errorf("%q", got)
	}

	// Another client writes before the controller does.
	conflict := func(repeat int, at plan.Timing) []plan.Action {
		a := write(plan.PatchObject, "a", "Ready")
		a.Trigger.Definitions[0].Condition.Repeat, a.Trigger.Definitions[0].Observe.Timing = repeat, at
		return []plan.Action{a}
	}
	first := StruckBy(conflict(1, plan.BeforeControllerWrite))
	second := StruckBy(conflict(2, plan.BeforeControllerWrite))
	if first == "" || first != second || first == want {
		t.Errorf("%q and %q", first, second)
	}
	if got := StruckBy(conflict(1, plan.AfterControllerWrite)); got != "" {
		t.Errorf("%q", got)
	}
}
