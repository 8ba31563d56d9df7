package clientgo

import (
	"testing"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/plan"
)

func TestRemovedAPIs(t *testing.T) {
	built := func(version string) builds.Binary {
		return builds.Binary{Manifest: &wire.Manifest{Points: []wire.CompiledPoint{
			{Module: "sigs.k8s.io/controller-runtime", Version: "v0.8.3"},
			{Module: "k8s.io/client-go", Version: version},
		}}}
	}
	yes, no := true, false
	for _, tt := range []struct {
		name   string
		said   *bool
		binary builds.Binary
		want   bool
		reason string
	}{
		{"an old client-go", nil, built("v0.24.17"), true, "op has client-go v0.24.17, older than 0.25"},
		{"the first one after the removal", nil, built("v0.25.0"), false, ""},
		{"a pre-release of that", nil, built("v0.25.0-rc.0"), false, ""},
		{
			"a fork by a commit", nil, built("v0.20.16-0.20220101000000-abcdefabcdef"), true,
			"op has client-go v0.20.16-0.20220101000000-abcdefabcdef, older than 0.25",
		},
		{"a fork without a version", nil, built(""), false, ""},
		{"a fork in a directory", nil, built("v0.0.0"), false, ""},
		{
			"before client-go had versions with 0", nil, built("v11.0.0+incompatible"), true,
			"op has client-go v11.0.0+incompatible, older than 0.25",
		},
		{
			"an old commit", nil, built("v0.0.0-20190918160344-1fbdaa4c8d90"), true,
			"op has client-go v0.0.0-20190918160344-1fbdaa4c8d90, older than 0.25",
		},
		{"a commit after the removal", nil, built("v0.0.0-20240918160344-1fbdaa4c8d90"), false, ""},
		{"no hooks", nil, builds.Binary{}, false, ""},
		{"the suite says no", &no, built("v0.20.15"), false, ""},
		{"the suite says yes", &yes, built("v0.36.3"), true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			suite := &plan.Suite{Cluster: plan.ClusterSpec{RemovedAPIs: tt.said},
				Controllers: []plan.Controller{{Name: "op"}}}
			if got, reason := RemovedAPIs(suite, []builds.Binary{tt.binary}); got != tt.want || reason != tt.reason {
				t.Errorf("got %t, %q", got, reason)
			}
		})
	}
}
