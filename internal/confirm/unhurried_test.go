package confirm

import (
	"testing"

	"github.com/trommel-dev/trommel/record"
)

// Regression: Chaos Mesh's Schedule of every 5 s was called wrong because it had run once before a late deletion.
func TestMayBeOfTime(t *testing.T) {
	for _, tt := range []struct {
		finding record.Finding
		want    bool
	}{
		{record.Finding{Judge: record.JudgeBaseline, Field: "spec.replicas"}, true},
		{record.Finding{Judge: record.JudgeBaseline, Harm: record.HarmReplaced}, true},
		{record.Finding{Judge: record.JudgeRevert}, true},
		{record.Finding{Judge: record.JudgeBaseline, Harm: record.HarmLost}, false},
		{record.Finding{Judge: record.JudgeBaseline, Harm: record.HarmMissing}, false},
		{record.Finding{Judge: record.JudgeInvariant}, false},
	} {
		if got := MayBeOfTime([]record.Finding{tt.finding}); got != tt.want {
			t.Errorf("%+v: %t", tt.finding, got)
		}
	}
}
