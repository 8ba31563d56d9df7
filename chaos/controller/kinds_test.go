package controller

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// Each field of Kinds has a constant with its name, and the other way round.
func TestConstantsOfKinds(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.FromSlash("../api/v1alpha1/kinds.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var constants, fields []string
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			if of, ok := spec.Type.(*ast.Ident); ok && of.Name == "Kind" {
				value, ok := spec.Values[0].(*ast.BasicLit)
				if !ok {
					t.Fatalf("%s is no literal", spec.Names[0].Name)
				}
				constants = append(constants, spec.Names[0].Name+"="+strings.Trim(value.Value, `"`))
			}
		}
		return true
	})
	kinds := reflect.TypeFor[chaos.Kinds]()
	for i := range kinds.NumField() {
		field := kinds.Field(i)
		fields = append(fields, "Kind"+field.Name+"="+string(kindAt(field)))
	}
	if !slices.Equal(constants, fields) {
		t.Errorf("constants %v, fields %v", constants, fields)
	}
}

func TestKinds(t *testing.T) {
	drop := chaos.Percentage(50)
	spec := &chaos.Kinds{GRPC: &chaos.GRPC{}, Network: &chaos.Network{Drop: &drop}}
	if got, want := Kinds(spec), []chaos.Kind{chaos.KindNetwork, chaos.KindGRPC}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got, err := KindSpec(spec, chaos.KindNetwork); got != `{"drop":50}` || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := KindSpec(spec, "rain"); err == nil || err.Error() != `unknown kind of disruption "rain"` {
		t.Errorf("%s, %v", got, err)
	}
}
