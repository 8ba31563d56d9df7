package baseline

import (
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/facts"
)

// Regression: only what the controllers under test had created or deleted themselves was counted. A claim that another
// controller deleted because of them, and that was created again without its data, did not count as a difference.
func TestIncarnations(t *testing.T) {
	twice := func(key string) []string {
		return []string{"created " + key + " {}", "deleted " + key + " {}", "created " + key + " {}"}
	}
	again := func(key string) []string { return append(twice(key), "deleted "+key+" {}", "created "+key+" {}") }
	const often = ": created 3 times; without faults: created 2 times"
	const once = ": created once; without faults: created 2 times"
	for _, tt := range []struct {
		name         string
		without, run []string
		want         string
		note         bool
	}{
		{"a claim again", twice("persistentvolumeclaim/default/d"), again("persistentvolumeclaim/default/d"),
			"persistentvolumeclaim/default/d" + often, false},
		{"a claim less often", twice("persistentvolumeclaim/default/d"),
			[]string{"created persistentvolumeclaim/default/d {}"}, "persistentvolumeclaim/default/d" + once, true},
		{"a claim that is never there without faults", []string{"created persistentvolumeclaim/default/a {}"},
			[]string{"created persistentvolumeclaim/default/a {}", "created persistentvolumeclaim/default/d {}",
				"deleted persistentvolumeclaim/default/d {}"},
			"persistentvolumeclaim/default/d: created once; without faults: never created", true},
		{"a pod again", twice("pod/default/d"), again("pod/default/d"), "pod/default/d" + often, true},
		{"the controller's pod again", twice("pod/default/d"),
			append(twice("pod/default/d"), "db: deleted pod/default/d {}", "created pod/default/d {}"),
			"pod/default/d" + often, false},
		{"as often", twice("secret/default/d"), twice("secret/default/d"), "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := story(t, tt.without...)
			f, err := facts.Follow(story(t, tt.run...))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range learn(t, r, r).Compare(f.Objects()) {
				got = append(got, d.String())
				if d.Note != tt.note {
					t.Errorf("%s: note %t", d, d.Note)
				}
			}
			if strings.Join(got, "\n") != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A StatefulSet that is deleted without its pods, and created again around them, is not another one: nothing is lost.
func TestOrphaningDeletion(t *testing.T) {
	const set = "statefulset.apps/default/d"
	marked := func(finalizer string) []string {
		meta := `{"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["` + finalizer + `"]}}`
		return []string{"db: updated " + set + " " + meta, "deleted " + set + " {}", "db: created " + set + " {}"}
	}
	once := append([]string{"db: created " + set + " {}"}, marked("orphan")...)
	const instead = ", and once in place of one that left what it owned"
	for finalizer, want := range map[string]string{
		"orphan":             "",
		"foregroundDeletion": set + ": created 2 times" + instead + "; without faults: created once" + instead,
	} {
		f, err := facts.Follow(story(t, append(once, marked(finalizer)...)...))
		if err != nil {
			t.Fatal(err)
		}
		r := story(t, once...)
		var got []string
		for _, d := range learn(t, r, r).Compare(f.Objects()) {
			got = append(got, d.String())
		}
		if strings.Join(got, "\n") != want {
			t.Errorf("%s: got %q, want %q", finalizer, got, want)
		}
	}
}

// A claim that the StatefulSet of a dying owner makes is not another one, as little as that StatefulSet.
func TestClaimsOfWhatIsCreatedInVain(t *testing.T) {
	set := func(owner string) string {
		return `created statefulset.apps/default/db {"metadata": {"name": "db", "namespace": "default", "uid": "set-` +
			owner + `", "ownerReferences": [{"uid": "` + owner + `", "controller": true}]}, ` +
			`"spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}}`
	}
	claim := []string{
		"created persistentvolumeclaim/default/data-db-0 " +
			`{"metadata": {"name": "data-db-0", "namespace": "default"}}`,
		"db: deleted persistentvolumeclaim/default/data-db-0 {}",
	}
	owner := func(event string) string {
		return event + ` database.example.org/default/db {"metadata": {"uid": "1"}}`
	}
	const deleted = "deleted statefulset.apps/default/db {}"
	const twice = "persistentvolumeclaim/default/data-db-0: created 2 times; without faults: created once"
	without := slices.Concat([]string{owner("created"), set("1")}, claim, []string{owner("deleted"), deleted})
	for _, tt := range []struct {
		name string
		then []string
		want string
	}{
		{"of the dying owner", slices.Concat([]string{set("1")}, claim, []string{deleted}), ""},
		{"of another owner", slices.Concat([]string{set("2")}, claim, []string{deleted}), twice},
		// Regression: the StatefulSet controller may make a claim of a set that is gone already.
		{"of the dying owner, late", slices.Concat([]string{set("1"), deleted}, claim), ""},
		{"of the next owner", slices.Concat([]string{set("1"), deleted, set("2")}, claim, []string{deleted}), twice},
	} {
		r := story(t, without...)
		f, err := facts.Follow(story(t, slices.Concat(without, tt.then)...))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range learn(t, r, r).Compare(f.Objects()) {
			if d.Key.Type() == "persistentvolumeclaim" {
				got = append(got, d.String())
			}
		}
		if strings.Join(got, "\n") != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
