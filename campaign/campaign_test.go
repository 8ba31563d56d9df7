package campaign

import (
	"testing"

	"github.com/trommel-dev/trommel/record"
)

func TestSameFinding(t *testing.T) {
	f := func(oracle, subject, title string) record.Finding {
		return record.Finding{Severity: record.SeverityBug, Oracle: oracle, Subject: subject, Title: title}
	}
	first := f("reference", "pod/default/a", "pod/default/a differs from the runs without faults: created 3 times")
	for _, tt := range []struct {
		name   string
		second record.Finding
		want   bool
	}{
		{
			"another value", f("reference", "pod/default/a",
				"pod/default/a differs from the runs without faults: created 4 times"), true,
		},
		{
			"another object", f("reference", "pod/default/b",
				"pod/default/b differs from the runs without faults: created 3 times"), false,
		},
		{
			"another judge", f("invariant", "pod/default/a",
				"pod/default/a differs from the runs without faults: created 3 times"), false,
		},
		{"another title", f("reference", "pod/default/a", "panic: created 3 times"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := SameFinding(first, tt.second); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
	if got := bugs([]record.Finding{first, {Severity: record.SeverityInconclusive}}); len(got) != 1 {
		t.Errorf("bugs: %v", got)
	}
}
