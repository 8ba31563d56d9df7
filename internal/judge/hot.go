package judge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// hot names objects that one controller changes more than 100 times in a minute of the run, and the fields that differ
// from one write to the next. It is a note: judge loops says whether it is a bug of the plan. Without any action it is
// a bug if the workload did not come to its end.
type hot struct{}

func (hot) Is() Traits { return is("hot", allClusters, whatHappened) }

func (hot) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	var objects facts.HotObjects
	for i := range e.Events {
		objects.Take(e.Events[i])
	}
	var findings []record.Finding
	for _, h := range objects.All() {
		f := record.Finding{
			Severity: record.SeverityNote, Judge: record.JudgeHot, Subject: h.Controller, Time: h.Began,
			Title: HotTitle(h),
			Detail: fmt.Sprintf("the first of these writes was %s; a write that wakes its own controller never ends",
				e.moment(h.Began)),
		}
		f.Field, _, _ = strings.Cut(h.Object, "/")
		if !e.Plan.Disturbs() {
			f.Title = "without any fault, " + f.Title
			if slices.ContainsFunc(e.Found, func(f record.Finding) bool {
				return f.Judge == record.JudgeWorkload && f.IsBug() || f.Judge == record.JudgeTimeout
			}) {
				f.Severity = record.SeverityBug
			}
		}
		findings = append(findings, f)
	}
	return findings, nil
}

// HotTitle says which object is hot, how hot, and what changes.
func HotTitle(h facts.Hot) string {
	title := fmt.Sprintf("%s writes %s again and again: %d times in %s", h.Controller, h.Object, h.Times,
		h.Span.Round(100*time.Millisecond))
	const most = 5
	fields := h.Fields
	if len(fields) > most {
		fields = append(fields[:most:most], fmt.Sprintf("%d more", len(fields)-most))
	}
	if len(fields) > 0 {
		title += "; from one write to the next, these fields change: " + strings.Join(fields, ", ")
	}
	return title
}
