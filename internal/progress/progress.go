// Package progress has the events by which Trommel says what it is doing: a build goes on, a run enters a phase, an
// action fires, a call is held, a campaign has run a plan. Whoever wants to know implements [Listener]: the live
// display, the lines on stderr and the JSON lines of --events do.
package progress

import "time"

// Listener receives events, from several goroutines at once, as they happen. Show must not block for long.
type Listener interface {
	Show(Event)
}

// Type says what has happened. New types may be added.
type Type string

// The types of events.
const (
	Title    Type = "title"     // the command begins something: Text
	Build    Type = "build"     // something is being built: Target, Text
	Built    Type = "built"     // nothing is being built any more
	Started  Type = "started"   // a run has begun: Plan, Variant, Actions
	Phase    Type = "phase"     // the run enters a phase: Text
	Step     Type = "step"      // the workload begins a step: Step, Text
	Next     Type = "next"      // what the plan waits for: Action and Text, or no Action when all have fired
	Fired    Type = "fired"     // an action's trigger is satisfied: Action, Text says by what
	Done     Type = "done"      // an action is complete: Action
	Failed   Type = "failed"    // an action has failed: Action, Text. Without Action: the run could not be carried out
	Held     Type = "held"      // a process is held at a call: Hold, Text
	Released Type = "released"  // it is no longer held: Hold.ID
	Waiting  Type = "waiting"   // nothing has happened for a while: Text says who waits for whom
	Finding  Type = "finding"   // Finding, Text
	Log      Type = "log"       // any other line that is written to stderr: Text
	Info     Type = "info"      // anything else that people should read: Text
	Ended    Type = "ended"     // the run has ended: Verdict, Record, Text is the verdict's reason
	Status   Type = "status"    // how far a campaign is: Campaign, Text. With Plan: what its next run is for
	PlanDone Type = "plan-done" // what a campaign says of a plan: Plan, Verdict, Text
)

// Event is one thing that has happened. Which fields it has depends on its type.
type Event struct {
	Time time.Time `json:"time"`
	Type Type      `json:"type"`
	// Run identifies a run among those of this command; empty: the event belongs to none.
	Run string `json:"run,omitempty"`
	// Aside is true for the runs of a campaign, which are not shown line by line.
	Aside bool   `json:"aside,omitempty"`
	Text  string `json:"text,omitempty"` // for people

	Plan     string         `json:"plan,omitempty"`
	Variant  string         `json:"variant,omitempty"`
	Actions  int            `json:"actions,omitempty"` // number of actions of the plan
	Target   string         `json:"target,omitempty"`  // of a build: a controller's name, or "control plane"
	Step     *StepEvent     `json:"step,omitempty"`
	Action   *ActionEvent   `json:"action,omitempty"`
	Hold     *HoldEvent     `json:"hold,omitempty"`
	Finding  *FindingEvent  `json:"finding,omitempty"`
	Verdict  string         `json:"verdict,omitempty"` // of a run; of a plan in a campaign: its status
	Record   string         `json:"record,omitempty"`  // directory of the run record
	Campaign *CampaignEvent `json:"campaign,omitempty"`
}

// StepEvent is a step of the workload.
type StepEvent struct {
	Number int `json:"number"` // from 1
	Of     int `json:"of"`
}

// ActionEvent is an action of the plan.
type ActionEvent struct {
	Number int    `json:"number"`         // from 1
	Name   string `json:"name,omitempty"` // action 1 (pauseAPIServer apiserver-3); absent with Next
}

// HoldEvent is a call at which a process is held.
type HoldEvent struct {
	ID   int    `json:"id"` // number of the observation in the run record
	By   string `json:"by,omitempty"`
	At   string `json:"at,omitempty"`   // phase and point
	What string `json:"what,omitempty"` // operation and object
	Why  string `json:"why,omitempty"`
}

// FindingEvent is a finding of a run.
type FindingEvent struct {
	Severity string `json:"severity"`
	Judge    string `json:"judge"`
	Title    string `json:"title"`
}

// CampaignEvent says how far a campaign is.
type CampaignEvent struct {
	Done    int      `json:"done"` // plans
	Of      int      `json:"of"`
	Reach   int      `json:"reach,omitempty"` // about how many of them the budget reaches; absent: all, or unknown
	Bugs    int      `json:"bugs"`
	Left    float64  `json:"left,omitempty"` // seconds that the others will take; absent: unknown
	Running []string `json:"running,omitempty"`
}

// Func is a Listener.
type Func func(Event)

// Show calls f.
func (f Func) Show(e Event) { f(e) }

// No listener ignores all events.
var Nobody Listener = Func(func(Event) {})

// AsideOf returns a listener for the runs of a campaign; l receives their events, marked as aside.
func AsideOf(l Listener) Listener {
	return Func(func(e Event) {
		e.Aside = true
		l.Show(e)
	})
}
