package actions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/plan"
)

// journal only records what it is asked to do. It fails at the entry failAt.
type journal struct {
	entries []string
	failAt  string

	otherwise bool // killed processes were not running, started ones were
}

func (j *journal) note(format string, args ...any) error {
	entry := fmt.Sprintf(format, args...)
	j.entries = append(j.entries, entry)
	if entry == j.failAt {
		return errors.New("told to fail")
	}
	return nil
}

// state records an entry and returns the process's state before it.
func (j *journal) state(running bool, format string, args ...any) (bool, error) {
	return running != j.otherwise, j.note(format, args...)
}

func (j *journal) Kill(_ context.Context, c string) (bool, error) { return j.state(true, "kill %s", c) }
func (j *journal) Start(_ context.Context, c string) (bool, error) {
	return j.state(false, "start %s", c)
}
func (j *journal) KillAPIServer(_ context.Context, s string) (bool, error) {
	return j.state(true, "kill %s", s)
}
func (j *journal) StartAPIServer(_ context.Context, s string) (bool, error) {
	return j.state(false, "start %s", s)
}
func (j *journal) Freeze(_ context.Context, c string, pid int) error {
	return j.note("freeze %s %d", c, pid)
}
func (j *journal) Thaw(_ context.Context, c string, kill bool) (int, error) {
	frozen, err := j.state(true, "thaw %s %t", c, kill)
	if !frozen {
		return 0, err
	}
	return 1, err
}
func (j *journal) Route(_ context.Context, c, s string) error { return j.note("route %s to %s", c, s) }
func (j *journal) CutConnections(_ context.Context, c, s string) error {
	return j.note("cut %s from %s", c, s)
}
func (j *journal) ApplyFile(_ context.Context, file string) error { return j.note("apply %s", file) }
func (j *journal) Delete(_ context.Context, k plan.ResourceKey) error {
	return j.note("delete %s", k)
}
func (j *journal) Apply(_ context.Context, o map[string]any) error {
	return j.note("apply %v", o["kind"])
}
func (j *journal) Patch(_ context.Context, k plan.ResourceKey, subresource, typ string, patch any) error {
	return j.note("patch %s %q %q %v", k, subresource, typ, patch)
}

func (j *journal) Advance(by time.Duration) error { return j.note("advance %s", by) }
func (j *journal) Skew(c string, by time.Duration) (time.Duration, error) {
	skewed, err := j.state(true, "skew %s %s", c, by)
	if !skewed {
		return 0, err
	}
	return time.Second, err
}

func (j *journal) Disturb(_ context.Context, c, cluster string, delay time.Duration) error {
	return j.note("disturb %s to %s %s", c, cluster, delay)
}

func (j *journal) Restore(_ context.Context, c, cluster string) (bool, error) {
	return j.state(true, "restore %s to %s", c, cluster)
}

func (j *journal) Upgrade(_ context.Context, to string, how plan.UpgradeHow) error {
	return j.note("upgrade %s %s", to, how)
}
func (j *journal) Recover(context.Context) error { return j.note("recover") }

func TestActions(t *testing.T) {
	pod := plan.ResourceKey{Type: "pod", Namespace: "default", Name: "a"}
	for _, test := range []struct {
		action   plan.Action
		failAt   string
		do, undo string
	}{
		{action: plan.Action{Type: plan.RestartController, Target: "db"}, do: "kill db, start db"},
		{
			action: plan.Action{Type: plan.RestartController, Target: "db"}, failAt: "kill db",
			do: "kill db: told to fail", undo: "start db",
		},
		{action: plan.Action{Type: plan.KillController, Target: "db"}, do: "kill db", undo: "start db"},
		{action: plan.Action{Type: plan.StartController, Target: "db"}, do: "start db"},
		{
			action: plan.Action{Type: plan.ReconnectController, Target: "db",
				Reconnecting: plan.Reconnecting{ReconnectAPIServer: "apiserver-2", ReconnectBy: plan.ReconnectRestart}},
			do: "kill db, route db to apiserver-2, start db",
		},
		{
			action: plan.Action{Type: plan.ReconnectController, Target: "db",
				Reconnecting: plan.Reconnecting{ReconnectAPIServer: "apiserver-2", ReconnectBy: plan.ReconnectRestart}},
			failAt: "route db to apiserver-2",
			do:     "kill db, route db to apiserver-2: told to fail", undo: "start db",
		},
		{
			action: plan.Action{Type: plan.ReconnectController, Target: "db",
				Reconnecting: plan.Reconnecting{ReconnectAPIServer: "apiserver-2", ReconnectBy: plan.ReconnectCut}},
			do: "route db to apiserver-2, cut db from apiserver-2",
		},
		{action: plan.Action{Type: plan.FreezeController, Target: "db"}, do: "freeze db 7", undo: "thaw db false"},
		{
			action: plan.Action{Type: plan.FreezeController, Target: "db"}, failAt: "freeze db 7",
			do: "freeze db 7: told to fail", undo: "thaw db false",
		},
		{action: plan.Action{Type: plan.ThawController, Target: "db"}, do: "thaw db false"},
		{action: plan.Action{Type: plan.ThawController, Target: "db",
			Thawing: plan.Thawing{Kill: true}}, do: "thaw db true"},
		{action: plan.Action{Type: plan.PauseController}},
		{action: plan.Action{Type: plan.ResumeController}},
		{action: plan.Action{Type: plan.PauseAPIServer}},
		{action: plan.Action{Type: plan.ResumeAPIServer}},
		{action: plan.Action{Type: plan.KillAPIServer, Target: "apiserver-2"}, do: "kill apiserver-2",
			undo: "start apiserver-2"},
		{action: plan.Action{Type: plan.StartAPIServer, Target: "apiserver-2"}, do: "start apiserver-2"},
		{
			action: plan.Action{Type: plan.RestartAPIServer, Target: "apiserver-2"},
			do:     "kill apiserver-2, start apiserver-2", undo: "start apiserver-2",
		},
		{
			action: plan.Action{Type: plan.RestartAPIServer, Target: "apiserver-2"}, failAt: "kill apiserver-2",
			do: "kill apiserver-2: told to fail", undo: "start apiserver-2",
		},
		{action: plan.Action{Type: plan.ApplyObject,
			Writing: plan.Writing{Manifest: map[string]any{"kind": "Pod"}}}, do: "apply Pod"},
		{action: plan.Action{Type: plan.ApplyObject,
			Writing: plan.Writing{ManifestFile: "pod.yaml"}}, do: "apply pod.yaml"},
		{
			action: plan.Action{Type: plan.PatchObject,
				Writing: plan.Writing{ResourceKey: pod, PatchType: "merge", Subresource: "status", Patch: 1}},
			do: `patch pod/default/a "status" "merge" 1`,
		},
		{
			action: plan.Action{Type: plan.AdvanceTime, Own: &plan.Clocking{By: plan.Offset(time.Hour)}},
			do:     "advance 1h0m0s",
		},
		{
			action: plan.Action{Type: plan.SkewClock, Target: "db", Own: &plan.Clocking{By: plan.Offset(-time.Minute)}},
			do:     "skew db -1m0s", undo: "skew db 0s",
		},
		{
			action: plan.Action{Type: plan.SkewClock, Target: "db", Own: &plan.Clocking{By: plan.Offset(time.Minute)}},
			failAt: "skew db 1m0s", do: "skew db 1m0s: told to fail", undo: "skew db 0s",
		},
		{action: plan.Action{Type: plan.EndSkew, Target: "db"}, do: "skew db 0s"},
		{
			action: plan.Action{Type: plan.DisturbConnection, Target: "db", Cluster: "west",
				Own: &plan.Disturbing{Delay: time.Second}},
			do: "disturb db to west 1s", undo: "restore db to west",
		},
		{
			action: plan.Action{Type: plan.RestoreConnection, Target: "db", Cluster: "west"},
			do:     "restore db to west",
		},
		{
			action: plan.Action{Type: plan.Upgrade, Own: &plan.Upgrading{To: "v2", How: plan.UpgradeKill}},
			do:     "upgrade v2 kill", undo: "recover",
		},
		{
			action: plan.Action{Type: plan.Upgrade, Own: &plan.Upgrading{How: plan.UpgradeRolling}},
			failAt: "upgrade  rolling", do: "upgrade  rolling: told to fail", undo: "recover",
		},
		{action: plan.Action{Type: plan.DeleteObject,
			Writing: plan.Writing{ResourceKey: pod}}, do: "delete pod/default/a"},
	} {
		t.Run(string(test.action.Type), func(t *testing.T) {
			j := &journal{failAt: test.failAt}
			a, err := New(&test.action, Tools{Controllers: j, APIServers: j, Objects: j, Clocks: j, Upgrades: j,
				Connections: j})
			if err != nil {
				t.Fatal(err)
			}
			if aimed, ok := a.(Aimed); ok {
				aimed.Aim(7)
			}
			note, err := a.Do(context.Background())
			if note != "" {
				t.Errorf("note of an action that did something: %q", note)
			}
			got := strings.Join(j.entries, ", ")
			if err != nil {
				got += ": " + err.Error()
			}
			if got != test.do {
				t.Errorf("do: %s, want %s", got, test.do)
			}
			j.entries = nil
			if err := a.Undo(context.Background()); err != nil {
				t.Error(err)
			}
			if got := strings.Join(j.entries, ", "); got != test.undo {
				t.Errorf("undo: %s, want %s", got, test.undo)
			}
		})
	}
	if _, err := New(&plan.Action{Type: "dance"}, Tools{}); err == nil {
		t.Error("an unknown action type was accepted")
	}
}

// A pattern in the name of the object to write stands for the object that has fired the action, if it matches.
func TestWritesTheObjectThatFires(t *testing.T) {
	pods := plan.ResourceKey{Type: "pod", Namespace: "default", Name: "web-*"}
	for _, tt := range []struct {
		name  string
		fired plan.ResourceKey
		want  string
	}{
		{"it matches", plan.ResourceKey{Type: "pod", Namespace: "default", Name: "web-x7k2p"},
			"delete pod/default/web-x7k2p"},
		{"another one", plan.ResourceKey{Type: "pod", Namespace: "default", Name: "db-0"},
			": no object that matches pod/default/web-* has fired it"},
		{"none", plan.ResourceKey{}, ": no object that matches pod/default/web-* has fired it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := &journal{}
			remove := plan.Action{Type: plan.DeleteObject, Writing: plan.Writing{ResourceKey: pods}}
			a, err := New(&remove, Tools{Objects: j})
			if err != nil {
				t.Fatal(err)
			}
			a.(Pointed).PointTo(tt.fired)
			_, err = a.Do(context.Background())
			got := strings.Join(j.entries, ", ")
			if err != nil {
				got += ": " + err.Error()
			}
			if got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// Regression: a start or kill that changed nothing was not mentioned.
func TestNotes(t *testing.T) {
	for _, test := range []struct {
		action plan.Action
		want   string
	}{
		{plan.Action{Type: plan.KillController, Target: "db"}, "found nothing to kill: db was not running"},
		{plan.Action{Type: plan.RestartController, Target: "db"}, "found nothing to kill: db was not running"},
		{plan.Action{Type: plan.ReconnectController, Target: "db",
			Reconnecting: plan.Reconnecting{ReconnectBy: plan.ReconnectRestart}},
			"found nothing to kill: db was not running"},
		{plan.Action{Type: plan.StartController, Target: "db"}, "found db running already"},
		{plan.Action{Type: plan.ThawController, Target: "db"},
			"found nothing to thaw: no process of db was frozen"},
		{plan.Action{Type: plan.RestoreConnection, Target: "db", Cluster: "west"},
			"found nothing to restore: that connection of db was not disturbed"},
		{plan.Action{Type: plan.EndSkew, Target: "db"}, "found nothing to end: the clock of db was right"},
		{plan.Action{Type: plan.KillAPIServer, Target: "apiserver-2"},
			"found nothing to kill: apiserver-2 was not running"},
		{plan.Action{Type: plan.StartAPIServer, Target: "apiserver-2"}, "found apiserver-2 running already"},
	} {
		j := &journal{otherwise: true}
		a, err := New(&test.action, Tools{Controllers: j, APIServers: j, Clocks: j, Connections: j})
		if err != nil {
			t.Fatal(err)
		}
		if note, err := a.Do(t.Context()); err != nil || note != test.want {
			t.Errorf("%s: note %q (%v), want %q", test.action.Type, note, err, test.want)
		}
		j.failAt = j.entries[0]
		if note, err := a.Do(t.Context()); err == nil || note != "" {
			t.Errorf("%s that failed: note %q (%v)", test.action.Type, note, err)
		}
	}
}
