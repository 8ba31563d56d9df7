package pattern

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// goneWithin is how long another client waits at most until what it has deleted is gone. Then it creates it in any
// case.
const goneWithin = 20 * time.Second

// namesake lets the controller's update of somebody else's object take effect, and loses the answer. Before the
// controller tries again, another client deletes the object and creates it anew. What the controller does now, it does
// to another object of that name.
func (g *generator) namesake() {
	for i := range g.ref.Changes {
		c := &g.ref.Changes[i]
		if c.By == "" || c.Event != record.Updated || g.deletes(i) || c.Generated || !facts.IsCustom(c.Key.Type()) {
			continue
		}
		why := fmt.Sprintf("%s gets no answer to its own write, which takes effect: %s; before it tries again, "+
			"another client deletes the object and creates it anew", c.By, g.describe(i))
		signature := g.signature(i)
		manifest := g.askedFor(i)
		if manifest == nil {
			g.drop(signature, why, "nobody else has created the object")
			continue
		}
		if !g.wanted(i) {
			g.drop(signature, why, "its users are deleting it, and do not create it again: nobody would wait for it")
			continue
		}
		while, rule := g.whileAskedFor(i, manifest)
		if rule != "" {
			g.drop(signature, why, rule)
			continue
		}
		g.where = map[facts.Key]string{c.Key: while}
		scope, _ := g.object(i)
		server := g.server(i)
		write, rule := g.beforeWrite(i)
		var tell *build.Condition
		if rule == "" {
			tell, rule = g.trigger("took", start, i, plan.AfterAPIServerRecv, server)
		}
		g.where = nil
		if rule != "" {
			g.drop(signature, why, rule)
			continue
		}
		// Counted from the write on, it is the first one.
		took := tell.Repeat(1)
		in := g.cluster(i)
		gone := build.Deleted(scope).Named("gone").At(plan.AfterAPIServerRecv, server).InCluster(in)
		g.add(signature, why,
			build.FailCall(c.By, plan.Lost, 0).InCluster(in).Scope(scope).Operations(plan.Operation(c.Op)).When(write),
			build.Delete(scope).InCluster(in).When(took),
			build.Apply(manifest).InCluster(in).When(build.Either(gone, build.Timeout(goneWithin).Named("late"))))
	}
}

// wanted reports whether users want the object of the i-th change: they are not deleting it, or create it again later.
func (g *generator) wanted(i int) bool {
	return !metadata.Marked(g.ref.Changes[i].Cur) || slices.ContainsFunc(g.later(i), func(k int) bool {
		c := &g.ref.Changes[k]
		return c.Event == record.Created && c.By == ""
	})
}

// whileAskedFor is the CEL condition that an object satisfies as long as its users ask for what they do at the i-th
// change, as far as they ask for something else at another time; empty: they do not. How the controller's writes follow
// each other depends on who is faster, so the like of one may come at another time. Then the plan would create what
// nobody asks for, and the workload would wait for it in vain. If no condition tells, rule says why.
func (g *generator) whileAskedFor(i int, asked object) (where, rule string) {
	told := map[string]string{} // the conditions by field
	for _, k := range g.runs[0].byKey[g.ref.Changes[i].Key] {
		c := &g.ref.Changes[k]
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
			return "", "its users ask for something else at other times, and no simple field tells which it is"
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

// askedFor is the object of the i-th change as its creator would create it then; nil: a controller under test has
// created it, or it was there before.
func (g *generator) askedFor(i int) object {
	var asked object
	for _, k := range g.runs[0].byKey[g.ref.Changes[i].Key] {
		c := &g.ref.Changes[k]
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
