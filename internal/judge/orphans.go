package judge

import (
	"context"
	"fmt"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// orphans judges whether objects are still there although all their owners have been gone for a while. The garbage
// collector deletes such objects. It is a note: if it does not, that says more about the cluster than about a
// controller.
type orphans struct{}

func (orphans) Is() Traits { return is("orphans", eachCluster, whatHappened) }

func (orphans) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	if e.calm() < leftFor {
		return nil, nil
	}
	changes, err := e.Changes()
	if err != nil {
		return nil, err
	}
	gone := map[string]*facts.Change{} // by UID
	last := map[facts.Key]*facts.Change{}
	var keys []facts.Key
	for i := range changes {
		c := &changes[i]
		if last[c.Key] == nil {
			keys = append(keys, c.Key)
		}
		last[c.Key] = c
		if c.Event == record.Deleted {
			gone[metadata.UID(c.Prev)] = c
		}
	}
	var findings []record.Finding
	for _, key := range keys {
		c := last[key]
		refs := metadata.Owners(c.Cur)
		if c.Cur == nil || len(refs) == 0 || metadata.Marked(c.Cur) {
			continue
		}
		var end *facts.Change // of the last owner
		for _, ref := range refs {
			id, _ := ref["uid"].(string)
			g := gone[id]
			if g == nil {
				end = nil
				break
			}
			if end == nil || g.Time.After(end.Time) {
				end = g
			}
		}
		if end == nil || e.Meta.Observed.Sub(later(later(end.Time, c.Time), e.Meta.Calm)) < leftFor {
			continue
		}
		var claims record.Claims
		claims.Say(string(key), record.ClaimThere)
		claims.Say(string(end.Key), record.ClaimDeleted)
		is := "is gone"
		if last[end.Key].Cur == nil {
			claims.Say(string(end.Key), record.ClaimGone)
		} else {
			is = "was replaced by another one of that name"
		}
		findings = append(findings, record.Finding{
			Severity: record.SeverityNote, Judge: record.JudgeOrphan, Subject: string(key), Time: end.Time,
			Cause: c.Time, Origin: origin(c), Claims: claims,
			Title: fmt.Sprintf("%s is still there although its owner %s %s: the owner was deleted %s", nameOf(c),
				nameOf(end), is, e.moment(end.Time)),
			Detail: "its last change: " + e.happened(c),
		})
	}
	return findings, nil
}
