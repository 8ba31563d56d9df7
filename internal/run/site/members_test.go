package site

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func TestOrigins(t *testing.T) {
	o := &Origins{
		names:   []string{"west", "east", "north"},
		servers: map[string]string{"127.0.0.1:1": "west", "127.0.0.1:2": "east"},
		own:     map[string]string{"op": "north"},
	}
	at := func(version string) []byte { return []byte(`{"metadata":{"resourceVersion":"` + version + `"}}`) }
	for _, tt := range []struct {
		name, identity string
		o              wire.Observation
		want           string
	}{
		{"of the first", "op", wire.Observation{Point: wire.ControllerRecv, Object: at("230")}, "west"},
		{"of the second", "op", wire.Observation{Point: wire.ControllerRecv, Object: at("1000000000230")}, "east"},
		{"of the third", "op", wire.Observation{Point: wire.ControllerWrite, Object: at("2000000000001")}, "north"},
		{"its old state tells", "op", wire.Observation{Point: wire.ControllerWrite, Object: []byte(`{}`),
			OldObject: at("1000000000230")}, "east"},
		{"a listed object tells", "op", wire.Observation{Point: wire.ControllerRead,
			Objects: [][]byte{at("1000000000230")}}, "east"},
		{"an API server knows", "east/apiserver-2", wire.Observation{Point: wire.APIServerRecv}, "east"},
		{"before a creation", "op", wire.Observation{Point: wire.ControllerWrite, Object: []byte(`{"metadata":{}}`),
			Server: "127.0.0.1:2"}, "east"},
		{"in its own cluster", "op", wire.Observation{Point: wire.ControllerWrite, Server: wire.OwnServer}, "north"},
		{"of nobody's own", "other", wire.Observation{Point: wire.ControllerWrite, Server: wire.OwnServer},
			record.UnknownCluster},
		{"through a server of its own", "op", wire.Observation{Point: wire.ControllerWrite, Server: "127.0.0.1:9",
			Object: at("230")}, "west"},
		{"where is that", "op", wire.Observation{Point: wire.ControllerWrite, Server: "127.0.0.1:9"},
			record.UnknownCluster},
		{"nothing was found", "op", wire.Observation{Point: wire.ControllerRead}, record.UnknownCluster},
		{"a version of nobody", "op", wire.Observation{Point: wire.ControllerRecv, Object: at("3000000000001")},
			record.UnknownCluster},
		{"a reconcile has no object", "op", wire.Observation{Point: wire.Reconcile}, ""},
		{"a call has no object", "op", wire.Observation{Point: wire.AnnotatedCall}, ""},
	} {
		if got := o.Of(tt.identity, &tt.o); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	alone := &Origins{}
	if got := alone.Of("op", &wire.Observation{Point: wire.ControllerRecv, Object: at("1000000000230")}); got != "" {
		t.Errorf("with one cluster: %q", got)
	}
}

func TestAccessToOtherClusters(t *testing.T) {
	a := &Access{dir: t.TempDir()}
	file := a.file(Connection{"op", "west-1"})
	if err := os.WriteFile(file, []byte("a kubeconfig"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := plan.Controller{
		Name: "op", Args: []string{"--to=$(TROMMEL_KUBECONFIG_WEST_1)", "$(OTHER)"},
		Env: map[string]string{"TO": "$(TROMMEL_KUBECONFIG_WEST_1)"},
		Kubeconfigs: map[string]plan.Kubeconfig{"west-1": {
			Secret: "op-system/west", Key: "value", Labels: map[string]string{"a": "b"},
		}},
	}
	got, secrets, err := a.Give(c)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"--to=" + file, "$(OTHER)"}, got.Args); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"TO": file, "TROMMEL_KUBECONFIG_WEST_1": file}, got.Env); diff != "" {
		t.Error(diff)
	}
	if c.Args[0] != "--to=$(TROMMEL_KUBECONFIG_WEST_1)" || len(c.Env) != 1 {
		t.Errorf("the suite's controller has changed: %v", c)
	}
	want := map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
		"metadata": map[string]any{
			"namespace": "op-system", "name": "west", "labels": map[string]any{"a": "b"},
		},
		"stringData": map[string]any{"value": "a kubeconfig"},
	}
	if len(secrets) != 1 || cmp.Diff(want, secrets[0].Object) != "" {
		t.Errorf("%v", secrets)
	}
}
