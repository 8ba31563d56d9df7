package run

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// planned is a plan that a test makes go on.
type planned struct {
	mu      sync.Mutex
	status  coordinator.Status // guarded by mu while time passes
	changed chan struct{}
	endErr  error
	done    []string
}

func (p *planned) Status(context.Context) (coordinator.Status, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := p.status
	status.Now = time.Now()
	return status, nil
}

func (p *planned) Changed(context.Context) (<-chan struct{}, error) { return p.changed, nil }

func (p *planned) End(context.Context) error {
	p.done = append(p.done, "end")
	return p.endErr
}

func (p *planned) Undo(ctx context.Context) error {
	if _, bounded := ctx.Deadline(); bounded {
		p.done = append(p.done, "undo")
	}
	return nil
}

// rolling are cycles of nodes.
type rolling struct {
	what string
	at   time.Time
}

func (r rolling) Conclude(context.Context) []record.Finding {
	return []record.Finding{{Title: "cycle"}}
}
func (r rolling) Blocked() string      { return r.what }
func (r rolling) Disturbed() time.Time { return r.at }

func TestCourseAwait(t *testing.T) {
	for _, test := range []struct {
		name     string
		status   coordinator.Status
		complete time.Duration // when the last action completes; 0: never
		timeout  time.Duration
		stuck    string
		took     time.Duration
	}{
		{name: "complete", status: coordinator.Status{Completed: 1, Total: 1}},
		{name: "complete later", status: coordinator.Status{Total: 1}, complete: 7 * time.Second,
			took: 7 * time.Second},
		{name: "nothing happens", status: coordinator.Status{Total: 1}, took: 10 * time.Second,
			stuck: "the workload is finished and nothing that the plan observes has happened since"},
		{name: "it waits for a time", status: coordinator.Status{Total: 1, OnItsWay: true}, complete: time.Minute,
			took: time.Minute},
		{name: "no time is left", status: coordinator.Status{Total: 1, OnItsWay: true}, timeout: time.Minute,
			stuck: "too long", took: time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				p := &planned{status: test.status, changed: make(chan struct{})}
				if test.complete > 0 {
					time.AfterFunc(test.complete, func() {
						p.mu.Lock()
						defer p.mu.Unlock()
						p.status.Completed = p.status.Total
						close(p.changed)
					})
				}
				ctx := t.Context()
				if test.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeoutCause(ctx, test.timeout, errors.New("too long"))
					defer cancel()
				}
				c := &course{plan: p, stuckAfter: 10 * time.Second}
				stuck, err := c.await(ctx, start)
				if err != nil || stuck != test.stuck || time.Since(start) != test.took {
					t.Errorf("%q, %v after %s", stuck, err, time.Since(start))
				}
			})
		})
	}
}

func TestCourseBlocked(t *testing.T) {
	session := record.Finding{Judge: record.JudgeSession, Title: "db was not observed"}
	for _, test := range []struct {
		name   string
		status coordinator.Status
		cycle  string
		want   string
	}{
		{name: "nothing"},
		{name: "held", status: coordinator.Status{Stuck: "db is held"}, cycle: "rolls", want: "db is held"},
		{name: "killed, too", status: coordinator.Status{Stuck: "db is held", Down: []string{"apiserver-1"}},
			want: "db is held; the plan has killed apiserver-1 and not started it again"},
		{name: "not observed", status: coordinator.Status{Findings: []record.Finding{{Title: "other"}, session}},
			cycle: "rolls", want: "db was not observed"},
		{name: "a cycle", cycle: "rolls", want: "rolls"},
	} {
		c := &course{plan: &planned{status: test.status}, addons: rolling{what: test.cycle}}
		if got := c.blocked(t.Context()); got != test.want || c.why != test.want {
			t.Errorf("%s: %q, kept %q, want %q", test.name, got, c.why, test.want)
		}
	}
}

// An object that the plan has deleted and is to create again may be missing.
func TestCourseRenews(t *testing.T) {
	key := plan.ResourceKey{Type: "job", Group: "batch", Namespace: "default", Name: "a"}
	deletes := plan.Action{Type: plan.DeleteObject, Own: plan.OwnFields(plan.DeleteObject)}
	deletes.ResourceKey = key
	creates := plan.Action{Type: plan.ApplyObject, Own: plan.OwnFields(plan.ApplyObject)}
	creates.Manifest = map[string]any{"kind": "Job", "metadata": map[string]any{"name": "a", "namespace": "default"}}
	for _, test := range []struct {
		name             string
		actions          []plan.Action
		fired, completed int
		want             bool
	}{
		{"not yet deleted", []plan.Action{deletes, creates}, 0, 0, false},
		{"being deleted", []plan.Action{deletes, creates}, 1, 0, true},
		{"deleted", []plan.Action{deletes, creates}, 1, 1, true},
		{"being created", []plan.Action{deletes, creates}, 2, 1, true},
		{"created", []plan.Action{deletes, creates}, 2, 2, false},
		{"for good", []plan.Action{deletes}, 1, 0, false},
	} {
		p := &planned{status: coordinator.Status{
			Fired: test.fired, Completed: test.completed, Total: len(test.actions),
		}}
		c := &course{plan: p, actions: test.actions}
		if got := c.renewing(t.Context(), key); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
		key := key
		if key.Name = "b"; c.renewing(t.Context(), key) {
			t.Errorf("%s: another object is renewed", test.name)
		}
	}
}

// The plan ends once, and what has failed is tried again.
func TestCourseEnds(t *testing.T) {
	p := &planned{endErr: errors.New("not now")}
	var found []record.Finding
	c := &course{plan: p, addons: rolling{}, add: func(f ...record.Finding) { found = append(found, f...) }}
	if err := c.letGo(t.Context()); err == nil || found != nil {
		t.Errorf("%v, findings %v", err, found)
	}
	p.endErr = nil
	for range 2 {
		if err := c.letGo(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if want := []string{"end", "end", "undo"}; !slices.Equal(p.done, want) || len(found) != 2 {
		t.Errorf("done %q, want %q; %d findings", p.done, want, len(found))
	}
}

func TestCourseDisturbed(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	for _, test := range []struct{ action, cycle, postponed, want time.Time }{
		{}, {action: early, want: early}, {action: early, cycle: late, want: late},
		{action: late, cycle: early, want: late}, {action: early, postponed: late, want: late},
	} {
		c := &course{
			addons:     rolling{at: test.cycle},
			lastAction: func() time.Time { return test.action },
			postponed:  func() time.Time { return test.postponed },
		}
		if got := c.disturbed(); !got.Equal(test.want) {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
}
