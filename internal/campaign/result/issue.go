package result

import (
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/trommel-dev/trommel/internal/lead"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Issue is what a page for a project's bug tracker is made of.
type Issue struct {
	Group  Group
	Record *record.Run // of the group's first plan, or of a run that shows what led to the finding
	Plan   *plan.Plan  // the recorded one
	// Source is the plan as the page shows it, and File is where it is: the smallest that shows the finding.
	Source []byte
	File   string
	Show   string // the commands that run it, and judge it like the campaign, one a line
	// Commits are what each controller was built from, as git names it; those that are unknown are missing.
	Commits map[string]string
	// Quiet is in how many runs without faults the finding did not come, besides those that the workload was learned
	// from; 0: unknown.
	Quiet int
	// Fixed says, in a sentence, what the same plan shows with a fix; empty: unknown.
	Fixed string
}

// Install is the line that installs Trommel before the commands of Show.
const Install = "go install github.com/trommel-dev/trommel/cmd/trommel@latest\n"

// Limits of the page, which is to be read in a few minutes.
const (
	issueLines  = 60
	issueDetail = 6
)

// Write writes the page in Markdown: what happens, how it comes about, how to show it, and what was ruled out. It has
// at most 60 lines: if it would be longer, it shows fewer steps, or names the plan.
func (i *Issue) Write(w io.Writer) error {
	after := i.ruledOut()
	var text string
	for _, of := range []struct{ allSteps, plan bool }{{true, true}, {false, true}, {true, false}, {false, false}} {
		text = i.happens() + i.comesAbout(of.allSteps) + i.toShow(of.plan) + after
		if strings.Count(text, "\n") <= issueLines {
			break
		}
	}
	_, err := io.WriteString(w, text)
	return err
}

// page is a part of the page, line by line.
type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// happens is the title, with what the run was made with and what is wrong in the end.
func (i *Issue) happens() string {
	f := i.Group.Finding
	var p page
	p.line("# %s\n", report.EscapeMarkdown(f.Title))
	i.versions(&p)
	p.line("\n## What happens\n")
	p.line("```\n%s\n```", report.Shorten(strings.TrimSpace(f.Title+"\n"+f.Detail), issueDetail))
	if what, places := report.Places(f); len(places) > 0 {
		for n := range places {
			places[n] = code(places[n])
		}
		p.line("\nIn the source: %s%s.", what, strings.Join(places, ", called by "))
	}
	return p.String()
}

// comesAbout is what the plan does and what led to the finding: all steps, or only those to look at.
func (i *Issue) comesAbout(all bool) string {
	var p page
	p.line("\n## How it comes about\n")
	for n := range i.Plan.Actions {
		lines := strings.Split(plan.ExplainAction(i.Plan, n), "\n")
		p.line("%d. %s", n+1, report.EscapeMarkdown(lines[0]))
		for _, more := range lines[1:] {
			p.line("   %s", report.EscapeMarkdown(strings.TrimSpace(more)))
		}
	}
	l := i.lead()
	if l == nil {
		return p.String()
	}
	begin := "Then"
	if l.Began.IsZero() {
		begin = "This is"
	}
	p.line("\n%s %s:\n", begin, report.EscapeMarkdown(l.Reconcile))
	for _, s := range l.Steps {
		text := fmt.Sprintf("%s %s", report.Since(i.Record, s.At), report.EscapeMarkdown(s.Text))
		if s.Place != "" {
			text += " (" + code(s.Place) + ")"
		}
		if s.Wrong {
			text = "**" + text + "**"
		}
		if all || s.Wrong {
			p.line("- %s", text)
		}
	}
	p.line("\n%s", report.EscapeMarkdown(strings.Join(l.Why, " ")))
	return p.String()
}

// ruledOut is what was tried so that no mistake of Trommel's is taken for the controller's.
func (i *Issue) ruledOut() string {
	first := &i.Group.Plans[0]
	var p page
	p.line("\n## What was ruled out\n")
	p.line("- It came in %d of %s with this plan.", first.Came, wording.Count(first.Of, "run"))
	if n := i.also(); n > 0 {
		p.line("- Other plans that end alike, by a disturbance at another moment: %d.", n)
	}
	for _, how := range first.Gone {
		p.line("- It does not come %s.", report.EscapeMarkdown(how))
	}
	if i.Quiet > 0 {
		p.line("- It never came in %s of the same workload without the plan's actions.", wording.Count(i.Quiet, "run"))
	}
	if i.Fixed != "" {
		p.line("- %s", report.EscapeMarkdown(i.Fixed))
	}
	p.line("- The API server, etcd and the other controllers are Kubernetes' own. The controller's source was not " +
		"changed.")
	return p.String()
}

// versions lists what the run was made with.
func (i *Issue) versions(p *page) {
	m := &i.Record.Meta
	for _, c := range m.Controllers {
		if !c.Hooks {
			continue
		}
		var with []string
		if at := i.Commits[c.Name]; at != "" {
			with = append(with, "commit "+at)
		}
		if c.ClientGo != "" {
			with = append(with, "client-go "+c.ClientGo)
		}
		if c.ControllerRuntime != "" {
			with = append(with, "controller-runtime "+c.ControllerRuntime)
		}
		p.line("- %s: %s", report.EscapeMarkdown(c.Name), report.EscapeMarkdown(strings.Join(with, ", ")))
	}
	p.line("- Kubernetes %s, Trommel %s", report.EscapeMarkdown(m.Kubernetes), report.EscapeMarkdown(m.Trommel))
}

var editorLine = regexp.MustCompile(`^# yaml-language-server:.*\n`)

// toShow is how to show it, with the plan or only its name.
func (i *Issue) toShow(whole bool) string {
	var p page
	p.line("\n## How to show it\n")
	p.line("```\n%s\n```", i.Show)
	if whole {
		source := editorLine.ReplaceAllString(strings.TrimSpace(string(i.Source)), "")
		p.line("\nThe plan, `%s`:\n\n```yaml\n%s\n```", filepath.Base(i.File), source)
	} else {
		p.line("\nThe plan is `%s`, which belongs to this report.", filepath.Base(i.File))
	}
	return p.String()
}

func (i *Issue) lead() *lead.Lead {
	if l := i.Group.lead(); l != nil {
		return l
	}
	return lead.Of(i.Record, i.Group.Finding)
}

// also is how many more plans of the group were confirmed by themselves.
func (i *Issue) also() (n int) {
	for _, o := range i.Group.Plans[1:] {
		if o.Like == "" && o.Came > 0 {
			n++
		}
	}
	return n
}

// code is a text as code in Markdown.
func code(text string) string { return "`" + strings.ReplaceAll(text, "`", "'") + "`" }
