package controller

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// kindAt is the kind of a field of chaos.Kinds.
func kindAt(field reflect.StructField) chaos.Kind {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return chaos.Kind(name)
}

// Kinds lists the kinds of a spec in order.
func Kinds(kinds *chaos.Kinds) []chaos.Kind {
	var list []chaos.Kind
	v := reflect.ValueOf(*kinds)
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			list = append(list, kindAt(v.Type().Field(i)))
		}
	}
	return list
}

// KindOf is the kind of a chaos pod.
func KindOf(pod client.Object) chaos.Kind { return chaos.Kind(pod.GetLabels()[LabelKind]) }

// KindSpec returns the JSON text of a kind's part of the spec.
func KindSpec(kinds *chaos.Kinds, kind chaos.Kind) (string, error) {
	v := reflect.ValueOf(*kinds)
	for i := range v.NumField() {
		if kindAt(v.Type().Field(i)) == kind {
			data, err := json.Marshal(v.Field(i).Interface())
			return string(data), err
		}
	}
	return "", fmt.Errorf("unknown kind of disruption %q", kind)
}
