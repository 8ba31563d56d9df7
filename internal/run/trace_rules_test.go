package run

import (
	"testing"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

func TestTraceRules(t *testing.T) {
	under := []record.Controller{{Name: "db", Hooks: true}, {Name: "old"}}
	servers := []string{"apiserver-1", "apiserver-2"}
	for _, test := range []struct {
		traced         bool
		server, db, op int // rules of each
	}{
		{traced: false, db: 2}, {traced: true, server: 1, db: 8},
	} {
		rules := traceRules(test.traced, servers, under)
		if len(rules["apiserver-2"]) != test.server || len(rules["db"]) != test.db || len(rules["old"]) != test.op {
			t.Errorf("traced %t: %+v", test.traced, rules)
		}
	}
	for i, phase := range []wire.Phase{wire.Before, wire.After} {
		got := traceRules(false, servers, under)["db"][i]
		if got.Point != wire.ControllerWrite || got.Phase != phase || !got.AnyGroup {
			t.Errorf("%+v, want one %s: judges need to know who has written what", got, phase)
		}
	}
}
