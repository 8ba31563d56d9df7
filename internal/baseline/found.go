package baseline

import (
	"cmp"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/facts"
)

// Found is a field of an object that differed between runs without faults.
type Found struct {
	// Object is the object's group, see [Key.Group].
	Object facts.Key `json:"object"`
	Path   string    `json:"path"` // as in a [Mask]; items of lists that have names have them in the path: "[name=a]"
	Reason string    `json:"reason"`
	// Value: only the value differed. Whether the field is there counts.
	Value bool `json:"value,omitempty"`
	// Compare: it counts all the same, because people want that.
	Compare bool `json:"compare,omitempty"`
}

// foundOn returns what was found for an object. If the runs without faults did not end with the object, what was found
// for others of its type counts too. The function says with which objects they ended.
func (m *Masks) foundOn(key facts.Key, ends func(facts.Key) bool) []*Found {
	if len(m.Found) == 0 {
		return nil
	}
	var own, like []*Found
	group, typ := key.Group(), key.Type()
	for i := range m.Found {
		switch f := &m.Found[i]; {
		case f.Object == group:
			own = append(own, f)
		case f.Object.Type() == typ:
			like = append(like, f)
		}
	}
	if len(like) == 0 || ends(key) || ends(key.WithNumber("0")) || ends(key.WithNumber("1")) {
		return own
	}
	return append(own, like...)
}

// ends reports whether the runs without faults end with the object.
func (ref *Baseline) ends(key facts.Key) bool {
	o := ref.Objects[key]
	return o != nil && o.End != nil
}

// counts says how a field counts.
type counts int

const (
	fully      counts = iota
	byPresence        // whether it is there
	byLag             // observedGeneration: whether it has caught up
	never
)

// countsAs says how a field counts. found is what foundOn returns for the object.
func (m *Masks) countsAs(key facts.Key, path []string, found []*Found) counts {
	if covering(m.Compared, key, path) != nil {
		return fully
	}
	as := fully
	for _, f := range found {
		switch {
		case !Covers(f.Path, path):
		case f.Compare:
			return fully
		case f.Value && as != never:
			as = byPresence
		case !f.Value:
			as = never
		}
	}
	if as == never {
		return never
	}
	typ, lag := key.Type(), false
	for i := range m.Given {
		mask := &m.Given[i]
		if (mask.Type != "*" && mask.Type != typ) || !Covers(mask.Path, path) {
			continue
		}
		if unlessWritten(mask.Reason) && slices.Contains(m.Written, key.Group()) {
			continue
		}
		if mask.Reason != upToDate || path[len(path)-1] != "observedGeneration" {
			return never
		}
		lag = true
	}
	if lag && as == fully {
		return byLag
	}
	return as
}

// unlessWritten reports whether a standard mask of that reason is only for what no controller under test writes.
func unlessWritten(reason string) bool { return reason == followsPods || reason == isLock }

// write notes which objects of the runs count because a controller under test has written them. Of locks these are only
// those that it has written in each run: others may be named after its process.
func (m *Masks) write(runs []*facts.Follower, setup Setup) {
	locks := map[facts.Key]int{} // in how many runs
	for _, run := range runs {
		seen := map[facts.Key]bool{}
		changes := run.Changes()
		for i := range changes {
			c := &changes[i]
			mask := covering(standard, c.Key, []string{"kind"})
			if c.By == "" || mask == nil || !unlessWritten(mask.Reason) || seen[c.Key] || setup.elects(c.Key) {
				continue
			}
			seen[c.Key] = true
			locks[c.Key]++
			group := c.Key.Group()
			if (mask.Reason == followsPods || locks[c.Key] == len(runs)) && !slices.Contains(m.Written, group) {
				m.Written = append(m.Written, group)
			}
		}
	}
}

// elects reports whether a controller is elected leader by a lease.
func (s Setup) elects(key facts.Key) bool {
	for _, locks := range s.Leases {
		if slices.Contains(locks, key.Local()) {
			return true
		}
	}
	return false
}

// find notes that a field differs between runs without faults.
func (m *Masks) find(f Found) {
	at := slices.IndexFunc(m.Found, func(old Found) bool { return old.Object == f.Object && old.Path == f.Path })
	if at < 0 {
		m.Found = append(m.Found, f)
		slices.SortStableFunc(m.Found, func(a, b Found) int {
			return cmp.Or(strings.Compare(string(a.Object), string(b.Object)), strings.Compare(a.Path, b.Path))
		})
		return
	}
	old := &m.Found[at]
	old.Value = old.Value && f.Value
	old.Compare = old.Compare || f.Compare
}

// Adopt adds what was found for another workload that does much the same, such as a longer one, and what is known to
// tell of what has happened.
func (ref *Baseline) Adopt(other *Baseline) {
	ref.Kept = slices.Clone(ref.Kept)
	for _, k := range other.Kept {
		if !slices.Contains(ref.Kept, k) {
			ref.Kept = append(ref.Kept, k)
		}
	}
	ref.Found = slices.Clone(ref.Found)
	for _, m := range other.Found {
		ref.find(m)
	}
}

// ByType returns the masks, with what was found for an object as masks of its type.
func (m *Masks) ByType() []Mask {
	var all []Mask
	for _, f := range m.Found {
		mask := Mask{Type: f.Object.Type(), Path: f.Path, Reason: f.Reason}
		if !f.Compare && !slices.Contains(all, mask) {
			all = append(all, mask)
		}
	}
	return append(all, m.Given...)
}

// foundPath is the path of a field that differs between two objects, as [Found] has it. The name of a list's item that
// only one of them has says nothing.
func (f *filter) foundPath(d Difference, want, got *facts.Object) string {
	if d.Field == "metadata."+beingDeleted {
		return d.Field
	}
	var path []string
	has := [2][]string{}
	for i, o := range []*facts.Object{want, got} {
		f.visit(f.normal(d.Key, o), nil, "", func(named []string, where string, _ any) {
			has[i] = append(has[i], where)
			if where == d.Field {
				path = slices.Clone(named)
			}
		})
	}
	pos := 0
	for i, step := range path {
		switch {
		case step == facts.Item:
			pos += strings.Index(d.Field[pos:], "]") + 1
		case isItem(step):
			pos += len(step)
			for _, all := range has {
				if !slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, d.Field[:pos]) }) {
					path[i] = facts.Item
				}
			}
		case pos > 0:
			pos += 1 + len(step)
		default:
			pos += len(step)
		}
	}
	return facts.Join(path)
}

// HoldsRandom reports whether a part of an object's data is another value in each run without faults, such as a key or
// a password. Such an object cannot be created again as it was.
func (ref *Baseline) HoldsRandom(key facts.Key) bool {
	return slices.ContainsFunc(ref.foundOn(key, ref.ends), func(m *Found) bool {
		return m.Object == key.Group() && !m.Compare &&
			(strings.HasPrefix(m.Path, "data") || strings.HasPrefix(m.Path, "binaryData"))
	})
}
