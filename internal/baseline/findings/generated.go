package findings

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// beginning is the key of an object with a generated name without the number; ok is false for other names.
func beginning(key facts.Key) (text string, ok bool) {
	at := strings.LastIndex(string(key), "#")
	if at < 0 || strings.Trim(string(key[at+1:]), "0123456789") != "" {
		return "", false
	}
	return string(key[:at+1]), true
}

// createdLike is how many objects were created whose generated names begin like that of a key: the number only says
// which came first.
func createdLike(key facts.Key, changes []facts.Change) int {
	begins, _ := beginning(key)
	all := map[facts.Key]bool{}
	for i := range changes {
		if b, ok := beginning(changes[i].Key); ok && b == begins && changes[i].Event == record.Created {
			all[changes[i].Key] = true
		}
	}
	return len(all)
}

// numbers says that there were more or fewer objects whose names begin alike than without faults. It is empty if the
// name is not generated, if the difference is another one, or if one of the two has none of them: then the number of
// the one that is missing, or should not be there, does not mislead.
func (r *Run) numbers(d baseline.Difference, owner facts.Key) string {
	begins, generated := beginning(d.Key)
	got, want := r.Objects[d.Own], r.Baseline.Objects[d.Key]
	if !generated || d.Field != "" || (got == nil) == (want == nil || want.MostMade == 0) {
		return ""
	}
	ours := d.Own
	if got == nil {
		ours = d.Key
	}
	there, usual := createdLike(ours, r.Changes), createdLike(d.Key, r.Baseline.Changes)
	for _, changes := range r.Baseline.Others {
		usual = max(usual, createdLike(d.Key, changes))
	}
	of := Name(begins)
	if owner != "" {
		of += " of " + Name(string(owner))
	}
	switch {
	case there == 0 || usual == 0:
		return ""
	case got == nil && there < usual:
		of += " is missing"
	case got != nil && there == usual+1:
		of = "there was one more " + of + " than without faults"
	case got != nil && there > usual:
		of = "there were more of " + of + " than without faults"
	default:
		return ""
	}
	created := "was created"
	if there > 1 {
		created = "were created"
	}
	return fmt.Sprintf("%s: %d %s; without faults: %d", of, there, created, usual)
}

// usuallyDeleted reports whether an object with a generated name that there is not without faults was deleted as all
// like it are without faults: by the same controller, and when they had finished as this one had, or had not.
func (r *Run) usuallyDeleted(d baseline.Difference, taken *deletion) bool {
	begins, generated := beginning(d.Key)
	if want := r.Baseline.Objects[d.Key]; !generated || want != nil && want.MostMade > 0 {
		return false
	}
	any := false
	for key, o := range r.Baseline.Objects {
		if b, ok := beginning(key); !ok || b != begins || o.MostMade == 0 {
			continue
		}
		last := ending(key, r.Baseline.Changes)
		if o.End != nil || last == nil || last.By != taken.By ||
			facts.Finished(last.Prev) != facts.Finished(taken.Prev) {
			return false
		}
		any = true
	}
	return any
}

// ending is the change with which the last deletion of an object began; nil: there is none.
func ending(key facts.Key, changes []facts.Change) *facts.Change {
	var last *facts.Change
	marked := false
	for i := range changes {
		c := &changes[i]
		if c.Key != key {
			continue
		}
		if c.Marked() || c.Event == record.Deleted && !marked {
			last = c
		}
		marked = c.Marked() || marked && c.Event != record.Created
	}
	return last
}

// shared says which objects have the same object with a generated name, of which each has one of its own without
// faults; empty: none. By is the change by which the last one got it; nil: unknown.
func (r *Run) shared(d baseline.Difference) (text string, by *facts.Change) {
	if _, generated := beginning(d.Key); !generated {
		return "", nil
	}
	usual := users(d.Key, r.Baseline.Objects)
	now := users(d.Key, r.Objects)
	byField := func(a, b place) int { return cmp.Or(cmp.Compare(a.typ, b.typ), cmp.Compare(a.field, b.field)) }
	for _, where := range slices.SortedFunc(maps.Keys(now), byField) {
		byName := now[where]
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			of := map[string]bool{} // those that they have without faults
			for _, user := range byName[name] {
				for other, its := range usual[where] {
					if slices.Contains(its, user) {
						of[other] = true
					}
				}
			}
			if all := byName[name]; len(all) > 1 && len(of) >= len(all) {
				slices.Sort(all)
				var names []string
				for _, key := range all {
					names = append(names, Name(string(key)))
				}
				begins, _ := beginning(d.Key)
				noun, _, _ := strings.Cut(Name(begins), " ")
				return fmt.Sprintf("%s have the same %s %s; without faults each has its own",
					strings.Join(names, " and "), noun, name), r.lastGiven(all, where.field, name)
			}
		}
	}
	return "", nil
}

// lastGiven is the last change by which one of some objects got a text in a field; nil: unknown.
func (r *Run) lastGiven(of []facts.Key, field, text string) (last *facts.Change) {
	has := func(state map[string]any) bool {
		found := false
		texts(state, "", func(at, is string) { found = found || at == field && is == text })
		return found
	}
	for i := range r.Changes {
		if c := &r.Changes[i]; slices.Contains(of, c.Key) && has(c.Cur) && !has(c.Prev) {
			last = c
		}
	}
	return last
}

// place is a field of objects of a type.
type place struct{ typ, field string }

// users lists the objects that name one whose generated name begins like that of a key, by field and by that name.
func users(of facts.Key, objects map[facts.Key]*facts.Object) map[place]map[string][]facts.Key {
	begins, _ := beginning(of)
	names := map[string]bool{}
	for key, o := range objects {
		if b, ok := beginning(key); ok && b == begins {
			names[metadata.Text(metadata.Of(o.Last()), "name")] = true
		}
	}
	all := map[place]map[string][]facts.Key{}
	for key, o := range objects {
		if o.End == nil || strings.Contains(string(key), "#") {
			continue
		}
		texts(o.End, "", func(field, text string) {
			at := place{key.Type(), field}
			if !names[text] || field == ".metadata.name" || slices.Contains(all[at][text], key) {
				return
			}
			if all[at] == nil {
				all[at] = map[string][]facts.Key{}
			}
			all[at][text] = append(all[at][text], key)
		})
	}
	return all
}

// texts yields the texts in a state, each with its field, such as ".status.podName". Lists, owner references and
// managed fields are left out.
func texts(state any, field string, yield func(field, text string)) {
	switch state := state.(type) {
	case map[string]any:
		for name, value := range state {
			if name != "ownerReferences" && name != "managedFields" {
				texts(value, field+"."+name, yield)
			}
		}
	case string:
		yield(field, state)
	}
}
