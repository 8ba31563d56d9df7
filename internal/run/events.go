package run

import (
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

// events passes what happens in a run on to the record, and keeps what the rest of the run needs to know of it. It is
// the coordinator's Recorder.
type events struct {
	record interface {
		Event(e record.Event) error
		Action(a record.Action) error
	}
	findTypes bool // keep of which types the controllers know objects, and not only of which they write some
	brief     bool // of what is going to be written, record the metadata only, unless the plan asks for it

	mu        sync.Mutex
	completed []record.Action // in order of completion
	kept      []record.Event  // writes and reconciles of the controllers
	updates   map[call]string // updates under way: the resource versions from which they begin
	hot       facts.HotObjects
	// overheated is closed when an object is so hot that nothing else can be expected of its controller; nil: it is not
	// needed.
	overheated chan struct{}
	types      map[plan.ResourceKey]bool // so far: with findTypes those of baseline.Types, otherwise what is written
}

// call is one that a process has observed.
type call struct{ session, call uint64 }

// Event implements coordinator.Recorder.
func (e *events) Event(event record.Event) error {
	if e.brief {
		event.Observation = metadataOnly(event.Observation)
	}
	e.keep(event)
	return e.record.Event(event)
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
	short := *o // the coordinator keeps the original
	var err error
	if short.Object, err = json.Marshal(object); err != nil {
		return o
	}
	return &short
}

// Action implements coordinator.Recorder.
func (e *events) Action(a record.Action) error {
	e.mu.Lock()
	e.completed = append(e.completed, a)
	e.mu.Unlock()
	return e.record.Action(a)
}

// keep keeps what judges need to know of what the controllers did.
func (e *events) keep(event record.Event) {
	o := event.Observation
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.findTypes || e.wrote(o) {
		if key, ok := baseline.TypeOf(o); ok {
			if e.types == nil {
				e.types = map[plan.ResourceKey]bool{}
			}
			e.types[key] = true
		}
	}
	if o != nil && (o.Point == wire.ControllerWrite || o.Point == wire.Reconcile) {
		e.kept = append(e.kept, event)
	}
	if before := e.hot.Over(); e.overheated != nil && before == nil {
		if e.hot.Take(event); e.hot.Over() != nil {
			close(e.overheated)
		}
	}
}

// tooHot returns the object that is so hot that nothing else can be expected of its controller; nil: there is none.
func (e *events) tooHot() *facts.Hot {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hot.Over()
}

// wrote reports whether an observation, which may be nil, is that a controller has written an object: an update that
// leaves it as it was writes nothing. It expects all observations in order.
func (e *events) wrote(o *record.Observation) bool {
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

// ofControllers lists the writes and reconciles of the controllers so far.
func (e *events) ofControllers() []record.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.kept)
}

// typesSeen lists the types that the controllers had to do with so far: with findTypes in any way, otherwise those of
// which they have written objects.
func (e *events) typesSeen() []plan.ResourceKey {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.types))
}

// carriedOut lists the plan's actions that are complete so far.
func (e *events) carriedOut() []record.Action {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.completed)
}

// lastAction returns when the plan's last action completed; zero if none has.
func (e *events) lastAction() (last time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.completed {
		if a.Done.After(last) {
			last = a.Done
		}
	}
	return last
}
