package requests

import (
	"testing"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// Several alterations of a method share its calls.
func TestAlterationsOfAMethodShareItsCalls(t *testing.T) {
	const get, put = "/a.B/Get", "/a.B/Put"
	share := func(n int32) *v1alpha1.Percentage {
		p := v1alpha1.Percentage(n)
		return &p
	}
	endpoints := []v1alpha1.GRPCEndpoint{
		{Method: get, Error: "ABORTED", Percentage: share(25)},
		{Method: put, Error: "INTERNAL"},
		{Method: get, Override: "empty", Percentage: share(50)},
		{Method: put, Error: "UNKNOWN"},
	}
	for _, tt := range []struct {
		method string
		drawn  float64
		want   int // of the endpoints; -1: none
	}{
		{get, 0, 0}, {get, 24.9, 0}, {get, 25, 2}, {get, 74.9, 2}, {get, 75, -1}, {get, 99.9, -1},
		{put, 0, 1}, {put, 99.9, 1}, {"/a.B/Other", 0, -1},
	} {
		got := -1
		for i := range endpoints {
			if alteration(endpoints, tt.method, tt.drawn) == &endpoints[i] {
				got = i
			}
		}
		if got != tt.want {
			t.Errorf("%s, %v: endpoint %d, want %d", tt.method, tt.drawn, got, tt.want)
		}
	}
}
