package plan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// state decodes a state as it is written in a plan; "-" means not given.
func stateOf(t testing.TB, text string) any {
	t.Helper()
	if text == "-" {
		return nil
	}
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err != nil {
		t.Fatal(err)
	}
	d := &yamlfile.File{Name: "state"}
	v := d.Value(n.Content[0])
	if err := mistakes(d); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestMatch(t *testing.T) {
	const (
		create = OnObjectCreation
		change = OnObjectUpdate
		remove = OnObjectDeletion
		anyOf  = OnAnyFieldModified
		allOf  = OnAllFieldsModified
	)
	tests := []struct {
		name      string
		typ       TriggerType
		prev, cur string
		kind      EventKind
		old, new  string
		miss      string // empty: it matches
		reason    string
	}{
		// Which event.
		{"creation", create, "-", "-", Created, ``, `{"a":1}`, "", ""},
		{"creation, updated", create, "-", "-", Updated, `{}`, `{}`, "it was updated, not created", ""},
		{"update, created", change, "-", "-", Created, ``, `{}`, "it was created, not updated", ""},
		{"deletion", remove, "-", "-", Deleted, ``, `{}`, "", ""},
		{"deletion, nothing known", remove, "{a: 1}", "-", Deleted, ``, ``, "",
			"what is not known is assumed to match"},
		{"deletion of an object without a field, nothing known", remove, "{a: $absent}", "-", Deleted, ``, ``, "",
			"what is not known is assumed to match"},
		{"deletion of what is not there", remove, "{a: 1}", "-", Deleted, `null`, ``,
			"a was without a value, not 1", ""},
		{"deletion, updated", remove, "-", "-", Updated, `{}`, `{}`, "it was updated, not deleted", ""},
		{"update without states", change, "-", "-", Updated, `{"a":1}`, `{"a":1}`, "", "any update counts"},
		{"creation with a state", create, "-", "{a: 1}", Created, ``, `{"a":2}`, "a is 2, not 1", ""},
		{"creation without a field", create, "-", "{a: $absent}", Created, `null`, `{"b":1}`, "",
			"the new object counts: nothing has to change"},
		{"deletion with a state", remove, "{a: 1}", "-", Deleted, ``, `{"a":1}`, "", "the last state"},
		{"deletion with another state", remove, "{a: 1}", "-", Deleted, ``, `{"a":2}`, "a was 2, not 1", ""},

		// The transition.
		{"transition", change, "{spec: {replicas: 3}}", "{spec: {replicas: 2}}", Updated, `{"spec":{"replicas":3}}`,
			`{"spec":{"replicas":2}}`, "", ""},
		{"other old value", change, "{spec: {replicas: 3}}", "{spec: {replicas: 2}}", Updated,
			`{"spec":{"replicas":4}}`, `{"spec":{"replicas":2}}`, "spec.replicas was 4, not 3", ""},
		{"other new value", change, "{spec: {replicas: 3}}", "{spec: {replicas: 2}}", Updated,
			`{"spec":{"replicas":3}}`, `{"spec":{"replicas":3}}`, "spec.replicas is 3, not 2", ""},
		{"only new, changed", change, "-", "{a: 2}", Updated, `{"a":1}`, `{"a":2}`, "", ""},
		{"only new, unchanged", change, "-", "{a: 2}", Updated, `{"a":2}`, `{"a":2,"b":1}`,
			"a did not change: it is 2", ""},
		{"only old, changed", change, "{a: 1}", "-", Updated, `{"a":1}`, `{"a":2}`, "", ""},
		{"only old, unchanged", change, "{a: 1}", "-", Updated, `{"a":1}`, `{"a":1,"b":2}`,
			"a did not change: it is 1", ""},
		{"both name it with one value", change, "{a: 1, b: 1}", "{a: 1, b: 2}", Updated, `{"a":1,"b":1}`,
			`{"a":1,"b":2}`, "", "what both name need not change"},
		{"one of two unchanged", change, "-", "{a: 1, b: 2}", Updated, `{"a":1,"b":1}`, `{"a":1,"b":2}`,
			"a did not change: it is 1", ""},

		// Marks.
		{"marked", change, "-", "{metadata: {deletionTimestamp: $present}}", Updated, `{"metadata":{"name":"a"}}`,
			`{"metadata":{"deletionTimestamp":"2024-01-01T00:00:00Z"}}`, "", ""},
		{"marked before", change, "-", "{metadata: {deletionTimestamp: $present}}", Updated,
			`{"metadata":{"deletionTimestamp":"x"}}`, `{"metadata":{"deletionTimestamp":"x"}}`,
			`metadata.deletionTimestamp did not change: it is "x"`, ""},
		{"not marked", change, "-", "{metadata: {deletionTimestamp: $present}}", Updated, `{"metadata":{}}`,
			`{"metadata":{}}`, "metadata.deletionTimestamp is without a value, not a value", ""},
		{"marked, as published", change, "{metadata: {}}", "{metadata: {deletionGracePeriodSeconds: $present, " +
			"deletionTimestamp: $present}}", Updated, `{"metadata":{"name":"a"}}`,
			`{"metadata":{"deletionGracePeriodSeconds":0,"deletionTimestamp":"x"}}`, "", "metadata is named by both"},
		{"absent", change, "-", "{a: $absent}", Updated, `{"a":1}`, `{}`, "", ""},
		{"absent is null", change, "-", "{a: null}", Updated, `{"a":1}`, `{"a":null}`, "", ""},
		{"absent, nothing on the way", change, "-", "{status: {ip: {v4: $absent}}}", Updated,
			`{"status":{"ip":{"v4":"1"}}}`, `{}`, "", ""},
		{"not absent", change, "-", "{a: $absent}", Updated, `{"a":1}`, `{"a":2}`, "a is 2, not without a value", ""},
		{"absent before", change, "{a: $absent}", "{a: 1}", Updated, `{}`, `{"a":1}`, "", ""},
		{"null is nothing", change, "-", "{a: $absent}", Updated, `{}`, `{"a":null}`,
			"a did not change: it is without a value", ""},
		{"zero is a value", change, "-", "{a: $present}", Updated, `{}`, `{"a":0}`, "", ""},

		// Mappings.
		{"switched off, as published", change, "{spec: {tls: {enabled: true}}}", "{spec: {tls: {}}}", Updated,
			`{"spec":{"tls":{"enabled":true}}}`, `{"spec":{"tls":{}}}`, "", ""},
		{"switched to false", change, "{spec: {tls: {enabled: true}}}", "{spec: {tls: {}}}", Updated,
			`{"spec":{"tls":{"enabled":true}}}`, `{"spec":{"tls":{"enabled":false}}}`, "",
			"it changed, and tls is still a mapping"},
		{"still on", change, "{spec: {tls: {enabled: true}}}", "{spec: {tls: {}}}", Updated,
			`{"spec":{"tls":{"enabled":true}}}`, `{"spec":{"tls":{"enabled":true}}}`,
			"spec.tls.enabled did not change: it is true", ""},
		{"mapping gone", change, "{spec: {tls: {enabled: true}}}", "{spec: {tls: {}}}", Updated,
			`{"spec":{"tls":{"enabled":true}}}`, `{"spec":{}}`, "spec.tls is without a value, not a mapping", ""},
		{"empty mapping in one", change, "{labels: {}}", "-", Updated, `{"labels":{"a":"1"}}`, `{"labels":{"a":"2"}}`,
			"", "it names labels, and labels changed"},
		{"empty mapping in one, unchanged", change, "{labels: {}}", "-", Updated, `{"labels":{"a":"1"}}`,
			`{"labels":{"a":"1"},"b":1}`, "labels did not change: it is a mapping", ""},
		{"order of fields does not matter", change, "{m: {}}", "-", Updated, `{"m":{"a":1,"b":2}}`,
			`{"m":{"b":2.0,"a":1}}`, "m did not change: it is a mapping", ""},
		{"empty states", change, "{}", "{}", Updated, `{"a":1}`, `{"a":1}`, "", "they name nothing"},
		{"empty state in one", change, "-", "{}", Updated, `{"a":1}`, `{"a":1}`, "", "it names nothing"},
		{"another field in a mapping, both null", change, "{m: {}}", "-", Updated, `{"m":{"a":null}}`,
			`{"m":{"b":null}}`, "", "it names m, and m changed"},
		{"siblings far down", change, "-", "{a: {b: {c: {d: 1, e: 2}}}}", Updated, `{}`,
			`{"a":{"b":{"c":{"d":1,"e":2}}}}`, "", ""},
		{"empty name", change, "-", `{data: {"": x}}`, Updated, `{}`, `{"data":{"":"y"}}`,
			`data[""] is "y", not "x"`, ""},
		{"a mapping is no text", change, "-", "{a: {b: 1}}", Updated, `{"a":"b"}`, `{"a":"c"}`,
			"a.b is without a value, not 1", ""},
		{"odd names", change, "-", "{metadata: {annotations: {example.com/a b: x}}}", Updated, `{}`,
			`{"metadata":{"annotations":{"example.com/a b":"y"}}}`,
			`metadata.annotations["example.com/a b"] is "y", not "x"`, ""},

		// Lists.
		{"list, as published", change, "{spec: {nodeSets: [{count: 1}]}}", "{spec: {nodeSets: [{count: 2}]}}", Updated,
			`{"spec":{"nodeSets":[{"name":"a","count":1},{"count":9}]}}`,
			`{"spec":{"nodeSets":[{"name":"a","count":2},{"count":9}]}}`, "", "items by index, further ones are free"},
		{"second item", change, "-", "{l: [$present, b]}", Updated, `{"l":["a"]}`, `{"l":["a","b"]}`,
			"l[0] did not change: it is \"a\"", "it is named, so it has to change"},
		{"second item, first named by both", change, "{l: [$present]}", "{l: [$present, b]}", Updated, `{"l":["a"]}`,
			`{"l":["a","b"]}`, "", ""},
		{"other order", change, "-", "{l: [a, b]}", Updated, `{}`, `{"l":["b","a"]}`, `l[0] is "b", not "a"`, ""},
		{"list too short", change, "-", "{l: [a, b]}", Updated, `{}`, `{"l":["a"]}`,
			`l[1] is without a value, not "b"`, ""},
		{"empty list", change, "-", "{l: []}", Updated, `{}`, `{"l":["a"]}`, "", "a list, whatever it holds"},
		{"no list", change, "-", "{l: []}", Updated, `{}`, `{"l":{}}`, "l is a mapping, not a list", ""},
		{"item gone", change, "{l: [a]}", "{}", Updated, `{"l":["a"]}`, `{"l":[]}`, "", ""},

		// Values.
		{"int and float", change, "-", "{a: 2}", Updated, `{}`, `{"a":2.0}`, "", ""},
		{"float and int", change, "-", "{a: 2.0}", Updated, `{}`, `{"a":2}`, "", ""},
		{"exponent", change, "-", "{a: 1000}", Updated, `{}`, `{"a":1e3}`, "", ""},
		{"fraction", change, "-", "{a: 0.5}", Updated, `{}`, `{"a":5e-1}`, "", ""},
		{"large numbers are exact", change, "-", "{a: 9007199254740993}", Updated, `{}`, `{"a":9007199254740992}`,
			"a is 9007199254740992, not 9007199254740993", ""},
		{"large float and int", change, "-", "{a: 1e17}", Updated, `{}`, `{"a":100000000000000000}`, "", ""},
		{"large float and another int", change, "-", "{a: 1e17}", Updated, `{}`, `{"a":200000000000000000}`,
			"a is 200000000000000000, not 1e+17", ""},
		{"large int and float", change, "-", "{a: 100000000000000000}", Updated, `{}`, `{"a":1e17}`, "", ""},
		{"large int and another float", change, "-", "{a: 200000000000000000}", Updated, `{}`, `{"a":1e17}`,
			"a is 1e+17, not 200000000000000000", ""},
		{"number and text", change, "-", "{a: 2}", Updated, `{}`, `{"a":"2"}`, `a is "2", not 2`, ""},
		{"text and number", change, "-", "{a: \"2\"}", Updated, `{}`, `{"a":2}`, `a is 2, not "2"`, ""},
		{"quantities as written", change, "-", "{cpu: 1000m}", Updated, `{}`, `{"cpu":"1"}`,
			`cpu is "1", not "1000m"`, ""},
		{"the same number", change, "-", "{a: 1}", Updated, `{"a":1.0}`, `{"a":1}`, "a did not change: it is 1", ""},
		{"bools", change, "-", "{a: true, b: false}", Updated, `{}`, `{"a":true,"b":false}`, "", ""},
		{"not true", change, "-", "{a: true}", Updated, `{}`, `{"a":false}`, "a is false, not true", ""},
		{"escapes", change, "-", `{a: "x\"\\é\n"}`, Updated, `{}`, `{"a":"x\"\\\u00e9\n"}`, "", ""},
		{"escaped key", change, "-", `{é: 1}`, Updated, `{}`, `{"\u00e9":1}`, "", ""},
		{"a date is text", change, "-", `{a: 2024-01-01}`, Updated, `{}`, `{"a":"2024-01-01"}`, "", ""},

		// The old object is not known.
		{"unknown old", change, "{a: 1}", "{a: 2}", Updated, ``, `{"a":2}`, "", "it can be so"},
		{"unknown old, no transition", change, "{a: 1}", "-", Updated, ``, `{"a":1}`, "a is still 1", ""},
		{"unknown old, other value", change, "-", "{a: 2}", Updated, ``, `{"a":3}`, "a is 3, not 2", ""},
		{"unknown old, only old", change, "{a: 1}", "-", Updated, ``, `{"a":2}`, "", "it can have been 1"},
		{"unknown old, only new", change, "-", "{a: 2}", Updated, ``, `{"a":2}`, "", "it can have been another"},
		{"unknown old, absent now", change, "-", "{a: $absent}", Updated, ``, `{}`, "", "it can have had a value"},

		// Fields modified.
		{"any", anyOf, "{a: 1, b: 2}", "-", Updated, `{"a":1,"b":2}`, `{"a":1,"b":3}`, "", ""},
		{"any, none", anyOf, "{a: 1, b: 2}", "-", Updated, `{"a":1,"b":2}`, `{"a":1,"b":2,"c":3}`, "a is still 1", ""},
		{"any, was another", anyOf, "{a: 1}", "-", Updated, `{"a":5}`, `{"a":6}`, "a was 5 before, not 1",
			"lost means that it had it"},
		{"any, gone", anyOf, "{metadata: {deletionTimestamp: $present}}", "-", Updated,
			`{"metadata":{"deletionTimestamp":"x"}}`, `{"metadata":{}}`, "", ""},
		{"any, another mark", anyOf, "{metadata: {deletionTimestamp: $present}}", "-", Updated,
			`{"metadata":{"deletionTimestamp":"x"}}`, `{"metadata":{"deletionTimestamp":"y"}}`,
			`metadata.deletionTimestamp is still "y"`, "it still has a value"},
		{"any, created", anyOf, "{a: 1}", "-", Created, ``, `{"a":2}`, "it was created, not updated", ""},
		{"any, unknown old", anyOf, "{a: 1}", "-", Updated, ``, `{"a":2}`, "", ""},
		{"all", allOf, "{a: 1, b: 2}", "-", Updated, `{"a":1,"b":2}`, `{"a":0}`, "", ""},
		{"all, one left", allOf, "{a: 1, b: 2}", "-", Updated, `{"a":1,"b":2}`, `{"a":0,"b":2}`, "b is still 2", ""},

		// Reads.
		{"read", change, "-", "{a: 1}", Read, ``, `{"a":1}`, "", ""},
		{"read of another state", change, "-", "{a: 1}", Read, ``, `{"a":2}`, "a is 2, not 1", ""},
		{"read found nothing", change, "-", "-", Read, ``, ``, "it was not found", ""},
		{"read found it, deleted", remove, "-", "-", Read, ``, `{}`, "it was found", ""},
		{"read found nothing, deleted", remove, "-", "-", Read, ``, ``, "", ""},
		{"read, created", create, "-", "{a: 1}", Read, ``, `{"a":1}`, "it was read, and a read changes nothing", ""},
		{"read, modified", anyOf, "{a: 1}", "-", Read, ``, `{"a":2}`, "it was read, and a read changes nothing", ""},
		{"read, all modified", allOf, "{a: 1}", "-", Read, ``, `{"a":2}`,
			"it was read, and a read changes nothing", ""},
		{"about to be read", change, "-", "-", Looking, ``, ``, "", ""},
		{"about to be read in a state", change, "-", "{a: 1}", Looking, ``, ``,
			"it was about to be read, and its state is not known yet", ""},
		{"about to be read after a state", change, "{a: 1}", "-", Looking, ``, ``,
			"it was about to be read, and its state is not known yet", ""},
		{"about to be read, deleted", remove, "-", "-", Looking, ``, ``,
			"it was about to be read, and nothing is known about it yet", ""},
		{"new state not known", change, "-", "-", Updated, `{"a":1}`, ``, "",
			"any update counts, also one of which the outcome is not known"},
		{"there was no object", change, "{a: 1}", "-", Updated, `null`, `{"a":2}`, "a was without a value, not 1", ""},
		{"state not known", change, "-", "{a: 1}", Updated, `{}`, ``, "the object's state is unknown there", ""},
		{"state not known, created", create, "-", "{a: 1}", Created, ``, ``, "the object's state is unknown there", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := NewMatcher(&Condition{Type: tt.typ, PrevState: stateOf(t, tt.prev), CurState: stateOf(t, tt.cur)})
			if err != nil {
				t.Fatal(err)
			}
			ok, miss, err := m.Match(tt.kind, []byte(tt.old), []byte(tt.new))
			if err != nil {
				t.Fatal(err)
			}
			if ok != (tt.miss == "") || miss.Text != tt.miss {
				t.Errorf("matches: %v, miss %q; want miss %q (%s)", ok, miss.Text, tt.miss, tt.reason)
			}
		})
	}
}

func TestMatchWhere(t *testing.T) {
	types := map[EventKind]TriggerType{Created: OnObjectCreation, Updated: OnObjectUpdate, Deleted: OnObjectDeletion,
		Looking: OnObjectUpdate}
	tests := []struct {
		where    string
		kind     EventKind
		old, new string
		miss     string
	}{
		{"object.spec.replicas == 2", Updated, `{}`, `{"spec":{"replicas":2}}`, ""},
		{"object.spec.replicas < 2.5", Updated, `{}`, `{"spec":{"replicas":2}}`, ""},
		{"object.spec.replicas > oldObject.spec.replicas", Updated, `{"spec":{"replicas":1}}`,
			`{"spec":{"replicas":2}}`, ""},
		{"object.spec.replicas > oldObject.spec.replicas", Updated, `{"spec":{"replicas":3}}`,
			`{"spec":{"replicas":2}}`, "where is false"},
		{"oldObject == null", Updated, ``, `{}`, ""},
		{"oldObject == null", Created, `{"spec":{}}`, `{}`, ""}, // deleted and created since it was looked up
		{"object.spec.replicas == 2", Deleted, ``, `{"spec":{"replicas":2}}`, ""},
		{"object.spec.replicas == 2", Looking, ``, ``, "it was about to be read, and its state is not known yet"},
		{"object.spec.replicas == 2", Updated, `{}`, `{}`, "where: no such key: spec"},
		{"has(object.spec) && object.spec.replicas == 2", Updated, `{}`, `{}`, "where is false"},
		{"object.?spec.?replicas.orValue(2) == 2", Updated, `{}`, `{}`, ""},
		{"object.metadata.name.startsWith('db')", Updated, `{}`, `{"metadata":{"name":"db-0"}}`, ""},
		{"object.a.all(x, object.a.all(y, object.a.all(z, object.a.all(w, x + y + z + w < 0))))", Updated, `{}`,
			`{"a":[` + strings.Repeat("-1,", 99) + `-1]}`, "where: operation cancelled: actual cost limit exceeded"},
	}
	for _, tt := range tests {
		m, err := NewMatcher(&Condition{Type: types[tt.kind], Where: tt.where})
		if err != nil {
			t.Fatal(err)
		}
		ok, miss, err := m.Match(tt.kind, []byte(tt.old), []byte(tt.new))
		if err != nil || ok != (tt.miss == "") || miss.Text != tt.miss {
			t.Errorf("where %s of %.40s -> %.40s: %v, miss %q, error %v; want miss %q", tt.where, tt.old, tt.new, ok,
				miss.Text, err, tt.miss)
		}
	}
}

func TestNewMatcherErrors(t *testing.T) {
	for _, tt := range []struct {
		c    Condition
		want string
	}{
		{Condition{Type: OnTimeout}, "a onTimeout trigger has no object to match"},
		{Condition{Type: OnObjectUpdate, PrevState: 5}, "prevState: a state must be a mapping, a part of the object"},
		{Condition{Type: OnObjectUpdate, CurState: map[string]any{"a": struct{}{}}},
			"curState: a: a value of Go type struct {} has no JSON form"},
		{Condition{Type: OnObjectUpdate, CurState: map[string]any{"a": []any{1, struct{}{}}}},
			"curState: a[1]: a value of Go type struct {} has no JSON form"},
		{Condition{Type: OnAnyFieldModified}, "onAnyFieldModified needs prevState with a field in it"},
		{Condition{Type: OnAllFieldsModified}, "onAllFieldsModified needs prevState with a field in it"},
		{Condition{Type: OnAllFieldsModified, PrevState: map[string]any{}},
			"onAllFieldsModified needs prevState with a field in it"},
		{Condition{Type: OnObjectUpdate, Where: "1 +"}, "where: CEL: Syntax error"},
	} {
		if _, err := NewMatcher(&tt.c); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("NewMatcher(%+v): %v, want %s", tt.c, err, tt.want)
		}
	}
	m, err := NewMatcher(&Condition{Type: OnObjectUpdate, CurState: map[string]any{"a": int64(1), "z": int64(1)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{`{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{a:1}`, `{"a":1 "b":2}`, `{"a":"x`,
		`{"b":[1,{`} {
		if ok, _, err := m.Match(Updated, nil, []byte(bad)); ok || err == nil {
			t.Errorf("Match accepts %s", bad)
		}
		ok, _, err := m.Match(Updated, []byte(bad), []byte(`{"a":1,"z":1}`))
		if ok || err == nil || !strings.HasPrefix(err.Error(), "old object: ") {
			t.Errorf("Match accepts the old object %s, or does not say that it is the old one: %v", bad, err)
		}
	}
}

// Misses are ordered by their distance.
func TestDistanceOfMisses(t *testing.T) {
	both := &Condition{Type: OnObjectUpdate, PrevState: map[string]any{"a": 1}, CurState: map[string]any{"b": 2}}
	lost := &Condition{Type: OnAllFieldsModified, PrevState: map[string]any{"a": 1, "b": 2}}
	for _, tt := range []struct {
		name     string
		c        *Condition
		kind     EventKind
		old, new string
		want     int
	}{
		{"another type", both, Updated, `{"a":1}`, `{"b":"2"}`, 1},
		{"another value", both, Updated, `{"a":1}`, `{"b":3}`, 2},
		{"another old value", both, Updated, `{"a":2}`, `{"b":2}`, 2},
		{"another type and another value", both, Updated, `{"a":2}`, `{"b":"2"}`, 3},
		{"unchanged", both, Updated, `{"a":1}`, `{"a":1,"b":2}`, 2},
		{"still, as far as is known", both, Updated, ``, `{"a":1,"b":2}`, 2},
		{"not lost", lost, Updated, `{"a":1,"b":2}`, `{"a":1}`, 2},
		{"not lost, and was another", lost, Updated, `{"a":0,"b":2}`, `{"b":2}`, 4},
		{"where", &Condition{Type: OnObjectUpdate, Where: "false"}, Updated, `{}`, `{}`, 2},
		{"another kind of event", both, Created, ``, `{"a":1}`, 1 << 16},
		{"nothing known", both, Updated, ``, ``, 1 << 16},
	} {
		m, err := NewMatcher(tt.c)
		if err != nil {
			t.Fatal(err)
		}
		if ok, miss, err := m.Match(tt.kind, []byte(tt.old), []byte(tt.new)); ok || err != nil ||
			miss.Distance != tt.want {
			t.Errorf("%s: %v, %v, %q at distance %d, want %d", tt.name, ok, err, miss.Text, miss.Distance, tt.want)
		}
	}
}

// Plans that are built in Go have Go's numbers in their states.
func TestNumbersOfGo(t *testing.T) {
	for _, number := range []any{1_000_000, int32(1_000_000), int64(1_000_000), 1e6} {
		m, err := NewMatcher(&Condition{Type: OnObjectCreation, CurState: map[string]any{"a": number}})
		if err != nil {
			t.Fatal(err)
		}
		if ok, miss, err := m.Match(Created, nil, []byte(`{"a":1000000}`)); !ok || err != nil {
			t.Errorf("%T: %s, %v", number, miss.Text, err)
		}
		if _, miss, _ := m.Match(Created, nil, []byte(`{"a":2}`)); miss.Text != "a is 2, not 1000000" {
			t.Errorf("%T: %s", number, miss.Text)
		}
	}
}

func TestStateOf(t *testing.T) {
	type spec struct {
		Replicas int `json:"replicas"`
	}
	for _, tt := range []struct {
		v    any
		want map[string]any
		err  string
	}{
		{spec{2}, map[string]any{"replicas": int64(2)}, ""},
		{map[string]any{"a": []float64{0.5, 2}}, map[string]any{"a": []any{0.5, int64(2)}}, ""},
		{map[string]any{}, map[string]any{}, ""},
		{map[string]any(nil), nil, ""},
		{(*spec)(nil), nil, ""},
		{[]int{1}, nil, "[1] is not a JSON object"},
		{func() {}, nil, "json: unsupported type: func()"},
		{json.RawMessage(`{"a":1,"a":2}`), nil, `duplicate field "a"`},
	} {
		got, err := StateOf(tt.v)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if !reflect.DeepEqual(got, tt.want) || text != tt.err {
			t.Errorf("%v: %#v, error %q; want %#v, error %q", tt.v, got, text, tt.want, tt.err)
		}
	}
}

func TestEmptyObjectIsUnknown(t *testing.T) {
	if o := NewObject([]byte{}); o != nil {
		t.Errorf("got %v, want nil", o)
	}
}

// The naive implementation: it decodes everything and follows the rules in the comment of Matcher literally.

func naiveContains(state, object any, has bool) bool {
	switch s := state.(type) {
	case map[string]any:
		if len(s) == 0 {
			_, ok := object.(map[string]any)
			return ok
		}
		o, _ := object.(map[string]any)
		for k, v := range s {
			w, ok := o[k]
			if !naiveContains(v, w, ok) {
				return false
			}
		}
		return true
	case []any:
		o, isList := object.([]any)
		if len(s) == 0 {
			return isList
		}
		for i, v := range s {
			if i < len(o) {
				if !naiveContains(v, o[i], true) {
					return false
				}
			} else if !naiveContains(v, nil, false) {
				return false
			}
		}
		return true
	case nil:
		return object == nil
	case string:
		switch s {
		case Present:
			return has && object != nil
		case Absent:
			return object == nil
		}
	}
	return has && reflect.DeepEqual(state, object)
}

// naiveFields collects the paths of a state's fields and of all places that it names.
func naiveFields(state any, path string, fields map[string]any, named map[string]bool) {
	named[path] = true
	switch s := state.(type) {
	case map[string]any:
		for k, v := range s {
			naiveFields(v, path+"/"+k, fields, named)
		}
		if len(s) > 0 || path == "" {
			return
		}
	case []any:
		for i, v := range s {
			naiveFields(v, fmt.Sprintf("%s/#%d", path, i), fields, named)
		}
		if len(s) > 0 {
			return
		}
	}
	fields[path] = state
}

func naiveAt(object any, path string) any {
	for _, step := range strings.Split(path, "/")[1:] {
		var i int
		if list, ok := object.([]any); ok && strings.HasPrefix(step, "#") {
			fmt.Sscanf(step, "#%d", &i)
			if i >= len(list) {
				return nil
			}
			object = list[i]
			continue
		}
		m, ok := object.(map[string]any)
		if !ok {
			return nil
		}
		object = m[step]
	}
	return object
}

func naiveMatch(c *Condition, old, new any) bool {
	prevFields, curFields, prevNamed, curNamed := map[string]any{}, map[string]any{}, map[string]bool{},
		map[string]bool{}
	if c.PrevState != nil {
		naiveFields(c.PrevState, "", prevFields, prevNamed)
	}
	if c.CurState != nil {
		naiveFields(c.CurState, "", curFields, curNamed)
	}
	if c.Type != OnObjectUpdate {
		lost, all := false, true
		for path, v := range prevFields {
			had := naiveContains(v, naiveAt(old, path), naiveAt(old, path) != nil)
			has := naiveContains(v, naiveAt(new, path), naiveAt(new, path) != nil)
			lost = lost || had && !has
			all = all && had && !has
		}
		return c.Type == OnAnyFieldModified && lost || c.Type == OnAllFieldsModified && all
	}
	if c.PrevState != nil && !naiveContains(c.PrevState, old, true) || c.CurState != nil &&
		!naiveContains(c.CurState, new, true) {
		return false
	}
	for path := range prevFields {
		if !curNamed[path] && reflect.DeepEqual(naiveAt(old, path), naiveAt(new, path)) {
			return false
		}
	}
	for path := range curFields {
		if !prevNamed[path] && reflect.DeepEqual(naiveAt(old, path), naiveAt(new, path)) {
			return false
		}
	}
	return true
}

// randomValue makes a small value from few names, so that states and objects often match.
func randomValue(r *rand.Rand, depth int, state bool) any {
	n := r.IntN(10)
	switch {
	case depth > 0 && n < 4:
		m := map[string]any{}
		for range r.IntN(3) {
			m[string(rune('a'+r.IntN(3)))] = randomValue(r, depth-1, state)
		}
		return m
	case depth > 0 && n < 6:
		var list = []any{}
		for range r.IntN(3) {
			list = append(list, randomValue(r, depth-1, state))
		}
		return list
	case n == 6 && state:
		return []any{Present, Absent, nil}[r.IntN(3)]
	case n == 6:
		return nil
	case n == 7:
		return r.IntN(2) == 0
	case n == 8:
		return string(rune('x' + r.IntN(2)))
	}
	return int64(r.IntN(2))
}

func randomMap(r *rand.Rand, state bool) map[string]any {
	m := map[string]any{}
	for range 1 + r.IntN(3) {
		m[string(rune('a'+r.IntN(3)))] = randomValue(r, 2, state)
	}
	return m
}

func TestMatchAgainstNaive(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	matches := 0
	for range 40_000 {
		c := &Condition{Type: []TriggerType{OnObjectUpdate, OnObjectUpdate, OnAnyFieldModified,
			OnAllFieldsModified}[r.IntN(4)]}
		old, new := randomMap(r, false), randomMap(r, false)
		if r.IntN(2) == 0 {
			c.PrevState = randomMap(r, true)
			if r.IntN(2) == 0 {
				c.PrevState = old
			}
		}
		if c.Type == OnObjectUpdate && r.IntN(2) == 0 {
			c.CurState = randomMap(r, true)
			if r.IntN(2) == 0 {
				c.CurState = new
			}
		}
		m, err := NewMatcher(c)
		if err != nil {
			continue
		}
		oldJSON, _ := json.Marshal(old)
		newJSON, _ := json.Marshal(new)
		got, miss, err := m.Match(Updated, oldJSON, newJSON)
		if err != nil {
			t.Fatal(err)
		}
		if want := naiveMatch(c, old, new); got != want {
			t.Fatalf("%s prev %v cur %v: %s -> %s: got %v (%s), want %v", c.Type, c.PrevState, c.CurState, oldJSON,
				newJSON, got, miss.Text, want)
		}
		if got {
			matches++
		}
	}
	if matches < 1000 {
		t.Errorf("only %d of the random updates matched: too few", matches)
	}
}

// largeObject is a pod-like object of about 10 KB.
func largeObject(phase string) []byte {
	containers := []any{}
	for i := range 20 {
		env := []any{}
		for j := range 8 {
			env = append(env, map[string]any{"name": fmt.Sprintf("VARIABLE_%d", j),
				"value": fmt.Sprintf("value-%d-%d", i, j)})
		}
		containers = append(containers, map[string]any{
			"name": fmt.Sprintf("container-%d", i), "image": "registry.example.com/team/image:v1.2.3",
			"imagePullPolicy": "IfNotPresent", "env": env,
			"resources": map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "128Mi"}},
		})
	}
	b, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "web-0", "namespace": "default",
			"uid": "0b7c1e8e-0000-0000-0000-000000000000", "resourceVersion": "12345",
			"labels": map[string]any{"app": "web", "tier": "front"}},
		"spec": map[string]any{"containers": containers, "nodeName": "n1"},
		"status": map[string]any{"phase": phase, "podIP": "10.0.0.1",
			"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
	})
	if err != nil {
		panic(err)
	}
	return b
}

func BenchmarkMatchUpdate10KB(b *testing.B) {
	old, new := largeObject("Pending"), largeObject("Running")
	m, err := NewMatcher(&Condition{
		Type:      OnObjectUpdate,
		PrevState: map[string]any{"status": map[string]any{"phase": "Pending"}},
		CurState: map[string]any{"status": map[string]any{"phase": "Running"},
			"spec": map[string]any{"nodeName": "n1"}, "metadata": map[string]any{}},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(old) + len(new)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := m.Match(Updated, old, new); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzMatch(f *testing.F) {
	f.Add(`{"a":1,"b":{"c":[1,"x"]}}`, `{"a":2}`)
	f.Add(`{"a":"\u00e9\\","b":null}`, ` [ ] `)
	m, err := NewMatcher(&Condition{
		Type:      OnObjectUpdate,
		PrevState: map[string]any{"a": Present, "b": map[string]any{"c": []any{int64(1), "x"}}},
		CurState:  map[string]any{"a": int64(2), "d": map[string]any{}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, old, new string) {
		_, _, err := m.Match(Updated, []byte(old), []byte(new))
		if err != nil && json.Valid([]byte(old)) && json.Valid([]byte(new)) && old != "" {
			t.Fatalf("valid JSON is rejected: %v", err)
		}
	})
}
