package observed

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trommel-dev/trommel/internal/mistake"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// kinds are the types of a cluster, by singular.
type kinds map[string]objects.Type

func (k kinds) Resolve(_ context.Context, key plan.ResourceKey) (objects.Type, error) {
	if t, ok := k[key.Type]; ok {
		return t, nil
	}
	return objects.Type{}, &objects.NotServedError{What: key.Type}
}

func (k kinds) AllWatchable(context.Context) (all []objects.Type, err error) {
	for _, t := range k {
		if t.Watchable() {
			all = append(all, t)
		}
	}
	return all, nil
}

// typed returns a type of the core group.
func typed(kind string, verbs ...string) objects.Type {
	singular := strings.ToLower(kind)
	return objects.Type{
		Kind:     schema.GroupVersionKind{Version: "v1", Kind: kind},
		Resource: schema.GroupVersionResource{Version: "v1", Resource: singular + "s"}, Singular: singular,
		Verbs: verbs,
	}
}

func keyOf(typ string) plan.ResourceKey {
	return plan.ResourceKey{Type: typ, Namespace: "*", Name: "*"}
}

func TestStates(t *testing.T) {
	types := kinds{
		"secret": typed("Secret", "list", "watch"), "pod": typed("Pod", "list", "watch"),
		"configmap": typed("ConfigMap", "list", "watch"), "review": typed("Review", "create"),
		"database": typed("Database", "list", "watch"),
	}
	own := []plan.ResourceKey{{Type: "pod", Namespace: "default", Name: "a"}, {Type: "pod", Name: "b"}, {}}
	further := []plan.ResourceKey{keyOf("secret"), keyOf("pod"), keyOf("review"), keyOf("unknown")}
	named := []plan.ResourceKey{keyOf("pod"), keyOf("secret"), keyOf("unknown")}
	list := func(_ context.Context, t objects.Type) error {
		if t.Singular == "database" {
			return errors.New("its webhook is down")
		}
		return nil
	}
	s := &States{Types: types, List: list, Logger: slog.New(slog.DiscardHandler)}
	if got, err := s.Choose(t.Context(), own, further); err != nil || !slices.Equal(got, named) {
		t.Errorf("%v (%v), want %v", got, err, named)
	}
	all := []record.HistoryEntry{{Type: "pod"}, {Type: "configmap"}, {Type: "secret"}}
	if got, err := s.Needed(t.Context(), all, nil); err != nil || len(got) != 3 {
		t.Errorf("%v (%v)", got, err)
	}

	s.Find = true
	got, err := s.Choose(t.Context(), own, nil)
	if err != nil || !slices.Contains(got, keyOf("configmap")) || slices.Contains(got, keyOf("database")) ||
		slices.Contains(got, keyOf("review")) {
		t.Errorf("%v (%v)", got, err)
	}
	// The controllers had to do with these.
	seen := []plan.ResourceKey{keyOf("secret"), keyOf("review"), keyOf("database")}
	left, err := s.Needed(t.Context(), all, seen)
	want := "record history: database/*/* could not be listed when the workload began: it was not served"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if len(left) != 2 || left[0].Type != "pod" || left[1].Type != "secret" {
		t.Errorf("left %v", left)
	}
	if !slices.Equal(s.Unlisted, []plan.ResourceKey{keyOf("database")}) {
		t.Errorf("unlisted: %v", s.Unlisted)
	}
}

// recordedTypes are what a recorder has recorded.
type recordedTypes []objects.Type

func (r recordedTypes) Types() []objects.Type    { return r }
func (r recordedTypes) FollowsDefinitions() bool { return true }

// A type that began to be served is recorded, also if it has ended, and one that never was has no objects.
func TestStatesOfTypesThatComeAndGo(t *testing.T) {
	types := kinds{"pod": typed("Pod", "list", "watch"), "come": typed("Come", "list", "watch")}
	list := func(context.Context, objects.Type) error { return nil }
	s := &States{Types: types, List: list, Find: true, Logger: slog.New(slog.DiscardHandler)}
	if _, err := s.Choose(t.Context(), []plan.ResourceKey{keyOf("named")}, nil); err != nil {
		t.Fatal(err)
	}
	s.Recorder = recordedTypes{types["come"], typed("Gone", "list", "watch")}
	all := []record.HistoryEntry{{Type: "come"}, {Type: "gone"}, {Type: "pod"}}
	seen := []plan.ResourceKey{keyOf("come"), keyOf("gones"), keyOf("never")}
	left, err := s.Needed(t.Context(), all, seen)
	if err != nil || len(left) != 2 || left[0].Type != "come" || left[1].Type != "gone" {
		t.Errorf("%v (%v), want come and gone", left, err)
	}
	if !s.Further(types["come"]) || s.Further(typed("Event", "list", "watch")) {
		t.Error("events do not count, other types do")
	}
	s.Unlisted = []plan.ResourceKey{keyOf("come")}
	if s.Further(types["come"]) {
		t.Error("a type that could not be listed at the beginning had objects that nobody knows")
	}
}

// What a controller writes only under a fault was not known before: the run says of which types it has no states.
func TestStatesOfTypesThatWereNotKnown(t *testing.T) {
	types := kinds{
		"secret": typed("Secret", "list", "watch"), "secrets": typed("Secret", "list", "watch"),
		"claims": typed("Claim", "list", "watch"), "event": typed("Event", "list", "watch"),
		"review": typed("Review", "create"),
	}
	s := &States{Types: types, Logger: slog.New(slog.DiscardHandler)}
	if _, err := s.Choose(t.Context(), nil, []plan.ResourceKey{keyOf("secret")}); err != nil {
		t.Fatal(err)
	}
	// A deletion names the resource only.
	seen := []plan.ResourceKey{keyOf("secrets"), keyOf("claims"), keyOf("review"), keyOf("event"), keyOf("unknown")}
	if got := s.Unrecorded(t.Context(), seen); !slices.Equal(got, []plan.ResourceKey{keyOf("claim")}) {
		t.Errorf("not recorded: %v, want claims", got)
	}
	s.Find = true
	if got := s.Unrecorded(t.Context(), seen); got != nil {
		t.Errorf("not recorded: %v, although all types are", got)
	}
}

func TestResolveTypes(t *testing.T) {
	definition := func(typ string) plan.Action {
		return plan.Action{Writing: plan.Writing{
			ResourceKey: plan.ResourceKey{Type: typ, Namespace: "default", Name: "a"},
		}}
	}
	types := kinds{"secret": typed("Secret"), "box": typed("Crate")}
	nobody := func(plan.ResourceKey) bool { return false }
	p := &plan.Plan{File: "p.yaml", Actions: []plan.Action{definition("secret"), definition("secret")}}
	rules, err := ResolveTypes(t.Context(), types, p, nobody)
	if err != nil {
		t.Fatal(err)
	}
	got := rules.Resolve(p.Actions[0].ResourceKey)
	if got.Kind != "secret" || got.Resource != "secrets" || got.Name != "a" {
		t.Errorf("%+v", got)
	}
	p.Actions = append(p.Actions, definition("box"), definition("none"))
	_, err = ResolveTypes(t.Context(), types, p, nobody)
	var users *mistake.Error
	if !errors.As(err, &users) {
		t.Fatal(err)
	}
	for _, want := range []string{"p.yaml: ", "its kind is Crate; write crate/default/a", "none"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not contain %q", err, want)
		}
	}
}

func TestResolveTypesThatAreServedLater(t *testing.T) {
	key := func(text string) plan.ResourceKey {
		k, err := plan.ParseResourceKey(text)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	later, box := key("thing.example.com/default/a"), key("boxes.example.com/default/a")
	p := &plan.Plan{File: "p.yaml", Actions: []plan.Action{
		{Writing: plan.Writing{ResourceKey: later}}, {Writing: plan.Writing{ResourceKey: box}},
	}}
	got, err := ResolveTypes(t.Context(), kinds{}, p, func(plan.ResourceKey) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if r := got.Resolve(later); r.Kind != "thing" || r.Group != "example.com" || r.Resource != "" || r.Name != "a" {
		t.Errorf("before: %+v", r)
	}
	served := func(kind, resource string) objects.Type {
		gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
		return objects.Type{
			Kind: gv.WithKind(kind), Resource: gv.WithResource(resource), Singular: strings.ToLower(kind),
		}
	}
	if named, err := got.Take(served("Other", "others")); named || err != nil {
		t.Errorf("another type: %v, %v", named, err)
	}
	if named, err := got.Take(served("Thing", "thinglets")); !named || err != nil {
		t.Errorf("%v, %v", named, err)
	}
	if r := got.Resolve(later); r.Kind != "thing" || r.Resource != "thinglets" || r.AnyGroup {
		t.Errorf("after: %+v", r)
	}
	const want = "p.yaml: type boxes: do you mean box? (its kind is Box; write box.example.com/default/a)"
	if named, err := got.Take(served("Box", "boxes")); named || err == nil || err.Error() != want {
		t.Errorf("%v, %v, want %s", named, err, want)
	}
}
