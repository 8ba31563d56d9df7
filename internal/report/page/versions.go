package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// objectSeries says which versions of an object each place had, over time.
type objectSeries struct {
	Object   int             `json:"o"`
	Versions []objectVersion `json:"v"` // in their order
	Lines    []versionLine   `json:"l"` // etcd's is the first
}

type objectVersion struct {
	Label   string `json:"n"`
	Deleted bool   `json:"d,omitempty"` // the object is gone from this version on
	State   int    `json:"s"`
}

// versionLine is the versions that a place had.
type versionLine struct {
	Name string `json:"n"`
	Kind string `json:"k"` // etcd, server, cache or read
	// Derived: the place was not observed; a controller has received these versions from it.
	Derived bool           `json:"d,omitempty"`
	Points  []versionPoint `json:"p"` // by time
	// Behind is how long it had an older version than etcd, in milliseconds.
	Behind float64 `json:"b"`
}

// versionPoint says from when on a place had a version: the index of the version. -1: the object was not there;
// -2: what it had is not known from here on.
type versionPoint [2]float64

const (
	absent  = -1
	unknown = -2
)

// Kinds of places.
const (
	placeEtcd   = "etcd"
	placeServer = "server"
	placeCache  = "cache"
	placeRead   = "read"
)

// sighting is a version of an object at a place.
type sighting struct {
	at      time.Time
	version uint64
	gone    bool // the object is deleted, or not there
	unknown bool // the place has forgotten what it had
	before  bool // until then the place had the version before this one
}

// sightings are those of one object: by place.
type sightings struct {
	names   []string // in the order of their appearance
	kinds   map[string]string
	derived map[string]bool
	all     map[string][]sighting
}

func (s *sightings) add(name, kind string, derived bool, v sighting) {
	if _, ok := s.all[name]; !ok {
		s.names = append(s.names, name)
		s.kinds[name], s.derived[name] = kind, derived
	}
	s.all[name] = append(s.all[name], v)
}

// series fills in which versions of each object every place had.
func (b *pageBuilder) series() {
	b.data.Focus = none
	places := b.sightings()
	var longest float64
	for object := range b.data.Objects {
		s := places[object]
		if s == nil || len(s.names) < 2 || len(b.past[object]) == 0 {
			continue
		}
		one := b.seriesOf(object, s)
		b.data.Series = append(b.data.Series, one)
		for _, l := range one.Lines {
			// An object that a place never forgot is worth more than one that it was never shown.
			if b.data.Focus == none || l.Behind > longest {
				b.data.Focus, longest = object, l.Behind
			}
		}
	}
	for _, s := range b.run.Meta.StaleReads {
		if o, ok := b.objects[report.WithoutGroup(s.Object)]; ok && places[o] != nil {
			b.data.Focus = o
			break
		}
	}
}

// sightings collects by object which versions were seen where.
func (b *pageBuilder) sightings() map[int]*sightings {
	all := map[int]*sightings{}
	of := func(object int) *sightings {
		if all[object] == nil {
			all[object] = &sightings{kinds: map[string]string{}, derived: map[string]bool{},
				all: map[string][]sighting{}}
		}
		return all[object]
	}
	for object, past := range b.past {
		for _, s := range past {
			of(object).add("etcd", placeEtcd, false, sighting{at: s.time, version: s.version,
				gone: s.event == record.Deleted})
		}
	}
	released := map[int]record.Hold{}
	for _, h := range b.account.Holds {
		released[h.Event] = h
	}
	connected := b.connections()
	seen := map[string]map[int]bool{} // by API server: the objects that were observed there
	ended := map[string]time.Time{}   // reconciles
	for i := range b.run.Events {
		if o := b.run.Events[i].Observation; o != nil && o.ReconcileID != "" {
			ended[o.ReconcileID] = b.run.Events[i].Time
		}
		if o := b.run.Events[i].Observation; o != nil && o.Point == wire.APIServerRecv {
			if seen[o.By] == nil {
				seen[o.By] = map[int]bool{}
			}
			seen[o.By][b.object(b.typeOf(o), o.Namespace, o.Name)] = true
		}
	}
	for i := range b.run.Events {
		e := &b.run.Events[i]
		if end := e.SessionEnd; end != nil {
			servers := connected(end.By, e.Time)
			for _, s := range all {
				for _, name := range append(
					[]string{placeName(end.By, placeCache), placeName(end.By, placeRead)}, servers...,
				) {
					if len(s.all[name]) > 0 && (!slices.Contains(servers, name) || s.derived[name]) {
						s.add(name, s.kinds[name], false, sighting{at: e.Time, unknown: true})
					}
				}
			}
		}
		o := e.Observation
		if o == nil || b.kind(o) == "" {
			continue
		}
		see := func(object int, v sighting) {
			if object == none {
				return
			}
			v.at = e.Time
			switch {
			case o.Point == wire.APIServerRecv && o.Phase == wire.Before:
				v.before = true
				of(object).add(o.By, placeServer, false, v)
				if h, held := released[e.Seq]; held && !h.To.IsZero() {
					v.before, v.at = false, h.To
					of(object).add(o.By, placeServer, false, v)
				}
			case o.Phase == wire.Before:
			case o.Point == wire.APIServerRecv:
				of(object).add(o.By, placeServer, false, v)
			case o.Point == wire.ControllerRecv:
				of(object).add(placeName(o.By, placeCache), placeCache, false, v)
				for _, from := range connected(o.By, e.Time) {
					if in, _ := plan.SplitServer(from); in == o.Cluster && !seen[from][object] {
						of(object).add(from, placeServer, true, v)
					}
				}
			case o.Point == wire.ControllerRead && !o.Live:
				name := placeName(o.By, placeRead)
				of(object).add(name, placeRead, false, v)
				if end, ok := ended[o.ReconcileID]; ok { // then the reconcile forgets what it has read
					of(object).add(name, placeRead, false, sighting{at: end, unknown: true})
				}
			}
		}
		switch {
		case len(o.Objects) > 0:
			for _, item := range o.Objects {
				see(b.listed(o, item), sighting{version: metadata.ResourceVersion(item)})
			}
		case o.Name != "":
			v := sighting{version: metadata.ResourceVersion(o.Object), gone: o.Op == wire.Delete || len(o.Object) == 0}
			if o.Point == wire.ControllerRead && o.Error != "" && o.Code != 404 {
				continue // it read nothing
			}
			see(b.object(b.typeOf(o), o.Namespace, o.Name), v)
		}
	}
	return all
}

// listed is the object of an item of a list.
func (b *pageBuilder) listed(o *record.Observation, item json.RawMessage) int {
	var meta struct {
		Metadata struct{ Name, Namespace string } `json:"metadata"`
	}
	if json.Unmarshal(item, &meta) != nil {
		return none
	}
	return b.object(b.typeOf(o), cmp.Or(meta.Metadata.Namespace, o.Namespace), meta.Metadata.Name)
}

func placeName(by, kind string) string {
	if kind == placeRead {
		return by + ": what its reconciles read"
	}
	return by + ": its cache"
}

// connections returns a function that says to which API servers a controller was connected at a time, one of each
// cluster; nil if that is not known.
func (b *pageBuilder) connections() func(controller string, at time.Time) []string {
	type move struct {
		at         time.Time
		controller string
		to         string
	}
	var moves []move
	for _, a := range b.run.Actions {
		if b.plan == nil || a.Index >= len(b.plan.Actions) {
			continue
		}
		if m := plan.EffectOf[*plan.Move](&b.plan.Actions[a.Index]); m != nil {
			moves = append(moves, move{a.Done, m.Controller, m.APIServer})
		}
	}
	return func(controller string, at time.Time) []string {
		var to []string
		for _, c := range b.run.Meta.Controllers {
			if c.Name == controller && c.APIServer != "" {
				to = c.APIServers()
			}
		}
		for _, m := range moves {
			if m.controller == controller && !m.at.After(at) {
				to = plan.Moved(to, m.to)
			}
		}
		return to
	}
}

// seriesOf orders an object's versions and says when each place had which.
func (b *pageBuilder) seriesOf(object int, s *sightings) objectSeries {
	var versions []uint64
	gone := map[uint64]bool{}
	for _, name := range s.names {
		for _, v := range s.all[name] {
			if v.version > 0 {
				versions = append(versions, v.version)
			}
		}
	}
	state := map[uint64]int{}
	label := map[uint64]string{}
	for _, p := range b.past[object] {
		state[p.version] = p.state
		label[p.version] = p.label
		if p.event == record.Deleted {
			gone[p.version] = true
		}
	}
	slices.Sort(versions)
	versions = slices.Compact(versions)
	one := objectSeries{Object: object}
	for _, v := range versions {
		st, ok := state[v]
		if !ok {
			st = none
		}
		one.Versions = append(one.Versions, objectVersion{Label: fmt.Sprintf("%d %s", v, label[v]), Deleted: gone[v],
			State: st})
	}
	index := func(v sighting) float64 {
		switch {
		case v.unknown:
			return unknown
		case v.version == 0: // it was not there: the newest deletion that etcd had at that time
			at := absent
			for i, n := range versions {
				if past, ok := b.inEtcd(object, v.at); gone[n] && ok && n <= past.version {
					at = i
				}
			}
			return float64(at)
		}
		i, _ := slices.BinarySearch(versions, v.version)
		if v.gone && !gone[v.version] { // a place that missed the deletion knows only the last state
			for j := i; j < len(versions); j++ {
				if gone[versions[j]] {
					return float64(j)
				}
			}
		}
		if v.before {
			i--
		}
		return float64(i)
	}
	slices.SortStableFunc(s.names, func(x, y string) int {
		order := []string{placeEtcd, placeServer, placeCache, placeRead}
		return cmp.Or(cmp.Compare(slices.Index(order, s.kinds[x]), slices.Index(order, s.kinds[y])), cmp.Compare(x, y))
	})
	for _, name := range s.names {
		line := versionLine{Name: name, Kind: s.kinds[name], Derived: s.derived[name]}
		list := s.all[name]
		slices.SortStableFunc(list, func(x, y sighting) int { return x.at.Compare(y.at) })
		for _, v := range list {
			n := index(v)
			last := len(line.Points) - 1
			switch {
			case last >= 0 && line.Points[last][1] == n:
				continue
			case last >= 0 && line.Points[last] == versionPoint{b.ms(v.at), unknown}:
				line.Points = line.Points[:last]
			}
			line.Points = append(line.Points, versionPoint{b.ms(v.at), n})
		}
		one.Lines = append(one.Lines, line)
	}
	for i := range one.Lines {
		one.Lines[i].Behind = behind(one.Lines[0].Points, one.Lines[i].Points, b.data.To)
	}
	return one
}

// behind sums up for how long a place had an older version than etcd.
func behind(etcd, other []versionPoint, end float64) float64 {
	var times []float64
	for _, p := range slices.Concat(etcd, other) {
		times = append(times, p[0])
	}
	times = append(times, end)
	slices.Sort(times)
	at := func(points []versionPoint, t float64) float64 {
		v := float64(unknown)
		for _, p := range points {
			if p[0] > t {
				break
			}
			v = p[1]
		}
		return v
	}
	var sum float64
	for i := 0; i+1 < len(times); i++ {
		has := at(other, times[i])
		if has != unknown && has < at(etcd, times[i]) {
			sum += times[i+1] - times[i]
		}
	}
	return sum
}
