package judge

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/record"
)

// waste notes what a controller under test creates for nothing: an object that it deletes within a second, before it
// was used, or one within a second of deleting another one like it. A fault may lead to that, so with a baseline only
// what every run without faults does as well is noted.
type waste struct{}

func (waste) Is() Traits { return is("waste", eachCluster, whatHappened) }

// soon is within which time a controller deletes what it need not have created.
const soon = time.Second

func (waste) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	if e.writes() {
		return nil, nil
	}
	changes, err := e.Changes()
	if err != nil {
		return nil, err
	}
	all := wasted(changes)
	if ref := e.Baseline; ref != nil {
		for _, usual := range slices.Concat([][]facts.Change{ref.Changes}, ref.Others) {
			known := wasted(usual)
			all = slices.DeleteFunc(all, func(w wastedObject) bool {
				return !slices.ContainsFunc(known, w.same)
			})
		}
	}
	var findings []record.Finding
	for i, w := range all {
		if slices.ContainsFunc(all[:i], w.same) {
			continue
		}
		times := 0
		detail := ""
		var cause []*facts.Change
		for _, other := range all[i:] {
			if other.same(w) {
				times++
				cause = append(cause, other.created, other.deleted)
				detail += nameOf(other.created) + ": " + e.happened(other.created) + "\n" +
					nameOf(other.deleted) + ": " + e.happened(other.deleted) + "\n"
			}
		}
		after := w.deleted.Time.Sub(w.created.Time).Round(10 * time.Millisecond)
		title := fmt.Sprintf("%s creates %s and deletes it after %s, before anything uses it", w.created.By,
			nameOf(w.created), after)
		if w.created.Key != w.deleted.Key {
			title = fmt.Sprintf("%s creates %s and deletes %s, which is like it, after %s", w.created.By,
				nameOf(w.created), nameOf(w.deleted), after)
		}
		if times > 1 {
			title += " (" + wording.Count(times, "time") + ")"
		}
		findings = append(findings, record.Finding{
			Severity: record.SeverityNote, Judge: record.JudgeWaste, Subject: string(w.created.Key),
			Cause: earliest(cause...), Origin: origin(w.created),
			Time: w.created.Time, Title: title, Detail: detail[:len(detail)-1],
		})
	}
	return findings, nil
}

// wastedObject is an object that was created for nothing.
type wastedObject struct {
	created *facts.Change
	deleted *facts.Change // of the object, or of another one like it
}

// same reports whether two wasted objects are of the same kind, apart from numbers in their names.
func (w wastedObject) same(other wastedObject) bool {
	return w.created.By == other.created.By && w.created.Key.Group() == other.created.Key.Group() &&
		(w.created.Key == w.deleted.Key) == (other.created.Key == other.deleted.Key)
}

// wasted lists what controllers created for nothing in a run.
func wasted(changes []facts.Change) (all []wastedObject) {
	for i := range changes {
		c := &changes[i]
		if c.Event != record.Created || c.By == "" {
			continue
		}
		for j := i + 1; j < len(changes) && changes[j].Time.Sub(c.Time) <= soon; j++ {
			d := &changes[j]
			if d.By != c.By || !d.Marked() && (d.Event != record.Deleted || metadata.Marked(d.Prev)) {
				continue
			}
			if d.Key == c.Key && !used(changes[i:j+1]) || d.Key != c.Key && surplus(c, d, changes[:j]) {
				all = append(all, wastedObject{c, d})
				break
			}
		}
	}
	return all
}

// used reports whether an object was used from its creation, the first of these changes, to its deletion, the last one:
// it has run or finished, a client other than its creator and Kubernetes has changed its spec, or another object
// belongs to it or names it.
func used(changes []facts.Change) bool {
	born, gone := &changes[0], &changes[len(changes)-1]
	status, _ := gone.Prev["status"].(map[string]any)
	if facts.Finished(gone.Prev) || status["phase"] == "Running" {
		return true
	}
	uid, name := metadata.UID(born.Cur), born.Name()
	return slices.ContainsFunc(changes[1:], func(c facts.Change) bool {
		if c.Key == born.Key {
			return c.By != born.By && !reflect.DeepEqual(c.Cur["spec"], born.Cur["spec"]) && c.Cur != nil
		}
		return uid != "" && c.Cur != nil && (metadata.Holds(c.Cur, uid) || metadata.Holds(c.Cur, name))
	})
}

// surplus reports whether an object was deleted that was like one that the same controller had just created: of the
// same type and controller, and created with the same content, while its owner asked for the same. It had not finished.
func surplus(created, deleted *facts.Change, before []facts.Change) bool {
	owner := metadata.Text(metadata.Controller(created.Cur), "uid")
	if owner == "" || owner != metadata.Text(metadata.Controller(deleted.Prev), "uid") ||
		created.Key.Type() != deleted.Key.Type() || created.Sent == nil || facts.Finished(deleted.Prev) {
		return false
	}
	var born *facts.Change
	for i := range before {
		c := &before[i]
		switch {
		case c.Key == deleted.Key && c.Event == record.Created:
			born = c
		case metadata.UID(c.Cur) == owner && !c.Time.Before(created.Time) &&
			!reflect.DeepEqual(c.Prev["spec"], c.Cur["spec"]):
			return false
		}
	}
	return born != nil && born.By == created.By && reflect.DeepEqual(content(born.Sent), content(created.Sent))
}

// content is what a controller has sent without the metadata that is another one for each object.
func content(sent map[string]any) map[string]any {
	all := map[string]any{}
	for key, value := range sent {
		if key != "metadata" && key != "status" {
			all[key] = value
		}
	}
	all["labels"] = metadata.Of(sent)["labels"]
	return all
}
