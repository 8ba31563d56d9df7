package result

import (
	"fmt"
	"io"
	"path/filepath"
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
	Show   string // the command that runs it, and judges it like the campaign
	// Commits are what each controller was built from, as git names it; those that are unknown are missing.
	Commits map[string]string
	// Quiet is in how many runs without faults the finding did not come, besides those that the workload was learned
	// from; 0: unknown.
	Quiet int
}

// Limits of the page, which is to be read in a few minutes.
const (
	issueLines  = 60
	issueDetail = 6
)

// Write writes the page in Markdown: what happens, how it comes about, how to show it, and what was ruled out. It has
// at most 60 lines.
func (i *Issue) Write(w io.Writer) error {
	first := &i.Group.Plans[0]
	f := i.Group.Finding
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# %s\n", report.EscapeMarkdown(f.Title))
	i.versions(line)
	line("\n## What happens\n")
	line("```\n%s\n```", report.Shorten(strings.TrimSpace(f.Title+"\n"+f.Detail), issueDetail))
	if at := report.Place(f); at != "" {
		line("\nIn the source: %s.", report.EscapeMarkdown(at))
	}
	line("\n## How it comes about\n")
	for n := range i.Plan.Actions {
		lines := strings.Split(plan.ExplainAction(i.Plan, n), "\n")
		line("%d. %s", n+1, report.EscapeMarkdown(lines[0]))
		for _, more := range lines[1:] {
			line("   %s", report.EscapeMarkdown(strings.TrimSpace(more)))
		}
	}
	if l := i.lead(); l != nil {
		line("\nThen %s:\n", report.EscapeMarkdown(l.Reconcile))
		for _, s := range l.Steps {
			text := fmt.Sprintf("- %s %s", report.Since(i.Record, s.At), report.EscapeMarkdown(s.Text))
			if s.Place != "" {
				text += " (" + code(s.Place) + ")"
			}
			if s.Wrong {
				text = "- **" + strings.TrimPrefix(text, "- ") + "**"
			}
			line("%s", text)
		}
		line("\n%s", report.EscapeMarkdown(strings.Join(l.Why, " ")))
	}
	before := b.String()
	b.Reset()
	line("\n## What was ruled out\n")
	line("- It came in %d of %s with this plan.", first.Came, wording.Count(first.Of, "run"))
	if n := i.also(); n > 0 {
		line("- Other plans that end alike, by a disturbance at another moment: %d.", n)
	}
	for _, how := range first.Gone {
		line("- It does not come %s.", report.EscapeMarkdown(how))
	}
	if i.Quiet > 0 {
		line("- It never came in %s of the same workload without the plan's actions.", wording.Count(i.Quiet, "run"))
	}
	line("- The API server, etcd and the other controllers are Kubernetes' own. The controller's source was not " +
		"changed.")
	after := b.String()
	b.Reset()
	i.reproduce(line, issueLines-strings.Count(before+after, "\n"))
	_, err := io.WriteString(w, before+b.String()+after)
	return err
}

// versions lists what the run was made with.
func (i *Issue) versions(line func(format string, args ...any)) {
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
		line("- %s: %s", report.EscapeMarkdown(c.Name), report.EscapeMarkdown(strings.Join(with, ", ")))
	}
	line("- Kubernetes %s, Trommel %s", report.EscapeMarkdown(m.Kubernetes), report.EscapeMarkdown(m.Trommel))
}

// reproduce says how to show it, in so many lines if possible: a plan that is too long is named.
func (i *Issue) reproduce(line func(format string, args ...any), room int) {
	line("\n## How to show it\n")
	line("```\ngo install github.com/trommel-dev/trommel/cmd/trommel@latest\n%s\n```", i.Show)
	source := strings.TrimSpace(string(i.Source))
	const besides = 9 // lines of this section without the plan
	if strings.Count(source, "\n")+1 > room-besides {
		line("\nThe plan is `%s`, which belongs to this report.", filepath.Base(i.File))
		return
	}
	line("\nThe plan, `%s`:\n\n```yaml\n%s\n```", filepath.Base(i.File), source)
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
