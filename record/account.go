package record

import "time"

// Account is what the state machine did with the events of a run, as a replay reports it. It is not part of the record.
type Account struct {
	Holds    []Hold          // in the order in which they began
	Effects  []LastingEffect // in the order in which they began
	Triggers []Trigger       // by action; those after the last one that was enabled are missing
}

// LastingEffect is the time for which a pause, a failure of calls, a freeze or a skew of the clock was in force.
type LastingEffect struct {
	Action int    // index of the action that began it
	By     string // the process that it is about
	From   time.Time
	To     time.Time // zero: the record ends before
}

// Hold is the time for which an observation's caller was held.
type Hold struct {
	Event  int       // Seq of the held observation
	Action int       // index of the action that held it first
	Paused bool      // by the pause that this action began, at some time; otherwise only until the action was complete
	From   time.Time // when the observation arrived
	To     time.Time // zero: the record ends before
	End    HoldEnd
}

// HoldEnd is how a hold ended.
type HoldEnd string

// The ends of holds.
const (
	HoldReleased  HoldEnd = "released"  // by an action
	HoldOver      HoldEnd = "over"      // the plan was over, or the record ends
	HoldExpired   HoldEnd = "expired"   // it reached its deadline
	HoldAbandoned HoldEnd = "abandoned" // the caller gave up
	HoldKilled    HoldEnd = "killed"    // the held process ended
)

// Trigger is how an action's trigger was satisfied, or how far it came.
type Trigger struct {
	Enabled   time.Time // zero: before the first event
	Satisfied time.Time // zero: never
	Nodes     []TriggerNode
}

// TriggerNode is one occurrence of a name in the trigger's expression.
type TriggerNode struct {
	Name   string
	Waits  string // what it waits for, in the words of messages
	State  TriggerState
	By     int    // Seq of the event that satisfied it; 0: none was needed, or it is not satisfied
	Misses []Miss // the nearest ones while it was enabled, the nearest first
	Missed int    // how many observations at its place did not match
}

// TriggerState is how far a trigger came.
type TriggerState string

// The states.
const (
	TriggerSatisfied TriggerState = "satisfied"
	TriggerWaiting   TriggerState = "waiting" // enabled, not satisfied
	TriggerDropped   TriggerState = "dropped" // it was enabled, but the expression was satisfied another way
	TriggerAsleep    TriggerState = "asleep"  // never enabled
)

// Miss is an observation that a trigger could have been waiting for, but that did not match.
type Miss struct {
	Event int // Seq of the observation
	Text  string
}
