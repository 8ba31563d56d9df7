package run

import (
	"errors"
	"slices"
	"testing"

	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/record"
)

// heard returns a console, and what it was told as "type text".
func heard() (*console, *[]string) {
	var all []string
	return newConsole(progress.Func(func(e progress.Event) {
		all = append(all, string(e.Type)+" "+e.Text)
	}), ""), &all
}

func TestJournal(t *testing.T) {
	console, told := heard()
	j := &journal{console: console}
	j.enter("workload")
	j.step(1, 2, "apply")
	j.note("slow")
	j.add(record.Finding{Severity: record.SeverityBug, Title: "broken"},
		record.Finding{Severity: record.SeverityNote, Title: "odd"})
	j.enter("oracles")
	j.trouble(errors.New("no log\nat all"))
	j.enter("")
	if want := []string{
		"phase workload", "step apply", "info slow", "finding broken", "info odd", "phase oracles", "finding no log",
	}; !slices.Equal(*told, want) {
		t.Errorf("told %q, want %q", *told, want)
	}
	var phases []string
	for _, p := range j.meta.Phases {
		phases = append(phases, p.Name)
	}
	if want := []string{"workload", "oracles"}; !slices.Equal(phases, want) {
		t.Errorf("phases %q, want %q", phases, want)
	}
	if want := []string{"slow", "odd"}; !slices.Equal(j.meta.Notes, want) || len(j.meta.Steps) != 1 {
		t.Errorf("notes %q, %d steps", j.meta.Notes, len(j.meta.Steps))
	}
	if last := j.findings[len(j.findings)-1]; len(j.findings) != 3 || last.Severity != record.SeverityInconclusive ||
		last.Detail != "at all" {
		t.Errorf("findings %+v", j.findings)
	}
	if j.judged() {
		t.Error("judged without a verdict")
	}
}
