package kinds_test

import (
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/config"
	"github.com/trommel-dev/trommel/chaos/kinds"
)

// Every field of v1alpha1.Kinds is in the table, in the same order.
func TestEveryFieldIsInTheTable(t *testing.T) {
	var fields, names []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.Kinds]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields = append(fields, name)
	}
	for _, k := range kinds.All() {
		names = append(names, k.Name)
	}
	if !slices.Equal(fields, names) {
		t.Errorf("fields %q, table %q", fields, names)
	}
}

// The rules that list all kinds have not forgotten one.
func TestRulesListAllKinds(t *testing.T) {
	data, err := fs.ReadFile(config.Files, config.DisruptionDefinition)
	if err != nil {
		t.Fatal(err)
	}
	definition := strings.Join(strings.Fields(string(data)), " ")
	var required, beside []string
	for _, k := range kinds.All() {
		has := "has(self." + k.Name + ")"
		required = append(required, has)
		if k.Name != "podReplacement" {
			beside = append(beside, has)
		}
	}
	for _, rule := range []string{
		strings.Join(required, " || "),
		"!has(self.podReplacement) || !(" + strings.Join(beside, " || ") + ")",
	} {
		if !strings.Contains(definition, rule) {
			t.Errorf("no rule %s", rule)
		}
	}
}

func TestOf(t *testing.T) {
	if k := kinds.Of(v1alpha1.KindPodReplacement); !k.InAPI || k.Name != "podReplacement" {
		t.Errorf("%+v", k)
	}
	if k := kinds.Of("x"); k.Name != "x" || k.InAPI || k.Privileges(false).Node || k.EndsContainers {
		t.Errorf("unknown: %+v", k)
	}
}
