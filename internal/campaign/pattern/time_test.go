package pattern

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// at puts a change at a time after the workload's begin.
func at(after time.Duration, c facts.Change) facts.Change {
	c.Time = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(after)
	return c
}

// timed is a baseline with a clock of its own, of a workload whose steps began at these times and that ended then.
func timed(ended time.Duration, began []time.Duration, runs ...[]facts.Change) *baseline.Baseline {
	ref := baselines(runs...)
	ref.Virtual = true
	for range runs {
		course := facts.Course{Ended: at(ended, facts.Change{}).Time}
		for _, b := range began {
			course.Steps = append(course.Steps, record.Step{Started: at(b, facts.Change{}).Time})
		}
		ref.Courses = append(ref.Courses, course)
	}
	return ref
}

func asJSON(state any) string {
	data, err := json.Marshal(state)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// strikes describes the generated plans, a line each, in the order of the text.
func strikes(all []Candidate) []string {
	var lines []string
	for _, c := range all {
		if c.Plan == nil {
			lines = append(lines, "dropped: "+c.Dropped)
			continue
		}
		var parts []string
		for _, a := range c.Plan.Actions {
			said := []string{string(a.Type)}
			if advance := plan.EffectOf[*plan.Advance](&a); advance != nil {
				said = append(said, advance.By.String())
			}
			for _, d := range a.Trigger.Definitions {
				if d.Condition.Type == plan.OnTimeout {
					said = append(said, d.Condition.Timeout.String())
				} else {
					text := string(d.Condition.Type) + " " + d.Condition.ResourceKey.String()
					if d.Condition.CurState != nil {
						text += " " + asJSON(d.Condition.CurState)
					}
					said = append(said, text+" "+string(d.Observe.Timing))
				}
			}
			parts = append(parts, strings.Join(said, ", "))
		}
		lines = append(lines, strings.Join(parts, " / "))
	}
	slices.Sort(lines)
	return lines
}

func TestWhatIsDue(t *testing.T) {
	const s = time.Second
	database := change("", "", db, record.Created, nil, spec(2))
	created := change("op", wire.Create, key, record.Created, nil, object{})
	deleted := change("op", wire.Delete, key, record.Deleted, object{}, nil)
	ended := []facts.Change{at(0, database), at(s/10, created), at(20*s, deleted)}
	const (
		killed  = "onObjectCreation secret/default/db afterControllerWrite, "
		writing = "onObjectCreation secret/default/db beforeControllerWrite"

		overtaken = "dropped: something else happens before a controller would be done that counts the time anew"
	)
	resource, err := plan.ParseResourceKey(string(key))
	if err != nil {
		t.Fatal(err)
	}
	wait := func(timeout time.Duration) plan.Step {
		return plan.Step{Wait: &plan.WaitStep{ResourceKey: resource, Absent: true, Timeout: timeout}}
	}
	for _, tt := range []struct {
		name  string
		steps []plan.Step
		began []time.Duration
		ends  time.Duration
		runs  [][]facts.Change
		want  []string
	}{
		{
			"a deletion after 20 s", []plan.Step{{Sleep: s}}, []time.Duration{0}, s,
			[][]facts.Change{ended}, []string{
				"killController, " + killed + "16.9s / startController, 5s",
				"pauseController, " + writing + " / resumeController, 21.9s",
				"restartController, " + killed + "16.9s",
			},
		},
		{
			"not at the same time in each run", []plan.Step{{Sleep: s}}, []time.Duration{0}, s,
			[][]facts.Change{ended, {ended[0], ended[1], at(22*s, deleted)}}, []string{
				"killController, " + killed + "16.9s / startController, 7s",
				"pauseController, " + writing + " / resumeController, 23.9s",
				"restartController, " + killed + "16.9s",
			},
		},
		{
			"soon", []plan.Step{{Sleep: s}}, []time.Duration{0}, s,
			[][]facts.Change{{ended[0], ended[1], at(2*s+s/10, deleted)}}, []string{
				"killController, " + killed + "1s / startController, 3s",
				"pauseController, " + writing + " / resumeController, 4s",
				"restartController, " + killed + "1s",
			},
		},
		{
			"after several minutes", []plan.Step{{Sleep: s}}, []time.Duration{0}, s,
			[][]facts.Change{{ended[0], at(s/2, created), at(200*s, deleted)}}, []string{
				"advanceTime, 3m14.5s, " + killed + "1s / killController, 1s / startController, 5s",
				"advanceTime, 3m14.5s, " + killed + "1s / restartController, 1s",
			},
		},
		{
			"longer than anybody waits if the time is counted anew", []plan.Step{{Sleep: s}}, []time.Duration{0}, s,
			[][]facts.Change{{ended[0], at(s/2, created), at(596*s, deleted)}}, []string{
				"dropped: a controller that counts the time anew would not be waited for that long",
				"dropped: a controller that counts the time anew would not be waited for that long",
			},
		},
		{
			"longer than the workload waits", []plan.Step{{Sleep: s}, wait(25 * s)}, []time.Duration{0, s}, 21 * s,
			[][]facts.Change{ended}, []string{
				"dropped: a controller that counts the time anew would be too late for a step of the workload",
				"dropped: a controller that counts the time anew would be too late for a step of the workload",
				"dropped: a controller that counts the time anew would be too late for a step of the workload",
			},
		},
		{
			"somebody else does something meanwhile", []plan.Step{{Sleep: s}}, []time.Duration{0}, s,
			[][]facts.Change{append(slices.Clone(ended), at(40*s, database))},
			[]string{overtaken, overtaken, overtaken},
		},
		{
			"because of it", []plan.Step{{Sleep: s}}, []time.Duration{0}, s,
			[][]facts.Change{{ended[0], ended[2], at(20*s+s/2, database)}}, []string{
				"killController, onObjectCreation database/default/db afterAPIServerRecv, 17s / startController, 5s",
				"restartController, onObjectCreation database/default/db afterAPIServerRecv, 17s",
			},
		},
		{
			"the workload goes on when it has slept", []plan.Step{{Sleep: s}, {Exec: &plan.ExecStep{}}},
			[]time.Duration{0, 40 * s}, 50 * s, [][]facts.Change{ended}, []string{overtaken, overtaken, overtaken},
		},
		{
			"the workload was over", []plan.Step{{Sleep: s}, wait(25 * s)}, []time.Duration{0, s}, 2 * s,
			[][]facts.Change{{ended[0], ended[2]}}, []string{
				"killController, onObjectCreation database/default/db afterAPIServerRecv, 17s / startController, 5s",
				"restartController, onObjectCreation database/default/db afterAPIServerRecv, 17s",
			},
		},
		{
			"a step of the workload may have set it off", []plan.Step{{Sleep: s}, {Exec: &plan.ExecStep{}}},
			[]time.Duration{0, 20*s - s/2}, 21 * s, [][]facts.Change{ended}, nil,
		},
		{
			"in one run only", []plan.Step{{Sleep: s}}, []time.Duration{0}, s,
			[][]facts.Change{ended, {ended[0], ended[1], at(s/5, deleted)}},
			[]string{"dropped: in another run without faults something happens right before it"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ref := timed(tt.ends, tt.began, tt.runs...)
			got := strikes(GenerateFor(suite(t), tt.steps, ref, "time"))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			ref.Virtual = false
			if got := strikes(GenerateFor(suite(t), tt.steps, ref, "time")); got != nil {
				t.Errorf("in real time, where a slow machine looks the same: %s", got)
			}
		})
	}
}

func TestWhatComesWhenTimeHasPassed(t *testing.T) {
	const day, s = 24 * time.Hour, time.Second
	database := change("", "", db, record.Created, nil, spec(2))
	token := func(from, to string) facts.Change {
		return change("op", wire.Update, key, record.Updated, object{"data": object{"token": from}},
			object{"data": object{"token": to}})
	}
	run := func(a, b, c string) []facts.Change {
		return []facts.Change{
			at(0, database), at(s, change("op", wire.Create, key, record.Created, nil, object{})),
			at(day+11*s, token(a, b)), at(2*day+20*s, token(b, c)),
		}
	}
	steps := []plan.Step{{Sleep: s}, {Sleep: 10 * s}, {AdvanceTime: day}, {Sleep: 10 * s}, {AdvanceTime: day}}
	began := []time.Duration{0, s, 11*s - 1, day + 11*s + 1, 2*day + 20*s - 1}
	// The values are random, so that triggers tell only which field changes.
	ref := timed(2*day+20*s, began, run("a", "b", "c"), run("d", "e", "f"))
	const (
		rotated = "onObjectUpdate secret/default/db {\"data\":{\"token\":\"$present\"}} "
		late    = "dropped: not as much time passes again: a controller that counts the time anew would be late"
	)
	once := GenerateFor(suite(t), steps, ref, "time")
	want := []string{
		late, late,
		"failCall, " + rotated + "beforeControllerWrite", "failCall, " + rotated + "beforeControllerWrite",
		"killController, onObjectCreation secret/default/db afterControllerWrite, 4.9s / startController, 8.1s",
		"restartController, " + rotated + "afterControllerWrite",
	}
	if diff := cmp.Diff(want, strikes(once)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, c := range once {
		if c.Plan != nil && (c.Plan.Workload != "" || len(c.Plan.Steps) != len(steps)) {
			t.Errorf("%s has not the workload's steps: %+v", c.Plan.TestName, c.Plan.Steps)
		}
	}
	// A controller looks again twice a day, so that it need not have so much time once more.
	ref.Polls = []record.Poll{{Controller: "op", Delay: day / 2}}
	steps[4].AdvanceTime = day / 2
	got := strikes(GenerateFor(suite(t), steps, ref, "time"))
	if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, "killController") }) {
		t.Errorf("%s", got)
	}
	// Where other steps follow, what comes may be due to them.
	steps[3] = plan.Step{Exec: &plan.ExecStep{}}
	began[3] = day + 11*s - 1
	ref = timed(day+11*s, began[:4], run("a", "b", "c")[:3])
	if got := strikes(GenerateFor(suite(t), steps[:4], ref, "time")); got != nil {
		t.Errorf("%s", got)
	}
}
