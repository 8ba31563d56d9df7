package confirm

import (
	"testing"
	"time"

	"github.com/trommel-dev/trommel/plan"
)

func TestWaits(t *testing.T) {
	change, wait, sleep := plan.Step{Patch: &plan.PatchStep{}}, plan.Step{Wait: &plan.WaitStep{}},
		plan.Step{Sleep: time.Second}
	for _, tt := range []struct {
		name  string
		steps []plan.Step
		want  bool
	}{
		{"after each change", []plan.Step{change, wait, change, wait}, true},
		{"and some time", []plan.Step{change, wait, sleep, change}, true},
		{"only some time", []plan.Step{change, sleep, change, wait}, false},
		{"two at once", []plan.Step{change, change, wait}, false},
		{"one", []plan.Step{change}, true},
	} {
		if got := Waits(tt.steps); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}
