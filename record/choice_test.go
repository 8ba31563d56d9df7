package record

import (
	"slices"
	"testing"
)

// A step waits from the first choice at which its stream was possible since the last step of it.
func TestWaited(t *testing.T) {
	got := Waited([]Choice{
		{Stream: "b", Enabled: []string{"a", "b"}},
		{Stream: TimeStream, Enabled: []string{"a", "b"}},
		{Stream: "b", Enabled: []string{"a", "b"}},
		{Stream: "a", Enabled: []string{"a"}},
		{Stream: "a", Enabled: []string{"a"}},
	})
	if want := []int{0, 1, 1, 0, 4}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
