package pattern

import (
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// The pattern drift changes, as another client, what the controller keeps up, once it has seen its own write. It
// deletes objects that the controller has created and whose changes it takes in, and it sets fields that the controller
// updates back to their previous value. The controller must make it as it was.
var drift = Pattern{
	Name: "drift", Finds: "objects that are not created again, and fields that are not put back", chance: 2,
	drafts: func(m *moment.Set) drafts { return append(deletions(m, true), fields(m, true)...) },
}

// The pattern drift-any changes what the controller has made and may leave to others: objects of types whose changes it
// does not take in, and fields that it sets only when it creates an object.
var driftAny = Pattern{
	Name: "drift-any", Finds: "what a controller leaves as others make it, perhaps intentionally", OnRequest: true,
	chance: 2, drafts: func(m *moment.Set) drafts { return append(deletions(m, false), fields(m, false)...) },
}

// records are types of objects in which controllers note something for later. They need not create them again at once.
var records = []string{"controllerrevision.apps", "event", "event.events.k8s.io"}

// idleOwner is the rule by which nothing is disturbed that belongs to something finished.
const idleOwner = "its owner has finished: the controller need not keep it up any more"

// unasked is the rule by which nothing is disturbed that the controller has no reason any more to keep up.
const unasked = "what the controller had read when it wrote the object is gone at the end: nothing asks for it any more"

// nameless is the rule by which an object of a generated name is written only when it fires the action.
const nameless = "the object's name is generated, and it is not the object of that moment: no plan can write it"

// deletions deletes objects that a controller has created and that exist at the end: right after their creation, and in
// the steady state. Heard selects the objects whose changes the controller takes in, or the others.
func deletions(m *moment.Set, heard bool) (all drafts) {
	steady := steadies(m)
	created := map[facts.Key]int{} // for the last time
	for i := range m.Changes {
		if c := &m.Changes[i]; c.By != "" && c.Event == record.Created {
			created[c.Key] = i
		}
	}
	for i := range m.Changes {
		c := &m.Changes[i]
		if at, ok := created[c.Key]; !ok || at != i || m.Baseline.Objects[c.Key].End == nil {
			continue
		}
		why := fmt.Sprintf("another client deletes %s", c.Key)
		key, _ := m.Object(i)
		signature := record.In(m.Cluster(i), c.Key.Type()) + " deleted"
		switch takes := slices.Contains(c.Taken, c.By); {
		case heard && !takes:
			all.drop(signature, why,
				"the controller does not take in changes of the type, and may not notice (see drift-any)")
			continue
		case !heard && takes:
			continue
		case facts.Finished(m.Baseline.Objects[c.Key].End):
			all.drop(signature, why, "the object has done its work at the end: it is not needed again")
			continue
		case slices.Contains(records, c.Key.Type()):
			all.drop(signature, why, "the object is a record: it is made again when it is needed")
			continue
		case c.Key.Type() == "node":
			// A kubelet registers its Node when it starts, and never again.
			all.drop(signature, why, "a Node stands for a machine, which does not register again")
			continue
		}
		occasions := []occasion{steady[c.By]}
		if _, seen := takenIn(m, i, c.By); seen || occasions[0].change != i { // else it is the same occasion
			occasions = append([]occasion{{i, 0, "right after " + c.By + " has created it", "made"}}, occasions...)
		}
		for _, o := range occasions {
			if rule := unwritable(m, o, i); rule != "" {
				all.drop(signature+" "+o.label, why+", "+o.words, rule)
				continue
			}
			all = append(all, disturb(m, o, c.By, signature, why, build.Delete(key).InCluster(m.Cluster(i))))
		}
	}
	return all
}

// unwritable is the rule by which another client does not write the object of the i-th change at an occasion, or "".
func unwritable(m *moment.Set, o occasion, i int) (rule string) {
	if _, exact := m.Object(i); o.change != i && !exact {
		return nameless
	}
	return idle(m, o, i)
}

// idle is the rule by which the controller need not keep up at an occasion what it wrote in the i-th change. It is
// empty if the controller has to.
func idle(m *moment.Set, o occasion, i int) (rule string) {
	switch {
	case o.label != steadyState:
		return ""
	case m.Baseline.OwnerFinished(m.Changes[i].Key):
		return idleOwner
	case nothingAsksFor(m, i):
		return unasked
	}
	return ""
}

// nothingAsksFor reports whether everything that the controller had read when it made a change is gone at the end,
// apart from the changed object itself. It is false if that is unknown of something.
func nothingAsksFor(m *moment.Set, i int) bool {
	c := &m.Changes[i]
	known := false
	for _, read := range c.Read {
		itself, gone := false, false
		for k := range m.Changes {
			other := &m.Changes[k]
			o := m.Baseline.Objects[other.Key]
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
func fields(m *moment.Set, managed bool) (all drafts) {
	steady := steadies(m)
	for _, p := range parts(m.History) {
		why := fmt.Sprintf("another client changes %s of %s", p, p.key)
		signature := record.In(p.key.Cluster(), p.key.Type()) + " " + p.String()
		key, exact := m.Object(p.at)
		rule := ""
		switch {
		case !managed && p.managed:
			continue
		case p.immutable():
			rule = "the API server does not allow a change of the field, or not in this way"
		case managed && !p.managed:
			rule = "the controller sets the field only when it creates the object (see drift-any)"
		case p.others:
			rule = "others change the field too"
		case !exact && !p.updated:
			rule = nameless
		case p.String() == "spec.template" && keepsRevisions(m):
			rule = "a revision of each template is kept: the end state differs in any case"
		case len(p.overrides()) == 0:
			rule = "no other valid value of the field is known"
		}
		if rule != "" {
			all.drop(signature, why, rule)
			continue
		}
		occasions := []occasion{steady[p.by]}
		if p.updated && p.at != occasions[0].change {
			occasions = append(occasions, occasion{p.at, 0, "right after " + p.by + " has set it", "made"})
		}
		for _, d := range p.overrides() {
			for _, o := range occasions {
				if rule := unwritable(m, o, p.at); rule != "" {
					all.drop(signature+" "+d.kind+" "+o.label, why+", "+o.words, rule)
					continue
				}
				all = append(all, disturb(m, o, p.by, signature+" "+d.kind,
					fmt.Sprintf("another client %s of %s", d.words, p.key),
					build.PatchJSON(key, d.operation).InCluster(p.key.Cluster())))
			}
		}
	}
	return all
}

// keepsRevisions reports whether objects are compared that workloads make of each template that they have had.
func keepsRevisions(m *moment.Set) bool {
	for key := range m.Baseline.Objects {
		if typ := key.Type(); typ == "replicaset.apps" || typ == "controllerrevision.apps" {
			return true
		}
	}
	return false
}
