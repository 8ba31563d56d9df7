package addons

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/simulated"
	"github.com/trommel-dev/trommel/plan"
)

func request(phase nodes.RequestPhase, reason string) *nodes.CycleNodeRequest {
	return &nodes.CycleNodeRequest{Status: nodes.CycleNodeRequestStatus{Phase: phase, Reason: reason}}
}

// TestCycleIsReached shows for which states of the request an action cycleNodes waits. An error is the plan's or the
// cycle's fault, never that of a controller under test.
func TestCycleIsReached(t *testing.T) {
	var (
		pending    = request(nodes.RequestPending, "")
		scaling    = request(nodes.RequestScalingUp, "")
		successful = request(nodes.RequestSuccessful, "")
		failed     = request(nodes.RequestFailed, "no group")
	)
	for _, test := range []struct {
		name   string
		action plan.Action
		seen   []*nodes.CycleNodeRequest
		done   bool
		err    string
		note   string
	}{
		{name: "nothing yet"},
		{name: "new", seen: []*nodes.CycleNodeRequest{request("", "")}},
		{name: "accepted", seen: []*nodes.CycleNodeRequest{pending}, done: true},
		{name: "a later phase first", seen: []*nodes.CycleNodeRequest{scaling}, done: true},
		{name: "failed at once", seen: []*nodes.CycleNodeRequest{failed}, done: true,
			err: "it failed: no group (acceptFailure: true allows that)"},
		{name: "may fail", action: plan.Action{Cycling: plan.Cycling{AcceptFailure: true}},
			seen: []*nodes.CycleNodeRequest{failed}, done: true,
			note: "began a cycle that has failed already: no group"},
		{name: "to fail", action: plan.Action{Cycling: plan.Cycling{AcceptFailure: true, WaitFor: plan.CycleFailed}},
			seen: []*nodes.CycleNodeRequest{pending, failed}, done: true},
		{name: "not in the phase yet", action: plan.Action{Cycling: plan.Cycling{WaitFor: plan.CycleScalingUp}},
			seen: []*nodes.CycleNodeRequest{pending}},
		{name: "in the phase before", action: plan.Action{Cycling: plan.Cycling{WaitFor: plan.CycleScalingUp}},
			seen: []*nodes.CycleNodeRequest{scaling, successful}, done: true},
		{name: "over without the phase", action: plan.Action{Cycling: plan.Cycling{WaitFor: plan.CycleScalingUp}},
			seen: []*nodes.CycleNodeRequest{pending, successful}, done: true,
			err: "it is Successful and was not seen in the phase ScalingUp"},
		{name: "deleted", seen: []*nodes.CycleNodeRequest{pending, nil}, done: true,
			err: "another client has deleted it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			one := &cycle{action: &test.action, ended: make(chan struct{}), changed: make(chan struct{})}
			for _, r := range test.seen {
				if _, err := one.see(r); err != nil {
					t.Fatal(err)
				}
			}
			done, err := one.reached()
			text := ""
			if err != nil {
				text = err.Error()
			}
			if done != test.done || text != test.err {
				t.Errorf("done %t, error %q; want %t, %q", done, text, test.done, test.err)
			}
			if note := one.note(); note != test.note && test.err == "" {
				t.Errorf("note %q, want %q", note, test.note)
			}
		})
	}
}

// A cycle is given up when nothing changes, not when it takes long.
func TestCycleStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := &cycle{action: &plan.Action{}, ended: make(chan struct{}), changed: make(chan struct{}), at: time.Now()}
		go func() {
			for range 5 {
				time.Sleep(40 * time.Second)
				_, _ = one.see(request(nodes.RequestScalingUp, ""))
			}
		}()
		start := time.Now()
		err := one.await(t.Context(), time.Minute, func() (bool, error) { return false, nil })
		if err == nil || err.Error() != "nothing has changed for 1m0s (timeouts.step); it is ScalingUp" {
			t.Error(err)
		}
		if took := time.Since(start); took != 260*time.Second {
			t.Errorf("gave up after %s", took)
		}
	})
}

// The end of the run ends the wait, and says what the cycle was doing.
func TestCycleWaitIsInterrupted(t *testing.T) {
	one := &cycle{action: &plan.Action{}, ended: make(chan struct{}), changed: make(chan struct{}), at: time.Now()}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("over"))
	err := one.await(ctx, time.Minute, func() (bool, error) { return false, nil })
	if err == nil || err.Error() != "over; it is new" {
		t.Error(err)
	}
}

// A cycle with a group of its own selects the group's nodes by the label that they have.
func TestPlansKnowTheLabelOfSimulatedNodes(t *testing.T) {
	c := plan.Cycle{"name": "roll", "simulatedGroup": map[string]any{"desiredCapacity": 3}}
	selector, _ := c.Spec()["selector"].(map[string]any)
	labels, _ := selector["matchLabels"].(map[string]any)
	if labels[simulated.LabelGroup] != "roll" {
		t.Errorf("selector %v", selector)
	}
}

// What the plan leaves behind is waited for; what stands still or did not end as the plan says is a finding, which says
// nothing about the controllers under test.
func TestCyclesConclude(t *testing.T) {
	for _, test := range []struct {
		name   string
		states shown[nodes.CycleNodeRequest]
		begin  string // the error of the action
		want   string // the finding
		told   []string
	}{
		{name: "successful", states: shown[nodes.CycleNodeRequest]{
			request(nodes.RequestPending, ""), request(nodes.RequestSuccessful, ""),
		}, told: []string{"apply roll"}},
		{name: "failed later", states: shown[nodes.CycleNodeRequest]{
			request(nodes.RequestPending, ""), request(nodes.RequestFailed, "no group"),
		}, want: "cycle roll: it failed: no group (acceptFailure: true allows that)", told: []string{"apply roll"}},
		{name: "stands still", states: shown[nodes.CycleNodeRequest]{request(nodes.RequestScalingUp, "")},
			want: "cycle roll: it did not end: nothing has changed for 1m0s (timeouts.step); it is ScalingUp",
			told: []string{"apply roll", "delete cyclenoderequest.nodes.trommel.dev/default/roll"}},
		{name: "deleted while it waits", states: shown[nodes.CycleNodeRequest]{request(nodes.RequestPending, ""), nil},
			want: "cycle roll: another client has deleted it", told: []string{"apply roll"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := new(calls)
				in := func(string) followedCluster[nodes.CycleNodeRequest] {
					return followedCluster[nodes.CycleNodeRequest]{to, slowly(test.states)}
				}
				c := &cycles{in: in, step: time.Minute}
				if c.blocked() != "" || !c.disturbed().IsZero() || c.conclude(t.Context()) != nil {
					t.Error("there is a cycle before there was one")
				}
				_, err := c.Begin(t.Context(), &plan.Action{Type: plan.CycleNodes, Cycling: plan.Cycling{
					Cycle: map[string]any{"name": "roll", "namespace": "default", "simulatedGroup": map[string]any{}},
				}})
				if err != nil {
					t.Fatal(err)
				}
				findings := c.conclude(t.Context())
				title := ""
				for _, f := range findings {
					title += f.Title
				}
				if title != test.want || !slices.Equal(to.told, test.told) {
					t.Errorf("found %q, want %q; %q", title, test.want, to.told)
				}
				if again := c.conclude(t.Context()); again != nil {
					t.Errorf("told again: %v", again)
				}
				if err := c.close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// slowly shows a state each second.
func slowly(states shown[nodes.CycleNodeRequest]) follows[nodes.CycleNodeRequest] {
	return func(
		ctx context.Context, key plan.ResourceKey, see func(*nodes.CycleNodeRequest) (bool, error),
	) error {
		return states.follow(ctx, key, func(o *nodes.CycleNodeRequest) (bool, error) {
			time.Sleep(time.Second)
			return see(o)
		})
	}
}
