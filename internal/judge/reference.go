package judge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/reference"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// faultFree judges a run by what its workload does without faults. It does not judge one whose workload failed: what is
// different then follows from that.
type faultFree struct{}

func (faultFree) Name() string { return "reference" }

func (faultFree) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	if e.Reference == nil || e.Meta.GivenBack.IsZero() {
		return nil, nil
	}
	f, err := e.follower()
	if err != nil {
		return nil, err
	}
	changes := f.Changes()
	differ := Differences(e.Reference, e.Plan, f.Objects())
	var findings []record.Finding
	for len(differ) > 0 {
		key := differ[0].Key
		var lines, details []string
		at := e.Meta.WorkloadEnd
		for len(differ) > 0 && differ[0].Key == key {
			d := differ[0]
			lines = append(lines, strings.TrimPrefix(d.String(), string(key)+": "))
			details = append(details, lines[len(lines)-1])
			for _, c := range d.Caused(changes) {
				at = c.Time
				details = append(details, "  "+nameOf(c)+": "+e.happened(c))
			}
			differ = differ[1:]
		}
		for _, a := range e.Actions {
			if a.Began.IsZero() {
				continue // the plan ended before it began
			}
			details = append(details, fmt.Sprintf("%s: at +%s", a, a.Began.Sub(e.Meta.WorkloadStart).Round(10*time.Millisecond)))
		}
		title := fmt.Sprintf("%s differs from the runs without faults: %s", key, lines[0])
		if len(lines) > 1 {
			title += fmt.Sprintf(" (and %d more)", len(lines)-1)
		}
		findings = append(findings, record.Finding{
			Severity: record.SeverityBug, Judge: record.JudgeReference, Subject: string(key),
			Title: title, Detail: strings.Join(details, "\n"), Time: at,
		})
	}
	return findings, nil
}

// Differences lists how a run's objects differ from the reference. If the plan itself writes or deletes objects, it does
// not count how often objects were created: the plan has made some of them be created again.
func Differences(
	ref *reference.Reference, p *plan.Plan, objects map[reference.Key]*reference.Object,
) []reference.Difference {
	differ := ref.Compare(objects)
	if slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return a.Effects().Writes }) {
		differ = slices.DeleteFunc(differ, func(d reference.Difference) bool { return d.Count })
	}
	return differ
}

// AwaitReference returns when the history is as the reference says, or when it is not and has been at rest for the time
// of quiet, at the earliest after the patience that controllers have which try again; that counts from givenBack, see
// Await. Something else may change for ever, such as a count of failed attempts: it also returns when the same fields
// have differed for a step's time, and at the latest after that of a plan. The error is that of ctx, or of a history
// that cannot be read.
func AwaitReference(
	ctx context.Context, ref *reference.Reference, p *plan.Plan, g Growing, givenBack time.Time, limits plan.Timeouts,
) error {
	const patience = 10 * time.Second
	read, last := 0, givenBack
	var same []reference.Difference
	since := time.Now() // the same fields differ
	follower := reference.NewFollower()
	for {
		entries, changed := g.Since(read)
		if len(entries) > 0 {
			last = entries[len(entries)-1].Time
		}
		read += len(entries)
		if err := follower.Add(entries...); err != nil {
			return err
		}
		differ := Differences(ref, p, follower.Objects())
		if len(differ) == 0 {
			return nil
		}
		if !slices.EqualFunc(differ, same, sameField) {
			same, since = differ, time.Now()
		}
		wait := max(time.Until(last.Add(limits.Quiet)), time.Until(givenBack.Add(patience)))
		wait = min(wait, time.Until(since.Add(max(limits.Step, patience))),
			time.Until(givenBack.Add(max(limits.Plan, patience))))
		if wait <= 0 {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

func sameField(a, b reference.Difference) bool { return a.Key == b.Key && a.Field == b.Field }
