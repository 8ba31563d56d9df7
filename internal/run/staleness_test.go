package run

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/run/builds"
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
			if got := watchList(record.Controller{ClientGo: test.version, FeatureGateArgs: test.gates}, test.env,
				test.args); got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestDescribeControllers(t *testing.T) {
	suite := &plan.Suite{Controllers: []plan.Controller{
		{Name: "db", APIServer: "apiserver-2", Build: &plan.Build{}}, {Name: "old", Binary: "old"},
	}}
	binaries := []builds.Binary{{Path: "/bin/db", Manifest: &wire.Manifest{Points: []wire.CompiledPoint{
		{Module: "k8s.io/client-go", Version: "v0.36.3"},
		{Module: "sigs.k8s.io/controller-runtime", Version: "v0.25.2"},
	}}}, {Path: "/bin/old"}}
	const variable = "KUBE_FEATURE_WatchListClient"
	for _, test := range []struct {
		name      string
		container corev1.Container
		given     cluster.Given
		watchList bool
	}{
		{name: "as its version does", watchList: true},
		{name: "the Deployment switches it off", container: corev1.Container{
			Env: []corev1.EnvVar{{Name: variable, Value: "false"}},
		}},
		{name: "the plan does, which no object shows", given: cluster.Given{Env: map[string]string{variable: "false"}}},
		{name: "the plan counts more than the Deployment", container: corev1.Container{
			Env: []corev1.EnvVar{{Name: variable, Value: "true"}},
		}, given: cluster.Given{Env: map[string]string{variable: "false"}}},
		{name: "by arguments", container: corev1.Container{
			Args: []string{"--feature-gates=WatchListClient=true"},
		}, given: cluster.Given{Args: []string{"--feature-gates=WatchListClient=false"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := []record.Controller{
				{Name: "db", Hooks: true, APIServer: "apiserver-2", Replicas: 1, ClientGo: "v0.36.3",
					ControllerRuntime: "v0.25.2", WatchList: test.watchList},
				{Name: "old", APIServer: "apiserver-1"},
			}
			got := describeControllers(suite, binaries, &installed{
				own: map[string][]*unstructured.Unstructured{"db": {{Object: map[string]any{
					"kind": "Deployment", "spec": map[string]any{"template": map[string]any{}},
				}}}},
				containers: map[string]*corev1.Container{"db": &test.container},
				given:      map[string]cluster.Given{"db": test.given},
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
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
	if diff := cmp.Diff(want, withoutStreamingLists(p)); diff != "" {
		t.Error(diff)
	}
}
