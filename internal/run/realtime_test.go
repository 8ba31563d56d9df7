package run

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/trommel-dev/trommel/instrumentation/points"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/internal/run/clusters"
	"github.com/trommel-dev/trommel/plan"
)

// A run in real time says why.
func TestWhyTimeIsReal(t *testing.T) {
	executable := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	with, without := executable("with", points.ClockMarker), executable("without", "")
	plain := &plan.Plan{}
	disrupting := &plan.Plan{Actions: []plan.Action{{Type: plan.Disrupt, Disrupting: plan.Disrupting{
		Disruption: map[string]any{"name": "d"},
	}}}}
	cycling := &plan.Plan{Actions: []plan.Action{{Type: plan.CycleNodes}}}
	for _, tt := range []struct {
		name                     string
		time                     plan.Time
		plan                     *plan.Plan
		controller, controlPlane string
		want                     string
	}{
		{"a clock of its own", "", plain, with, with, ""},
		{"any plan", "", nil, with, with, ""},
		{"as the suite says", plan.RealTime, plain, with, with, "time: real"},
		{"disruptions", "", disrupting, with, with,
			"the controllers of disruptions, and the injectors, live in real time"},
		{"cycles of nodes", "", cycling, with, with, ""},
		{"the control plane", "", plain, with, without, "the control plane cannot be given another clock"},
		{"a controller", "", plain, without, with, "the executable of db cannot be given another clock"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &Session{
				suite:    &plan.Suite{Time: tt.time, Controllers: []plan.Controller{{Name: "db"}}},
				binaries: []builds.Binary{{Path: tt.controller}}, controlPlane: tt.controlPlane,
			}
			if got := s.realTime(tt.plan); got != tt.want {
				t.Errorf("real, because %q, want %q", got, tt.want)
			}
		})
	}
	own, shared := &clusters.Own{}, &clusters.Shared{}
	for _, tt := range []struct {
		name     string
		clusters clusters.Source
		session  string
		clock    *clock.Clock
		want     string
	}{
		{"a clock of its own", own, "", clock.New(), ""},
		{"the session's reason", own, "time: real", nil, "time: real"},
		{"a cluster of others", shared, "", nil, "the cluster was there before the run"},
		{"no clock after all", own, "", nil,
			"a cluster of this type, or on this system, cannot have a clock of its own"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &runner{task: task{clusters: tt.clusters, realTime: tt.session}}
			if got := r.whyRealTime(tt.clock); got != tt.want {
				t.Errorf("real, because %q, want %q", got, tt.want)
			}
		})
	}
}

func TestStartAfterClose(t *testing.T) {
	s := &Session{suite: new(plan.Suite), options: Options{Progress: progress.Nobody}, clusters: &clusters.Own{}}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}
