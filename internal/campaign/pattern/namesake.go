package pattern

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/campaign/pattern/moment"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

var namesake = Pattern{
	Name: "namesake", Finds: "what is done to another object of the same name", chance: 2, drafts: replaceObjects,
}

// goneWithin is how long another client waits at most until the object that it has deleted is gone. Then it creates it
// in any case.
const goneWithin = 20 * time.Second

// replaceObjects lets the controller's update of another client's object take effect, and loses the answer. Before the
// controller tries again, another client deletes the object and creates it anew. The controller then acts on another
// object of that name.
func replaceObjects(m *moment.Set) (all drafts) {
	for i := range m.Changes {
		c := &m.Changes[i]
		if c.By == "" || c.Event != record.Updated || m.Deletes(i) || c.Generated || !facts.IsCustom(c.Key.Type()) {
			continue
		}
		all = append(all, replacedObject(m, i))
	}
	return all
}

func replacedObject(m *moment.Set, i int) draft {
	c := &m.Changes[i]
	d := draft{
		signature: m.Signature(i), chance: 1,
		why: fmt.Sprintf("%s gets no answer to its own write, which takes effect: %s; before it tries again, "+
			"another client deletes the object and creates it anew", c.By, m.Describe(i)),
	}
	manifest := askedFor(m, i)
	if manifest == nil {
		d.dropped = "no other client has created the object"
		return d
	}
	if !wanted(m, i) {
		d.dropped = "its users are deleting it, and do not create it again: no step would wait for it"
		return d
	}
	while, rule := whileAskedFor(m, i, manifest)
	if d.dropped = rule; rule != "" {
		return d
	}
	asking := m.Asking(c.Key, while)
	server := m.Server(i)
	write, rule := asking.BeforeWrite(i)
	if d.dropped = rule; rule != "" {
		return d
	}
	took, rule := asking.Like(moment.At("took", plan.AfterAPIServerRecv, server), i)
	if d.dropped = rule; rule != "" {
		return d
	}
	scope, _ := m.Object(i)
	in := m.Cluster(i)
	gone := build.Deleted(scope).Named("gone").At(plan.AfterAPIServerRecv, server).InCluster(in)
	d.actions = []*build.Action{
		answerLost(m, i, write),
		build.Delete(scope).InCluster(in).When(took),
		build.Apply(manifest).InCluster(in).When(build.Either(gone, build.Timeout(goneWithin).Named("late"))),
	}
	return d
}

// wanted reports whether users want the object of a change: they are not deleting it, or create it again later.
func wanted(m *moment.Set, i int) bool {
	return !metadata.Marked(m.Changes[i].Cur) || slices.ContainsFunc(m.Later(i), func(k int) bool {
		c := &m.Changes[k]
		return c.Event == record.Created && c.By == ""
	})
}

// whileAskedFor is the CEL condition that an object satisfies as long as its users ask for the same as at a change. It
// is empty if they never ask for anything else. The order of the controller's writes depends on who is faster, so a
// like write may come at another time. Then the plan would create an object that its users do not ask for, and the
// workload would wait for something else. If there is no such condition, rule says why.
func whileAskedFor(m *moment.Set, i int, asked object) (where, rule string) {
	told := map[string]string{} // the conditions by field
	for _, k := range m.Runs[0].ByKey[m.Changes[i].Key] {
		c := &m.Changes[k]
		if c.By != "" || c.Cur == nil {
			continue
		}
		other := &facts.Change{Key: c.Key, Prev: c.Cur, Cur: asked}
		differs, tells := false, false
		for _, f := range facts.FieldsOf(other) {
			if f.Path[0] == "status" || f.Path[0] == "metadata" {
				continue
			}
			differs = true
			if s := equalTo(f); s != "" {
				told[f.Where], tells = s, true
			}
		}
		if differs && !tells {
			return "", "its users ask for something else at other times, and no simple field shows which it is"
		}
	}
	var conditions []string
	for _, field := range slices.Sorted(maps.Keys(told)) {
		conditions = append(conditions, told[field])
	}
	return strings.Join(conditions, " && "), ""
}

// equalTo is the CEL condition that a field has its value after the change; empty: it is in a list, or gone.
func equalTo(f facts.Field) string {
	value := ""
	switch v := f.Cur.(type) {
	case string:
		value = strconv.Quote(v)
	case bool, int64:
		value = fmt.Sprint(v)
	case float64:
		value = strconv.FormatFloat(v, 'f', -1, 64)
	}
	if value == "" || f.InList() {
		return ""
	}
	field := "object"
	for _, name := range f.Path {
		field += "[" + strconv.Quote(name) + "]" // a name may be a keyword
	}
	return field + " == " + value
}

// askedFor is the object of a change as its creator would create it then. It is nil if a controller under test has
// created it, or if it existed before the workload.
func askedFor(m *moment.Set, i int) object {
	var asked object
	for _, k := range m.Runs[0].ByKey[m.Changes[i].Key] {
		c := &m.Changes[k]
		switch {
		case k > i:
			return asked
		case c.Event == record.Created && c.By != "", c.Cur == nil:
			asked = nil
		case c.Event == record.Created, c.By == "" && asked != nil:
			asked = facts.Anew(c.Cur, metadata.Of(c.Cur))
		}
	}
	return asked
}
