package facts

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// Siblings says how many objects of a type an owner had at a time.
type Siblings struct {
	Owner Key    `json:"owner"`
	Type  string `json:"type"`
	Most  int    `json:"most"`
	// Wanted is the number that the owner asked for then (spec.replicas or spec.parallelism); negative: none. At is the
	// index of the first change that made them so many, Names the objects. By are the controllers under test that had
	// created them; Generated: all their names were generated. A Baseline has none of these.
	Wanted    int      `json:"-"`
	At        int      `json:"-"`
	Names     []Key    `json:"-"`
	By        []string `json:"-"`
	Generated bool     `json:"-"`
}

// Most lists, for each owner and type of object, how many objects of the owner there were at a time, if there were ever
// two. Objects that are being deleted, have finished, or whose owner is being deleted do not count.
func Most(changes []Change) []Siblings {
	type group struct{ owner, typ string } // the owner's UID
	living := map[Key]group{}
	members := map[group]map[Key]*Change{} // with their creations; nil: they existed before
	owners := map[string]*Change{}         // by UID
	births := map[Key]*Change{}            // the newest creation of each object
	most := map[group]*Siblings{}
	for i := range changes {
		c := &changes[i]
		if uid := metadata.UID(c.Cur); uid != "" {
			owners[uid] = c
		}
		if c.Cur == nil {
			delete(owners, metadata.UID(c.Prev))
		}
		if c.Event == record.Created {
			births[c.Key] = c
		}
		if old, ok := living[c.Key]; ok {
			delete(members[old], c.Key)
			delete(living, c.Key)
		}
		g := group{metadata.Text(metadata.Controller(c.Cur), "uid"), c.Key.Type()}
		if g.owner == "" || metadata.Marked(c.Cur) || Finished(c.Cur) {
			continue
		}
		if members[g] == nil {
			members[g] = map[Key]*Change{}
		}
		living[c.Key], members[g][c.Key] = g, births[c.Key]
		own := owners[g.owner]
		if own == nil || metadata.Marked(own.Cur) || len(members[g]) < 2 {
			continue
		}
		s := Siblings{Owner: own.Key, Type: g.typ, Most: len(members[g]), Wanted: wanted(own.Cur), At: i}
		if old := most[g]; old != nil && old.Most >= s.Most {
			continue
		}
		s.Generated = true
		for _, key := range slices.Sorted(maps.Keys(members[g])) {
			m := members[g][key]
			s.Names = append(s.Names, key)
			s.Generated = s.Generated && m != nil && m.Generated
			if m != nil && m.By != "" && !slices.Contains(s.By, m.By) {
				s.By = append(s.By, m.By)
			}
		}
		most[g] = &s
	}
	all := make([]Siblings, 0, len(most))
	for _, s := range most {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b Siblings) int {
		return cmp.Or(strings.Compare(string(a.Owner), string(b.Owner)), strings.Compare(a.Type, b.Type),
			cmp.Compare(a.At, b.At))
	})
	return all
}

// wanted is the number of objects that an owner asks for; negative: none.
func wanted(object map[string]any) int {
	spec, _ := object["spec"].(map[string]any)
	for _, field := range []string{"replicas", "parallelism"} {
		if n, ok := spec[field].(float64); ok {
			return int(n)
		}
	}
	return -1
}
