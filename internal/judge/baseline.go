package judge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// faultFree judges a run by what its workload does without faults. It does not judge one whose workload failed: what is
// different then follows from that.
type faultFree struct{}

func (faultFree) Is() Traits { return is("baseline", allClusters, wholeRun) }

func (faultFree) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	if e.Baseline == nil || e.Meta.GivenBack.IsZero() {
		return nil, nil
	}
	f, err := e.follower()
	if err != nil {
		return nil, err
	}
	differ := Differences(e.Baseline, e.Plan, f)
	all := strangers(e, differ)
	for n, part := range partsOf(e.Baseline, e.Plan, f, planned(e), differ) {
		finding := part.Finding
		var details []string
		var causes []*facts.Change
		finding.Time = e.Meta.WorkloadEnd
		for _, line := range part.Lines {
			texts := strings.Split(line.String(), "\n")
			for _, c := range line.Causes {
				finding.Time = c.Time
				causes = append(causes, c)
				texts = append(texts, "  "+nameOf(c)+": "+e.happened(c))
			}
			if strings.HasSuffix(finding.Title, texts[0]) { // the headline says it
				texts = texts[1:]
				for i := range texts {
					texts[i] = strings.TrimPrefix(texts[i], "  ")
				}
			}
			details = append(details, texts...)
		}
		finding.Cause, finding.Origin = earliest(causes...), origin(causes...)
		for _, a := range e.Actions {
			if a.Began.IsZero() {
				continue // the plan ended before it began
			}
			since := a.Began.Sub(e.Meta.WorkloadStart).Round(10 * time.Millisecond)
			details = append(details, fmt.Sprintf("%s: at +%s", a, since))
		}
		if n == 0 {
			if logged := e.lastNewError(); logged != "" {
				details = append(details, logged)
			}
		}
		finding.Detail = strings.Join(details, "\n")
		all = append(all, finding)
	}
	return slices.Concat(all, notesOf(e, e.Plan, f), excusesOf(e, f)), nil
}

// Parts says how a run differs from the baseline, and what that means. Planned are the resource versions of changes
// that the plan has made itself.
func Parts(
	ref *baseline.Baseline, p *plan.Plan, f *facts.Follower, planned map[uint64]bool,
) []findings.Part {
	return partsOf(ref, p, f, planned, Differences(ref, p, f))
}

func partsOf(
	ref *baseline.Baseline, p *plan.Plan, f *facts.Follower, planned map[uint64]bool,
	differ []baseline.Difference,
) []findings.Part {
	r := findings.Run{
		Baseline: ref, Changes: f.Changes(), Objects: f.Objects(), Planned: planned,
		Interrupted: findings.OnlyInterrupts(p.Actions),
	}
	return r.Parts(differ)
}

// strangers finds the objects that name others which were there before the run: a control plane serves one run after
// the other, and a controller that is late may write something for the run before when it has been reset. What a run
// does that did not begin as those without faults says nothing.
func strangers(e Evidence, differ []baseline.Difference) []record.Finding {
	var all []record.Finding
	for _, d := range differ {
		uid := d.NamesUnknown()
		if uid == "" || slices.ContainsFunc(all, func(f record.Finding) bool { return f.Subject == string(d.Own) }) {
			continue
		}
		all = append(all, record.Finding{
			Severity: record.SeverityInconclusive, Judge: record.JudgeHistory, Subject: string(d.Own),
			Title: fmt.Sprintf("%s names an object that was there before the run: %s has the UID %s", d.Own, d.Field,
				uid),
			Detail: d.String(), Time: e.Meta.WorkloadEnd,
		})
	}
	return all
}

// planned are the resource versions of the changes that the plan has made by deleting objects.
func planned(e Evidence) map[uint64]bool {
	versions := map[uint64]bool{}
	for i := range ownDeletions(e) {
		versions[e.History[i].ResourceVersion] = true
	}
	return versions
}

// Differences lists how a run's objects differ from the baseline, without what is only worth a note. If the plan itself
// writes or deletes objects, how often objects were created counts only for what the plan cannot have had made again;
// see [touch.explains]. Objects that were not created, and that could not be created in time, do not count either; see
// [inTime].
func Differences(
	ref *baseline.Baseline, p *plan.Plan, run *facts.Follower,
) []baseline.Difference {
	return Comparison(ref, p)(run)
}

// Comparison is Differences for a run that goes on, whose objects are compared again and again. The function is not
// safe for concurrent use.
func Comparison(
	ref *baseline.Baseline, p *plan.Plan,
) func(run *facts.Follower) []baseline.Difference {
	comparer, undue := ref.Comparer(), &inTime{
		ref: ref, atRest: p.Pace == plan.PaceRest, late: p.Schedule != nil && p.Disturbs(),
	}
	upgraded := p.Upgrades()
	return func(run *facts.Follower) []baseline.Difference {
		objects := run.Objects()
		by := touched(p, objects)
		undue.run = run
		return slices.DeleteFunc(comparer.Compare(objects), func(d baseline.Difference) bool {
			return d.Note || d.Count && by.explains(d) || undue.explains(d) || d.OfRenewals() && by.writes ||
				d.OfVersions() && by.any || upgraded && onlyFormers(d, ref) ||
				races(p, ref) && !harmsData(d, ref, objects)
		})
	}
}

// onlyFormers reports whether a difference is only that an object was created which the build that the run ends with
// never creates, and that is gone: a former build has made it.
func onlyFormers(d baseline.Difference, ref *baseline.Baseline) bool {
	want := ref.Objects[d.Key]
	return d.Count && (want == nil || want.MostMade == 0)
}

// races reports whether a plan's workload does not wait for the controllers before its steps, other than the runs
// without faults. Who is faster then decides what comes first, so that nearly everything may differ.
func races(p *plan.Plan, ref *baseline.Baseline) bool {
	return p.Pace == plan.PaceNone && ref.Pace == plan.PaceRest
}

// harmsData reports whether a difference is that something that holds data is not there, or there although it should be
// gone, or was created more often.
func harmsData(
	d baseline.Difference, ref *baseline.Baseline, objects map[facts.Key]*facts.Object,
) bool {
	if d.Field != "" || !facts.HoldsData(d.Key.Type()) {
		return false
	}
	want, got := ref.Objects[d.Key], objects[d.Own]
	return !d.Count || want != nil && got != nil && got.Made > want.MostMade
}

// copied reports whether an object has the annotation of conflicts that the plan has not written to it.
func copied(p *plan.Plan, objects map[facts.Key]*facts.Object) bool {
	if !slices.ContainsFunc(p.Actions, func(a plan.Action) bool { return Conflicts(&a) }) {
		return false
	}
	for key, o := range objects {
		data, err := json.Marshal(o.End)
		if err != nil || !bytes.Contains(data, []byte(baseline.ConflictAnnotation)) {
			continue
		}
		meta := metadata.Of(o.End)
		typ, _, _ := strings.Cut(key.Type(), ".")
		if !patched(p, key.Cluster(), typ, metadata.Text(meta, "namespace"), metadata.Text(meta, "name")) {
			return true
		}
	}
	return false
}
