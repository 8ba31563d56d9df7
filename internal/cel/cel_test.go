package cel

import (
	"errors"
	"testing"
)

func TestCompile(t *testing.T) {
	for _, test := range []struct {
		name   string
		scope  Scope
		text   string
		offset int
		err    string
	}{
		{"unknown variable", Object, "  oldObject.x", 2, "undeclared reference to 'oldObject' (in container '')"},
		{"syntax", Object, "object.a ==", 11,
			"Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', " +
				"'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"},
		{"second line, after two-byte characters", Object, "object.a ==\n \"öö\" && x", 23,
			"undeclared reference to 'x' (in container '')"},
		{"not a bool", Object, "1 + 2", 0, "the result is int, not bool"},
		{"eventually knows no object", Objects, "object.a", 0, "undeclared reference to 'object' (in container '')"},
		{"open result", Object, "object.ready", 0, ""},
		{"optional", Object, "object.?status.?phase.orValue('') == 'Ready'", 0, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := test.scope.Compile(test.text)
			var e *SyntaxError
			switch {
			case test.err == "" && err == nil:
			case !errors.As(err, &e):
				t.Fatalf("got %v, want %q", err, test.err)
			case e.Message != test.err || e.Offset != test.offset:
				t.Errorf("got %d %q, want %d %q", e.Offset, e.Message, test.offset, test.err)
			}
		})
	}
}

func TestHolds(t *testing.T) {
	for _, test := range []struct {
		text    string
		want    bool
		missing bool
		err     string
	}{
		{"object.spec.replicas == 2", true, false, ""},
		{"object.spec.replicas == 2.0", true, false, ""},
		{"object.spec.replicas > 1 && object.status.ready", false, true, "no such key: status"},
		{"object.list[3] == 1", false, true, "index out of bounds: 3"},
		{"!has(object.status)", true, false, ""},
		{"object.?status.?phase.orValue('none') == 'none'", true, false, ""},
		{"object.name", false, false, "the result is a string, not a bool"},
		{"object.name > 1", false, false, "no such overload"},
	} {
		t.Run(test.text, func(t *testing.T) {
			e, err := Object.Compile(test.text)
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.Holds(map[string]any{"object": map[string]any{
				"name": "db", "spec": map[string]any{"replicas": int64(2)}, "list": []any{int64(1)},
			}})
			if got != test.want || errors.Is(err, ErrMissing) != test.missing || (err == nil) != (test.err == "") ||
				err != nil && err.Error() != test.err {
				t.Errorf("got %v, %v; want %v, %q", got, err, test.want, test.err)
			}
		})
	}
}

func TestUses(t *testing.T) {
	e, err := History.Compile("event == 'deleted' && objects.exists(object, object.kind == 'Pod')")
	if err != nil {
		t.Fatal(err)
	}
	for variable, want := range map[string]bool{"event": true, "objects": true, "oldObject": false} {
		if e.Uses(variable) != want {
			t.Errorf("uses %s: %v", variable, !want)
		}
	}
}
