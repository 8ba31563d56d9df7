// Package result holds what a campaign has found: the outcome of each plan, the groups of plans that probably found the
// same bug, and the summary as text, Markdown and JSON.
package result

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/lead"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/record"
)

// Status is what became of a plan.
type Status string

// What became of a plan.
const (
	Passed       Status = "pass"
	Bug          Status = "bug"          // the same finding came in every run, and not without the plan's actions
	Unconfirmed  Status = "unconfirmed"  // findings did not come in every run
	OfWorkload   Status = "workload"     // the same finding came without the plan's actions
	Inconclusive Status = "inconclusive" // the plan did not happen, or nothing could be said
	Failed       Status = "failed"       // it could not be run
)

// Outcome is what became of a plan. It is complete: there is none of a plan that is still running.
type Outcome struct {
	Plan     string `json:"plan"`
	File     string `json:"file"`
	Workload string `json:"workload"`
	Pattern  string `json:"pattern,omitempty"` // empty: the plan was not generated
	Why      string `json:"why,omitempty"`     // what the plan does, in words
	Cause    string `json:"cause,omitempty"`   // what the plan does to the controllers, by which findings are grouped
	Struck   string `json:"struck,omitempty"`  // see findings.StruckBy
	Actions  int    `json:"actions"`
	Triggers int    `json:"triggers"`
	Status   Status `json:"status"`
	// Reason says why it is inconclusive, not confirmed, could not be run, or is believed without being confirmed.
	Reason string `json:"reason,omitempty"`
	Confirmation
	// Findings are those that came in all runs that found something.
	Findings []record.Finding `json:"findings,omitempty"`
	Record   string           `json:"record,omitempty"` // directory of the first run's record
	// Judged: the runs were compared with the workload's baseline.
	Judged bool `json:"judged"`
	// Faultless: there is no plan. The workload ended differently in the runs that it was to be learned from.
	Faultless bool `json:"faultless,omitempty"`
	// Smaller is the file of a smaller plan that finds the same, if there is one. Alone: it does so without a
	// baseline.
	Smaller string `json:"smaller,omitempty"`
	Alone   bool   `json:"alone,omitempty"`
	// Gone says in which other runs the worst finding did not come: what was left out or changed in them, in words.
	Gone []string `json:"gone,omitempty"`
	// Lead is what led to the worst finding, and Traced the record of the run that shows it; nil, empty: unknown.
	Lead   *lead.Lead    `json:"lead,omitempty"`
	Traced string        `json:"traced,omitempty"`
	Took   time.Duration `json:"nanoseconds"` // all runs together
	// Key changes with whatever could change the outcome.
	Key string `json:"key"`
}

// Confirmation says how the findings of a plan were confirmed. The zero value: there was none to confirm.
type Confirmation struct {
	// Pending: the budget ended before its findings were confirmed. A campaign that goes on confirms them.
	Pending bool `json:"pending,omitempty"`
	// Like is the plan whose findings were confirmed, if this one has the same: it was not run again.
	Like string `json:"like,omitempty"`
	// Came is the number of runs with the finding, and Of the number of runs.
	Came int `json:"came,omitempty"`
	Of   int `json:"of,omitempty"`
	// Restarted is the record of the run in which the controller was only restarted where the plan shows it the past;
	// empty: there is none. If it has the worst finding, too, cause and pattern are those of plans that restart.
	Restarted string `json:"restarted,omitempty"`
}

// AddRun adds the time that a run took, by the machine's clock, without the wait for a runner. meta may be nil.
func (o *Outcome) AddRun(meta *record.Meta) {
	if meta != nil {
		o.Took += meta.Took()
	}
}

// GoneIn notes that the worst finding did not come in a run with something left out or changed.
func (o *Outcome) GoneIn(how string) {
	if !slices.Contains(o.Gone, how) {
		o.Gone = append(o.Gone, how)
	}
}

// Strong reports whether one of the findings does great harm.
func (o *Outcome) Strong() bool {
	return slices.ContainsFunc(o.Findings, func(f record.Finding) bool { return f.Does().Strong() })
}

// Unrun is a plan that was not run.
type Unrun struct {
	Plan     string `json:"plan"`
	File     string `json:"file"`
	Workload string `json:"workload"`
	Pattern  string `json:"pattern,omitempty"` // empty: the plan was not generated
	Why      string `json:"why,omitempty"`     // what the plan does, in words
}

// Unlearned is a workload without a baseline.
type Unlearned struct {
	Workload string `json:"workload"`
	Reason   string `json:"reason"`
}

// Skipped is an item of the suite's generate.skip.
type Skipped struct {
	At    string `json:"at"`    // file:line
	What  string `json:"what"`  // which plans it leaves out
	Plans int    `json:"plans"` // how many these were
}

// String says it in one line.
func (s Skipped) String() string {
	if s.Plans == 0 {
		return fmt.Sprintf("%s leaves out no plan (%s)", s.At, s.What)
	}
	return fmt.Sprintf("%s left out by %s (%s)", wording.Count(s.Plans, "plan"), s.At, s.What)
}

// Suggestion says which workload would let a pattern have plans that it has not.
type Suggestion struct {
	Pattern string `json:"pattern"`
	Lacks   string `json:"lacks"` // what no workload does, and what a plan would show then
	// Workloads are those of the suite that were not chosen; one of them may do it. Otherwise Command writes some that
	// do; empty: the suite has no sample for that.
	Workloads []string `json:"workloads,omitempty"`
	Command   string   `json:"command,omitempty"`
}

func (s Suggestion) String() string {
	switch {
	case len(s.Workloads) > 0:
		return fmt.Sprintf("%s; one of those that were not chosen may: %s", s.Lacks, strings.Join(s.Workloads, ", "))
	case s.Command != "":
		return s.Lacks + "; this adds workloads that do: " + s.Command
	}
	return s.Lacks
}

// Result is what a campaign has found.
type Result struct {
	Settings
	// Outcomes are in the order in which plans are begun.
	Outcomes []Outcome `json:"outcomes"`
	NotRun   []string  `json:"notRun"` // plans that were not begun, or did not end, the most valuable ones first
	// Next are the first of these, and GoOn is the command that runs them, and confirms what the budget left no time
	// for; empty: there is nothing to do.
	Next []Unrun `json:"next"`
	GoOn string  `json:"goOn,omitempty"`
	// Stopped says why there are plans that were not run.
	Stopped string `json:"stopped,omitempty"`
	// Elsewhere is the number of plans in other shards.
	Elsewhere int         `json:"elsewhere,omitempty"`
	Unlearned []Unlearned `json:"unlearned"`
	// Unstudied are the workloads for whose learning the budget was too short.
	Unstudied []string       `json:"unstudied,omitempty"`
	Dropped   map[string]int `json:"dropped"` // candidates without a plan, by the rule that dropped them
	// Skipped are the plans that the suite leaves out.
	Skipped []Skipped `json:"skipped,omitempty"`
	// Empty are the patterns without a plan.
	Empty []string `json:"empty"`
	// Orders says which orders of each workload were run; empty: the pattern order was not chosen.
	Orders []Orders `json:"orders,omitempty"`
	// Suggested are workloads with which patterns would have plans that they have not.
	Suggested []Suggestion `json:"suggested"`
	// Unreached are the points in each controller that no workload reaches, so that no plan can use them.
	Unreached map[string][]string `json:"unreached"`
	// Unrecorded are the types of which no states could be recorded, by workload.
	Unrecorded map[string][]string `json:"unrecorded,omitempty"`
	Took       time.Duration       `json:"nanoseconds"` // with what it took before it was resumed
}

// With returns the outcomes of a status.
func (r *Result) With(s Status) []Outcome {
	return slices.DeleteFunc(slices.Clone(r.Outcomes), func(o Outcome) bool { return o.Status != s })
}

// Pending returns the outcomes whose findings the budget left no time to confirm.
func (r *Result) Pending() []Outcome {
	return slices.DeleteFunc(r.With(Unconfirmed), func(o Outcome) bool { return !o.Pending })
}

// unconfirmed returns the other outcomes that were not confirmed.
func (r *Result) unconfirmed() []Outcome {
	return slices.DeleteFunc(r.With(Unconfirmed), func(o Outcome) bool { return o.Pending })
}

// What is said of findings that come without the plan's actions, too. What is left of a plan that upgrades is the
// upgrade at rest.
const (
	withoutActions = "found without the plan's actions too"
	atRest         = "found after the same upgrade at rest too"
)

// WithoutActions returns which of these texts applies to the outcome.
func (o *Outcome) WithoutActions() string {
	if o.Pattern == pattern.Upgrade || o.Pattern == pattern.Rollback {
		return atRest
	}
	return withoutActions
}

// without returns the outcomes of which this is said.
func (r *Result) without(said string) []Outcome {
	return slices.DeleteFunc(r.With(OfWorkload), func(o Outcome) bool { return o.WithoutActions() != said })
}

// Undecided reports whether the budget left no time to say anything, or to confirm what was found.
func (r *Result) Undecided() bool {
	return len(r.Pending()) > 0 || len(r.Outcomes) == 0 && (len(r.NotRun) > 0 || len(r.Unstudied) > 0)
}

// Group is a finding that several plans have in common: probably one bug.
type Group struct {
	// Finding is the worst that they have in common, as the first plan shows it.
	Finding record.Finding `json:"finding"`
	Plans   []Outcome      `json:"plans"` // one that was confirmed first, the simplest of these
}

// Groups puts plans together that have probably found the same bug: see findings.Groups.
func Groups(all []Outcome) []Group {
	sorted := slices.SortedStableFunc(slices.Values(all), simpler)
	ones := make([]findings.One, len(sorted))
	for i, o := range sorted {
		ones[i] = findings.One{Findings: o.Findings, Cause: o.Cause, Struck: o.Struck, Sure: o.Of > 1}
	}
	var groups []Group
	for _, found := range findings.Groups(ones) {
		g := Group{Finding: found.Finding}
		for _, i := range found.Members {
			g.Plans = append(g.Plans, sorted[i])
		}
		groups = append(groups, g)
	}
	return groups
}

// simpler orders plans: those that do less come first.
func simpler(a, b Outcome) int {
	return cmp.Or(cmp.Compare(a.Actions, b.Actions), cmp.Compare(a.Triggers, b.Triggers), cmp.Compare(a.Took, b.Took))
}
