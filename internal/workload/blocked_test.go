package workload

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/record"
)

// A step that times out while the plan holds something counts against the controller only if it also fails without the
// hold.
func TestBlocked(t *testing.T) {
	never := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	for _, tt := range []struct {
		name    string
		why     string
		helps   bool // undoing the holds does
		fails   error
		goesOn  bool
		judge   string // empty: no finding
		title   string
		detail  string
		letGo   int
		noted   string
		further int // steps that run after it
	}{
		{name: "the plan's doing", why: "db is held", helps: true, judge: record.JudgeHold,
			title: "the plan was the cause", detail: "db is held", letGo: 1},
		{name: "not the plan's doing", why: "db is held", judge: record.JudgeWorkload, title: "not within",
			detail: "the step failed again", letGo: 1},
		{name: "nothing is held", judge: record.JudgeWorkload, title: "not within"},
		{name: "it fails at once", why: "db is held", fails: errors.New("no"), judge: record.JudgeWorkload,
			title: "no"},
		{name: "it goes on", why: "db is held", goesOn: true, noted: "the workload goes on", further: 1},
		{name: "an error, not a timeout, ends the workload", fails: errors.New("no"), goesOn: true,
			judge: record.JudgeWorkload, title: "no"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			letGo, further := 0, 0
			var notes []string
			r := &runner{Config: Config{
				Progress: func(string) {}, Note: func(text string) { notes = append(notes, text) },
				Blocked: func(context.Context) string { return tt.why },
				LetGo:   func(context.Context) error { letGo++; return nil },
			}}
			failed, err := r.run(t.Context(), []step{
				{title: "step 1", what: "wait", timeout: 20 * time.Millisecond, goesOn: tt.goesOn,
					do: func(ctx context.Context) error {
						if tt.fails != nil || letGo > 0 && tt.helps {
							return tt.fails
						}
						return never(ctx)
					}},
				{title: "step 2", timeout: time.Second, do: func(context.Context) error { further++; return nil }},
			})
			if err != nil {
				t.Fatal(err)
			}
			if letGo != tt.letGo || further != tt.further {
				t.Errorf("LetGo called %d times, %d further steps; want %d and %d", letGo, further, tt.letGo,
					tt.further)
			}
			if got := strings.Join(notes, "; "); !strings.Contains(got, tt.noted) || (got == "") != (tt.noted == "") {
				t.Errorf("notes %q, want %q", got, tt.noted)
			}
			if tt.judge == "" {
				if failed != nil {
					t.Errorf("failed %+v", failed)
				}
				return
			}
			if failed == nil || judge.Step(failed).Judge != tt.judge ||
				!strings.Contains(failed.Title, tt.title) || !strings.Contains(failed.Detail, tt.detail) {
				t.Errorf("failed %+v; want %s %q %q", failed, tt.judge, tt.title, tt.detail)
			}
		})
	}
}
