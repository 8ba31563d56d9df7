package findings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/record"
)

// Run is a run whose differences from runs without faults become findings.
type Run struct {
	Baseline *baseline.Baseline
	Changes  []facts.Change
	Objects  map[facts.Key]*facts.Object
	// Planned are the resource versions of changes that the plan has made itself.
	Planned map[uint64]bool
	// Interrupted: all that the plan does to the controllers is to interrupt their work.
	Interrupted bool

	owners, usual *Owners // of the run, and of the runs without faults
}

// Line is what differs because of one write: fields that follow from it are one difference.
type Line struct {
	Harm    record.Harm
	Differ  []baseline.Difference // what matters most first
	Causes  []*facts.Change
	whole   bool
	shared  string // what [Run.shared] says of it
	version uint64 // of the write; 0: what should have come did not
	part    string // of the object, if no write is known
}

// Part is the part of an object's differences that means the same for users.
type Part struct {
	Finding record.Finding // without detail and time
	Lines   []Line         // what matters most first
	// Nearer: the run is nearer to what the object's status promises than the runs without faults. Then what is wrong
	// comes without any fault.
	Nearer bool
}

// Parts turns the differences into findings, in the order of their objects. An object's existence comes first, then its
// content, then its status. Messages and dates that differ together with something else are part of its finding.
func (r *Run) Parts(differ []baseline.Difference) []Part {
	var all []Part
	for len(differ) > 0 {
		n := slices.IndexFunc(differ, func(d baseline.Difference) bool { return d.Key != differ[0].Key })
		if n < 0 {
			n = len(differ)
		}
		all = append(all, r.objectParts(differ[:n])...)
		differ = differ[n:]
	}
	return all
}

const beingDeleted = "metadata.beingDeleted"

// objectParts returns the parts of one object. Those without any fault come last.
func (r *Run) objectParts(differ []baseline.Difference) []Part {
	rest, nearer := r.apart(differ)
	all := r.parts(nearer)
	for i := range all {
		all[i].Nearer = true
		all[i].Finding.Title = "without any fault, " + all[i].title(all[i].Lines[0].Differ[0], " is farther from what "+
			"its status promises than in this run")
	}
	return append(r.parts(rest), all...)
}

func (r *Run) parts(differ []baseline.Difference) []Part {
	lines := r.lines(differ)
	var all []Part
	for _, l := range lines {
		last := len(all) - 1
		if last >= 0 && !all[last].Lines[0].whole && !l.whole &&
			(all[last].Finding.Harm == l.Harm || l.Harm == record.HarmRemark) {
			all[last].Lines = append(all[last].Lines, l)
			continue
		}
		all = append(all, Part{Lines: []Line{l}, Finding: record.Finding{Harm: l.Harm}})
	}
	for i := range all {
		p := &all[i]
		d := p.Lines[0].Differ[0]
		owner := r.owner(d)
		p.Finding.Severity, p.Finding.Judge = record.SeverityBug, record.JudgeBaseline
		p.Finding.Subject, p.Finding.Owner = string(d.Key), string(owner)
		if p.Lines[0].whole {
			p.Finding.Title, p.Finding.Claims = r.whole(d, p.Lines[0], owner)
			continue
		}
		p.Finding.Field = p.fields()
		p.Finding.Title = p.title(d, " differs from the runs without faults")
	}
	return all
}

// title says what is different in fields.
func (p *Part) title(d baseline.Difference, how string) string {
	title := fmt.Sprintf("%s%s: %s", d.Key, how, without(d))
	more := 0
	for _, l := range p.Lines[1:] {
		if l.Harm != record.HarmRemark {
			more++
		}
	}
	if more > 0 {
		title += fmt.Sprintf(" (and %d more)", more)
	}
	return title
}

// maxFields is how many fields of a finding are kept.
const maxFields = 50

// fields are the paths that the finding is about.
func (p *Part) fields() string {
	var all []string
	for _, l := range p.Lines {
		for _, d := range l.Differ {
			if OfField(d.Field, d.Want, d.Got) == p.Finding.Harm && len(all) < maxFields {
				all = append(all, strings.ReplaceAll(d.Field, " ", "_"))
			}
		}
	}
	return strings.Join(all, " ")
}

// without is a difference without the object's name.
func without(d baseline.Difference) string {
	return strings.TrimPrefix(d.String(), string(d.Key)+": ")
}

// lines puts differences together that follow from the same write.
func (r *Run) lines(differ []baseline.Difference) []Line {
	var all []Line
	for _, d := range differ {
		causes := d.Caused(r.Changes)
		l := Line{Differ: []baseline.Difference{d}, Causes: causes, whole: d.Field == "" || d.Field == beingDeleted}
		if l.whole {
			l.Harm = r.ofWhole(d)
			if r.Objects[d.Own] == nil && !d.Count {
				by := (*facts.Change)(nil)
				if l.shared, by = r.shared(d); by != nil {
					l.Causes = []*facts.Change{by}
				}
			}
			all = append(all, l)
			continue
		}
		l.Harm = OfField(d.Field, d.Want, d.Got)
		if len(causes) > 0 {
			l.version = causes[len(causes)-1].Version
		} else {
			l.part, _, _ = strings.Cut(d.Field, ".")
		}
		same := func(o Line) bool {
			return !o.whole && o.version == l.version && o.part == l.part &&
				(o.Harm == l.Harm || l.Harm == record.HarmRemark || o.Harm == record.HarmRemark)
		}
		if i := slices.IndexFunc(all, same); i >= 0 {
			all[i].Differ = append(all[i].Differ, d)
			if l.Harm.Rank() < all[i].Harm.Rank() {
				all[i].Harm = l.Harm
			}
			continue
		}
		all = append(all, l)
	}
	for i := range all {
		slices.SortStableFunc(all[i].Differ, func(a, b baseline.Difference) int {
			if all[i].whole {
				return 0
			}
			return OfField(a.Field, a.Want, a.Got).Rank() - OfField(b.Field, b.Want, b.Got).Rank()
		})
	}
	slices.SortStableFunc(all, func(a, b Line) int { return a.Harm.Rank() - b.Harm.Rank() })
	return all
}

// maxWith is how many fields are named that differ with another one.
const maxWith = 8

// String is the line for people: a difference, and the fields that differ with it.
func (l Line) String() string {
	text := without(l.Differ[0])
	for i, d := range l.Differ[1:] {
		if i == maxWith {
			return text + fmt.Sprintf("\n  with it: %s more", wording.Count(len(l.Differ)-1-maxWith, "field"))
		}
		text += "\n  with it: " + without(d)
	}
	return text
}

func (r *Run) know() {
	if r.owners == nil {
		r.owners = NewOwners(r.Changes, r.Objects)
		r.usual = NewOwners(r.Baseline.Changes, r.Baseline.Objects)
	}
}

// owner is whose an object is: as the run shows it, or else the runs without faults.
func (r *Run) owner(d baseline.Difference) facts.Key {
	r.know()
	if owner := r.owners.Of(d.Own); owner != "" {
		return owner
	}
	return r.usual.Of(d.Key)
}

// state is what became of the object in the run and, at most, in a run without faults.
func (r *Run) state(d baseline.Difference) (got, want facts.Object) {
	if o := r.Objects[d.Own]; o != nil {
		got = *o
	}
	if o := r.Baseline.Objects[d.Key]; o != nil {
		want = *o
	}
	return got, want
}

func (r *Run) ofWhole(d baseline.Difference) record.Harm {
	got, want := r.state(d)
	switch {
	case d.Field == beingDeleted, got.End != nil && !d.Count:
		return record.HarmLeft
	case facts.HoldsData(d.Key.Type()) && got.Deleted > want.Deleted && r.loses(d) && !r.restored(d):
		return record.HarmLost
	case d.Count, !facts.HoldsData(d.Key.Type()) && r.finished(r.owner(d)):
		return record.HarmReplaced
	case !r.irreplaceable(d):
		return record.HarmMissing
	case r.referredTo(d):
		return record.HarmReplaced
	}
	return record.HarmRemark
}

// irreplaceable reports whether an object is missing because the plan has deleted it, and could not come back as it
// was: what it held was random. A controller cannot restore it. It may make another one, or leave that to people.
func (r *Run) irreplaceable(d baseline.Difference) bool {
	return !d.Count && d.Field == "" && r.plans(d.Own) && r.Baseline.HoldsRandom(d.Key)
}

// referredTo reports whether another object names the object at the end of the run, as a pod does whose volume it is.
// Metadata and status do not count.
func (r *Run) referredTo(d baseline.Difference) bool {
	got, _ := r.state(d)
	object := got.Last()
	name := metadata.Text(metadata.Of(object), "name")
	if name == "" {
		return false
	}
	for key, o := range r.Objects {
		if key == d.Own || o.End == nil || key.Cluster() != d.Own.Cluster() || !sameNamespace(o.End, object) {
			continue
		}
		for part, v := range o.End {
			if part != "metadata" && part != "status" && metadata.Holds(v, name) {
				return true
			}
		}
	}
	return false
}

// loses reports whether the last deletion of an object was a loss: it was taken away, and not as others like it are
// without faults.
func (r *Run) loses(d baseline.Difference) bool {
	taken := r.taken(d)
	return taken != nil && !r.usuallyDeleted(d, taken)
}

// restored reports whether a Secret that was deleted was made again with what it held, as one is that is made from
// something else.
func (r *Run) restored(d baseline.Difference) bool {
	got, _ := r.state(d)
	if d.Key.Type() != "secret" || got.End == nil {
		return false
	}
	return !slices.ContainsFunc(r.Changes, func(c facts.Change) bool {
		return c.Key == d.Own && c.Event == record.Deleted && !reflect.DeepEqual(c.Prev["data"], got.End["data"])
	})
}

// finished reports whether an owner has done what it is there for, in the run and without faults: what belongs to it is
// not needed any more. Whether it is deleted may be decided by who is faster, as of two Jobs of a JobSet that fail at
// the same time.
func (r *Run) finished(owner facts.Key) bool {
	got, want := r.Objects[owner], r.Baseline.Objects[owner]
	return got != nil && got.End != nil && facts.Finished(got.End) &&
		want != nil && want.End != nil && facts.Finished(want.End)
}

// deletion is a change by which an object was taken away from its living owner.
type deletion struct {
	*facts.Change
	owner facts.Key
	// giver is the controller that had given the object an owner that was gone, for which the garbage collector deleted
	// it; empty: it was not so.
	giver string
}

// taken is the last deletion of an object that was neither the plan's nor due because its owner was deleted; nil:
// there is none. What has no owner, such as a custom resource, is the user's: a controller that deletes it takes it
// away, too.
func (r *Run) taken(d baseline.Difference) *deletion {
	r.know()
	var found *deletion
	mark := -1
	var former member // the owner before a controller gave the object another one
	giver := ""
	for i := range r.Changes {
		c := &r.Changes[i]
		switch {
		case c.Key != d.Own:
			continue
		case c.Event == record.Created:
			mark, giver = -1, ""
			continue
		case c.Marked():
			mark = i
		case c.Event != record.Deleted:
			if was, changes := r.formerOwner(c); changes && c.By != "" {
				former, giver = was, c.By
			}
			continue
		}
		at := i
		if c.Event == record.Deleted && mark >= 0 {
			at = mark
		}
		by := &r.Changes[at]
		if r.Planned[by.Version] {
			continue
		}
		owner := r.owners.top(c.Key, c.Prev)
		switch {
		case owner.key == "" && by.By != "":
			found = &deletion{by, "", ""}
		case owner.key != "" && r.owners.livedAt(owner, at):
			found = &deletion{by, owner.key, ""}
		case giver != "" && by.By == "" && r.owners.livedAt(former, at):
			found = &deletion{by, former.key, giver}
		}
	}
	return found
}

// formerOwner is whose an object was before a change, and whether the change gives it another owner.
func (r *Run) formerOwner(c *facts.Change) (was member, changes bool) {
	was, is := r.owners.top(c.Key, c.Prev), r.owners.top(c.Key, c.Cur)
	return was, was.key != "" && is.key != "" && metadata.UID(was.object) != metadata.UID(is.object)
}

// whole says what became of an object as a whole: what is harmed, by whom, and then how that differs. The claims are
// what this says of objects.
func (r *Run) whole(d baseline.Difference, l Line, owner facts.Key) (title string, claims record.Claims) {
	got, want := r.state(d)
	name := Name(string(d.Key))
	of := name
	if owner != "" {
		of += " of " + Name(string(owner))
	}
	says := func(what record.Statement) { claims.Say(string(d.Own), what) }
	if l.shared != "" {
		return l.shared, claims
	}
	taken := r.taken(d)
	deleted := taken != nil && got.Deleted > want.Deleted && !r.usuallyDeleted(d, taken)
	if text := r.numbers(d, owner); text != "" && !deleted {
		return text, claims
	}
	text := ""
	switch {
	case d.Field == beingDeleted && !metadata.Marked(got.End):
		says(record.ClaimUnmarked)
		text = of + " is not marked for deletion"
	case d.Field == beingDeleted:
		says(record.ClaimMarked)
		text = of + stays(got.End)
	case got.End != nil && !d.Count:
		is := " is still there"
		if metadata.Marked(got.End) {
			says(record.ClaimMarked)
			is = stays(got.End)
		}
		switch {
		case owner != "" && r.owners.last[owner] != nil && r.gone(owner):
			claims.Say(string(owner), record.ClaimGone)
			text = fmt.Sprintf("%s%s although %s is gone", name, is, Name(string(owner)))
		case want.Made == 0:
			text = of + " should never have been created"
		default:
			text = of + is
		}
	case deleted:
		if taken.owner != "" {
			how := "living"
			if r.finished(taken.owner) {
				how = "finished"
			}
			name += " of the " + how + " " + Name(string(taken.owner))
		}
		says(record.ClaimDeleted)
		text = name + " was " + strings.Replace(taken.String(), "marked for deletion", "deleted", 1)
		switch {
		case taken.giver != "":
			text += " by the garbage collector, because " + taken.giver + " had given it an owner that was gone,"
		case taken.By != "":
			text += " by " + taken.By
		}
		if got.End != nil {
			says(record.ClaimAgain)
			text += " and created again"
		}
		if what := lost(d.Key.Type()); what != "" && l.Harm == record.HarmLost {
			text += ", " + what
		}
	case !d.Count && r.plans(d.Own):
		text = of + " was deleted by the plan, and is not created again"
		if r.irreplaceable(d) {
			text += ", and could not be as it was, since what it held was random"
		}
	case !d.Count:
		text = of + " is missing"
	case got.Made < want.Made:
		switch e := facts.EndOf(&got); {
		case e.Never():
			text = of + " was left out"
		case got.Made == 0:
			text = of + " was created too late"
		default:
			text = of + " was not replaced"
		}
	default:
		text = of + " was created too often"
	}
	if e, ok := d.Got.(facts.Existence); ok {
		claim(&claims, d.Own, e)
	}
	return text + ": " + without(d), claims
}

// gone reports whether an object is not there in the end.
func (r *Run) gone(key facts.Key) bool {
	o := r.Objects[key]
	return o == nil || o.End == nil
}

// plans reports whether the last deletion of an object was the plan's.
func (r *Run) plans(key facts.Key) bool {
	own := false
	for i := range r.Changes {
		c := &r.Changes[i]
		if c.Key == key && (c.Event == record.Deleted || c.Marked()) {
			own = r.Planned[c.Version]
		}
	}
	return own
}

// stays says that an object was marked for deletion and is still there, and for which finalizers it waits.
func stays(object map[string]any) string { return Stays(finalizers(object)) }

// Stays says that an object was marked for deletion and is still there because of finalizers; empty: unknown ones. An
// object's name comes before it.
func Stays(finalizers string) string {
	text := " is marked for deletion, and stays"
	if finalizers != "" {
		text += " because of its finalizer " + finalizers
	}
	return text
}

func finalizers(object map[string]any) string {
	list, _ := metadata.Of(object)["finalizers"].([]any)
	var all []string
	for _, f := range list {
		if name, ok := f.(string); ok {
			all = append(all, name)
		}
	}
	return strings.Join(all, ", ")
}
