package report

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/record"
)

// A bug is shown at the line of the controller's source, and beside that line on GitHub.
func TestPlaceOfABug(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	callers := record.Callers{
		{Function: "example.com/lib.Update", File: "example.com/lib@v1.0.0/update.go", Line: 3},
		{Function: "main.(*Reconciler).Reconcile", File: "main.go", Line: 12},
	}
	r := &record.Run{
		Meta: record.Meta{
			Plan: "p", PlanFile: "plan.yaml", Verdict: record.Bug, Controllers: []record.Controller{{Source: dir}},
		},
		Findings: []record.Finding{{
			Severity: record.SeverityBug, Judge: "baseline", Title: "it is gone",
			Origin: record.Origin{Callers: callers},
		}},
	}
	const place = "example.com/lib@v1.0.0/update.go:3 Update, called by main.go:12 (*Reconciler).Reconcile"
	for call, want := range map[record.CallKind]string{
		record.NamedWrite: "written by ", record.FailedCall: "the call that failed: ",
		record.KilledAfter: "the last write before the kill: ",
	} {
		r.Findings[0].Call = call
		var text bytes.Buffer
		if err := Text(&text, r); err != nil || !strings.Contains(text.String(), "\n      "+want+place+"\n") {
			t.Errorf("no %q (%v):\n%s", want+place, err, text.String())
		}
	}
	// The file of the other module is not there.
	all := Annotations([]*record.Run{r})
	if len(all) != 1 || all[0].File != filepath.Join(dir, "main.go") || all[0].Line != 12 ||
		!strings.Contains(all[0].Message, "\nplan: plan.yaml") {
		t.Errorf("%+v", all)
	}
	// The source around the call, if it is still there.
	source := strings.Repeat("line\n", 11) + "\tcall()\n" + strings.Repeat("line\n", 8)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	file, text := SourceAround(r, r.Findings[0])
	if file != filepath.Join(dir, "main.go") || strings.Count(text, "\n") != 2*around+1 ||
		!strings.Contains(text, "\n>   12  \tcall()\n    13  line\n") || !strings.HasPrefix(text, "     6  line\n") {
		t.Errorf("%s:\n%s", file, text)
	}
	if err := os.WriteFile(file, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, text := SourceAround(r, r.Findings[0]); text != "" {
		t.Errorf("the file is shorter now: %s", text)
	}
	r.Meta.Controllers[0].Source = filepath.Join(dir, "gone")
	if all := Annotations([]*record.Run{r}); all[0].File != "plan.yaml" {
		t.Errorf("without the source: %+v", all)
	}
}
