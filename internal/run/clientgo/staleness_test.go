package clientgo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func TestWatchList(t *testing.T) {
	for _, test := range []struct {
		name    string
		version string
		gates   bool // by arguments only
		env     map[string]string
		args    []string
		want    bool
	}{
		{name: "before 0.35", version: "v0.34.9"},
		{name: "from 0.35 on", version: "v0.35.0", want: true},
		{name: "not known", env: nil},
		{name: "switched off", version: "v0.36.3", env: map[string]string{"KUBE_FEATURE_WatchListClient": "false"}},
		{
			name: "switched on in an older one", version: "v0.33.0",
			env: map[string]string{"KUBE_FEATURE_WatchListClient": "true"}, want: true,
		},
		{
			name: "a component does not look at its environment", version: "v0.36.3", gates: true,
			env: map[string]string{"KUBE_FEATURE_WatchListClient": "false"}, want: true,
		},
		{
			name: "by argument", version: "v0.36.3", gates: true,
			args: []string{"--feature-gates=A=true,WatchListClient=false"},
		},
		{
			name: "by two arguments", version: "v0.36.3",
			args: []string{"--feature-gates", "WatchListClient=false", "--feature-gates=A=true"},
		},
		{
			name: "the last one counts", version: "v0.36.3",
			args: []string{"--feature-gates=WatchListClient=false", "--feature-gates=WatchListClient=true"}, want: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := WatchList(record.Controller{ClientGo: test.version, FeatureGateArgs: test.gates}, test.env,
				test.args); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestStaleness(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"new/go.mod": "module a\nrequire k8s.io/client-go v0.36.3\n",
		"old/go.mod": "module a\nrequire k8s.io/client-go v0.36.3\nreplace k8s.io/client-go => k8s.io/client-go " +
			"v0.30.1\n",
		"none/go.mod": "module a\n",
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "new", "cmd"), 0o755); err != nil {
		t.Fatal(err)
	}
	off := false
	p := &plan.Plan{Actions: []plan.Action{
		{Type: plan.StartController, Target: "g", Reconnecting: plan.Reconnecting{WatchList: &off}},
	}}
	got := Staleness(p, &plan.Suite{File: filepath.Join(dir, "trommel.yaml"), Controllers: []plan.Controller{
		{Name: "a", Build: &plan.Build{Dir: "new/cmd"}}, {Name: "b", Build: &plan.Build{Dir: "new"}, WatchList: &off},
		{Name: "c", Build: &plan.Build{Dir: "old"}},
		{Name: "d", Build: &plan.Build{Dir: "none"}}, {Name: "e", Binary: "x"},
		{Name: "f", Build: &plan.Build{ControlPlane: "kube-scheduler"}, WatchList: &off},
		{Name: "g", Build: &plan.Build{Dir: "new"}},
	}})
	const can = " can be shown stale state: when it starts on a paused API server, it lists what " +
		"that server's cache contains"
	const warning = " fills its caches with a streaming list, which waits while an API server is paused: " +
		"started there, it is shown nothing stale without `watchList: false` in the action that starts it there, or " +
		"for it in the suite"
	want := []string{
		"warning: a (client-go v0.36.3)" + warning,
		"b (client-go v0.36.3)" + can,
		"c (client-go v0.30.1)" + can,
		"d: its client-go version is unknown, so it is unknown whether it can be shown stale state",
		"e has no hooks: it is unknown whether it is shown stale state",
		"f (client-go v0.36.3)" + can,
		"g (client-go v0.36.3)" + can,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhoseStreamingListsAreOffIsSaid(t *testing.T) {
	off := false
	p := &plan.Plan{Actions: []plan.Action{
		{Type: plan.PauseAPIServer, Target: "apiserver-3"},
		{Type: plan.ReconnectController, Target: "db", Reconnecting: plan.Reconnecting{WatchList: &off}},
	}}
	want := []string{"streaming lists were off for db (watchList: false of action 2)"}
	if diff := cmp.Diff(want, WithoutStreamingLists(p)); diff != "" {
		t.Error(diff)
	}
}
