package trommel

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// public returns the directories of the packages that docs/api.md lists as the API.
func public(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, item := range regexp.MustCompile("(?m)^- `([^`]+)`: ").FindAllStringSubmatch(string(page), -1) {
		list = append(list, item[1])
	}
	if len(list) < 10 {
		t.Fatalf("docs/api.md lists %d packages: %v", len(list), list)
	}
	return list
}

// A program outside of this module cannot name a type below internal, so the API must not need one.
func TestPublicPackagesShowNothingInternal(t *testing.T) {
	for _, dir := range public(t) {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no Go files in %s: %v", dir, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			hidden := internalImports(file)
			show := func(n ast.Node) {
				ast.Inspect(n, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok {
						if x, ok := s.X.(*ast.Ident); ok && hidden[x.Name] {
							t.Errorf("%s: the API shows %s.%s, which is internal",
								set.Position(s.Pos()), x.Name, s.Sel.Name)
						}
					}
					return true
				})
			}
			for _, d := range file.Decls {
				exposed(d, show)
			}
		}
	}
}

// internalImports returns the names under which a file imports packages below internal.
func internalImports(file *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, i := range file.Imports {
		path, _ := strconv.Unquote(i.Path.Value)
		if !slices.Contains(strings.Split(path, "/"), "internal") {
			continue
		}
		name := filepath.Base(path)
		if i.Name != nil {
			name = i.Name.Name
		}
		names[name] = true
	}
	return names
}

// exposed calls show with each part of a declaration that users of the package see: signatures, the types of exported
// fields, variables and constants, and what exported types are made of.
func exposed(d ast.Decl, show func(ast.Node)) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && (d.Recv == nil || receiverIsExported(d.Recv)) {
			show(d.Type)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				if spec.Type != nil && slices.ContainsFunc(spec.Names, (*ast.Ident).IsExported) {
					show(spec.Type)
				}
			case *ast.TypeSpec:
				if spec.Name.IsExported() {
					exposedType(spec.Type, show)
				}
			}
		}
	}
}

func exposedType(typ ast.Expr, show func(ast.Node)) {
	s, ok := typ.(*ast.StructType)
	if !ok {
		show(typ)
		return
	}
	for _, f := range s.Fields.List {
		if len(f.Names) == 0 || slices.ContainsFunc(f.Names, (*ast.Ident).IsExported) {
			exposedType(f.Type, show)
		}
	}
}

func receiverIsExported(r *ast.FieldList) bool {
	typ := r.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if index, ok := typ.(*ast.IndexExpr); ok {
		typ = index.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}
