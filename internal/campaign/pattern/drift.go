package pattern

import (
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// driftAfter is how long after the controller's last write, and after the workload, the steady state begins.
const driftAfter = time.Second

// drift changes, as another client, what the controller keeps up, once it has seen its own write. It deletes objects
// that the controller has created and whose changes it takes in, and it sets fields that the controller updates back to
// their previous value. The controller must make it as it was.
func (g *generator) drift() {
	g.deletions(true)
	g.fields(true)
}

// driftAny changes what the controller has made and may leave to others: objects of types whose changes it does not
// take in, and fields that it sets only when it creates an object.
func (g *generator) driftAny() {
	g.deletions(false)
	g.fields(false)
}

// records are types of objects that controllers write down for later, and need not make again at once.
var records = []string{"controllerrevision.apps", "event", "event.events.k8s.io"}

// steadyState is the label of the moment at which the controller has done its work.
const steadyState = "steady"

// idleOwner is the rule by which nothing is disturbed that belongs to something finished.
const idleOwner = "its owner has finished: the controller need not keep it up any more"

// unasked is the rule by which nothing is disturbed that the controller has no reason any more to keep up.
const unasked = "what the controller had read when it wrote the object is gone at the end: nothing asks for it any more"

// nameless is the rule by which an object of a generated name is written only when it fires the action.
const nameless = "the object's name is generated, and it is not the object of that moment: no plan can write it"

// moment is when another client writes.
type moment struct {
	change int           // of the controller
	wait   time.Duration // after that write; 0: until the controller has seen it
	words  string
	label  string // in signatures
}

// steady is the moment at which the controller has done its work. If its last write is not the same in all runs without
// faults, it is the last one that is, and some time.
func (g *generator) steady(by string) moment {
	if m, ok := g.steadies[by]; ok {
		return m
	}
	writes := g.writes[by]
	m := moment{writes[len(writes)-1], driftAfter, "in the steady state", steadyState}
	for _, i := range slices.Backward(writes) {
		if _, rule := g.when("moment", start, i, plan.AfterControllerWrite, by); rule != "" {
			continue
		}
		m.change = i
		for r, at := range g.positions[i] {
			m.wait = max(m.wait, driftAfter+max(g.runs[r].untilLastWrite(at, by), g.untilEnd(r, at)))
		}
		break
	}
	g.steadies[by] = m
	return m
}

// untilEnd is the time from a change to the end of the workload in a run without faults, rounded up; zero: nobody
// knows, or it came after it.
func (g *generator) untilEnd(run, change int) time.Duration {
	if len(g.ref.Courses) != len(g.runs) {
		return 0
	}
	return max(0, roundUp(g.ref.Courses[run].Ended.Sub(g.runs[run].changes[change].Time)))
}

// disturb adds a plan in which another client writes at a moment.
func (g *generator) disturb(m moment, by, signature, why string, action *build.Action) {
	signature += " " + m.label
	why += ", " + m.words
	d, rule := g.at(m, by)
	if rule != "" {
		g.drop(signature, why, rule)
		return
	}
	g.add(signature, why, action.When(d))
}

// at is when another client writes at a moment: when the controller's write is complete and the controller has seen it.
// Between the two, the controller cannot distinguish the other client's change from its own. If the controller does not
// take in its write, or not in the same way in all runs without faults, the other client waits for some time instead.
func (g *generator) at(m moment, by string) (t build.Trigger, rule string) {
	written, rule := g.when("moment", start, m.change, plan.AfterControllerWrite, by)
	if rule != "" {
		return nil, rule
	}
	if m.wait == 0 {
		if seen := g.seen(m.change, by); seen != nil {
			return build.Both(written, seen), ""
		}
	}
	return build.Sequence(written, build.Timeout(max(m.wait, driftAfter)).Named("later")), ""
}

// seen is when a controller takes in the i-th change; nil: it does not, or not in the same way in all runs.
func (g *generator) seen(i int, by string) *build.Condition {
	if !slices.Contains(g.ref.Changes[i].Taken, by) {
		return nil
	}
	seen, rule := g.named("seen", start, i, plan.AfterControllerRecv, by)
	if rule != "" {
		return nil
	}
	return seen
}

// deletions deletes objects that a controller has created and that exist at the end: right after their creation, and in
// the steady state. Heard selects the objects whose changes the controller takes in, or the others.
func (g *generator) deletions(heard bool) {
	created := map[facts.Key]int{} // for the last time
	for i := range g.ref.Changes {
		if c := &g.ref.Changes[i]; c.By != "" && c.Event == record.Created {
			created[c.Key] = i
		}
	}
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		if at, ok := created[c.Key]; !ok || at != i || g.ref.Objects[c.Key].End == nil {
			continue
		}
		why := fmt.Sprintf("another client deletes %s", c.Key)
		key, exact := g.object(i)
		signature := record.In(g.cluster(i), c.Key.Type()) + " deleted"
		switch takes := slices.Contains(c.Taken, c.By); {
		case heard && !takes:
			g.drop(signature, why,
				"the controller does not take in changes of the type, and may not notice (see drift-any)")
			continue
		case !heard && takes:
			continue
		case facts.Finished(g.ref.Objects[c.Key].End):
			g.drop(signature, why, "the object has done its work at the end: nobody needs it again")
			continue
		case slices.Contains(records, c.Key.Type()):
			g.drop(signature, why, "the object is a record: it is made again when it is needed")
			continue
		case c.Key.Type() == "node":
			// A kubelet registers its Node when it starts, and never again.
			g.drop(signature, why, "a Node stands for a machine, which does not register again")
			continue
		}
		moments := []moment{g.steady(c.By)}
		if moments[0].change != i || g.seen(i, c.By) != nil { // else it is the same moment
			moments = append([]moment{{i, 0, "right after " + c.By + " has created it", "made"}}, moments...)
		}
		for _, m := range moments {
			if m.change != i && !exact {
				g.drop(signature+" "+m.label, why+", "+m.words, nameless)
				continue
			}
			if rule := g.idle(m, i); rule != "" {
				g.drop(signature+" "+m.label, why+", "+m.words, rule)
				continue
			}
			g.disturb(m, c.By, signature, why, build.Delete(key).InCluster(g.cluster(i)))
		}
	}
}

// idle is the rule by which the controller need not keep up at a moment what it wrote in the i-th change; empty: it has
// to.
func (g *generator) idle(m moment, i int) (rule string) {
	switch {
	case m.label != steadyState:
		return ""
	case g.ref.OwnerFinished(g.ref.Changes[i].Key):
		return idleOwner
	case g.nothingAsksFor(i):
		return unasked
	}
	return ""
}

// nothingAsksFor reports whether everything that the controller had read when it made the i-th change is gone at the
// end, but for the changed object itself. It does not if something is not known to be gone.
func (g *generator) nothingAsksFor(i int) bool {
	c := &g.ref.Changes[i]
	known := false
	for _, read := range c.Read {
		itself, gone := false, false
		for k := range g.ref.Changes {
			other := &g.ref.Changes[k]
			o := g.ref.Objects[other.Key]
			switch {
			case !other.IsReadBy(read):
			case other.Key == c.Key:
				itself = true
			case o == nil || o.End != nil:
				return false
			default:
				gone = true
			}
		}
		if !itself && !gone {
			return false // it was there before
		}
		known = known || gone
	}
	return known
}

// fields changes parts of objects that exist at the end. Managed selects the parts that the controller updates, in this
// object or in another one of the type, or those that it sets only when it creates an object.
func (g *generator) fields(managed bool) {
	for _, p := range g.parts() {
		why := fmt.Sprintf("another client changes %s of %s", p, p.key)
		signature := record.In(p.key.Cluster(), p.key.Type()) + " " + p.String()
		key, exact := g.object(p.at)
		rule := ""
		switch {
		case !managed && p.managed:
			continue
		case p.immutable():
			rule = "the API server lets nobody change the field, or not in this way"
		case managed && !p.managed:
			rule = "the controller sets the field only when it creates the object (see drift-any)"
		case p.others:
			rule = "others change the field too"
		case !exact && !p.updated:
			rule = nameless
		case p.String() == "spec.template" && g.keepsRevisions():
			rule = "a revision of each template is kept: the end state differs in any case"
		case len(p.drifts()) == 0:
			rule = "no other valid value of the field is known"
		}
		if rule != "" {
			g.drop(signature, why, rule)
			continue
		}
		moments := []moment{g.steady(p.by)}
		if p.updated && p.at != moments[0].change {
			moments = append(moments, moment{p.at, 0, "right after " + p.by + " has set it", "made"})
		}
		for _, d := range p.drifts() {
			for _, m := range moments {
				if m.change != p.at && !exact {
					g.drop(signature+" "+d.kind+" "+m.label, why+", "+m.words, nameless)
					continue
				}
				if rule := g.idle(m, p.at); rule != "" {
					g.drop(signature+" "+d.kind+" "+m.label, why+", "+m.words, rule)
					continue
				}
				g.disturb(m, p.by, signature+" "+d.kind, fmt.Sprintf("another client %s of %s", d.words, p.key),
					build.PatchJSON(key, d.operation).InCluster(p.key.Cluster()))
			}
		}
	}
}

// keepsRevisions reports whether objects are compared that workloads make of each template that they have had.
func (g *generator) keepsRevisions() bool {
	for key := range g.ref.Objects {
		if typ := key.Type(); typ == "replicaset.apps" || typ == "controllerrevision.apps" {
			return true
		}
	}
	return false
}
