package machine

import (
	"fmt"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Replay feeds recorded events to a new state machine. It returns the actions that the machine fired, in order, and the
// machine.
func Replay(p *plan.Plan, controllers []record.Controller, events []record.Event) ([]Fire, *Machine, error) {
	m, err := New(p, controllers)
	if err != nil {
		return nil, nil, err
	}
	var fires []Fire
	failed := map[call]plan.CallAnswer{} // the calls that the machine has made to fail
	take := func(effects []Effect) {
		for _, e := range effects {
			switch e := e.(type) {
			case Fire:
				fires = append(fires, e)
			case Release:
				if e.Fail != nil {
					o := events[e.Seq-1].Observation
					failed[call{o.Session, o.Call}] = e.Fail.Answer
				}
			}
		}
	}
	take(m.Start())
	for i, e := range events {
		if e.Seq != i+1 {
			return nil, nil, missing(i, e)
		}
		take(m.Step(e))
		if o := e.Observation; o != nil && o.Failed != "" {
			if answer := failed[call{o.Session, o.Call}]; string(answer) != string(o.Failed) {
				return nil, nil, fmt.Errorf(
					"event %d says that the plan made a call fail (%s), but in the replay it does not", i+1, o.Failed)
			}
		}
	}
	return fires, m, nil
}

func missing(i int, e record.Event) error {
	return fmt.Errorf("event %d of the record has number %d: events are missing", i+1, e.Seq)
}

// CompareReplay returns an error about the first difference between what a replay fired and what the run did. An action
// that fired but did not complete before the run ended is not in the record's actions; that is not a difference.
func CompareReplay(fires []Fire, did []record.Action) error {
	byIndex := map[int]record.Action{}
	for _, a := range did {
		byIndex[a.Index] = a
	}
	fired := map[int]bool{}
	for _, f := range fires {
		fired[f.Action] = true
		if a, ok := byIndex[f.Action]; ok && a.FiredBy != f.FiredBy {
			return fmt.Errorf("action %d was fired by event %d, but in the replay by event %d", f.Action+1, a.FiredBy,
				f.FiredBy)
		}
	}
	for _, a := range did {
		if !fired[a.Index] {
			return fmt.Errorf("action %d was fired by event %d, but not in the replay", a.Index+1, a.FiredBy)
		}
	}
	return nil
}
