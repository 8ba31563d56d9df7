package processnode

import "testing"

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "1", "B": "$(A)", "EMPTY": ""}
	lookup := func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	for _, tt := range []struct{ in, want, reason string }{
		{in: "", want: ""},
		{in: "plain", want: "plain"},
		{in: "$(A)", want: "1"},
		{in: "x$(A)y$(A)z", want: "x1y1z"},
		{in: "$(B)", want: "$(A)", reason: "values are not expanded again"},
		{in: "[$(EMPTY)]", want: "[]"},
		{in: "$(MISSING)", want: "$(MISSING)", reason: "what is not defined stays"},
		{in: "$$(A)", want: "$(A)", reason: "$$ is a dollar"},
		{in: "$$$(A)", want: "$1"},
		{in: "$A ${A} $", want: "$A ${A} $", reason: "that is a shell's business"},
		{in: "$(A", want: "$(A"},
	} {
		if got := expand(tt.in, lookup); got != tt.want {
			t.Errorf("expand(%q) = %q, want %q %s", tt.in, got, tt.want, tt.reason)
		}
	}
}
