package run

import (
	"reflect"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/run/journal"
	"github.com/trommel-dev/trommel/internal/run/logs"
	"github.com/trommel-dev/trommel/internal/run/settle"
	"github.com/trommel-dev/trommel/internal/run/tools"
)

// theParts are the parts of a run.
var theParts = []reflect.Type{
	reflect.TypeFor[journal.Journal](), reflect.TypeFor[journal.Events](), reflect.TypeFor[journal.PlanFiles](),
	reflect.TypeFor[teardown](),
	reflect.TypeFor[served](), reflect.TypeFor[logs.Set](), reflect.TypeFor[suiteManifests](),
	reflect.TypeFor[fleet](),
	reflect.TypeFor[tools.Controllers](), reflect.TypeFor[tools.APIServers](),
	reflect.TypeFor[tools.Writes](),
	reflect.TypeFor[course](), reflect.TypeFor[settle.Controllers](), reflect.TypeFor[journal.Evidence](),
}

// A part that needs something of another one is given an interface or a function. Only the runner knows them all.
func TestPartsDoNotKnowEachOther(t *testing.T) {
	forbidden := map[reflect.Type]bool{reflect.TypeFor[runner](): true, reflect.TypeFor[parts](): true}
	for _, part := range theParts {
		forbidden[part] = true
	}
	for _, part := range theParts {
		for i := range part.NumField() {
			seen := map[reflect.Type]bool{part: true}
			if knows := find(part.Field(i).Type, forbidden, seen); knows != nil {
				t.Errorf("%s knows %s by its field %s: give it an interface or a function", part.Name(), knows.Name(),
					part.Field(i).Name)
			}
		}
	}
}

// find returns the first of the wanted types of which a type consists. It looks into types of this package and those
// below it only.
func find(typ reflect.Type, wanted, seen map[reflect.Type]bool) reflect.Type {
	if seen[typ] || typ.PkgPath() != "" && !strings.HasPrefix(typ.PkgPath(), reflect.TypeFor[runner]().PkgPath()) {
		return nil
	}
	if wanted[typ] {
		return typ
	}
	seen[typ] = true
	var of []reflect.Type
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
		of = append(of, typ.Elem())
	case reflect.Map:
		of = append(of, typ.Key(), typ.Elem())
	case reflect.Struct:
		for i := range typ.NumField() {
			of = append(of, typ.Field(i).Type)
		}
	case reflect.Interface:
		for i := range typ.NumMethod() {
			of = append(of, typ.Method(i).Type)
		}
	case reflect.Func:
		for i := range typ.NumIn() {
			of = append(of, typ.In(i))
		}
		for i := range typ.NumOut() {
			of = append(of, typ.Out(i))
		}
	}
	for _, one := range of {
		if found := find(one, wanted, seen); found != nil {
			return found
		}
	}
	return nil
}
