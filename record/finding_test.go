package record

import (
	"fmt"
	"slices"
	"testing"
)

func TestSameFinding(t *testing.T) {
	f := func(judge, subject, title string) Finding {
		return Finding{Severity: SeverityBug, Judge: judge, Subject: subject, Title: title}
	}
	const differs = " differs from the runs without faults: "
	whole := func(subject, owner string, harm Harm, text string) Finding {
		one := f(JudgeBaseline, subject, subject+differs+text)
		one.Harm, one.Owner = harm, owner
		return one
	}
	in := func(f Finding, fields string) Finding {
		f.Field = fields
		return f
	}
	created := whole("pod/default/a", "", HarmReplaced, "created 3 times")
	field := in(f(JudgeBaseline, "pod/default/a", "pod/default/a: spec.size is 3"), "spec.size spec.mode")
	step := f(JudgeWorkload, "step 3", "step 3: wait for pod/default/a: not within 2s")
	named := f(JudgeWorkload, "step 3 (grow)", "step 3 (grow): patch db: refused")
	broken := f(JudgeInvariant, "pod/default/a", "invariant one: pod/default/a has 2 of 1 (and 3 more)")
	owned := whole("pod/default/a", "database/default/db", HarmReplaced, "created 3 times")
	fight := in(f(JudgeFight, "pod/default/a", "spec.size of pod/default/a changes back and forth: 5 times"),
		"spec.size")
	awaits := func(n int, key, owner string, harm Harm) Finding {
		one := f(JudgeWorkload, fmt.Sprintf("step %d", n), fmt.Sprintf("step %d: wait for %s: not within 2s", n, key))
		one.Awaited, one.Owner, one.Harm = key, owner, harm
		return one
	}
	missing := whole("secret/default/a", "database.example.org/default/db", HarmMissing, "never created")
	lacks := awaits(3, "secret/default/a", "database.example.org/default/db", HarmMissing)
	for _, tt := range []struct {
		name                   string
		first, second          Finding
		same, step, sameEffect bool
	}{
		{"another value", created, whole("pod/default/a", "", HarmReplaced, "created 4 times"), true, true, true},
		{"another object", created, whole("pod/default/b", "", HarmReplaced, "created 3 times"), false, false, true},
		{"an object of another type", created, whole("job/default/a", "", HarmReplaced, "created 3 times"), false,
			false,
			false},
		{"another number of a generated name", whole("pod/default/a-#1", "", HarmMissing, "never created"),
			whole("pod/default/a-#2", "", HarmMissing, "never created"), true, true, true},
		{"another object of the owner", owned,
			whole("pod/default/b", "database/default/db", HarmReplaced, "created 3 times"), true, true, true},
		{"another owner", owned, whole("pod/default/b", "database/default/db2", HarmReplaced, "created 3 times"), false,
			false, true},
		{"an owner of another type", owned, whole("pod/default/a", "queue/default/db", HarmReplaced, "created 3 times"),
			false, false, false},
		{"never created, or deleted at the end", owned,
			whole("pod/default/a", "database/default/db", HarmMissing, "never created"), true, true, true},
		{"missing, or left", created, whole("pod/default/a", "", HarmLeft, "exists at the end"), false, false, false},
		{"missing, or a field", created, in(f(JudgeBaseline, "pod/default/a", ""), "spec.size"), false, false, false},
		{"another judge", created, f(JudgeInvariant, "pod/default/a", created.Title), false, false, false},
		{"a field with another value", field, in(f(JudgeBaseline, "pod/default/a", "is 4"), "spec.size spec.mode"),
			true,
			true, true},
		{"a field in common", field, in(f(JudgeBaseline, "pod/default/a", ""), "spec.name spec.mode"), true, true,
			false},
		{"another field", field, in(f(JudgeBaseline, "pod/default/a", ""), "spec.name"), false, false, false},
		{"a fight that lasts longer", fight,
			in(f(JudgeFight, "pod/default/a", "spec.size of pod/default/a changes back and forth: 7 times"),
				"spec.size"),
			true, true, true},
		{"a fight about another field", fight, in(fight, "spec.mode"), false, false, false},
		{"a step with another number", step,
			f(JudgeWorkload, "step 2", "step 2: wait for pod/default/a: not within 3s"), false, true, true},
		{"a step that does something else", step,
			f(JudgeWorkload, "step 2", "step 2: wait for pod/default/b: not within 2s"), false, false, false},
		{"a named step with another number", named,
			f(JudgeWorkload, "step 1 (grow)", "step 1 (grow): patch db: refused"), false, true, true},
		{"numbered steps of another judge", f(JudgeTimeout, "step 3", "step 3: wait: not within 2s"),
			f(JudgeTimeout, "step 2", "step 2: wait: not within 2s"), false, false, true},
		{"a step lacks an object, or it is missing at the end", lacks, missing, true, true, true},
		{"a step lacks an object whose owner nobody knows", awaits(3, "secret/default/a", "", HarmMissing), missing,
			true, true, false},
		{"a step lacks a pod of a generated name", awaits(3, "pod/default/web-#2", "", HarmMissing),
			whole("pod/default/web-#1", "", HarmReplaced, "deleted at the end"), true, true, true},
		{"two steps lack the same", lacks,
			awaits(4, "secret/default/a", "database.example.org/default/db", HarmMissing), true, true, true},
		{"a step lacks another object", awaits(3, "secret/default/b", "", HarmMissing), missing, false, false, false},
		{"a step lacks an object of another type", awaits(3, "configmap/default/a", "", HarmMissing), missing, false,
			false, false},
		{"a step lacks an object, which is left at the end", lacks,
			whole("secret/default/a", "database.example.org/default/db", HarmLeft, "exists"), false, false, false},
		{"a step sees what should be gone, or it is left at the end", awaits(3, "pod/default/a", "", HarmLeft),
			whole("pod/default/a", "", HarmLeft, "exists at the end"), true, true, true},
		{"an object is there, but not as the step wants it", awaits(3, "secret/default/a", "", ""), missing, false,
			false, false},
		{"the same step lacks an object, or wants it otherwise", lacks, awaits(3, "secret/default/a", "", ""), true,
			true, true},
		{"a step lacks an object, and another judge", lacks, f(JudgeOrphan, "secret/default/a", ""), false, false,
			false},
		{"a panic with another number", f(JudgePanic, "op", "controller op panicked: index 5 out of range"),
			f(JudgePanic, "op", "controller op panicked: index 7 out of range"), true, true, true},
		{"another panic", f(JudgePanic, "op", "controller op panicked: index 5 out of range"),
			f(JudgePanic, "op", "controller op panicked: nil map"), false, false, false},
		{"the invariant, on another object", broken,
			f(JudgeInvariant, "pod/default/b", "invariant one: pod/default/b has 3 of 1"), false, false, true},
		{"another invariant", broken,
			f(JudgeInvariant, "pod/default/a", "invariant two: pod/default/a has 2 of 1"), false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, pair := range [][2]Finding{{tt.first, tt.second}, {tt.second, tt.first}} {
				if got := pair[0].Same(pair[1]); got != tt.same {
					t.Errorf("Same: %t", got)
				}
				if got := pair[0].SameStep(pair[1]); got != tt.step {
					t.Errorf("SameStep: %t", got)
				}
				got := slices.ContainsFunc(pair[0].Effects(), func(effect string) bool {
					return slices.Contains(pair[1].Effects(), effect)
				})
				if got != tt.sameEffect {
					t.Errorf("they have an effect in common: %t: %q, %q", got, pair[0].Effects(), pair[1].Effects())
				}
			}
		})
	}
	for name, want := range map[string]bool{
		"invariant": true, "pod/default/a": true, "one": true, "on": false, "two": false, "pod/default/b": false,
	} {
		if got := broken.Of(name); got != want {
			t.Errorf("the finding is of %s: %t", name, got)
		}
	}
}

// The worst comes first, and nothing that only differs in its words counts as strong.
func TestHarm(t *testing.T) {
	all := []Finding{
		{Severity: SeverityNote, Harm: HarmLost}, {Severity: SeverityBug, Judge: JudgeBaseline, Harm: HarmStatus},
		{Severity: SeverityBug, Judge: JudgePanic}, {Severity: SeverityInconclusive, Judge: JudgeHold},
		{Severity: SeverityBug, Judge: JudgeBaseline, Harm: HarmLost}, {Severity: SeverityBug, Judge: JudgeInvariant},
	}
	slices.SortStableFunc(all, ByHarm)
	var got []Harm
	strong := 0
	for _, f := range all {
		got = append(got, f.Does())
		if f.Does().Strong() {
			strong++
		}
	}
	want := []Harm{HarmLost, HarmViolated, HarmCrash, HarmStatus, HarmRemark, HarmLost}
	if !slices.Equal(got, want) || strong != 4 {
		t.Errorf("%q, %d of them strong", got, strong)
	}
}
