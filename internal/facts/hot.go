package facts

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

const (
	// An object is hot if one controller changes it more often than this in a minute of the run.
	hotWrites = 100
	// hotEnd is the number of writes after which the run need not go on: work that ends does not need so many.
	hotEnd = 10 * hotWrites
	// hotSpan is the minute.
	hotSpan = time.Minute
)

// Hot is an object that one controller changes again and again.
type Hot struct {
	Controller string
	Object     string        // as in Loop
	Times      int           // most in a minute of the run
	Span       time.Duration // of these
	Began      time.Time     // the first of these
	// Fields are those that differ between two writes, one after the other.
	Fields []string
}

// HotObjects looks for hot objects among what the controllers write. The zero value has seen nothing.
type HotObjects struct {
	written map[hotKey]*written
	over    *Hot
}

type hotKey struct{ by, object string }

// written are the newest writes of an object by one controller.
type written struct {
	times     []time.Time // in the last minute
	version   string
	last, cur json.RawMessage // the last two states
	hot       Hot             // with the most writes; Times is 0 if it is not hot
}

// Take takes in what was observed. Events must come in order.
func (h *HotObjects) Take(e record.Event) {
	o := e.Observation
	if o == nil || o.Point != wire.ControllerWrite || o.Phase != wire.After || o.Election || o.Error != "" ||
		isMessage(o) {
		return
	}
	var object struct {
		Metadata struct {
			Name            string `json:"name"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if json.Unmarshal(o.Object, &object) != nil || object.Metadata.ResourceVersion == "" {
		return
	}
	name := strings.ToLower(cmp.Or(o.Kind, o.Resource)) + "/" + o.Namespace + "/" + cmp.Or(o.Name, object.Metadata.Name)
	key := hotKey{o.By, record.In(o.Cluster, name)}
	if h.written == nil {
		h.written = map[hotKey]*written{}
	}
	w := h.written[key]
	if w == nil {
		w = &written{}
		h.written[key] = w
	}
	if w.version == object.Metadata.ResourceVersion {
		return // nothing was changed
	}
	w.version, w.last, w.cur = object.Metadata.ResourceVersion, w.cur, o.Object
	w.times = append(w.times, e.Time)
	old := slices.IndexFunc(w.times, func(t time.Time) bool { return e.Time.Sub(t) < hotSpan })
	w.times = w.times[old:]
	if n := len(w.times); n > hotWrites && n > w.hot.Times {
		w.hot = Hot{
			Controller: key.by, Object: key.object, Times: n, Span: e.Time.Sub(w.times[0]), Began: w.times[0],
		}
		if n > hotEnd && h.over == nil {
			hot := w.result()
			h.over = &hot
		}
	}
}

// Over returns the first object that is so hot that the run need not go on; nil: there is none.
func (h *HotObjects) Over() *Hot { return h.over }

// All returns the hot objects, that with the most writes first.
func (h *HotObjects) All() (all []Hot) {
	for _, w := range h.written {
		if w.hot.Times > 0 {
			all = append(all, w.result())
		}
	}
	slices.SortFunc(all, func(a, b Hot) int {
		return cmp.Or(cmp.Compare(b.Times, a.Times), strings.Compare(a.Object, b.Object),
			strings.Compare(a.Controller, b.Controller))
	})
	return all
}

// result is the hot object with the fields that differ between the last two states.
func (w *written) result() Hot {
	hot := w.hot
	var c Change
	if json.Unmarshal(w.last, &c.Prev) != nil || json.Unmarshal(w.cur, &c.Cur) != nil {
		return hot
	}
	for _, f := range FieldsOf(&c) {
		switch f.Where {
		case "metadata.resourceVersion", "metadata.generation":
		default:
			if !strings.HasPrefix(f.Where, "metadata.managedFields") {
				hot.Fields = append(hot.Fields, f.Where)
			}
		}
	}
	return hot
}
