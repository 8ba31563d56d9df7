package judge

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// dependents judges whether a controller under test deletes an object although the object's owner is alive and asks for
// the same as when the object was created, and creates it again. That costs what the object held, but it may be meant
// so: some controllers restart things in this way. So it is only a note, and where a baseline shows the controller's
// behavior without faults, the judge of the baseline judges it.
type dependents struct{}

func (dependents) Is() Traits { return is("dependents", eachCluster, whatHappened) }

func (dependents) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	if e.Baseline != nil || e.writes() {
		return nil, nil
	}
	changes, err := e.Changes()
	if err != nil {
		return nil, err
	}
	type owner struct {
		object map[string]any
		since  int // index of the change since which its spec is the same
	}
	living := map[string]owner{} // by UID
	born := map[facts.Key]int{}
	type loss struct {
		change *facts.Change
		uid    string // of the owner
	}
	lost := map[facts.Key]loss{}
	var findings []record.Finding
	for i := range changes {
		c := &changes[i]
		switch {
		case c.Cur == nil || metadata.Marked(c.Cur):
			delete(living, metadata.UID(c.Prev))
			delete(living, metadata.UID(c.Cur))
		default:
			o, known := living[metadata.UID(c.Cur)]
			if !known || !reflect.DeepEqual(o.object["spec"], c.Cur["spec"]) {
				o.since = i
			}
			o.object = c.Cur
			living[metadata.UID(c.Cur)] = o
		}
		if c.Event == record.Created {
			born[c.Key] = i
			if l, ok := lost[c.Key]; ok && controls(c.Cur, l.uid) && c.By != "" {
				findings = append(findings, record.Finding{
					Severity: record.SeverityNote, Judge: record.JudgeDependent, Subject: string(c.Key),
					Time: l.change.Time, Cause: earliest(l.change, c), Origin: origin(l.change),
					Title: fmt.Sprintf("%s was deleted by %s and created again, although its owner was alive and its "+
						"spec had not changed: deleted %s", nameOf(c), l.change.By, e.moment(l.change.Time)),
					Detail: nameOf(l.change) + ": " + e.happened(l.change) + "\n" + nameOf(c) + ": " + e.happened(c),
				})
			}
			delete(lost, c.Key)
			continue
		}
		deletes := c.Event == record.Deleted && !metadata.Marked(c.Prev) || c.Marked()
		at, known := born[c.Key]
		if !deletes || c.By == "" || !known || facts.Finished(c.Prev) {
			continue
		}
		for _, ref := range metadata.Owners(c.Prev) {
			id, _ := ref["uid"].(string)
			if o, alive := living[id]; alive && ref["controller"] == true && o.since < at {
				lost[c.Key] = loss{c, id}
			}
		}
	}
	return findings, nil
}

// controls reports whether the owner with the UID is the object's controller.
func controls(object map[string]any, id string) bool {
	return slices.ContainsFunc(metadata.Owners(object), func(ref map[string]any) bool {
		return ref["uid"] == id && ref["controller"] == true
	})
}
