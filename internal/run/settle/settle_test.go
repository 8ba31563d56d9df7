package settle

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Regression: a controller that exited twice while its API server was killed was taken for one in a crash loop, and was
// judged before it had settled.
func TestEndsByItself(t *testing.T) {
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	actions := []record.Action{
		{Index: 0, Type: string(plan.KillAPIServer), Target: "apiserver-1", Began: at(10), Done: at(11)},
		{Index: 1, Type: string(plan.StartAPIServer), Target: "apiserver-1", Began: at(30), Done: at(33)},
	}
	p := &plan.Plan{Actions: []plan.Action{
		{Type: plan.KillAPIServer, Target: "apiserver-1"}, {Type: plan.StartAPIServer, Target: "apiserver-1"},
	}}
	s := &Controllers{Since: start, Away: func(controller string, at time.Time) string {
		under := []record.Controller{{Name: "db", APIServer: "apiserver-1"}}
		return judge.ServerAway(p, under, actions, 10*time.Second, controller, at)
	}}
	for _, test := range []struct {
		name      string
		processes []cluster.Process
		want      int
	}{
		{"while its API server was away", []cluster.Process{{Ended: at(20)}, {Ended: at(25)}, {}}, 0},
		{"with its API server there", []cluster.Process{{Ended: at(20)}, {Ended: at(60)}, {Ended: at(70)}}, 2},
		{"before the workload, and killed", []cluster.Process{{Ended: at(-1)}, {Ended: at(60), Planned: true}}, 0},
	} {
		for i := range test.processes {
			test.processes[i].Controller = "db"
		}
		if got := s.endsByItself(test.processes); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

// settler is a plan whose controllers settle after a time.
type settler struct {
	after time.Duration
	err   error
}

func (s settler) Settle(ctx context.Context, _ time.Duration) (restless string, err error) {
	select {
	case <-time.After(s.after):
		return "", s.err
	case <-ctx.Done():
		return "db reconciles", nil
	}
}

func (s settler) Stir(context.Context) error { return nil }

// ran are the processes of each controller.
type ran map[string][]cluster.Process

func (r ran) Status(_ context.Context, controller string) ([]cluster.Process, error) {
	return r[controller], nil
}

func TestSettling(t *testing.T) {
	failed := errors.New("the coordinator has ended")
	for _, test := range []struct {
		name    string
		plan    settler
		exits   int
		settled bool
		err     error
		note    string
		took    time.Duration
	}{
		{name: "at rest", plan: settler{after: 5 * time.Second}, settled: true, took: 5 * time.Second},
		{name: "never at rest", plan: settler{after: time.Hour}, took: time.Minute,
			note: "the controllers did not settle within 1m0s (timeouts.settle): db reconciles"},
		{name: "one exit", plan: settler{after: 5 * time.Second}, exits: 1, settled: true, took: 5 * time.Second},
		{name: "a crash loop", plan: settler{after: time.Hour}, exits: 2,
			note: "db keeps exiting; not waiting any longer for the controllers to settle"},
		{name: "an error", plan: settler{after: time.Second, err: failed}, err: failed, took: time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				ended := ran{}
				for range test.exits {
					ended["db"] = append(ended["db"], cluster.Process{Controller: "db", Ended: start.Add(1)})
				}
				var note string
				s := &Controllers{
					Plan: test.plan, Node: ended, Names: []string{"db"}, Since: start,
					Timeouts: plan.Timeouts{Settle: time.Minute, Quiet: time.Second},
					Away:     func(string, time.Time) string { return "" },
					Note:     func(text string) { note += text },
				}
				settled, err := s.Await(t.Context())
				if settled != test.settled || !errors.Is(err, test.err) || note != test.note {
					t.Errorf("settled %t, %v, noted %q", settled, err, note)
				}
				if took := time.Since(start); took != test.took {
					t.Errorf("took %s, want %s", took, test.took)
				}
			})
		})
	}
}

func TestStartup(t *testing.T) {
	for _, test := range []struct {
		name  string
		plan  settler
		usual time.Duration
		want  time.Duration // how long they took
		waits time.Duration
	}{
		{name: "nobody knows", plan: settler{after: 6 * time.Second}, want: 5 * time.Second, waits: 6 * time.Second},
		{name: "they do nothing", plan: settler{after: time.Second}, want: time.Millisecond, waits: time.Second},
		{name: "they never rest", plan: settler{after: time.Hour}, waits: time.Minute},
		{name: "as without faults", plan: settler{after: time.Second}, usual: 4 * time.Second, want: 4 * time.Second,
			waits: 5 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				s := &Controllers{
					Plan: test.plan, Timeouts: plan.Timeouts{Settle: time.Minute, Quiet: time.Second},
					Busy:   func(context.Context, time.Duration) bool { return false },
					Logger: slog.New(slog.DiscardHandler),
				}
				if got := s.Start(t.Context(), test.usual); got != test.want || time.Since(began) != test.waits {
					t.Errorf("took %s, want %s; waited for %s, want %s", got, test.want, time.Since(began), test.waits)
				}
			})
		})
	}
}
