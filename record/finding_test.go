package record

import "testing"

func TestSameFinding(t *testing.T) {
	f := func(judge, subject, title string) Finding {
		return Finding{Severity: SeverityBug, Judge: judge, Subject: subject, Title: title}
	}
	const differs = " differs from the runs without faults: "
	created := f(JudgeReference, "pod/default/a", "pod/default/a"+differs+"created 3 times")
	field := f(JudgeReference, "pod/default/a", "pod/default/a: spec.size is 3")
	step := f(JudgeWorkload, "step 3", "step 3: wait for pod/default/a: not within 2s")
	named := f(JudgeWorkload, "step 3 (grow)", "step 3 (grow): patch db: refused")
	broken := f(JudgeInvariant, "pod/default/a", "invariant one: pod/default/a has 2 of 1 (and 3 more)")
	for _, tt := range []struct {
		name                 string
		first, second        Finding
		same, step, sameKind bool
	}{
		{"another value", created,
			f(JudgeReference, "pod/default/a", "pod/default/a"+differs+"created 4 times"), true, true, true},
		{"another object", created,
			f(JudgeReference, "pod/default/b", "pod/default/b"+differs+"created 3 times"), false, false, true},
		{"an object of another type", created,
			f(JudgeReference, "job/default/a", "job/default/a"+differs+"created 3 times"), false, false, false},
		{"another judge", created,
			f(JudgeInvariant, "pod/default/a", "pod/default/a"+differs+"created 3 times"), false, false, false},
		{"another title", created, f(JudgeReference, "pod/default/a", "panic: created 3 times"), false, false, false},
		{"a field with another value", field,
			f(JudgeReference, "pod/default/a", "pod/default/a: spec.size is 4"), true, true, true},
		{"another field", field, f(JudgeReference, "pod/default/a", "pod/default/a: spec.mode is 3"), true, true,
			false},
		{"a step with another number", step,
			f(JudgeWorkload, "step 2", "step 2: wait for pod/default/a: not within 3s"), false, true, true},
		{"a step that does something else", step,
			f(JudgeWorkload, "step 2", "step 2: wait for pod/default/b: not within 2s"), false, false, false},
		{"a named step with another number", named,
			f(JudgeWorkload, "step 1 (grow)", "step 1 (grow): patch db: refused"), false, true, true},
		{"numbered steps of another judge", f(JudgeTimeout, "step 3", "step 3: wait: not within 2s"),
			f(JudgeTimeout, "step 2", "step 2: wait: not within 2s"), false, false, true},
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
				if got := pair[0].Kind() == pair[1].Kind(); got != tt.sameKind {
					t.Errorf("kinds are equal: %t: %q, %q", got, pair[0].Kind(), pair[1].Kind())
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
