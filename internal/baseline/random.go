package baseline

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/facts"
)

// Naming is how objects with random names are named. It is learned from the runs.
type Naming struct {
	// Random is how objects are named that clients name at random.
	Random []Random `json:"random,omitempty"`

	chosen map[facts.Key]bool // names that are the same in all runs; only while they are learned
}

// Random is how a client names objects of the same owner, or without one: a part of the name is random, or is made from
// something that differs in each run, such as a time or a UID. The API server does not know that the name is generated.
// Such objects are numbered as those with generated names are.
type Random struct {
	Owner     facts.Key `json:"owner,omitempty"` // its group, see [Key.Group]; empty: they have none
	Type      string    `json:"type"`            // after the cluster, if there are several, as in a [Key]
	Namespace string    `json:"namespace,omitempty"`
	// Name has "*" instead of each random part, and "?" instead of a UID. The random parts have a length from Least to
	// Most.
	Name  string `json:"name"`
	Least int    `json:"least,omitempty"`
	Most  int    `json:"most,omitempty"`
}

var (
	consonants  = regexp.MustCompile(`^[bcdfghjklmnpqrstvwxz]{5,}$`)
	digits      = regexp.MustCompile(`^[0-9]{6,}$`)
	hexadecimal = regexp.MustCompile(`^[0-9a-f]{6,}$`)
	lowercase   = regexp.MustCompile(`^[0-9a-z]{5,}$`)
	between     = regexp.MustCompile(`[0-9][a-z]|[a-z][0-9]`)
	lastHash    = regexp.MustCompile(`^(.*[-.])([0-9a-f]{5,})$`)
	part        = regexp.MustCompile(`[^-.]+`)
)

// isRandom reports whether a part of a name, between dashes, is certainly random: a long number, a mixture of letters
// and digits, or letters that make no word.
func isRandom(s string) bool {
	if !lowercase.MatchString(s) {
		return false
	}
	mixed := len(between.FindAllString(s, -1))
	return digits.MatchString(s) || consonants.MatchString(s) || mixed > 1 || mixed > 0 && hexadecimal.MatchString(s) ||
		len(s) == 5 && facts.IsGenerated(s)
}

// randomName is the pattern of a name; not ok: no part of it is random.
func randomName(name string) (r Random, ok bool) {
	r.Name = facts.AnyUID.ReplaceAllString(name, "?")
	ok = r.Name != name
	r.Name = part.ReplaceAllStringFunc(r.Name, func(s string) string {
		if !isRandom(s) {
			return s
		}
		ok = true
		slack := 0
		if digits.MatchString(s) {
			slack = 2 // numbers have different lengths
		}
		if r.Least == 0 || len(s)-slack < r.Least {
			r.Least = len(s) - slack
		}
		r.Most = max(r.Most, len(s)+slack)
		return "*"
	})
	return r, ok && r.Name != "*"
}

// likelyName is the pattern of a name whose last part may be a short hash in hexadecimal digits. It may be chosen as
// well.
func likelyName(name string) (r Random, ok bool) {
	m := lastHash.FindStringSubmatch(name)
	if m == nil {
		return r, false
	}
	return Random{Name: m[1] + "*", Least: len(m[2]), Most: len(m[2])}, true
}

// matches reports whether an object of this type and owner is named so. What was random may look like a word by
// chance, so only its length counts.
func (r *Random) matches(key facts.Key, owner facts.Key) bool {
	typ, namespace, name := split(key)
	begins := r.Name[:strings.IndexAny(r.Name, "*?")]
	if typ != r.Type || namespace != r.Namespace || !strings.HasPrefix(name, begins) || owner.Group() != r.Owner {
		return false
	}
	text := regexp.QuoteMeta(r.Name)
	text = strings.ReplaceAll(text, `\*`, fmt.Sprintf("[0-9a-z]{%d,%d}", r.Least, r.Most))
	text = strings.ReplaceAll(text, `\?`, facts.AnyUID.String())
	is, err := regexp.MatchString("^"+text+"$", name)
	return err == nil && is
}

// matchesNone reports whether none of some objects, given with their owners, is named so.
func (r *Random) matchesNone(owners map[facts.Key]facts.Key) bool {
	for key, owner := range owners {
		if r.matches(key, owner) {
			return false
		}
	}
	return true
}

// beginning is what the keys of such objects begin with, before their numbers.
func (r *Random) beginning(owner facts.Key) string {
	if strings.Contains(string(owner), "#") {
		_, _, name := split(owner)
		return fmt.Sprintf("%s/%s/%s-", r.Type, r.Namespace, name)
	}
	// "_" is in no name.
	name := strings.TrimRight(strings.NewReplacer("*", "_", "?", "_").Replace(r.Name), "-._")
	return fmt.Sprintf("%s/%s/%s-", r.Type, r.Namespace, name)
}

// split takes a key apart. If there are several clusters, the type begins with the object's, so that the parts can be
// put together again.
func split(key facts.Key) (typ, namespace, name string) {
	typ, rest, _ := strings.Cut(string(key), "/")
	namespace, name, _ = strings.Cut(rest, "/")
	return typ, namespace, name
}

// maxOwners is how far up owners are followed; they may form a circle.
const maxOwners = 10

// renames returns new keys for objects of a run that are named at random, and for those that belong to such objects and
// have generated names: the keys that they have in the baseline, by their own keys. Their numbers mean nothing.
func (n *Naming) renames(objects, usual map[facts.Key]*facts.Object) map[facts.Key]facts.Key {
	if len(n.Random) == 0 {
		return nil
	}
	to := map[facts.Key]facts.Key{}
	numbers := map[string]int{}
	var rename func(key facts.Key, depth int) facts.Key
	rename = func(key facts.Key, depth int) facts.Key {
		o := objects[key]
		if known, ok := to[key]; ok || o == nil || depth == 0 {
			return cmp.Or(known, key)
		}
		owner := o.Owner()
		if owner == "" && o.Owned() || owner == key {
			return key
		}
		owner = rename(owner, depth-1)
		beginning := ""
		typ, namespace, name := split(key)
		_, _, owners := split(owner)
		switch generated := strings.Contains(name, "#"); {
		case generated && strings.Contains(owners, "#") && !strings.HasPrefix(name, owners+"-"):
			beginning = fmt.Sprintf("%s/%s/%s-", typ, namespace, owners)
		case !generated && usual[key] == nil && !n.chosen[key] && !o.Unchanged():
			if i := slices.IndexFunc(n.Random, func(r Random) bool { return r.matches(key, owner) }); i >= 0 {
				beginning = n.Random[i].beginning(owner)
			}
		}
		if beginning == "" {
			return key
		}
		numbers[beginning]++
		to[key] = facts.Key(fmt.Sprintf("%s#%d", beginning, numbers[beginning]))
		return to[key]
	}
	keys := slices.SortedFunc(maps.Keys(objects), func(a, b facts.Key) int {
		return cmp.Or(cmp.Compare(objects[a].FirstVersion(), objects[b].FirstVersion()),
			strings.Compare(string(a), string(b)))
	})
	for _, key := range keys {
		rename(key, maxOwners)
	}
	return to
}

// renamed returns a run's objects with the keys that renames has given them, and their own keys by these. Changed: what
// values call these objects is no longer compared by its text, so what is known of their texts is out of date.
func renamed(objects map[facts.Key]*facts.Object, to map[facts.Key]facts.Key) (
	all map[facts.Key]*facts.Object, own map[facts.Key]facts.Key, changed bool,
) {
	if len(to) == 0 {
		return objects, nil, false
	}
	all, own = maps.Clone(objects), map[facts.Key]facts.Key{}
	for from := range to {
		delete(all, from)
	}
	for from, key := range to {
		o := objects[from]
		all[key], own[key] = o, from
		changed = o.Rename(key) || changed
	}
	return all, own, changed
}

// inAll reports whether all runs have an object of the key.
func inAll(runs []map[facts.Key]*facts.Object, key facts.Key) bool {
	return !slices.ContainsFunc(runs, func(objects map[facts.Key]*facts.Object) bool { return objects[key] == nil })
}

// learn finds the objects that are named at random. They are not in all runs and belong to the same owner. Their names
// differ only in generated parts, or in a part that may be a short hash and differs in each run. Each run has at least
// one of them. If they have no owner, the same controller under test has created all of them: equally many in each run,
// and none twice with the same name.
func (n *Naming) learn(runs []map[facts.Key]*facts.Object, usual map[facts.Key]*facts.Object) {
	n.chosen = map[facts.Key]bool{}
	for key := range runs[0] {
		n.chosen[key] = inAll(runs, key)
	}
	for range maxOwners { // what belongs to them may be named after them
		var own []map[facts.Key]*facts.Object
		for _, objects := range runs {
			all, _, _ := renamed(objects, n.renames(objects, usual))
			own = append(own, all)
		}
		found := randomIn(own)
		if len(found) == 0 {
			return
		}
		n.Random = append(n.Random, found...)
	}
}

func randomIn(runs []map[facts.Key]*facts.Object) []Random {
	everywhere := func(key facts.Key) bool { return inAll(runs, key) }
	var odd []map[facts.Key]facts.Key // of each run those that are not in all, with their owners
	var makers []map[facts.Key]string // of each run those of these that have none, with who has created them
	var all []Random
	for _, objects := range runs {
		owners, made := map[facts.Key]facts.Key{}, map[facts.Key]string{}
		for _, key := range slices.Sorted(maps.Keys(objects)) {
			o := objects[key]
			owner := o.Owner()
			if owner == "" && (o.Owned() || o.Maker() == "") || o.Unchanged() || strings.Contains(string(key), "#") ||
				everywhere(key) || owner != "" && !everywhere(owner) && !strings.Contains(string(owner), "#") {
				continue
			}
			owners[key] = owner
			if owner == "" {
				made[key] = o.Maker()
			}
			typ, namespace, name := split(key)
			r, ok := randomName(name)
			if !ok {
				continue
			}
			r.Owner, r.Type, r.Namespace = owner.Group(), typ, namespace
			at := slices.IndexFunc(all, func(old Random) bool {
				return old.Owner == r.Owner && old.Type == r.Type && old.Namespace == r.Namespace && old.Name == r.Name
			})
			if at < 0 {
				all = append(all, r)
				continue
			}
			all[at].Least, all[at].Most = min(all[at].Least, r.Least), max(all[at].Most, r.Most)
		}
		odd, makers = append(odd, owners), append(makers, made)
	}
	all = append(all, likely(odd, all)...)
	return slices.DeleteFunc(all, func(r Random) bool {
		return r.Owner == "" && !r.madeAlike(makers) || slices.ContainsFunc(odd, r.matchesNone)
	})
}

// likely finds more objects that are named at random, among those that are not in all runs, given with their owners.
// Their names end in what may be a hash. An owner has equally many of them in each run, and no two runs have a name in
// common. One of them has a letter beside a digit.
func likely(odd []map[facts.Key]facts.Key, known []Random) []Random {
	type group struct {
		names  map[facts.Key]bool
		counts []int // by run
		mixed  bool
	}
	groups := map[Random]*group{}
	for i, owners := range odd {
		for key, owner := range owners {
			if owner == "" || slices.ContainsFunc(known, func(r Random) bool { return r.matches(key, owner) }) {
				continue
			}
			typ, namespace, name := split(key)
			r, ok := likelyName(name)
			if !ok {
				continue
			}
			r.Owner, r.Type, r.Namespace = owner.Group(), typ, namespace
			g := groups[r]
			if g == nil {
				g = &group{names: map[facts.Key]bool{}, counts: make([]int, len(odd))}
				groups[r] = g
			}
			g.names[key] = true
			g.counts[i]++
			g.mixed = g.mixed || between.MatchString(name[len(name)-r.Least:])
		}
	}
	var all []Random
	for r, g := range groups {
		alike := !slices.ContainsFunc(g.counts, func(n int) bool { return n != g.counts[0] })
		if alike && g.mixed && len(g.names) == g.counts[0]*len(odd) {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Random) int {
		return cmp.Or(strings.Compare(string(a.Owner), string(b.Owner)), strings.Compare(a.Type, b.Type),
			strings.Compare(a.Name, b.Name), cmp.Compare(a.Least, b.Least))
	})
	return all
}

// madeAlike reports whether one controller has created the objects without an owner in all runs, equally many in each,
// and each with a name of its own.
func (r *Random) madeAlike(runs []map[facts.Key]string) bool {
	names, by, number := map[facts.Key]bool{}, map[string]bool{}, map[int]bool{}
	total := 0
	for _, made := range runs {
		n := 0
		for key, maker := range made {
			if r.matches(key, "") {
				names[key], by[maker] = true, true
				n++
			}
		}
		number[n] = true
		total += n
	}
	return len(by) == 1 && len(number) == 1 && len(names) == total
}

// numberedChanges returns the changes with the keys that their objects have in the baseline.
func numberedChanges(changes []facts.Change, to map[facts.Key]facts.Key) []facts.Change {
	if len(to) == 0 {
		return changes
	}
	all := slices.Clone(changes)
	for i := range all {
		if key, ok := to[all[i].Key]; ok {
			all[i].Key, all[i].Generated = key, true
		}
	}
	return all
}
