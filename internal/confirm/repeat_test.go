package confirm

import (
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/record"
)

// A row is the runs after the first one: a word has the initials of what the run finds; "-" is a run that says nothing.
func TestTally(t *testing.T) {
	lost := record.Finding{Judge: record.JudgeBaseline, Subject: "pod/default/l", Harm: record.HarmLost}
	wrong := record.Finding{Judge: record.JudgeBaseline, Subject: "pod/default/w", Harm: record.HarmWrong, Field: "a"}
	for _, tt := range []struct {
		name, first, runs string
		kept              string
		came, of          int
		rare              bool
	}{
		{"every time", "lw", "lw lw", "lw", 3, 3, false},
		{"one of two", "lw", "l l", "l", 3, 3, false},
		{"rare and weak", "w", ". .", "w", 1, 3, false},
		{"rare and strong", "l", ". . l", "l", 2, 4, true},
		{"rare and strong, once", "l", ". . . . . . . . .", "l", 1, 10, true},
		{"rare and worse than what comes every time", "lw", "w w lw", "lw", 2, 4, true},
		{"runs that say nothing", "w", "- - - - - -", "w", 1, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			findings := func(word string) (all []record.Finding) {
				for _, c := range word {
					switch c {
					case 'l':
						all = append(all, lost)
					case 'w':
						all = append(all, wrong)
					}
				}
				return all
			}
			tally := NewTally(findings(tt.first), 3)
			for _, run := range strings.Fields(tt.runs) {
				switch {
				case !tally.More():
					t.Fatalf("no more after %d runs", tally.Of())
				case run == "-":
					tally.Skip()
				default:
					tally.Take(findings(run))
				}
			}
			if tally.More() {
				t.Errorf("wants more than %d runs", tally.Of())
			}
			kept, came, rare := tally.Kept()
			var names strings.Builder
			for _, f := range kept {
				names.WriteString(f.Subject[len("pod/default/"):])
			}
			if names.String() != tt.kept || came != tt.came || tally.Of() != tt.of || rare != tt.rare {
				t.Errorf("%s, %d of %d, rare %t", names.String(), came, tally.Of(), rare)
			}
		})
	}
}
