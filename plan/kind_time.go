package plan

import (
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// The types of actions that move clocks.
const (
	AdvanceTime ActionType = "advanceTime"
	SkewClock   ActionType = "skewClock"
	EndSkew     ActionType = "endSkew"
)

// Clocking has the fields of advanceTime and skewClock.
type Clocking struct {
	By Offset `yaml:"by" doc:"How far the cluster's clock jumps, or the controller's is ahead (negative: behind)."`
}

// Offset is a duration that may be negative.
type Offset time.Duration

// String writes it as plans do.
func (o Offset) String() string {
	if o < 0 {
		return "-" + FormatDuration(time.Duration(-o))
	}
	return FormatDuration(time.Duration(o))
}

// some reports a field that is missing or 0.
func (c *ActionCheck) some(field string, value Offset, what string) {
	switch at := c.at.Field(field); {
	case value != 0, at.Failed():
	case at.Given():
		at.Errorf("%s is 0", field)
	default:
		at.Missing("%s has no %s: %s", c.Action.Type, field, what)
	}
}

// readOffset reads a duration that may have a sign.
func readOffset(f *yamlfile.File, n *yaml.Node, what string) Offset {
	r := yamlfile.Deref(n)
	text := r.Value
	unsigned, negative := strings.CutPrefix(text, "-")
	if !strings.HasPrefix(unsigned, "-") {
		r.Value = unsigned
	}
	d := Offset(f.Duration(n, what))
	r.Value = text
	if negative {
		return -d
	}
	return d
}

// A jump of the clock is what a laptop's sleep is, or a machine that was suspended: nothing happens in the time that is
// skipped, and what is due then comes all at once.
var advanceTime = ActionKind{
	Type:    AdvanceTime,
	Summary: "Let the cluster's clock jump ahead; what is due in the time that is skipped comes all at once.",
	Doc:     "lets the cluster's clock jump ahead, [see below](#time)",
	Own:     func() any { return &Clocking{} },
	Check: func(c *ActionCheck) {
		by := ownFields[Clocking](c.Action).By
		if by < 0 {
			c.Errorf("by", "by is %s; time goes forward only", by)
		}
		c.some("by", by, "how far the clock jumps, such as 24h")
	},
	Explain: func(a *Action) string {
		return "let the cluster's clock jump ahead by " + ownFields[Clocking](a).By.String() +
			", so that what is due in that time comes all at once"
	},
	Needs:   []Capability{OwnClock},
	Effects: func(a *Action) []Effect { return []Effect{&Advance{time.Duration(ownFields[Clocking](a).By)}} },
}

// The clock that is skewed is that of the time of day: what a program writes into objects and compares with what others
// have written. Timers of the process are not concerned, as on a machine whose clock is wrong.
var skewClock = ActionKind{
	Type: SkewClock, Target: TargetController,
	Summary: "Put the wall clock of the controller's processes ahead or behind, until endSkew.",
	Doc: "puts the wall clock of the controller's processes ahead, or behind if `by` is negative, " +
		"[see below](#time)",
	Own: func() any { return &Clocking{} },
	Check: func(c *ActionCheck) {
		by := ownFields[Clocking](c.Action).By
		c.some("by", by, "how far the clock is ahead, such as 30s, or behind, such as -30s")
	},
	Explain: func(a *Action) string {
		by, where := ownFields[Clocking](a).By, "ahead"
		if by < 0 {
			by, where = -by, "behind"
		}
		return "put the wall clock of " + controllerName(a.Target) + " " + by.String() + " " + where +
			" until the skew is ended"
	},
	Needs: []Capability{OwnClock},
	Effects: func(a *Action) []Effect {
		return []Effect{&Skew{By: a.Target, Ahead: time.Duration(ownFields[Clocking](a).By)}}
	},
}

var endSkew = ActionKind{
	Type: EndSkew, Target: TargetController,
	Summary: "Let the controller's wall clock be right again.",
	Doc:     "lets the controller's wall clock be right again",
	Explain: func(a *Action) string { return "let the wall clock of " + controllerName(a.Target) + " be right again" },
	Needs:   []Capability{OwnClock},
	Effects: func(a *Action) []Effect { return []Effect{&Unskew{a.Target}} },
}
