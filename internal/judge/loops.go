package judge

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// loops judges whether a controller writes the same object or reconciles the same request again and again, without
// pauses that grow, when nothing disturbs it any more. Writing without end is a bug if the controller does not do that
// without faults; reconciling is a note, as something else may ask for it, and left to the judge unrest if that knows
// more.
type loops struct{}

func (loops) Is() Traits { return is("loops", allClusters, whatHappened) }

func (loops) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	var findings []record.Finding
	restless := e.restless()
	for _, l := range facts.Loops(e.Events, e.Meta.Calm, e.Meta.Observed) {
		if e.Baseline != nil && slices.ContainsFunc(e.Baseline.Loops, l.Same) {
			continue
		}
		of := func(u record.Unrest) bool { return u.Controller == l.Controller && !u.Growing }
		if l.Object == "" && slices.ContainsFunc(restless, of) {
			continue
		}
		f := record.Finding{
			Severity: e.severity(), Judge: record.JudgeLoop, Subject: l.Controller, Time: l.Last,
			Detail: fmt.Sprintf("nothing has disturbed it since %s", e.moment(e.Meta.Calm)),
		}
		often := fmt.Sprintf("%d times in the last %s", l.Times, l.Span.Round(100*time.Millisecond))
		if l.Object == "" {
			f.Severity = record.SeverityNote
			f.Title = fmt.Sprintf("%s reconciles %s in %s without end: %s", l.Controller, l.Request, l.Reconciler,
				often)
		} else {
			f.Title = fmt.Sprintf("%s writes %s without end: %s", l.Controller, l.Object, often)
			if l.Failed > 0 {
				f.Detail += fmt.Sprintf("\n%d of the writes failed, the last one with: %s", l.Failed, l.Error)
			}
		}
		f.Field, _, _ = strings.Cut(cmp.Or(l.Object, l.Request), "/")
		findings = append(findings, f)
	}
	return findings, nil
}
