package judge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/internal/reference"
	"github.com/trommel-dev/trommel/record"
)

// leftFor is how long something must have been left as it is to count as left for good.
const leftFor = 5 * time.Second

// finalizers judges whether objects that are marked for deletion still wait for finalizers that a controller under test
// has added, when nothing has disturbed the controllers for a while. The controller may wait for something that takes
// long, so it is only a note. Where there is a reference, its judge says that the object should be gone.
type finalizers struct{}

func (finalizers) Name() string { return "finalizers" }

func (finalizers) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	if e.Reference != nil || e.writes() || e.calm() == 0 {
		return nil, nil
	}
	changes, err := e.Changes()
	if err != nil {
		return nil, err
	}
	last := map[reference.Key]*reference.Change{}
	mark := map[reference.Key]*reference.Change{}
	added := map[reference.Key]map[string]string{} // who has added which
	var keys []reference.Key
	for i := range changes {
		c := &changes[i]
		known := last[c.Key] != nil
		if !known {
			keys = append(keys, c.Key)
		}
		last[c.Key] = c
		// The history of an object can begin with an update.
		if !known || c.Event != record.Updated {
			delete(mark, c.Key)
			added[c.Key] = map[string]string{}
		}
		if c.Marked() {
			mark[c.Key] = c
		}
		for _, f := range finalizersOf(c.Cur) {
			if c.By != "" && !slices.Contains(finalizersOf(c.Prev), f) {
				added[c.Key][f] = c.By
			}
		}
	}
	var findings []record.Finding
	for _, key := range keys {
		c := last[key]
		if c.Cur == nil || mark[key] == nil || e.Meta.Observed.Sub(later(c.Time, e.Meta.Calm)) < leftFor {
			continue
		}
		for _, f := range finalizersOf(c.Cur) {
			by := added[key][f]
			if by == "" {
				continue
			}
			findings = append(findings, record.Finding{
				Severity: record.SeverityNote, Judge: record.JudgeFinalizer, Subject: string(key), Time: mark[key].Time,
				Title: fmt.Sprintf("%s still waits for the finalizer %s of %s: it was marked for deletion %s",
					nameOf(c), f, by, e.moment(mark[key].Time)),
				Detail: "its last change: " + e.happened(c),
			})
		}
	}
	return findings, nil
}

func finalizersOf(object map[string]any) []string {
	list, _ := metadata.Of(object)["finalizers"].([]any)
	var all []string
	for _, f := range list {
		if s, ok := f.(string); ok && !strings.HasPrefix(s, "kubernetes.io/") {
			all = append(all, s)
		}
	}
	return all
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
