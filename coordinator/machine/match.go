package machine

import (
	"encoding/json"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/effect"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// nameIn returns the namespace and name of an object in JSON.
func nameIn(object []byte) (namespace, name string) {
	var about struct {
		Metadata struct{ Namespace, Name string }
	}
	if json.Unmarshal(object, &about) != nil {
		return "", ""
	}
	return about.Metadata.Namespace, about.Metadata.Name
}

// isCollection reports whether an observation is about all objects of a type, perhaps in one namespace, and names none.
func isCollection(o *record.Observation) bool {
	return o.Name == "" && (o.Op == wire.List || o.Op == wire.DeleteCollection)
}

// look is an observation that several triggers may examine. Its objects are decoded only once.
type look struct {
	*record.Observation
	old, object *plan.Object
	objects     []listed // of a collection; nil until members is called
}

// listed is one object of a collection.
type listed struct {
	namespace, name string
	object          *plan.Object
}

func newLook(o *record.Observation) *look {
	return &look{Observation: o, old: plan.NewObject(o.OldObject), object: plan.NewObject(o.Object)}
}

// members returns the objects of a collection.
func (l *look) members() []listed {
	if l.objects == nil {
		for _, object := range l.Objects {
			namespace, name := nameIn(object)
			l.objects = append(l.objects, listed{namespace, name, plan.NewObject(object)})
		}
	}
	return l.objects
}

// judgeObject decides whether an observation of an object or of a collection satisfies a watch. If not, the miss says
// what was missing; a miss of the lowest rank is not reported.
func (w *watch) judgeObject(l *look) (bool, miss) {
	o := l.Observation
	key := w.definition.Condition.ResourceKey
	if in := w.definition.Observe.Cluster; in != o.Cluster && in != "" {
		return false, w.elsewhere(o)
	}
	if isCollection(o) {
		if !scopeCovers(key, o) {
			return false, w.elsewhere(o)
		}
	} else if !key.Matches(o.Kind, o.Group, o.GroupKnown, o.Namespace, o.Name) {
		return false, w.elsewhere(o)
	}
	far := func(text string) (bool, miss) {
		return false, miss{rank: missObject, distance: farAway, text: Describe(o) + text}
	}
	kind, ok := effect.Of(o)
	if !ok {
		return far(" neither changes nor shows the object")
	}
	if o.Phase == wire.After && !o.Done() && (kind != plan.Read || !effect.FoundNothing(o)) {
		return far(" failed: " + o.Error)
	}
	if !isCollection(o) || kind == plan.Looking {
		return w.judgeState(o, kind, l.old, l.object)
	}
	nearest := miss{}
	found := false
	for _, member := range l.members() {
		if !key.Matches(o.Kind, o.Group, o.GroupKnown, member.namespace, member.name) {
			continue
		}
		found = true
		ok, miss := w.judgeState(o, kind, nil, member.object)
		if ok {
			return true, miss
		}
		if miss.nearer(nearest) {
			nearest = miss
		}
	}
	switch {
	case found:
		return false, nearest
	case kind == plan.Deleted:
		return far(" deletes no such object")
	case o.Partial:
		return far(" is one page of a list: the object may be on another")
	}
	return w.judgeState(o, kind, nil, nil)
}

func (w *watch) judgeState(o *record.Observation, kind plan.EventKind, old, object *plan.Object) (bool, miss) {
	ok, why, err := w.matcher.MatchObjects(kind, old, object)
	switch {
	case err != nil:
		return false, miss{rank: missObject, distance: farAway, text: Describe(o) + ": " + err.Error()}
	case !ok:
		return false, miss{rank: missObject, distance: why.Distance, text: Describe(o) + ": " + why.Text}
	}
	return true, miss{}
}

// elsewhere returns the miss for an observation of another object.
func (w *watch) elsewhere(o *record.Observation) miss {
	if o.Kind != w.definition.Condition.ResourceKey.Type {
		return miss{}
	}
	if in := w.definition.Observe.Cluster; in != "" && o.Cluster == record.UnknownCluster {
		return miss{rank: missType, text: Describe(o) + " may be in any cluster, and not in " + in}
	}
	return miss{rank: missType, text: Describe(o) + " is another object"}
}

// Ranks of misses, from far to near.
const (
	missNone   = iota
	missType   // another object of the type, or another reconciler
	missObject // the object, but not in that state; see distance
	missCount  // it matched, but not often enough
)

// farAway is the distance of a miss that is not about the object's state.
const farAway = 1 << 20

// miss says how near an observation came to satisfying a definition of the awaited trigger.
type miss struct {
	rank, distance int
	text           string
	count          int // number of misses of this rank
}

// nearer reports whether m is at least as near as the other miss.
func (m miss) nearer(than miss) bool {
	if m.rank != than.rank {
		return m.rank > than.rank
	}
	return m.distance <= than.distance
}
