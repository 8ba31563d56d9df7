package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
)

// plain is a cluster that can do nothing.
type plain struct{ Cluster }

// able is a cluster with a clock, which is ill for a reason.
type able struct {
	Cluster
	Timekeeper
	clock *clock.Clock
	ill   string
	ahead map[string]time.Duration
}

func (a *able) Clock() *clock.Clock         { return a.clock }
func (a *able) Ails(context.Context) string { return a.ill }

func (a *able) Skew(controller string, by time.Duration) (before time.Duration, err error) {
	before, a.ahead[controller] = a.ahead[controller], by
	return before, nil
}

func TestCapabilities(t *testing.T) {
	if can := CapabilitiesOf(plain{}); can != (Capabilities{}) || can.ProcessNode() != nil || can.Clock() != nil {
		t.Errorf("a cluster without capabilities can %+v", can)
	}
	one := &able{clock: clock.New()}
	can := CapabilitiesOf(one)
	if can.Timekeeper != Timekeeper(one) || can.Ailing != Ailing(one) || can.Clock() != one.clock || can.Shared != nil {
		t.Errorf("%+v", can)
	}
}

func TestCapabilitiesOfGroup(t *testing.T) {
	east := &able{clock: clock.New(), ahead: map[string]time.Duration{}}
	west := &able{clock: clock.New(), ahead: map[string]time.Duration{}, ill: "the disk is full"}
	group := NewGroup([]string{"east", "west"}, map[string]Cluster{"east": east, "west": west},
		map[string]string{"copier": "west"})
	can := CapabilitiesOf(group)
	if can.Clock() != east.clock {
		t.Error("the first cluster does not keep the time")
	}
	if _, err := can.Timekeeper.Skew("copier", time.Minute); err != nil || west.ahead["copier"] != time.Minute {
		t.Errorf("the clock of another cluster is ahead: %v, %v (%v)", east.ahead, west.ahead, err)
	}
	if why := can.Ailing.Ails(t.Context()); why != west.ill {
		t.Errorf("ill because %q", why)
	}
	none := CapabilitiesOf(NewGroup([]string{"east"}, map[string]Cluster{"east": plain{}}, nil))
	if none.Timekeeper != nil || none.Listener != nil || none.Ailing.Ails(t.Context()) != "" {
		t.Errorf("a group of clusters without capabilities can %+v", none)
	}
}
