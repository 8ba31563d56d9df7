package pattern

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/record"
)

// traced is a run of a controller that scales the StatefulSets of many objects, with as many observations as wanted.
func traced(tb testing.TB, observations int) *record.Run {
	tb.Helper()
	r := &record.Run{Meta: record.Meta{Controllers: []record.Controller{{Name: "op", Hooks: true}}}}
	version := uint64(0)
	last := map[string]object{}
	at := func() time.Time { return time.Unix(0, 0).Add(time.Duration(version) * 10 * time.Millisecond) }
	see := func(o record.Observation) {
		o.By, o.Call = "op", version
		r.Events = append(r.Events, record.Event{Time: at(), Observation: &o})
	}
	encoded := func(o object) json.RawMessage {
		data, err := json.Marshal(o)
		if err != nil {
			tb.Fatal(err)
		}
		return data
	}
	// change makes a change, which the operator takes in, and has made if it names its reconcile.
	change := func(kind, group, name string, fields object, reconcile string) {
		version++
		o := object{
			"kind": kind, "apiVersion": "v1",
			"metadata": object{
				"name": name, "namespace": "default", "uid": kind + name, "resourceVersion": fmt.Sprint(version),
				"labels": object{"app": name, "app.kubernetes.io/managed-by": "op"},
			},
		}
		if group != "" {
			o["apiVersion"] = group + "/v1"
		}
		for k, v := range fields {
			o[k] = v
		}
		event, op := record.Updated, wire.Update
		if last[kind+name] == nil {
			event, op = record.Created, wire.Create
		}
		last[kind+name] = o
		data := encoded(o)
		r.History = append(r.History, record.HistoryEntry{
			Time: at(), ResourceVersion: version, Event: event, Type: kind, Group: group, Namespace: "default",
			Name: name, Object: data,
		})
		seen := record.Observation{Op: op, Kind: kind, Group: group, Namespace: "default", Name: name, Object: data}
		if reconcile != "" {
			seen.Point, seen.ReconcileID, seen.Request = wire.ControllerWrite, reconcile, "default/"+name
			seen.Phase = wire.Before
			see(seen)
			seen.Phase = wire.After
			see(seen)
		}
		seen.Point, seen.Phase, seen.ReconcileID = wire.ControllerRecv, wire.After, ""
		see(seen)
	}
	template := object{"spec": object{"containers": []any{object{"name": "main", "image": "registry.example/main:1"}}}}
	for i := 0; len(r.Events) < observations; i++ {
		name, replicas := fmt.Sprintf("db-%d", i%40), float64(1+i/40%3)
		change("database", "example.com", name, object{"spec": object{"replicas": replicas}}, "")
		id := fmt.Sprint("r", i)
		for _, kind := range []string{"database", "statefulset", "secret"} {
			see(record.Observation{
				Point: wire.ControllerRead, Phase: wire.After, Op: wire.Get, Kind: kind, Namespace: "default",
				Name: name, ReconcileID: id, Request: "default/" + name,
			})
		}
		change("statefulset", "apps", name, object{"spec": object{"replicas": replicas, "template": template}}, id)
		change("database", "example.com", name,
			object{"spec": object{"replicas": replicas}, "status": object{"replicas": replicas}}, id)
		change("statefulset", "apps", name, object{
			"spec": object{"replicas": replicas, "template": template}, "status": object{"readyReplicas": replicas},
		}, "")
	}
	return r
}

// BenchmarkGenerate makes plans from a trace of 5,000 observations, and learns the baseline from three such traces.
func BenchmarkGenerate(b *testing.B) {
	r := traced(b, 5000)
	runs := []*record.Run{r, r, r}
	ref, err := baseline.Learn("w", runs)
	if err != nil {
		b.Fatal(err)
	}
	s := suite(b)
	b.Run("learn", func(b *testing.B) {
		for b.Loop() {
			if _, err := baseline.Learn("w", runs); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("generate", func(b *testing.B) {
		for b.Loop() {
			plans := 0
			for _, c := range Generate(s, ref) {
				if c.Plan != nil {
					plans++
				}
			}
			b.ReportMetric(float64(plans), "plans")
			b.ReportMetric(float64(len(ref.Changes)), "changes")
		}
	})
}
