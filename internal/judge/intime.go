package judge

import (
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/reference"
	"github.com/trommel-dev/trommel/internal/reference/findings"
	"github.com/trommel-dev/trommel/record"
)

// inTime knows what was not created because nobody could create it in time: its owner was marked for deletion before
// the controller that creates it without faults was back, or tried again what the plan had made fail.
type inTime struct {
	ref    *reference.Reference
	run    *reference.Follower
	atRest bool // each step of the workload begins when nothing is to be done any more

	owners *findings.Owners // in the runs without faults; nil: not needed yet
}

// explains reports whether an object that has the same end as without faults was created less often only because of
// that. An object that somebody has kept for its owner's successor does not count as one that was not created: it
// should have been replaced.
func (t *inTime) explains(d reference.Difference) bool {
	want := t.ref.Objects[d.Key]
	if want == nil {
		return false
	}
	made := 0
	if got := t.run.Objects()[d.Own]; got != nil {
		made = got.Made
	}
	if made >= want.Made {
		return false
	}
	if t.owners == nil {
		t.owners = findings.NewOwners(t.ref.Changes, t.ref.Objects)
	}
	owner := t.owners.Of(d.Key)
	if owner == "" {
		return false
	}
	for n, life := range reference.Lives(t.run.Changes(), owner) {
		if !life.To.IsZero() {
			made += t.undue(d, owner, n, life)
		}
	}
	return made >= want.Made
}

// undue is how many objects nobody could create in the n-th life of their owner.
func (t *inTime) undue(d reference.Difference, owner reference.Key, n int, life reference.Life) int {
	usual := -1
	for r, changes := range slices.Concat([][]reference.Change{t.ref.Changes}, t.ref.Others) {
		lives := reference.Lives(changes, owner)
		if n >= len(lives) {
			return 0
		}
		all := creations(changes, d.Key, lives[n])
		for _, c := range all {
			step, from := -1, lives[n].From
			if r < len(t.ref.Courses) {
				course := t.ref.Courses[r]
				if step = course.StepAt(c.Time); step >= 0 && course.Steps[step].Started.After(from) {
					from = course.Steps[step].Started
				}
			}
			if c.By == "" || !t.run.SetBack(c.By, life) && !t.away(c.By, step, life, needs(c.Time.Sub(from))) {
				return 0
			}
		}
		if usual < 0 || len(all) < usual {
			usual = len(all)
		}
	}
	return max(0, usual-len(creations(t.run.Changes(), d.Own, life)))
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
func (t *inTime) away(controller string, step int, life reference.Life, needs time.Duration) bool {
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
func creations(changes []reference.Change, key reference.Key, life reference.Life) []*reference.Change {
	var all []*reference.Change
	for i := range changes {
		if c := &changes[i]; c.Key == key && c.Event == record.Created && life.Has(c.Time) {
			all = append(all, c)
		}
	}
	return all
}
