package pattern

import (
	"cmp"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
)

// strike is what a plan strikes at.
type strike struct {
	typ, what string
	stake     findings.Stake
}

func (s strike) String() string { return s.typ + " " + s.what }

// What a plan strikes at is made, changed, marked for deletion or deleted.
const (
	made    = "created"
	changed = "updated"
	marks   = "marked"
	removed = "deleted"
)

// struck says what a plan strikes at, and what the moment is at which it does. A plan holds or loses what is in the
// scope of its first action with one, which may be another object than the one of the moment. A client's write strikes
// at what it writes.
func struck(p *plan.Plan) (at, moment strike) {
	var all []plan.Definition // of changes and annotated calls, in order
	var scope plan.Scope
	for i := range p.Actions {
		a := &p.Actions[i]
		scope = cmp.Or(scope, a.Scope())
		for _, d := range a.Trigger.Definitions {
			if d.Condition.ResourceKey.Type != "" || d.Condition.Call != "" {
				all = append(all, d)
			}
		}
	}
	if len(all) == 0 {
		return at, moment // at a time
	}
	at, moment = strikeAt(&all[0].Condition), strikeAt(&all[len(all)-1].Condition)
	for i := range p.Actions {
		if s, ok := written(&p.Actions[i]); ok {
			return s, moment
		}
	}
	for i := range all {
		if d := &all[i].Condition; !scope.All && typeOf(scope.Key) == typeOf(d.ResourceKey) {
			return strikeAt(d), moment
		}
	}
	return at, moment
}

func typeOf(key plan.ResourceKey) string { return facts.Key(key.String()).Type() }

// strikeAt is the change that satisfies a condition, or the call.
func strikeAt(c *plan.Condition) strike {
	if c.Call != "" {
		return strike{typ: c.Call, what: "called", stake: findings.StakeUsual}
	}
	s := strike{typ: typeOf(c.ResourceKey)}
	content := true
	switch c.Type {
	case plan.OnObjectCreation:
		s.what = made
	case plan.OnObjectDeletion:
		s.what = removed
	default:
		s.what = changed
		before, _ := c.PrevState.(object)
		after, _ := c.CurState.(object)
		switch {
		case moment.ValueAt(after, []string{"metadata", "deletionTimestamp"}) == plan.Present:
			s.what = marks
		case moment.ValueAt(after, []string{"metadata", "finalizers"}) == plan.Absent:
			s.what = removed // it was the last one
		case len(before)+len(after) > 0:
			content = asks(before) || asks(after)
		}
	}
	s.stake = findings.AtStake(s.typ, s.what == marks || s.what == removed, content)
	return s
}

// asks reports whether a part of a state is more than a status and descriptions: the spec, data, or what decides how
// long the object lives.
func asks(state object) bool {
	for field, v := range state {
		if meta, _ := v.(object); field == "metadata" {
			for name := range meta {
				if isContent([]string{field, name}) {
					return true
				}
			}
		} else if isContent([]string{field}) {
			return true
		}
	}
	return false
}

// isContent reports whether a field is part of what asks counts.
func isContent(path []string) bool {
	switch path[0] {
	case "metadata":
		return len(path) > 1 && (path[1] == "finalizers" || path[1] == "ownerReferences")
	case "status":
		return false
	}
	return true
}

// written is what an action writes as another client; ok: it does. An annotation without any meaning is only there to
// disturb another write.
func written(a *plan.Action) (s strike, ok bool) {
	s.typ = typeOf(a.ResourceKey)
	content := false
	write := plan.EffectOf[*plan.Write](a)
	switch operations, _ := a.Patch.([]any); {
	case write != nil && write.Deletes.Type != "":
		s.what = removed
	case write != nil && len(operations) > 0:
		s.what = changed
		for _, o := range operations {
			o, _ := o.(object)
			path, _ := o["path"].(string)
			content = content || isContent(strings.Split(strings.TrimPrefix(path, "/"), "/"))
		}
	default:
		return s, false
	}
	s.stake = findings.AtStake(s.typ, s.what == removed, content)
	return s, true
}

// OfDeletion reports whether the candidate's plan strikes at the deletion of an object, or at its mark for deletion.
func (c *Candidate) OfDeletion() bool {
	at, _ := struck(c.Plan)
	return at.what == marks || at.what == removed
}
