package learn

import (
	"slices"
	"testing"

	"github.com/trommel-dev/trommel/record"
)

// Learning names objects that controllers create for nothing, if all runs without faults show them.
func TestWasteWithoutFaults(t *testing.T) {
	waste := func(subject string) record.Finding {
		return record.Finding{Severity: record.SeverityNote, Judge: record.JudgeWaste, Subject: subject,
			Title: "op creates " + subject}
	}
	orphan := record.Finding{Severity: record.SeverityNote, Judge: record.JudgeOrphan, Subject: "pod/default/a"}
	got := wasted([]*record.Run{
		{Findings: []record.Finding{orphan, waste("pod/default/a-#1"), waste("secret/default/s")}},
		{Findings: []record.Finding{orphan, waste("pod/default/a-#2")}},
	})
	if want := []string{"op creates pod/default/a-#1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
