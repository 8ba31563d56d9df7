package learn

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/campaign/propose"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
)

// Learned is what is known of a workload.
type Learned struct {
	Workload string // its name; see WorkloadOf. With a build: NAME@BUILD
	// Place is where it stands among all that is learned.
	Place Place
	// Baseline is what the workload does without faults; nil with Err. If it has Begun, it lacks runs that may excuse a
	// difference; see Learner.Rest.
	Baseline *baseline.Baseline
	File     string // of the baseline
	Masks    string // file of the fields that never count; people may edit it
	Allowed  string // file of what does not count either, as campaigns have seen
	Anew     bool   // it was learned now
	// Err says why there is no baseline: runs without faults end differently (*baseline.UnstableError), one of
	// them has failed, or a run could not be carried out.
	Err error
	// Candidates are the plans that the campaign has made, also those without a plan.
	Candidates []pattern.Candidate
	Steps      []plan.Step     // nil: the suite has the workload
	Build      string          // of the suite, with which it was learned; empty: the suite itself
	Scope      string          // of plans that upgrade; what runs without their actions show counts for them only
	Source     baseline.Source // what a baseline is made from now

	first   *baseline.Baseline // of the first runs, if plans are made from these; see Moments
	wait    *plan.Step         // what a workload that waits for little can wait for; nil: see SuggestWait
	trouble string             // what is wrong with its sample; see propose.Trouble
}

// Place is a place in the order of all that is learned: workloads, then those in which time passes, then upgrades, and
// their number. The order does not depend on when each of them was learned.
type Place [3]int

// ByPlace compares the places of what is learned.
func ByPlace(a, b *Learned) int { return slices.Compare(a.Place[:], b.Place[:]) }

// Moments is the baseline that plans are made from. As long as the first runs were alike, it is theirs, also when there
// are more: so a campaign that goes on makes the same plans.
func (l *Learned) Moments() *baseline.Baseline {
	if l.first != nil {
		return l.first
	}
	return l.Baseline
}

// Unjudged reports whether a difference from the baseline may have an excuse that runs show which were not made yet.
func (l *Learned) Unjudged() bool { return l.Baseline != nil && l.Baseline.Begun != nil }

// readStated adds to what was learned or read what people and campaigns have stated about it.
func (l *Learned) readStated() error {
	if l.first != nil {
		edited, err := baseline.ReadMasks(l.Masks)
		if err != nil {
			return err
		}
		// The file also has the masks that further runs have found. They do not change the plans.
		found := l.Baseline.MaskEntries()
		l.first.Override(slices.DeleteFunc(edited, func(e baseline.MaskEntry) bool {
			return slices.Contains(found, e)
		}))
	}
	return l.readMore()
}

// readMore is readStated of the baseline only, when more was learned.
func (l *Learned) readMore() error {
	if err := l.Baseline.ReadAllowed(l.Allowed); err != nil {
		return err
	}
	edited, err := baseline.ReadMasks(l.Masks)
	if err != nil {
		return err
	}
	l.Baseline.Override(edited)
	return nil
}

// ID distinguishes what is learned of a workload from runs that plans of different kinds have in common.
func (l *Learned) ID() string { return l.Workload + l.Scope }

// Options are those of a run of the workload that is compared with the baseline.
func (l *Learned) Options() run.RunOptions {
	if l.Baseline == nil {
		return run.RunOptions{}
	}
	return run.RunOptions{History: l.Baseline.Types, Baseline: l.Baseline}
}

// Cost estimates how long a plan with the workload runs, by the machine's clock: as long as the workload without
// faults, and what the plan's actions add. Zero: that is unknown.
func (l *Learned) Cost(p *plan.Plan) time.Duration {
	if l == nil || l.Baseline == nil || l.Baseline.Took == 0 {
		return 0
	}
	return l.Baseline.Took + pattern.Extra(p, l.Baseline.Virtual)
}

// Advice says what to mend in a workload: what it can wait for, and what is wrong with its sample.
func (l *Learned) Advice() (all []string) {
	if l.wait != nil {
		if step, err := propose.StepText(l.wait); err == nil {
			all = append(all, "it waits for little; without faults it ended with this, to wait for:\n    "+step)
		}
	}
	if l.trouble != "" {
		all = append(all, "without faults "+l.trouble+"\n    "+propose.TroubleAdvice)
	}
	return all
}

// adviceLines is the advice as further lines below what is known of the workload.
func (l *Learned) adviceLines() (lines string) {
	for _, advice := range l.Advice() {
		lines += "  " + advice + "\n"
	}
	return lines
}

// BaselineFile is the file of a workload's baseline in a directory of baselines.
func BaselineFile(dir, workload string) string {
	return filepath.Join(dir, workload, "baseline.json")
}

// firstFile is the file, beside the baseline, of what its first runs have shown, if plans are made from that.
func (l *Learned) firstFile() string { return filepath.Join(filepath.Dir(l.File), "first-runs.json") }

// MaskFile is the file of the fields that never count, beside the baseline, for people to edit.
func MaskFile(dir, workload string) string { return filepath.Join(dir, workload, "masks.yaml") }

// AllowedFile is the file of what does not count either, as campaigns have seen after the baseline was learned.
func AllowedFile(dir, workload string) string { return filepath.Join(dir, workload, "allowed.json") }

// Text says what is known of a workload, and which fields differ without faults.
func (l *Learned) Text() string {
	if l.Err != nil {
		return fmt.Sprintf("%s: not learned: %v\n", l.Workload, l.Err) + l.adviceLines()
	}
	how := "nothing has changed since it was learned"
	if l.Anew {
		how = fmt.Sprintf("learned from %d runs", l.Baseline.Runs)
	}
	ours := 0
	for i := range l.Baseline.Changes {
		if l.Baseline.Changes[i].By != "" {
			ours++
		}
	}
	text := fmt.Sprintf("%s: %s: %s, %s, %d of them by the controllers\n", l.Workload, how,
		wording.Count(len(l.Baseline.Objects), "object"), wording.Count(len(l.Baseline.Changes), "change"), ours)
	var fields []string
	for _, m := range l.Baseline.Found {
		if m.Reason == baseline.Differs && !m.Compare {
			fields = append(fields, string(m.Object)+" "+m.Path)
		}
	}
	if len(fields) > 0 {
		text += "  never counts, because it differs without faults: " + wording.First(fields, result.Most) + "\n"
	}
	return text + l.adviceLines() +
		fmt.Sprintf("  %s; what never counts can be edited in %s\n", l.File, filepath.Base(l.Masks))
}
