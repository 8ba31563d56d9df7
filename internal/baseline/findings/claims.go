package findings

import (
	"fmt"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/record"
)

// course is what the history of a run says of an object.
type course struct {
	before           bool // it was there when the recording began
	created, deleted int
	marked           bool // it is there in the end, and marked for deletion
	there            bool // in the end
	ended            bool // it was deleted, or marked for deletion, at least once
	again            bool // it was created after that
}

func courseOf(
	key facts.Key, changes []facts.Change, objects map[facts.Key]*facts.Object,
) course {
	o := objects[key]
	c := course{before: o.Existed()}
	known := false
	for i := range changes {
		change := &changes[i]
		if change.Key != key {
			continue
		}
		c.before = c.before || !known && change.Event != record.Created
		known = true
		switch {
		case change.Event == record.Created:
			c.created++
			c.again = c.again || c.ended
		case change.Event == record.Deleted:
			c.deleted++
			c.ended = true
		}
		c.ended = c.ended || metadata.Marked(change.Cur)
		c.there, c.marked = change.Cur != nil, metadata.Marked(change.Cur)
	}
	if !known && o != nil && o.End != nil {
		c.before, c.there, c.marked = true, true, metadata.Marked(o.End)
	}
	return c
}

// bears reports whether the history agrees with a claim.
func (c course) bears(claim record.Claim) bool {
	total := c.created
	if c.before {
		total++
	}
	switch claim.Says {
	case record.ClaimNever:
		return total == 0
	case record.ClaimThere:
		return c.there
	case record.ClaimGone:
		return !c.there
	case record.ClaimMarked:
		return c.there && c.marked
	case record.ClaimUnmarked:
		return c.there && !c.marked
	case record.ClaimDeleted:
		return c.ended
	case record.ClaimAgain:
		return c.again
	case record.ClaimTimes:
		return total == claim.Times
	}
	return true
}

// String says it in words.
func (c course) String() string {
	var parts []string
	if c.before {
		parts = append(parts, "there from the beginning")
	}
	count := func(what string, n int) {
		switch {
		case n == 1:
			parts = append(parts, what+" once")
		case n > 1:
			parts = append(parts, fmt.Sprintf("%s %d times", what, n))
		}
	}
	count("created", c.created)
	count("deleted", c.deleted)
	switch {
	case c.marked:
		parts = append(parts, "marked for deletion in the end")
	case c.there:
		parts = append(parts, "there in the end")
	case len(parts) == 0:
		return "never created"
	default:
		parts = append(parts, "gone in the end")
	}
	return strings.Join(parts, ", ")
}

// Bear compares what a finding's title says with the history of the run. If they contradict each other, it replaces
// the title by what the history says, and returns the contradiction; empty: there is none.
func Bear(
	f *record.Finding, changes []facts.Change, objects map[facts.Key]*facts.Object,
) (contradiction string) {
	for _, claim := range f.Claims {
		if claim.Object == "" {
			continue
		}
		if is := courseOf(facts.Key(claim.Object), changes, objects); !is.bears(claim) {
			contradiction = fmt.Sprintf("%q says of %s that %s; it was %s", f.Title, claim.Object, claim.Says, is)
			f.Title = claim.Object + " was " + is.String()
			return contradiction
		}
	}
	return ""
}

// claim notes what the words for an object's existence say.
func claim(all *record.Claims, key facts.Key, e facts.Existence) {
	switch object := string(key); {
	case e.Never():
		all.Say(object, record.ClaimNever)
	case e.Count:
		all.Times(object, e.Total())
	case e.There:
		all.Say(object, record.ClaimThere)
	default:
		all.Say(object, record.ClaimGone)
		all.Say(object, record.ClaimDeleted)
	}
}

// ClaimsOf is what the text of a difference says of the object in the run.
func ClaimsOf(d baseline.Difference) (all record.Claims) {
	if e, ok := d.Got.(facts.Existence); ok {
		claim(&all, d.Own, e)
	}
	return all
}
