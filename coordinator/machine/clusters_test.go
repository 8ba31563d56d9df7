package machine

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// The same object may be in several clusters.
func TestObservationsOfSeveralClusters(t *testing.T) {
	write := func(cluster string, phase wire.Phase, seq int) record.Event {
		return record.Event{Seq: seq, Observation: &record.Observation{
			By: "copier", Cluster: cluster, Session: 1, Call: uint64(seq), Point: wire.ControllerWrite, Phase: phase,
			Op: wire.Create, Kind: "configmap", GroupKnown: true, Namespace: "default", Name: "a",
			Object: json.RawMessage(`{"metadata":{"name":"a"}}`),
		}}
	}
	written := plan.Trigger{Expression: "written", Graph: mustGraph(t, "written"), Definitions: []plan.Definition{{
		Name: "written", Condition: plan.Condition{Type: plan.OnObjectCreation, Repeat: 1,
			ResourceKey: plan.ResourceKey{Type: "configmap", Namespace: "default", Name: "a"}},
		Observe: plan.ObservationPoint{Timing: plan.AfterControllerWrite, ObserveBy: "copier", Cluster: "west"},
	}}}
	pause := plan.Action{Type: plan.PauseController, Target: "copier", Cluster: "west", Async: true,
		Pausing: plan.Pausing{PauseAt: plan.BeforeControllerWrite, PauseScope: plan.MustScope("configmap/default/a")},
		Trigger: written}
	m, err := New(&plan.Plan{Actions: []plan.Action{pause}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Start()
	var got []string
	step := func(e record.Event) {
		for _, effect := range m.Step(e) {
			switch effect := effect.(type) {
			case Fire:
				got = append(got, "fire")
			case Hold:
				got = append(got, "hold "+e.Observation.Cluster)
			case Release:
				if e.Observation != nil && effect.Seq == e.Seq {
					got = append(got, "release "+e.Observation.Cluster)
				}
			}
		}
	}
	step(write("east", wire.After, 1))
	step(write(record.UnknownCluster, wire.After, 2))
	step(write("west", wire.After, 3))
	action := 0
	step(record.Event{Seq: 4, Began: &action})
	step(record.Event{Seq: 5, Completed: &action})
	step(write("east", wire.Before, 6))
	step(write("west", wire.Before, 7))
	step(write(record.UnknownCluster, wire.Before, 8))
	want := []string{
		"release east", "release ?", "fire", "release west", "release east", "hold west", "hold ?",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A paused API server of another cluster shows the past to a controller that is connected to it, and only of objects of
// its own cluster.
func TestStalenessOfAnotherCluster(t *testing.T) {
	pauseAPI := plan.Action{Type: plan.PauseAPIServer, Target: "west/apiserver-1", Cluster: "west",
		Pausing: plan.Pausing{PauseScope: plan.MustScope("pod/default/a")}, Trigger: trigger(t, "now", "now@none")}
	copier := record.Controller{Name: "copier", Hooks: true, Cluster: "east", APIServer: "east/apiserver-1",
		Remotes: []string{"west/apiserver-1"}}
	in := func(cluster string) func(*record.Observation) {
		return func(o *record.Observation) { o.Cluster = cluster }
	}
	for _, tt := range []struct {
		name    string
		remotes []string
		moved   string // where to, with its connections cut
		cluster string
		want    string
	}{
		{"of that cluster", copier.Remotes, "", "west",
			"copier read pod/default/a at version 5, while west/apiserver-1 held back its update at version 10"},
		{"of its own cluster", copier.Remotes, "", "east", ""},
		{"of nobody knows which", copier.Remotes, "", record.UnknownCluster, ""},
		{"not connected", nil, "", "west", ""},
		{"moved away", copier.Remotes, "west/apiserver-2", "west", ""},
		{"moved there", []string{"west/apiserver-2"}, "west/apiserver-1", "west",
			"copier read pod/default/a at version 5, while west/apiserver-1 held back its update at version 10"},
		{"moved in its own cluster", copier.Remotes, "east/apiserver-2", "west",
			"copier read pod/default/a at version 5, while west/apiserver-1 held back its update at version 10"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := copier
			c.Remotes = tt.remotes
			if tt.moved == "" {
				tt.moved = c.APIServer
			}
			move := plan.Action{Type: plan.ReconnectController, Target: "copier", Trigger: pauseAPI.Trigger,
				Reconnecting: plan.Reconnecting{ReconnectAPIServer: tt.moved,
					ReconnectBy: plan.ReconnectCut}}
			m, err := New(&plan.Plan{Actions: []plan.Action{pauseAPI, move}}, []record.Controller{c})
			if err != nil {
				t.Fatal(err)
			}
			m.Start()
			for i, e := range []record.Event{
				began(0), completed(0), began(1), completed(1),
				observed("west/apiserver-1", 1, wire.APIServerRecv, wire.Before, wire.Update, 10, in("west")),
				observed("copier", 2, wire.ControllerRead, wire.After, wire.Get, 5, in(tt.cluster)),
			} {
				e.Seq = i + 1
				m.Step(e)
			}
			got := ""
			for _, r := range m.StaleReads() {
				got += r.String()
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
