package machine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// staleness detects whether the controllers under test are shown a past state: while a paused API server holds back an
// event of an object, the controller gets from that server a state of the object that is older than the event. Like the
// Machine that steps it, it has no goroutine, clock or I/O.
type staleness struct {
	plan        *plan.Plan
	controllers []record.Controller
	routes      map[string][]string             // by controller: the API servers that its new sessions use
	sessions    map[uint64][]string             // by session: the API servers, as of its first observation
	taken       map[uint64]map[objectID]version // what a session's informers received last
	heldBack    []heldEvent                     // all events that were ever held back, in order
	shown       map[string]*exposure            // by controller
	kinds       map[string]map[string]bool      // by controller: the kinds that it received or read
	reads       []record.StaleRead              // the first one of each controller
}

// objectID identifies an object, without its group: judge compares groups if both sides know them.
type objectID struct{ cluster, kind, namespace, name string }

func idOf(o *record.Observation) objectID { return objectID{o.Cluster, o.Kind, o.Namespace, o.Name} }

// version is a state of an object.
type version struct {
	number  uint64 // resource version
	deleted bool
}

// heldEvent is an event that a paused API server has not received.
type heldEvent struct {
	seq       int
	apiServer string
	origin    *record.Observation
	version   uint64 // 0: the event's object has none
}

// exposure is what a controller did while its API server held something back.
type exposure struct {
	connected string         // the first such API server; empty: none
	came      plan.Reconnect // how it was moved there; empty: it always was there
	received  int            // deliveries of the held object
	read      int            // reads that could have shown the held object
}

func newStaleness(p *plan.Plan, controllers []record.Controller) *staleness {
	s := &staleness{
		plan: p, controllers: controllers, routes: map[string][]string{}, sessions: map[uint64][]string{},
		taken: map[uint64]map[objectID]version{}, shown: map[string]*exposure{},
		kinds: map[string]map[string]bool{},
	}
	if !p.PausesAPIServer() {
		return s
	}
	for _, c := range controllers {
		s.routes[c.Name] = c.APIServers()
		s.shown[c.Name] = &exposure{}
		s.kinds[c.Name] = map[string]bool{}
	}
	return s
}

// step processes an event; held is what is held after it. If the event is its controller's first stale read, step
// returns it, otherwise nil.
func (s *staleness) step(e record.Event, held []heldObservation) *record.StaleRead {
	if len(s.shown) == 0 {
		return nil
	}
	if e.SessionEnd != nil {
		delete(s.sessions, e.SessionEnd.Session)
		delete(s.taken, e.SessionEnd.Session)
	}
	if e.Began != nil {
		s.began(&s.plan.Actions[*e.Began])
	}
	now := s.note(held)
	if e.Observation == nil || s.shown[e.Observation.By] == nil {
		return nil
	}
	return s.observe(e, now)
}

// began tracks the move of a controller to another API server. A session whose connections are cut moves too; that of a
// killed process does not.
func (s *staleness) began(a *plan.Action) {
	for name, shown := range s.shown {
		if shown != nil && a.Starts(name) {
			shown.came = plan.ReconnectRestart
		}
	}
	move := plan.EffectOf[*plan.Move](a)
	if move == nil || s.shown[move.Controller] == nil {
		return
	}
	s.routes[move.Controller] = plan.Moved(s.routes[move.Controller], move.APIServer)
	if move.By == plan.ReconnectCut {
		s.shown[move.Controller].came = plan.ReconnectCut
		clear(s.sessions) // looked up again by the new route; other routes have not changed
	}
}

// note records what API servers hold back and which controllers are connected to them. It returns what is held back
// now.
func (s *staleness) note(held []heldObservation) []heldEvent {
	var now []heldEvent
	for _, h := range held {
		if h.pause < 0 || h.origin.Point != wire.APIServerRecv || h.origin.Phase != wire.Before {
			continue
		}
		i := slices.IndexFunc(s.heldBack, func(k heldEvent) bool { return k.seq == h.seq })
		if i < 0 {
			i = len(s.heldBack)
			s.heldBack = append(s.heldBack,
				heldEvent{seq: h.seq, apiServer: h.origin.By, origin: h.origin,
					version: metadata.ResourceVersion(h.origin.Object)})
		}
		now = append(now, s.heldBack[i])
	}
	for _, h := range now {
		for name, shown := range s.shown {
			if shown.connected == "" && slices.Contains(s.routes[name], h.apiServer) {
				shown.connected = h.apiServer
			}
		}
	}
	return now
}

func (s *staleness) observe(e record.Event, held []heldEvent) *record.StaleRead {
	o := e.Observation
	if o.Phase != wire.After || o.Point != wire.ControllerRecv && o.Point != wire.ControllerRead {
		return nil
	}
	s.kinds[o.By][o.Kind] = true
	servers, known := s.sessions[o.Session]
	if !known {
		servers = s.routes[o.By]
		s.sessions[o.Session] = servers
	}
	if o.Point == wire.ControllerRecv {
		if s.taken[o.Session] == nil {
			s.taken[o.Session] = map[objectID]version{}
		}
		s.taken[o.Session][idOf(o)] = version{metadata.ResourceVersion(o.Object), o.Op == wire.Delete}
	}
	for _, h := range held {
		if !slices.Contains(servers, h.apiServer) || h.version == 0 || o.Cluster != h.origin.Cluster {
			continue
		}
		state, older, concerns := s.judge(o, h)
		if !concerns {
			continue
		}
		shown := s.shown[o.By]
		if o.Point == wire.ControllerRecv {
			shown.received++
		} else {
			shown.read++
		}
		if !older || slices.ContainsFunc(s.reads, func(r record.StaleRead) bool { return r.Controller == o.By }) {
			continue
		}
		read := record.StaleRead{
			Controller: o.By, APIServer: h.apiServer, Event: e.Seq, Time: e.Time,
			Received: o.Point == wire.ControllerRecv, Op: o.Op, Live: o.Live,
			Object:    fmt.Sprintf("%s/%s/%s", h.origin.Kind, h.origin.Namespace, h.origin.Name),
			HeldEvent: h.seq, HeldOp: h.origin.Op, HeldVersion: h.version,
		}
		if !state.deleted {
			read.Version = state.number
		}
		s.reads = append(s.reads, read)
		return &read
	}
	return nil
}

// judge returns which state of the held event's object an observation shows, and whether it is older than the event.
// Concerns is false if the observation does not concern that object.
func (s *staleness) judge(o *record.Observation, h heldEvent) (state version, older, concerns bool) {
	if o.Kind != h.origin.Kind || o.GroupKnown && h.origin.GroupKnown && o.Group != h.origin.Group {
		return version{}, false, false
	}
	cached, known := s.taken[o.Session][idOf(h.origin)]
	// A reader of the cache does not see an object that was never received; that is older only than its creation.
	absent := version{deleted: true}
	if known && cached.deleted {
		absent = cached
	}
	switch {
	case o.Point == wire.ControllerRead && o.Op == wire.List:
		if o.Live || o.Error != "" || o.Namespace != "" && o.Namespace != h.origin.Namespace {
			return version{}, false, false // the answer to a live list is not reported
		}
		if !known || cached.deleted {
			return absent, h.origin.Op == wire.Create && absent.number < h.version, true
		}
		return cached, cached.number > 0 && cached.number < h.version, true
	case idOf(o) != idOf(h.origin) || o.Subresource != "":
		return version{}, false, false
	case len(o.Object) > 0:
		state = version{metadata.ResourceVersion(o.Object), o.Op == wire.Delete}
		return state, state.number > 0 && state.number < h.version, true
	case o.Point == wire.ControllerRead && o.Op == wire.Get && !o.Live &&
		(o.Error == "" || strings.Contains(o.Error, "not found")):
		// Only cached reads: a live read that finds nothing was answered by etcd, unless it asked for the server's
		// cache, which is unknown.
		return absent, h.origin.Op == wire.Create && absent.number < h.version, true
	}
	return version{}, false, false
}

// none says why no controller was shown stale state, one line for each controller. Nil: one was, or may have been (the
// reads of a controller without hooks are unknown), or the plan pauses no API server.
func (s *staleness) none() []string {
	if !s.plan.PausesAPIServer() || len(s.reads) > 0 {
		return nil
	}
	if len(s.heldBack) == 0 {
		var pauses []string
		for i, a := range s.plan.Actions {
			if p := plan.EffectOf[*plan.Pause](&a); p != nil && p.OfAPIServer() {
				pauses = append(pauses,
					fmt.Sprintf("%s was paused (action %d) and held nothing back: no event %sreached it "+
						"until it was resumed", p.By, i+1, ofScope(p.Scope)))
			}
		}
		return pauses
	}
	if len(s.controllers) == 0 {
		return []string{"the suite has no controller under test"}
	}
	var why []string
	for _, c := range s.controllers {
		if !c.Hooks && s.shown[c.Name].connected != "" {
			return nil
		}
		why = append(why, s.unshown(c))
	}
	return why
}

func ofScope(scope plan.Scope) string {
	if scope.Everything() {
		return ""
	}
	return "of " + scope.String() + " "
}

// unshown says why a controller was not shown stale state although something was held back.
func (s *staleness) unshown(c record.Controller) string {
	shown := s.shown[c.Name]
	if shown.connected == "" {
		h := s.held(c.Name, "")
		return fmt.Sprintf("%s stayed connected to %s, while %s held back %s", c.Name,
			strings.Join(s.routes[c.Name], " and "), h.apiServer, h)
	}
	where := fmt.Sprintf("while %s held back %s", shown.connected, s.held(c.Name, shown.connected))
	switch {
	case shown.came == plan.ReconnectRestart && c.WatchList && shown.received == 0:
		return fmt.Sprintf("%s was started at %s, %s, but its first sync is a streaming list (client-go %s, feature "+
			"WatchListClient), which waits until the server has caught up: set %s", c.Name, shown.connected, where,
			c.ClientGo, c.WatchListSwitch())
	case shown.came == plan.ReconnectCut && shown.received == 0:
		return fmt.Sprintf("%s was moved to %s by cutting its connections, %s: it keeps its caches, and client-go "+
			"asks for nothing older (reconnectBy: restart begins with empty caches)", c.Name, shown.connected, where)
	case shown.received+shown.read == 0:
		return fmt.Sprintf("%s was connected to %s, but neither received nor read that object %s", c.Name,
			shown.connected, where)
	}
	return fmt.Sprintf("%s was connected to %s, and what it received (%d) and read (%d) of that object was never "+
		"older, %s",
		c.Name, shown.connected, shown.received, shown.read, where)
}

// held returns the first event that an API server (empty: any of them) held back and that is of a kind which the
// controller receives or reads. If there is none, it returns the first of all, although writes of the control plane for
// itself, such as the lease by which an API server is known to the others, do not help the user.
func (s *staleness) held(controller, apiServer string) heldEvent {
	by := func(h heldEvent) bool { return apiServer == "" || h.apiServer == apiServer }
	i := slices.IndexFunc(s.heldBack, func(h heldEvent) bool { return by(h) && s.kinds[controller][h.origin.Kind] })
	if i < 0 {
		i = slices.IndexFunc(s.heldBack, by)
	}
	return s.heldBack[i]
}

func (h heldEvent) String() string {
	s := fmt.Sprintf("the %s of %s/%s/%s", record.Noun(h.origin.Op), h.origin.Kind, h.origin.Namespace, h.origin.Name)
	if h.version > 0 {
		s += fmt.Sprintf(" (version %d)", h.version)
	}
	return s
}
