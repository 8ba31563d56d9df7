package facts

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

// An object is hot if one controller changes it more than 100 times in a minute.
func TestHotObjects(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	write := func(i int, change func(o *record.Observation)) record.Event {
		o := record.Observation{
			By: "c", Point: wire.ControllerWrite, Phase: wire.After, Kind: "Database", Namespace: "default", Name: "db",
			Object: fmt.Appendf(nil, `{"metadata": {"name": "db", "resourceVersion": "%d", "generation": 3},
				"spec": {"a": 1}, "status": {"attempts": %d}}`, i+1, i),
		}
		if change != nil {
			change(&o)
		}
		return record.Event{Observation: &o}
	}
	const object, fields = "database/default/db", "status.attempts"
	for _, tt := range []struct {
		name   string
		times  int
		every  time.Duration
		change func(i int, o *record.Observation)
		want   []Hot
		over   bool
	}{
		{"101 times", 101, 500 * time.Millisecond, nil,
			[]Hot{{"c", object, 101, 50 * time.Second, began, []string{fields}}}, false},
		{"100 times", 100, 500 * time.Millisecond, nil, nil, false},
		{"each second, without end", 1000, time.Second, nil, nil, false},
		{"without end", 1001, 10 * time.Millisecond, nil,
			[]Hot{{"c", object, 1001, 10 * time.Second, began, []string{fields}}}, true},
		{"1,001 times, slowly", 1001, 100 * time.Millisecond, nil,
			[]Hot{{"c", object, 600, 59900 * time.Millisecond, began, []string{fields}}}, false},
		{"errors", 2000, 10 * time.Millisecond, func(_ int, o *record.Observation) { o.Error = "no" }, nil, false},
		{"nothing changes", 2000, 10 * time.Millisecond, func(_ int, o *record.Observation) {
			o.Object = []byte(`{"metadata": {"name": "db", "resourceVersion": "1"}}`)
		}, nil, false},
		{"other objects", 2000, 10 * time.Millisecond, func(i int, o *record.Observation) {
			o.Name = fmt.Sprint(i)
		}, nil, false},
		{"two controllers", 200, 100 * time.Millisecond, func(i int, o *record.Observation) {
			o.By = fmt.Sprint(i % 2)
		}, nil, false},
		{"leader election", 2000, 10 * time.Millisecond, func(_ int, o *record.Observation) {
			o.Election = true
		}, nil, false},
		{"events", 2000, 10 * time.Millisecond, func(_ int, o *record.Observation) { o.Kind = "Event" }, nil, false},
		{"what is going to be written", 2000, 10 * time.Millisecond, func(_ int, o *record.Observation) {
			o.Phase = wire.Before
		}, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h HotObjects
			for i := range tt.times {
				e := write(i, func(o *record.Observation) {
					if tt.change != nil {
						tt.change(i, o)
					}
				})
				e.Time = began.Add(time.Duration(i) * tt.every)
				h.Take(e)
			}
			if diff := cmp.Diff(tt.want, h.All()); diff != "" {
				t.Error(diff)
			}
			if over := h.Over(); (over != nil) != tt.over {
				t.Errorf("over: %+v", over)
			}
		})
	}
}
