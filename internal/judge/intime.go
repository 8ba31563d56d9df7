package judge

import (
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// inTime knows what was not created because it could not be created in time: the object that needed it was marked for
// deletion before the controller that creates it without faults was back, or had heard of it, or tried again what the
// plan had made fail.
type inTime struct {
	ref    *baseline.Baseline
	run    *facts.Follower
	atRest bool // each step of the workload begins when nothing is to be done any more
	late   bool // what reaches and leaves controllers may be late, and the workload goes on meanwhile

	runs   [][]facts.Change            // without faults
	owners *findings.Owners            // in these runs; nil: not needed yet
	whom   map[facts.Key][][]facts.Key // see MadeFor
}

// explains reports whether an object was created less often than without faults only because of that: those for whom it
// is made went too early. The object is not there in the end, or has the same end as without faults. One that was kept
// for its owner's successor does not count as one that was not created: it should have been replaced. An object that is
// missing in the end is not explained either if an object that needs it is still there.
func (t *inTime) explains(d baseline.Difference) bool {
	want, got := t.ref.Objects[d.Key], t.run.Objects()[d.Own]
	if want == nil || d.Field != "" || !d.Count && got != nil && got.End != nil {
		return false
	}
	made := 0
	if got != nil {
		made = got.Made
	}
	if made >= want.Made {
		return false
	}
	if t.owners == nil {
		t.runs = slices.Concat([][]facts.Change{t.ref.Changes}, t.ref.Others)
		t.owners = findings.NewOwners(t.ref.Changes, t.ref.Objects)
		t.whom = map[facts.Key][][]facts.Key{}
	}
	whom, known := t.whom[d.Key]
	if !known {
		whom = t.owners.MadeFor(d.Key, t.runs)
		t.whom[d.Key] = whom
	}
	return slices.ContainsFunc(whom, func(all []facts.Key) bool {
		return !slices.ContainsFunc(all, func(owner facts.Key) bool {
			return t.needed(d, owner, want.Made-made)
		})
	})
}

// needed reports whether an object should have been created for an owner: in time for one that is gone, for more of
// those that there were fewer than without faults; or for one that is there in the end, where the object is not.
func (t *inTime) needed(d baseline.Difference, owner facts.Key, fewer int) bool {
	lives := facts.Lives(t.run.Changes(), owner)
	for n, life := range lives {
		if !life.To.IsZero() {
			fewer -= t.undue(d, owner, n, life)
		}
	}
	return fewer > 0 || !d.Count && lives[len(lives)-1].To.IsZero()
}

// undue is how many objects could not be created in the n-th life of their owner.
func (t *inTime) undue(d baseline.Difference, owner facts.Key, n int, life facts.Life) int {
	usual := -1
	for r, changes := range t.runs {
		lives := facts.Lives(changes, owner)
		if n >= len(lives) {
			return 0
		}
		all := creations(changes, d.Key, lives[n])
		for _, c := range all {
			c = t.origin(c, changes, lives[n], life)
			if c == nil {
				return 0
			}
			step, from := -1, lives[n].From
			if r < len(t.ref.Courses) {
				course := t.ref.Courses[r]
				if step = course.StepAt(c.Time); step >= 0 && course.Steps[step].Started.After(from) {
					from = course.Steps[step].Started
				}
			}
			if !t.late && !t.run.SetBack(c.By, life) && !t.away(c.By, step, life, needs(c.Time.Sub(from))) {
				return 0
			}
		}
		if usual < 0 || len(all) < usual {
			usual = len(all)
		}
	}
	return max(0, usual-len(creations(t.run.Changes(), d.Own, life)))
}

// origin is the creation by a controller under test that a creation in a run without faults follows from: itself, or
// that of the nearest object above it that such a controller created, such as the StatefulSet of a volume claim. It is
// nil if there is none, or if the run has created an object between as often: then whoever creates the other one from
// it could have done so.
func (t *inTime) origin(
	c *facts.Change, changes []facts.Change, usual, life facts.Life,
) *facts.Change {
	if c.By != "" {
		return c
	}
	for _, up := range t.owners.All(c.Key) {
		above := slices.DeleteFunc(creations(changes, up, usual), func(a *facts.Change) bool {
			return a.Time.After(c.Time)
		})
		if len(above) <= len(creations(t.run.Changes(), up, life)) {
			return nil
		}
		if last := above[len(above)-1]; last.By != "" {
			return last
		}
	}
	return nil
}

// needs is for how long a controller must have been back to have had its chance, given how long after the owner's
// creation, or after the beginning of a later step, it does something without faults. After its start it first looks at
// all that is there, so it has twice that time; and some more, as that is often only milliseconds.
func needs(usual time.Duration) time.Duration { return 2*max(0, usual) + atRest }

// atRest is after how long without doing anything a controller counts as at rest between the steps of a workload.
const atRest = 500 * time.Millisecond

// away reports whether a controller could not do what it does in a step without faults: it was away when the owner's
// life ended, and at the beginning of each step after that one until then. A step that begins at rest begins when the
// controller has had its chance, however short that was; it only must have been there.
func (t *inTime) away(controller string, step int, life facts.Life, needs time.Duration) bool {
	atStep := needs
	if t.atRest {
		atStep = 0
	}
	steps := t.run.Course().Steps
	for n := step + 1; n <= t.run.Course().StepAt(life.To); n++ {
		if !t.run.Away(controller, steps[n].Started, atStep) {
			return false
		}
	}
	return t.run.Away(controller, life.To, needs)
}

// creations are those of the objects of a key in the life of their owner.
func creations(changes []facts.Change, key facts.Key, life facts.Life) []*facts.Change {
	var all []*facts.Change
	for i := range changes {
		if c := &changes[i]; c.Key == key && c.Event == record.Created && life.HasChange(c) {
			all = append(all, c)
		}
	}
	return all
}
