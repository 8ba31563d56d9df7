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
		{traced: false, db: 1}, {traced: true, server: 1, db: 8},
	} {
		rules := traceRules(test.traced, servers, under)
		if len(rules["apiserver-2"]) != test.server || len(rules["db"]) != test.db || len(rules["old"]) != test.op {
			t.Errorf("traced %t: %+v", test.traced, rules)
		}
	}
	want := wire.Rule{Point: wire.ControllerWrite, Phase: wire.After, AnyGroup: true}
	got := traceRules(false, servers, under)["db"][0]
	if got.Point != want.Point || got.Phase != want.Phase || !got.AnyGroup {
		t.Errorf("%+v, want %+v: judges need to know who has written what", got, want)
	}
}
