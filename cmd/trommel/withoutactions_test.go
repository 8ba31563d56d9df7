package main

import (
	"os"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/record"
)

// A first suite may wait for what never comes, such as the status of a kind whose controller writes none. That is not a
// bug that the plan has found.
func TestBlameWorkload(t *testing.T) {
	failed := func(title string) record.Finding {
		return record.Finding{Severity: record.SeverityBug, Judge: record.JudgeWorkload, Title: title}
	}
	never, other := failed(`step 2 "wait": not within 30s`), failed(`step 3 "delete": refused`)
	crash := record.Finding{Severity: record.SeverityBug, Judge: record.JudgeCrash, Title: "op exited"}
	note := record.Finding{Severity: record.SeverityNote, Judge: record.JudgeErrors, Title: "an error"}
	for _, tt := range []struct {
		name         string
		found, quiet []record.Finding
		asked        bool // whether the workload is worth a run without actions
		want         record.Verdict
	}{
		{"the same comes without actions", []record.Finding{never, note}, []record.Finding{never}, true,
			record.Inconclusive},
		{"the workload passes without actions", []record.Finding{never}, nil, true, record.Bug},
		{"another step fails without actions", []record.Finding{never}, []record.Finding{other}, true, record.Bug},
		{"a crash too", []record.Finding{never, crash}, []record.Finding{never}, false, record.Bug},
		{"no bug at all", []record.Finding{note}, nil, false, record.Bug},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if asked := onlyWorkload(tt.found); asked != tt.asked {
				t.Errorf("asks for a run without actions: %t", asked)
			}
			dir := t.TempDir()
			w, err := record.Create(dir)
			if err != nil {
				t.Fatal(err)
			}
			m := record.Meta{Plan: "p", Suite: "trommel.yaml", Verdict: record.Bug, Reason: "bug"}
			for _, err := range []error{w.Meta(m), w.Findings(tt.found), w.Close()} {
				if err != nil {
					t.Fatal(err)
				}
			}
			r, err := record.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			if !tt.asked {
				return
			}
			if err := blameWorkload(r, &record.Run{Dir: "quiet", Findings: tt.quiet}); err != nil {
				t.Fatal(err)
			}
			again, err := record.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			if again.Meta.Verdict != tt.want || r.Meta.Verdict != tt.want {
				t.Errorf("verdict %s, recorded %s, want %s", r.Meta.Verdict, again.Meta.Verdict, tt.want)
			}
			if tt.want == record.Inconclusive {
				if !strings.Contains(again.Meta.Reason, "does not pass without the plan's actions either: step 2") ||
					again.Findings[0].IsBug() {
					t.Errorf("reason %q, findings %+v", again.Meta.Reason, again.Findings)
				}
			}
			if files, _ := os.ReadDir(dir); len(files) < 4 {
				t.Errorf("the record has %d files", len(files))
			}
		})
	}
}
