package facts

import (
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

// A controller is away from its end until its successor begins to work, and has had the time that it needs. One that
// does nothing had its chance at some time, too.
func TestAway(t *testing.T) {
	at := func(s float64) time.Time { return time.UnixMilli(int64(s * 1000)) }
	run := func(acts float64, lease time.Duration) *Follower {
		r := &record.Run{Meta: record.Meta{
			Controllers: []record.Controller{{Name: "op", Hooks: true, LeaseLasts: lease}}, Observed: at(100),
		}}
		r.Processes = []record.Process{
			{Controller: "op", Started: at(20)}, {Controller: "op", Started: at(0), Ended: at(10)},
			{Controller: "other", Started: at(0)},
		}
		if acts > 0 {
			for i, o := range []record.Observation{
				{By: "op", Point: wire.ControllerWrite}, {By: "op", Point: wire.ControllerWrite, Election: true},
				{By: "other", Point: wire.Reconcile}, {By: "op", Point: wire.ControllerRecv},
				{By: "op", Point: wire.Reconcile},
			} {
				when := at(acts - 0.1)
				if i == 0 {
					when = at(5)
				} else if i == 4 {
					when = at(acts)
				}
				r.Events = append(r.Events, record.Event{Time: when, Observation: &o})
			}
		}
		f, err := Follow(r)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	// The former build is at work for a while after the new one has started, in session 1.
	upgraded := func(acts float64) *Follower {
		r := &record.Run{
			Meta: record.Meta{
				Controllers: []record.Controller{{Name: "op", LeaseLasts: 15 * time.Second}}, Observed: at(100),
			},
			Actions: []record.Action{{Upgrade: "the build v2", Began: at(10)}},
			Processes: []record.Process{
				{Controller: "op", Started: at(0), Ended: at(14)}, {Controller: "op", Started: at(11)},
			},
		}
		for _, w := range []struct {
			session uint64
			at      float64
		}{{1, 5}, {1, 13}, {2, acts}} {
			o := &record.Observation{By: "op", Point: wire.Reconcile, Session: w.session}
			if w.at > 0 {
				r.Events = append(r.Events, record.Event{Time: at(w.at), Observation: o})
			}
		}
		f, err := Follow(r)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, tt := range []struct {
		name       string
		run        *Follower
		controller string
		at         float64
		needs      time.Duration
		want       bool
	}{
		{"there", run(21, 0), "op", 9.9, time.Minute, false},
		{"down", run(21, 0), "op", 10, 0, true},
		{"started", run(21, 0), "op", 20.95, 0, true},
		{"acts", run(21, 0), "op", 21, 0, false},
		{"has just begun", run(21, 0), "op", 21.9, time.Second, true},
		{"has had its time", run(21, 0), "op", 22, time.Second, false},
		{"never acts", run(0, 0), "op", 49, 0, true},
		{"never acted", run(0, 0), "op", 50, 0, false},
		{"perhaps waits for a lease", run(0, 15*time.Second), "op", 64, 0, true},
		{"acts too late", run(60, 0), "op", 51, 0, false},
		{"with the former build", upgraded(20), "op", 1, 0, true},
		{"while the former build is at work", upgraded(20), "op", 13.5, 0, true},
		{"with the new build", upgraded(20), "op", 20, 0, false},
		{"with both builds at work", upgraded(12), "op", 12, 0, false},
		{"the new build perhaps waits for the lease", upgraded(0), "op", 58, 0, true},
		{"the new build never acted", upgraded(0), "op", 59, 0, false},
		{"another controller", run(21, 0), "other", 15, time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.run.Away(tt.controller, at(tt.at), tt.needs); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// A late watch event shows a change at a time when others, made after it, were seen already.
func TestLifeHasChange(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	change := func(key string, event string, version uint64, second int) Change {
		return Change{Key: Key(key), Event: event, Version: version, Time: at(second)}
	}
	owner := change("set/default/web", record.Created, 10, 1)
	lives := Lives([]Change{owner, change("set/default/web", record.Deleted, 20, 9)}, owner.Key)
	if len(lives) != 1 {
		t.Fatalf("lives: %v", lives)
	}
	for _, tt := range []struct {
		name string
		c    Change
		want bool
	}{
		{"made after the end, seen before it", change("pod/default/a", record.Created, 21, 5), false},
		{"made before the end, seen after it", change("pod/default/a", record.Created, 19, 30), true},
		{"made before the beginning, seen after it", change("pod/default/a", record.Created, 9, 5), false},
		{"in another cluster, by the time", change("west: pod/default/a", record.Created, 90, 5), true},
		{"without a version, by the time", change("pod/default/a", record.Created, 0, 30), false},
	} {
		if got := lives[0].HasChange(&tt.c); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if still := Lives([]Change{owner}, owner.Key)[0]; !still.HasChange(&Change{Key: owner.Key, Version: 11}) {
		t.Error("it has not ended")
	}
}
