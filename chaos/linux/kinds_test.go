package linux

import (
	"reflect"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
	"github.com/trommel-dev/trommel/chaos/kinds"
)

// A new kind must not be forgotten here: either it is implemented for real nodes, or the table says why not.
func TestEveryKindIsDecidedOn(t *testing.T) {
	fields := reflect.TypeFor[v1alpha1.Kinds]()
	for i := range fields.NumField() {
		name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
		kind := v1alpha1.Kind(name)
		_, err := (&Backend{}).New(inject.Request{Kind: kind, Spec: []byte("{}")}, &inject.Notes{})
		forgotten := err != nil && strings.Contains(err.Error(), "is not implemented")
		if forgotten != kinds.Of(kind).InAPI {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
