package baseline

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
)

// filter decides quickly which fields count. It is not safe for concurrent use.
type filter struct {
	ref   *Baseline
	known map[facts.Key]map[string]counts   // how a field counts, by object and where it is
	found map[facts.Key][]*Found            // see foundOn
	lists map[string]bool                   // whether a list has no order, by type and path
	seen  map[*facts.Object]map[string]any  // what counts of the end states, see counting
	texts map[*facts.Object]map[string]text // see textsOf
	// own are the run's own keys, where they were matched; empty: of none, though the run has such a key. See matched.
	own   map[facts.Key]facts.Key
	exact bool // relations are learned: see stillHolds
	seed  maphash.Seed
}

func (ref *Baseline) filter() *filter {
	return &filter{
		ref: ref, known: map[facts.Key]map[string]counts{}, found: map[facts.Key][]*Found{}, lists: map[string]bool{},
		seen: map[*facts.Object]map[string]any{}, texts: map[*facts.Object]map[string]text{},
		own: map[facts.Key]facts.Key{}, seed: maphash.MakeSeed(),
	}
}

// forget makes the filter look at an object again.
func (f *filter) forget(o *facts.Object) {
	delete(f.seen, o)
	delete(f.texts, o)
}

// masked reports whether a field does not count.
func (f *filter) masked(key facts.Key, path []string) bool {
	as := f.countsAs(key, facts.Join(path), path)
	return as != fully
}

// countsAs says how a field counts; joined is where it is, or its path.
func (f *filter) countsAs(key facts.Key, joined string, path []string) counts {
	known := f.known[key]
	if known == nil {
		known = map[string]counts{}
		f.known[key], f.found[key] = known, f.ref.foundOn(key, f.ref.ends)
	}
	as, ok := known[joined]
	if !ok {
		as = f.ref.countsAs(key, path, f.found[key])
		known[joined] = as
	}
	return as
}

func (f *filter) unordered(typ facts.Key, path []string) bool {
	if len(f.ref.Unordered) == 0 {
		return false
	}
	at := string(typ) + " " + facts.Join(path)
	is, ok := f.lists[at]
	if !ok {
		is = covering(f.ref.Unordered, typ, path) != nil
		f.lists[at] = is
	}
	return is
}

// masked reports whether a field does not count.
func (ref *Baseline) masked(key facts.Key, path []string) bool {
	return ref.countsAs(key, path, ref.foundOn(key, ref.ends)) != fully
}

// Ignores reports whether a field does not count. Without a baseline, that is what counts in none.
func (ref *Baseline) Ignores(key facts.Key, path []string) bool {
	if ref == nil {
		return covering(standard, key, path) != nil
	}
	return ref.masked(key, path)
}

// beingDeleted stands for whether an object is marked for deletion. When that was never counts.
const beingDeleted = "beingDeleted"

// present stands for a value that differs in each run.
type present struct{}

// lag says whether an observedGeneration has caught up. A status that has not is of another state of the object.
type lag string

const (
	caughtUp lag = "up to metadata.generation"
	behind   lag = "behind metadata.generation"
)

// counting lists the values of an object's end state that count, by where they are: see leaves.
func (f *filter) counting(key facts.Key, o *facts.Object) map[string]any {
	if known, ok := f.seen[o]; ok {
		return known
	}
	all := map[string]any{}
	generation := metadata.Of(o.End)["generation"]
	f.visit(f.normal(key, o), nil, "", func(path []string, where string, v any) {
		switch f.countsAs(key, where, path) {
		case never:
			return
		case byPresence:
			v = present{}
		case byLag:
			if v = lagOf(v, generation); v == nil {
				return
			}
		case fully:
		}
		old, taken := all[where]
		if !taken {
			all[where] = v
			return
		}
		all[where] = facts.Joined(old, v)
	})
	if strings.Contains(string(key), "#") {
		delete(all, "metadata.name")
	}
	if path := []string{"metadata", beingDeleted}; metadata.Marked(o.End) && !f.masked(key, path) {
		all[facts.Join(path)] = true
	}
	if key.Type() == facts.StatefulSet {
		if facts.UpdatedByHand(o.End) {
			delete(all, "status.currentReplicas")
		}
		if facts.IsRollingOut(o.End) {
			all["status.currentRevision"] = rollingOut
		}
	}
	f.seen[o] = all
	return all
}

// rollingOut stands for a StatefulSet's status.currentRevision.
const rollingOut = "another one than status.updateRevision"

// lagOf compares an observedGeneration with the object's generation; nil: they are not numbers.
func lagOf(observed, generation any) any {
	o, isNumber := observed.(float64)
	g, has := generation.(float64)
	switch {
	case !isNumber || !has:
		return nil
	case o < g:
		return behind
	}
	return caughtUp
}

// normal is the object's end state in a form that can be compared with other runs' ends.
func (f *filter) normal(key facts.Key, o *facts.Object) any {
	return f.sorted(facts.Key(key.Type()), o.Normal())
}

// visit calls a function with all values that are neither mappings nor lists, as leaves does, but with a path that
// distinguishes the items of lists that have names. The function must not keep the path: for many objects, no memory is
// spent on the paths of single values.
func (f *filter) visit(v any, path []string, where string, visit func(path []string, where string, v any)) {
	items := func(list []any, place func(item any, i int) string) {
		for i, value := range list {
			step, name := facts.Item, place(value, i)
			if facts.ItemName(value) != "" {
				step = "[" + name + "]"
			}
			f.visit(value, append(path, step), where+"["+name+"]", visit)
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for k, value := range v {
			toWhere := k
			if where != "" {
				toWhere = where + "." + k
			}
			f.visit(value, append(path, k), toWhere, visit)
		}
	case []any:
		items(v, facts.ItemPlace)
	case facts.Bag:
		items(v, func(item any, _ int) string { return cmp.Or(facts.ItemName(item), "*") })
	default:
		visit(path, where, v)
	}
}

// sorted returns the object with the lists sorted that have no order. It does not change the object.
func (f *filter) sorted(typ facts.Key, object map[string]any) map[string]any {
	if len(f.ref.Unordered) == 0 {
		return object
	}
	m, _ := f.sort(typ, object, nil).(map[string]any)
	return m
}

func (f *filter) sort(typ facts.Key, v any, path []string) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, value := range v {
			m[k] = f.sort(typ, value, append(slices.Clip(path), k))
		}
		return m
	case facts.Bag:
		list := make(facts.Bag, len(v))
		for i, value := range v {
			list[i] = f.sort(typ, value, append(slices.Clip(path), facts.Item))
		}
		return list
	case []any:
		list := make([]any, len(v))
		for i, value := range v {
			list[i] = f.sort(typ, value, append(slices.Clip(path), facts.Item))
		}
		if f.unordered(typ, path) {
			slices.SortFunc(list, func(a, b any) int { return strings.Compare(facts.Canonical(a), facts.Canonical(b)) })
		}
		return list
	}
	return v
}

// onlyFalse reports whether a field belongs to a condition that one object has and that is False, and that the other
// does not have, which means the same. Whether a controller ever sets such a condition often depends on time.
func onlyFalse(where string, has, other map[string]any) bool {
	end := strings.Index(where, "].")
	if end < 0 || !strings.HasPrefix(where, "status.conditions[") {
		return false
	}
	status := where[:end] + "].status"
	_, both := other[status]
	return has[status] == "False" && !both
}

// fields compares the end states of two objects.
func (f *filter) fields(key facts.Key, want, got *facts.Object) []Difference {
	wanted, there := f.counting(key, want), f.counting(key, got)
	sameGeneration := metadata.Of(want.End)["generation"] == metadata.Of(got.End)["generation"]
	var differ []Difference
	for where, w := range wanted {
		// A part of a status may be about another object, or may only be written when it changes: what says how up to
		// date it is can be compared only if the object was changed as often.
		if l, ok := w.(lag); ok && (l == behind || where != "status.observedGeneration" && !sameGeneration) {
			continue
		}
		if g, ok := there[where]; (!ok || !reflect.DeepEqual(w, g)) && !onlyFalse(where, wanted, there) {
			differ = append(differ, Difference{Key: key, Field: where, Want: w, Got: g})
		}
	}
	for where, g := range there {
		if _, ok := g.(lag); ok {
			continue
		}
		if _, ok := wanted[where]; !ok && !onlyFalse(where, there, wanted) {
			differ = append(differ, Difference{Key: key, Field: where, Got: g})
		}
	}
	slices.SortFunc(differ, func(a, b Difference) int { return strings.Compare(a.Field, b.Field) })
	noteMessages(differ)
	noteHistory(differ)
	noteElapsed(differ)
	return differ
}

// noteMessages marks, among the differences of an object, the messages of conditions that differ in nothing else. By
// the conventions of Kubernetes' API messages are for people, and programs go by the other fields.
func noteMessages(differ []Difference) {
	for i := range differ {
		d := &differ[i]
		item, field, ok := condition(d.Field)
		if !ok || field != "message" || d.Want == nil || d.Got == nil {
			continue
		}
		d.Note = !slices.ContainsFunc(differ, func(other Difference) bool {
			of, what, ok := condition(other.Field)
			return ok && of == item && what != field
		})
	}
}

// matched returns the objects of a run with their generated names numbered so that they differ from the baseline's as
// little as possible. It does not matter which of several equal objects was created first, or which of them is deleted
// when fewer are wanted.
func (f *filter) matched(run map[facts.Key]*facts.Object) map[facts.Key]*facts.Object {
	objects, first, changed := renamed(run, f.ref.renames(run, f.ref.Objects))
	if changed {
		clear(f.seen)
		clear(f.texts)
	}
	groups := map[string][2][]facts.Key{} // of generated names: the baseline's, and the run's
	add := func(which int, all map[facts.Key]*facts.Object) {
		for key, o := range all {
			if beginning, _, generated := strings.Cut(string(key), "#"); generated && !f.ref.volatile(key) &&
				(!o.Unchanged() || f.ref.Objects[key] != nil) {
				g := groups[beginning]
				g[which] = append(g[which], key)
				groups[beginning] = g
			}
		}
	}
	add(0, f.ref.Objects)
	add(1, objects)
	all := maps.Clone(objects)
	maps.Copy(f.own, first)
	for _, group := range groups {
		wanted, there := group[0], group[1]
		if len(wanted) == 0 || len(there) == 0 || len(wanted) == 1 && slices.Equal(wanted, there) {
			continue
		}
		slices.SortFunc(wanted, byNumber)
		slices.SortFunc(there, byNumber)
		to := f.assign(wanted, there, objects)
		for _, key := range there {
			delete(all, key)
		}
		for from, key := range to {
			all[key], f.own[key] = objects[from], cmp.Or(first[from], from)
		}
	}
	for key := range run {
		if all[key] == nil {
			f.own[key] = ""
		}
	}
	return all
}

func byNumber(a, b facts.Key) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(string(a), string(b))
}

// maxPairs limits how many objects are compared with each other.
const maxPairs = 400

// assign gives each of a run's objects a key: that of an object of the baseline that ends the same, else of one that
// differs little, else a new one.
func (f *filter) assign(wanted, there []facts.Key, objects map[facts.Key]*facts.Object) map[facts.Key]facts.Key {
	to := map[facts.Key]facts.Key{}
	taken := map[facts.Key]bool{}
	take := func(from, key facts.Key) { to[from], taken[key] = key, true }
	// Equal ones of the same number first: this is nearly always all.
	for _, from := range there {
		if want := f.ref.Objects[from]; want != nil && f.same(from, want, objects[from]) {
			take(from, from)
		}
	}
	like := map[uint64][]facts.Key{}
	for _, key := range wanted {
		if !taken[key] {
			look := f.look(key, f.ref.Objects[key])
			like[look] = append(like[look], key)
		}
	}
	for _, from := range there {
		if _, done := to[from]; done {
			continue
		}
		look := f.look(from, objects[from])
		if keys := like[look]; len(keys) > 0 {
			take(from, keys[0])
			like[look] = keys[1:]
		}
	}
	type pair struct {
		from, key facts.Key
		cost      int
	}
	var pairs []pair
	for _, from := range there {
		for _, key := range wanted {
			if _, done := to[from]; done || taken[key] || len(pairs) == maxPairs {
				continue
			}
			pairs = append(pairs, pair{from, key, f.cost(key, f.ref.Objects[key], objects[from])})
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return a.cost - b.cost })
	for _, p := range pairs {
		if _, done := to[p.from]; !done && !taken[p.key] {
			take(p.from, p.key)
		}
	}
	for _, from := range there {
		if _, done := to[from]; !done && !taken[from] && f.ref.Objects[from] != nil {
			take(from, from)
		}
	}
	free := slices.DeleteFunc(slices.Clone(wanted), func(key facts.Key) bool { return taken[key] })
	for _, from := range there {
		if _, done := to[from]; !done && len(free) > 0 {
			take(from, free[0])
			free = free[1:]
		}
	}
	// The others get numbers that the baseline does not have.
	beginning, _, _ := strings.Cut(string(there[0]), "#")
	number := 0
	for _, from := range there {
		for _, done := to[from]; !done; _, done = to[from] {
			number++
			if key := facts.Key(fmt.Sprintf("%s#%d", beginning, number)); !taken[key] && f.ref.Objects[key] == nil {
				take(from, key)
			}
		}
	}
	return to
}

// same reports whether two objects do not differ in their end states.
func (f *filter) same(key facts.Key, want, got *facts.Object) bool {
	if want.End == nil || got.End == nil {
		return want.End == nil && got.End == nil
	}
	return reflect.DeepEqual(f.counting(key, want), f.counting(key, got))
}

// look is equal for objects that are the same; other objects have another one, with very few exceptions.
func (f *filter) look(key facts.Key, o *facts.Object) uint64 {
	if o.End == nil {
		return 0
	}
	var sum uint64 // the order of the values does not count
	for where, v := range f.counting(key, o) {
		text, ok := v.(string)
		if !ok {
			text = fmt.Sprintf("%T %v", v, v)
		}
		sum += maphash.Comparable(f.seed, [2]string{where, text})
	}
	return sum
}

// cost is by how much two objects differ.
func (f *filter) cost(key facts.Key, want, got *facts.Object) int {
	if (want.End == nil) != (got.End == nil) {
		return 1 << 20
	}
	n := len(f.fields(key, want, got))
	if got.Made < want.Made || got.Made > want.MostMade {
		n++
	}
	return n
}
