package journal

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Events passes what happens in a run on to the record, and keeps what the rest of the run needs to know of it. It is
// the coordinator's Recorder.
type Events struct {
	Record interface {
		Event(e record.Event) error
		Action(a record.Action) error
	}
	FindTypes bool // keep of which types the controllers know objects, and not only of which they write some
	// Brief records only the metadata of what a controller is about to write, unless the plan asks for more, or the
	// session ends before the answer.
	Brief bool

	mu        sync.Mutex
	completed []record.Action // in order of completion
	kept      []record.Event  // writes and reconciles of the controllers, and what was left unanswered
	updates   map[call]string // updates under way: the resource versions from which they begin
	// shortened are the writes under way of which only the metadata is recorded, as they were observed.
	shortened map[call]*record.Observation
	hot       facts.HotObjects
	// Overheated is closed when an object is so hot that nothing else can be expected of its controller. If it is nil,
	// hot objects are not looked for.
	Overheated chan struct{}
	types      map[plan.ResourceKey]bool // so far: with FindTypes those of baseline.Types, otherwise what is written
}

// call is one that a process has observed.
type call struct{ session, call uint64 }

// Event implements coordinator.Recorder.
func (e *Events) Event(event record.Event) error {
	if e.Brief {
		event = e.shorten(event)
	}
	e.keep(event)
	return e.Record.Event(event)
}

// shorten leaves only the metadata of what a write sends, and adds what a session's end left unanswered. The
// coordinator keeps the original.
func (e *Events) shorten(event record.Event) record.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	if o := event.Observation; o != nil && o.Point == wire.ControllerWrite {
		id := call{o.Session, o.Call}
		event.Observation = metadataOnly(o)
		switch {
		case o.Phase == wire.After:
			delete(e.shortened, id)
		case event.Observation != o:
			if e.shortened == nil {
				e.shortened = map[call]*record.Observation{}
			}
			e.shortened[id] = o
		}
	}
	if event.SessionEnd != nil {
		end := *event.SessionEnd
		for id, o := range e.shortened {
			if id.session == end.Session {
				end.Unanswered = append(end.Unanswered, *o)
				delete(e.shortened, id)
			}
		}
		slices.SortFunc(end.Unanswered, func(a, b record.Observation) int { return cmp.Compare(a.Call, b.Call) })
		event.SessionEnd = &end
	}
	return event
}

// metadataOnly is an observation of a write that begins, without the parts that are needed only if the plan asks for
// them: the object's answer follows. Other observations stay as they are; o may be nil.
func metadataOnly(o *record.Observation) *record.Observation {
	if o == nil || !o.Aside || o.Point != wire.ControllerWrite || o.Phase != wire.Before || o.Object == nil {
		return o
	}
	var object struct {
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
		Metadata   struct {
			Namespace       string `json:"namespace,omitempty"`
			Name            string `json:"name,omitempty"`
			GenerateName    string `json:"generateName,omitempty"`
			UID             string `json:"uid,omitempty"`
			ResourceVersion string `json:"resourceVersion,omitempty"`
		} `json:"metadata"`
	}
	if json.Unmarshal(o.Object, &object) != nil {
		return o
	}
	short := *o
	var err error
	if short.Object, err = json.Marshal(object); err != nil {
		return o
	}
	return &short
}

// Action implements coordinator.Recorder.
func (e *Events) Action(a record.Action) error {
	e.mu.Lock()
	e.completed = append(e.completed, a)
	e.mu.Unlock()
	return e.Record.Action(a)
}

// keep keeps what judges need to know of what the controllers did.
func (e *Events) keep(event record.Event) {
	o := event.Observation
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.FindTypes || e.wrote(o) {
		if key, ok := baseline.TypeOf(o); ok {
			if e.types == nil {
				e.types = map[plan.ResourceKey]bool{}
			}
			e.types[key] = true
		}
	}
	if o != nil && (o.Point == wire.ControllerWrite || o.Point == wire.Reconcile) ||
		event.SessionEnd != nil && len(event.SessionEnd.Unanswered) > 0 {
		e.kept = append(e.kept, event)
	}
	if before := e.hot.Over(); e.Overheated != nil && before == nil {
		if e.hot.Take(event); e.hot.Over() != nil {
			close(e.Overheated)
		}
	}
}

// TooHot returns the object that is so hot that nothing else can be expected of its controller; nil: there is none.
func (e *Events) TooHot() *facts.Hot {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hot.Over()
}

// wrote reports whether an observation, which may be nil, is that a controller has written an object: an update that
// leaves it as it was writes nothing. It expects all observations in order.
func (e *Events) wrote(o *record.Observation) bool {
	if o == nil || o.Point != wire.ControllerWrite {
		return false
	}
	id := call{o.Session, o.Call}
	if o.Phase == wire.Before {
		if version := resourceVersion(o.Object); o.Op == wire.Update && version != "" {
			if e.updates == nil {
				e.updates = map[call]string{}
			}
			e.updates[id] = version
		}
		return false
	}
	from, update := e.updates[id]
	delete(e.updates, id)
	return o.Error == "" && !(update && from == resourceVersion(o.Object))
}

// resourceVersion is that of an object in JSON; empty: there is none.
func resourceVersion(object json.RawMessage) string {
	var o struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if json.Unmarshal(object, &o) != nil {
		return ""
	}
	return o.Metadata.ResourceVersion
}

// OfControllers lists the writes and reconciles of the controllers so far, and the ends of sessions that left writes
// unanswered.
func (e *Events) OfControllers() []record.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.kept)
}

// TypesSeen lists the types that the controllers had to do with so far: with FindTypes in any way, otherwise those of
// which they have written objects.
func (e *Events) TypesSeen() []plan.ResourceKey {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.types))
}

// CarriedOut lists the plan's actions that are complete so far.
func (e *Events) CarriedOut() []record.Action {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.completed)
}

// LastAction returns when the plan's last action completed; zero if none has.
func (e *Events) LastAction() (last time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.completed {
		if a.Done.After(last) {
			last = a.Done
		}
	}
	return last
}
