package judge

import (
	"encoding/json"
	"testing"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

// creating makes the writes that have created objects creations that sent them.
func creating(r *record.Run) *record.Run {
	for i := range r.Events {
		o := r.Events[i].Observation
		h := r.History[o.Call-1]
		if h.Event != record.Created {
			continue
		}
		o.Op = wire.Create
		if o.Phase == wire.Before {
			var sent map[string]any
			_ = json.Unmarshal(h.Object, &sent)
			delete(sent, "status")
			sent["metadata"] = map[string]any{"name": h.Name}
			o.Object, _ = json.Marshal(sent)
		}
	}
	return r
}

func TestWaste(t *testing.T) {
	const (
		temporary = `configmap/default/tmp {"metadata": {"uid": "t"}, "data": {"a": "b"}}`
		user      = `job/default/j {"metadata": {"uid": "j"}, "spec": {"config": "tmp"}}`
		done      = `configmap/default/tmp {"metadata": {"uid": "t"}, "status": {"phase": "Succeeded"}}`
		finding   = "note op creates configmap/default/tmp and deletes it after 500ms, before anything uses it"
		like      = "note op creates pod/default/web-bcdfc and deletes pod/default/web-bcdfb, which is like it, " +
			"after 500ms"
	)
	pods := []string{"1 created " + set, "2 op: created " + member("a", ""), "3 op: created " + member("b", ""),
		"3.5 op: deleted " + member("a", "")}
	for _, tt := range []struct {
		name     string
		lines    []string
		baseline []string
		want     []string
	}{
		{name: "created and deleted", lines: []string{"2 op: created " + temporary, "2.5 op: deleted " + temporary},
			want: []string{finding}},
		{name: "twice", lines: []string{"2 op: created " + temporary, "2.5 op: deleted " + temporary,
			"3 op: created " + temporary, "3.5 op: deleted " + temporary}, want: []string{finding + " (2 times)"}},
		{name: "deleted later", lines: []string{"2 op: created " + temporary, "3.6 op: deleted " + temporary}},
		{name: "deleted by others", lines: []string{"2 op: created " + temporary, "2.5 deleted " + temporary}},
		{name: "used", lines: []string{"2 op: created " + temporary, "2.01 op: created " + user,
			"2.5 op: deleted " + temporary}},
		{name: "finished", lines: []string{"2 op: created " + temporary, "2.02 updated " + done,
			"2.5 op: deleted " + done}},
		{name: "another one is deleted", lines: pods, want: []string{like}},
		{name: "the owner has changed meanwhile", lines: []string{pods[0], pods[1], pods[2],
			`3.01 updated set/default/web {"metadata": {"uid": "u", "generation": 2}, "spec": {"replicas": 1}}`,
			pods[3]}},
		{name: "the other one is different", lines: []string{pods[0],
			"2 op: created " + member("a", `}, "spec": {"old": true`), pods[2], pods[3]}},
		{name: "the other one had finished", lines: []string{pods[0], pods[1], pods[2],
			"3.5 op: deleted " + member("a", `}, "status": {"phase": "Failed"`)}},
		{name: "without faults too", lines: pods, baseline: pods, want: []string{like}},
		{name: "only with faults", lines: pods, baseline: pods[:2]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := evidence(creating(tale(t, tt.lines...)))
			if tt.baseline != nil {
				e.Baseline = usual(t, creating(tale(t, tt.baseline...)))
			}
			expect(t, judged(t, waste{}, e), tt.want...)
		})
	}
}
