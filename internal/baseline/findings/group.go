package findings

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// One is what found something: a plan in a campaign, or a run.
type One struct {
	Findings []record.Finding
	Cause    string // see CauseOf
	Struck   string // see StruckBy
	Sure     bool   // its findings were confirmed
}

// Group is what several plans or runs have found that is probably one bug.
type Group struct {
	Finding record.Finding // the worst that all of them show, as the first one does
	Members []int          // indices; the first is confirmed, if any is
}

// effect is what a finding has in common with others that are probably of the same bug.
type effect struct {
	finding record.Finding
	cause   string
	what    string // see record.Finding.Effects
	// struck is the write that the plan has struck, and on the types of the object that the finding is about and of
	// its owner; empty: unknown, or none.
	struck, on string
	rank       int
}

// like reports whether two effects are probably of the same bug. The rank may differ: what was lost in one run is
// missing in another. What becomes of an object after the same write of the controller was refused or lost is one bug,
// however it shows.
func (e effect) like(other effect) bool {
	return e.cause == other.cause && (e.what == other.what ||
		e.struck != "" && e.struck == other.struck && e.on != "" && e.on == other.on)
}

// effects of what one has found, the worst first. There is at least one.
func (o *One) effects() []effect {
	var all []effect
	for _, f := range o.Findings {
		for _, what := range f.Effects() {
			all = append(all, effect{f, o.Cause, what, o.Struck, typesOf(f), f.Does().Rank()})
		}
	}
	if all == nil {
		all = []effect{{cause: o.Cause, rank: record.HarmRemark.Rank()}}
	}
	slices.SortStableFunc(all, func(a, b effect) int {
		return cmp.Or(record.ByHarm(a.finding, b.finding), a.rank-b.rank)
	})
	return all
}

// typesOf returns the types of the object that a finding is about and of its owner; empty: it is about no object.
func typesOf(f record.Finding) string {
	typ, _, isKey := strings.Cut(f.About(), "/")
	if !isKey {
		return ""
	}
	owner, _, _ := strings.Cut(f.Owner, "/")
	return typ + " of " + owner
}

// Groups puts together what has the same cause and does the same harm: to the same type of objects of the same type of
// owners, whatever these are called. What else such a run shows follows from that. Everything is in one group. The
// worst harm comes first, and then what most have found. Of a group, the confirmed ones come first, of these the ones
// that show the worst, and then those that come first in the list, which should be the simplest.
//
// This is the only grouping: summaries, pages, JSON, annotations and the search for smaller plans have it in common.
func Groups(all []One) []Group {
	var left []int
	effects := make([][]effect, len(all))
	for i := range all {
		left = append(left, i)
		effects[i] = all[i].effects()
	}
	has := func(i int, want effect) bool { return slices.ContainsFunc(effects[i], want.like) }
	var groups []Group
	for len(left) > 0 {
		// The worst harm that is left, in the way that most show it.
		var most effect
		count := 0
		for _, i := range left {
			n := 0
			for _, j := range left {
				if has(j, effects[i][0]) {
					n++
				}
			}
			if worst := effects[i][0]; count == 0 || worst.rank < most.rank || worst.rank == most.rank && n > count {
				most, count = worst, n
			}
		}
		var members []int
		for _, i := range left {
			if has(i, most) {
				members = append(members, i)
			}
		}
		order := func(i, j int) int {
			return cmp.Or(sureFirst(all[i], all[j]), effects[i][0].rank-effects[j][0].rank, cmp.Compare(i, j))
		}
		slices.SortFunc(members, order)
		// What shows nothing worse than something that the first one shows, too, is a part of the same.
		first := members[0]
		for _, i := range left {
			if !slices.Contains(members, i) && has(first, effects[i][0]) {
				members = append(members, i)
			}
		}
		slices.SortFunc(members[1:], order)
		g := Group{Members: members}
		if at := slices.IndexFunc(effects[first], most.like); at >= 0 {
			g.Finding = effects[first][at].finding
		}
		groups = append(groups, g)
		left = slices.DeleteFunc(left, func(i int) bool { return slices.Contains(members, i) })
	}
	return groups
}

// Joins reports whether what a plan has found joins what a run without a plan's actions has: the same is wrong, and it
// is not worse. In a status, one cause shows in several fields, and which of them differ is a matter of time, so the
// fields of a status count as one. What is worse, such as an object that is lost where the other run only replaces it,
// is a finding of its own.
func Joins(found, without record.Finding) bool {
	if found.Does().Rank() < without.Does().Rank() {
		return false
	}
	if ofStatus(found) && ofStatus(without) {
		found.Field, without.Field = "status", "status"
	}
	return found.Same(without)
}

// ofStatus reports whether a run ended with another status.
func ofStatus(f record.Finding) bool {
	return f.Judge == record.JudgeBaseline && f.Field != "" && f.Does().Rank() >= record.HarmStatus.Rank()
}

func sureFirst(a, b One) int {
	switch {
	case a.Sure == b.Sure:
		return 0
	case a.Sure:
		return -1
	}
	return 1
}

// Causes of what is found: what a plan does to the controllers.
const (
	Stale       = "when the past is shown" // API servers or deliveries were held, or a process was frozen
	Upgraded    = "when the suite's own build takes over"
	RolledBack  = "when another build takes over"
	Interrupted = "when work is interrupted"
	Disturbed   = "when others write"
	Ordered     = "when something comes late" // deliveries, writes or answers, by a schedule
	Undisturbed = "when nothing is done"
)

// StruckBy names the write, or the annotated call, of a controller that a plan with these actions refuses or loses the
// answer to, or before which another client writes, so that it is refused. It is the same for all plans that strike the
// same transition of the same object, however often it has come before. Empty: there is none.
func StruckBy(actions []plan.Action) string {
	for i := range actions {
		fails, definitions := plan.EffectOf[*plan.CallFailure](&actions[i]), actions[i].Trigger.Definitions
		var text string
		switch {
		case fails != nil:
			text = strings.TrimSpace(fails.By + " " + fails.Call)
		case plan.Has[*plan.Write](&actions[i]) && len(definitions) == 1 &&
			definitions[0].Observe.Timing == plan.BeforeControllerWrite:
			text = "conflict with " + definitions[0].Observe.ObserveBy
		default:
			continue
		}
		for _, d := range definitions {
			c := d.Condition
			states, err := json.Marshal([]any{c.PrevState, c.CurState})
			if err != nil {
				return ""
			}
			text += fmt.Sprintf("; %s %s%s: %s %s", c.Type, c.ResourceKey, c.Call, states, c.Where)
		}
		return text
	}
	return ""
}

// CauseOf is what a plan with these actions does to the controllers. A plan that shows the past to a controller may
// restart it, too: the most peculiar of its actions counts. An answer to a write that comes late shows no past.
func CauseOf(actions []plan.Action) string {
	cause := Undisturbed
	for i := range actions {
		a := &actions[i]
		pause, upgrade := plan.EffectOf[*plan.Pause](a), plan.EffectOf[*plan.Upgrading](a)
		switch {
		case pause != nil && pause.At != plan.AfterControllerWrite, plan.Has[*plan.Move](a),
			plan.Has[*plan.Freeze](a):
			return Stale
		case plan.Has[*plan.Write](a):
			cause = Disturbed
		case upgrade != nil && cause != Disturbed:
			if cause = Upgraded; upgrade.To != "" {
				cause = RolledBack
			}
		case cause == Undisturbed:
			cause = Interrupted
		}
	}
	return cause
}
