package controller

import (
	"encoding/json"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4" // the API server's
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

type scheduleAndEnd struct {
	Schedule chaos.Schedule
	Ends     *metav1.Time
}

func ownSchedule(s *chaos.DisruptionStatus) scheduleAndEnd {
	return scheduleAndEnd{s.Schedule, s.EndsAt}
}

// A controller writes no field of another one, not even its zero.
func TestChangesWriteOnlyOwnFields(t *testing.T) {
	at := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))
	ownInjected := func(s *chaos.DisruptionStatus) struct {
		Phase    chaos.Phase
		Injected int32
	} {
		return struct {
			Phase    chaos.Phase
			Injected int32
		}{s.Phase, s.Counts.Injected}
	}
	hash := func(s *chaos.DisruptionStatus) string { return s.SpecHash }
	const begun = `{"status":{"counts":{},"schedule":{},"specHash":"x"}}`
	for _, tt := range []struct {
		name, document string
		operations     []Operation
		want           string
	}{
		{"the first", `{}`, changes(&chaos.DisruptionStatus{}, &chaos.DisruptionStatus{SpecHash: "x"}, hash), begun},
		{"a count that is zero", begun,
			changes(&chaos.DisruptionStatus{SpecHash: "x"},
				&chaos.DisruptionStatus{SpecHash: "x", Phase: chaos.NotInjected}, ownInjected),
			`{"status":{"counts":{"injected":0},"phase":"NotInjected","schedule":{},"specHash":"x"}}`},
		{"a count that an older version wrote", `{"status":{"counts":{"injected":0,"matching":0},"schedule":{}}}`,
			changes(&chaos.DisruptionStatus{Kinds: "x"}, &chaos.DisruptionStatus{Kinds: "x", Phase: chaos.Injected,
				Counts: chaos.Counts{Injected: 1}}, ownInjected),
			`{"status":{"counts":{"injected":1,"matching":0},"phase":"Injected","schedule":{}}}`},
		{"the start", begun,
			changes(&chaos.DisruptionStatus{SpecHash: "x"},
				&chaos.DisruptionStatus{SpecHash: "x", Schedule: chaos.Schedule{StartedAt: &at}}, ownSchedule),
			`{"status":{"counts":{},"schedule":{"startedAt":"2026-01-02T03:04:05.000006Z"},"specHash":"x"}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			decoded, err := jsonpatch.DecodePatch(must(json.Marshal(tt.operations)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := decoded.Apply([]byte(tt.document))
			if err != nil || !jsonpatch.Equal(got, []byte(tt.want)) {
				t.Errorf("%s (%v), want %s", got, err, tt.want)
			}
		})
	}
}

// A patch of the status keeps what others have written meanwhile, and is refused if the fields are no longer those that
// the controller has read.
func TestChanges(t *testing.T) {
	at := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))
	end := metav1.NewTime(at.Add(time.Hour).Truncate(time.Second))
	read := chaos.DisruptionStatus{Phase: chaos.NotInjected, Counts: chaos.Counts{Desired: 1}}
	begin := func(s *chaos.DisruptionStatus) { s.Schedule.StartedAt, s.Schedule.Active, s.EndsAt = &at, true, &end }
	for _, tt := range []struct {
		name      string
		read      chaos.DisruptionStatus
		set       func(*chaos.DisruptionStatus)
		meanwhile func(*chaos.DisruptionStatus)
		refused   bool
	}{
		{name: "alone", read: read, set: begin},
		{name: "the first", set: begin},
		{name: "the first is the second", set: begin, refused: true,
			meanwhile: func(s *chaos.DisruptionStatus) { s.SpecHash = "x" }},
		{name: "beside others", read: read, set: begin, meanwhile: func(s *chaos.DisruptionStatus) {
			s.Phase, s.Counts.Injected, s.Targets = chaos.Injected, 1, []chaos.Target{{UID: "u", Name: "n"}}
			s.Conditions = []metav1.Condition{{Type: "x"}}
		}},
		{name: "a field that it sets was set", read: read, set: begin, refused: true,
			meanwhile: func(s *chaos.DisruptionStatus) { s.Schedule.StartedAt = &at }},
		{name: "an own field that it keeps was set", read: read, set: begin, refused: true,
			meanwhile: func(s *chaos.DisruptionStatus) { s.Schedule.Over = true }},
		{name: "an own field that it keeps was changed", refused: true,
			read: chaos.DisruptionStatus{Phase: chaos.Injected, Schedule: chaos.Schedule{StartedAt: &at, Runs: 1}},
			set:  func(s *chaos.DisruptionStatus) { s.Schedule.Over = true },
			meanwhile: func(s *chaos.DisruptionStatus) {
				s.Schedule.Runs = 2
			}},
		{name: "a field is taken away",
			read: chaos.DisruptionStatus{EndsAt: &end, Schedule: chaos.Schedule{Active: true}},
			set:  func(s *chaos.DisruptionStatus) { s.EndsAt, s.Schedule.Active = nil, false }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stored, want := *tt.read.DeepCopy(), *tt.read.DeepCopy()
			if tt.meanwhile != nil {
				tt.meanwhile(&stored)
				tt.meanwhile(&want)
			}
			tt.set(&want)
			after := *tt.read.DeepCopy()
			tt.set(&after)
			document := map[string]any{"metadata": map[string]any{"uid": "1"}}
			if !cmp.Equal(stored, chaos.DisruptionStatus{}) {
				document["status"] = stored
			}
			d := &chaos.Disruption{ObjectMeta: metav1.ObjectMeta{UID: "1"}}
			patch, err := PatchIf(d, changes(&tt.read, &after, ownSchedule)...)
			if err != nil {
				t.Fatal(err)
			}
			got, err := apply(t, document, must(patch.Data(d)))
			if (err != nil) != tt.refused {
				t.Fatalf("refused: %v", err)
			}
			if err == nil && !cmp.Equal(want, got) {
				t.Error(cmp.Diff(want, got))
			}
			document["metadata"] = map[string]any{"uid": "2"}
			if _, err := apply(t, document, must(patch.Data(d))); err == nil {
				t.Error("another disruption with the same name was changed")
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func apply(t *testing.T, document any, patch []byte) (status chaos.DisruptionStatus, err error) {
	t.Helper()
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	result, err := decoded.Apply(must(json.Marshal(document)))
	if err != nil {
		return status, err
	}
	var object struct{ Status chaos.DisruptionStatus }
	if err := json.Unmarshal(result, &object); err != nil {
		t.Fatal(err)
	}
	return object.Status, nil
}
