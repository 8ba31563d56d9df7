package confirm

import (
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// WithoutActionsSuffix ends the names of plans without actions, and of the records of their runs.
const WithoutActionsSuffix = "-without-actions"

// Undisturbed returns what is left of a plan without its actions, or of an ordered one if nothing is late. It has no
// name. If the plan upgrades a controller, the result begins with the last build.
func Undisturbed(p *plan.Plan) plan.Plan {
	left := *p
	left.Build = p.LastBuild()
	left.TestName, left.Description, left.File, left.Actions = "", "", "", nil
	if left.Schedule != nil {
		left.Schedule = &plan.Schedule{} // nothing is late
	}
	return left
}

// WithoutActions returns the plan whose run shows whether a finding comes without the plan's actions, too.
func WithoutActions(p *plan.Plan, suite *plan.Suite) *plan.Plan {
	without := Undisturbed(p)
	without.TestName = p.TestName + WithoutActionsSuffix
	without.Complete(suite)
	return &without
}

// NeedsWithoutActions reports whether the verdict on a single run of a plan depends on a run without its actions: all
// bugs that it found are that its workload failed. A campaign makes that run for all findings.
func NeedsWithoutActions(p *plan.Plan, found []record.Finding) bool {
	bugs := Bugs(found)
	return p.Disturbs() && len(bugs) > 0 && !slices.ContainsFunc(bugs, func(f record.Finding) bool {
		return f.Judge != record.JudgeWorkload
	})
}

// Comes reports whether runs without a plan's actions have found what a plan has found, or worse.
func Comes(f record.Finding, without []record.Finding) bool {
	return slices.ContainsFunc(without, func(q record.Finding) bool { return q.IsBug() && findings.Joins(f, q) })
}

// Compare changes the verdict of a plan's run to inconclusive if all its bugs come in the run without the plan's
// actions, too. It reports whether they do.
func Compare(r, without *record.Run) bool {
	bugs := Bugs(r.Findings)
	if slices.ContainsFunc(bugs, func(f record.Finding) bool { return !Comes(f, without.Findings) }) {
		return false
	}
	judge.Withdraw(r, fmt.Sprintf("the workload does not pass without the plan's actions either: %s\n"+
		"change the workload in %s; its run without actions is in %s", wording.FirstLine(bugs[0].Title), r.Meta.Suite,
		without.Dir))
	return true
}
