package instrumentation

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"text/template"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

//go:embed points/*.tmpl
var templates embed.FS

const serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// NotFoundError says that a module's version does not have a point at the place given by the table of points.
type NotFoundError struct {
	Module, Version, File, Function, Reason string
	Dir                                     string // directory of the module's source
}

func (e *NotFoundError) Error() string {
	if e.Module == moduleStandard {
		what := "give its processes their pod's files and address"
		if strings.HasPrefix(e.File, labelsDir+"/") {
			what = "distinguish reconciles that have no context"
		}
		return fmt.Sprintf("%s: %s in %s: %s; this version of trommel does not know how to %s: "+
			"build with a released Go, %s or later (GOTOOLCHAIN), or with a newer trommel (searched: %s)", e.Version,
			e.Function, e.File, e.Reason, what, oldestGo, e.Dir)
	}
	return fmt.Sprintf("%s %s: %s in %s: %s; this version of trommel does not know how to observe it: "+
		"build with a released %s, %s or later, "+
		"or with a newer trommel (searched: %s)", e.Module, e.Version, e.Function, e.File, e.Reason, e.Module,
		oldest[e.Module], e.Dir)
}

// source is a parsed file with the edits to be made in it.
type source struct {
	path  string // for messages and //line
	text  []byte
	fset  *token.FileSet
	file  *ast.File
	edits []edit
}

// edit replaces text[at:end]; at == end inserts.
type edit struct {
	at, end int
	text    string
}

func parse(path string, text []byte) (*source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("read source to patch: %w", err)
	}
	return &source{path: path, text: text, fset: fset, file: file}, nil
}

func (s *source) offset(p token.Pos) int { return s.fset.PositionFor(p, false).Offset }

func (s *source) line(p token.Pos) int { return s.fset.PositionFor(p, false).Line }

func (s *source) insert(at token.Pos, text string) {
	s.edits = append(s.edits, edit{s.offset(at), s.offset(at), text})
}

func (s *source) replace(from, to token.Pos, text string) {
	s.edits = append(s.edits, edit{s.offset(from), s.offset(to), text})
}

// patched returns the text with the edits in it and a //line directive ahead, so that positions are those of the
// original.
func (s *source) patched() []byte {
	sort.SliceStable(s.edits, func(i, j int) bool { return s.edits[i].at < s.edits[j].at })
	var b bytes.Buffer
	fmt.Fprintf(&b, "//line %s:1\n", s.path)
	at := 0
	for _, e := range s.edits {
		b.Write(s.text[at:e.at])
		b.WriteString(e.text)
		at = e.end
	}
	b.Write(s.text[at:])
	return b.Bytes()
}

// function finds a function by receiver, as written in the table of points, and name.
func (s *source) function(receiver, name string) *ast.FuncDecl {
	if f := s.declaration(receiver, name); f != nil && f.Body != nil {
		return f
	}
	return nil
}

// declaration also finds a function that has no body, and one that is the value of a variable.
func (s *source) declaration(receiver, name string) *ast.FuncDecl {
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.Name == name && receiverOf(d) == receiver {
				return d
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if !ok || receiver != "" || len(v.Names) != 1 || len(v.Values) != 1 || v.Names[0].Name != name {
					continue
				}
				if f, ok := v.Values[0].(*ast.FuncLit); ok {
					return &ast.FuncDecl{Name: v.Names[0], Type: f.Type, Body: f.Body}
				}
			}
		}
	}
	return nil
}

// receiverOf is *T, T or empty, without type parameters.
func receiverOf(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return ""
	}
	star, t := "", f.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		star, t = "*", p.X
	}
	switch g := t.(type) {
	case *ast.IndexExpr:
		t = g.X
	case *ast.IndexListExpr:
		t = g.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return star + id.Name
	}
	return star
}

func (s *source) typeSpec(name string) *ast.TypeSpec {
	for _, d := range s.file.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
			for _, spec := range g.Specs {
				if t := spec.(*ast.TypeSpec); t.Name.Name == name {
					return t
				}
			}
		}
	}
	return nil
}

// signature gives templates the names of a function's receiver and parameters. Blank ones get a name.
type signature struct {
	Receiver string
	Result   string // see insertion.result; with enter the name of the first result, if it has one
	params   []string
	variadic bool
}

func (s *source) signature(recv, params *ast.FieldList) (*signature, error) {
	g := &signature{}
	if recv != nil {
		names := recv.List[0].Names
		if len(names) == 0 || names[0].Name == "_" {
			return nil, fmt.Errorf("its receiver has no name")
		}
		g.Receiver = names[0].Name
	}
	for _, field := range params.List {
		if len(field.Names) == 0 {
			return nil, fmt.Errorf("its parameters have no names")
		}
		for _, n := range field.Names {
			name := n.Name
			if name == "_" {
				name = fmt.Sprintf("trommel%d", len(g.params))
				s.replace(n.Pos(), n.End(), name)
			}
			g.params = append(g.params, name)
		}
		_, g.variadic = field.Type.(*ast.Ellipsis)
	}
	return g, nil
}

// Param returns the n-th parameter.
func (g *signature) Param(n int) (string, error) {
	if n >= len(g.params) {
		return "", fmt.Errorf("it has no parameter %d", n)
	}
	return g.params[n], nil
}

// Args returns the arguments for a recursive call of the function.
func (g *signature) Args() string {
	args := strings.Join(g.params, ", ")
	if g.variadic {
		args += "..."
	}
	return args
}

// apply makes the edits of a point. It returns the line of the point.
func (s *source) apply(p *point) (line int, err error) {
	switch in := p.insert; {
	case in.wrap != "":
		return s.wrapLiterals(p)
	case in.field != "":
		t := s.typeSpec(p.function)
		if t == nil {
			return 0, fmt.Errorf("no such type")
		}
		st, ok := t.Type.(*ast.StructType)
		if !ok {
			return 0, fmt.Errorf("it is not a struct")
		}
		s.insert(st.Fields.Opening+1, " "+in.field+";")
		return s.line(t.Pos()), nil
	}
	f := s.declaration(p.receiver, p.function)
	if f == nil || (f.Body == nil) != (p.insert.body != "") {
		return 0, fmt.Errorf("no such function")
	}
	switch in := p.insert; {
	case in.enter != "":
		g, err := s.signature(f.Recv, f.Type.Params)
		if err != nil {
			return 0, err
		}
		if results := f.Type.Results; results != nil && len(results.List[0].Names) > 0 {
			g.Result = results.List[0].Names[0].Name
		}
		text, err := expand(in.enter, g)
		if err != nil {
			return 0, err
		}
		s.insert(f.Body.Lbrace+1, " "+text+";")
	case in.body != "":
		s.insert(f.End(), " { "+in.body+" }")
	case in.do != "":
		g, err := s.signature(f.Recv, f.Type.Params)
		if err != nil {
			return 0, err
		}
		text, err := expand(in.replaces, g)
		if err != nil {
			return 0, err
		}
		found := false
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok && string(s.text[s.offset(e.Pos()):s.offset(e.End())]) == in.do {
				s.replace(e.Pos(), e.End(), text)
				found = true
				return false
			}
			return true
		})
		if !found {
			return 0, fmt.Errorf("no %s in it", in.do)
		}
	case in.result != "":
		g, err := s.signature(f.Recv, f.Type.Params)
		if err != nil {
			return 0, err
		}
		returns := returnsOf(f.Body)
		if len(returns) == 0 {
			return 0, fmt.Errorf("it returns nothing")
		}
		for _, e := range returns {
			g.Result = string(s.text[s.offset(e.Pos()):s.offset(e.End())])
			text, err := expand(in.result, g)
			if err != nil {
				return 0, err
			}
			s.replace(e.Pos(), e.End(), text)
		}
	}
	return s.line(f.Pos()), nil
}

// returnsOf lists the first results of a function's own return statements.
func returnsOf(body *ast.BlockStmt) (list []ast.Expr) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			if len(n.Results) > 0 {
				list = append(list, n.Results[0])
			}
		}
		return true
	})
	return list
}

// wrapArguments puts a call of wrap around arguments of all calls of a function in the file; the function's name is as
// go/printer writes it.
func (s *source) wrapArguments(call, wrap string, arguments []int) (line int, err error) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		c, ok := n.(*ast.CallExpr)
		if !ok || s.textOf(c.Fun) != call {
			return true
		}
		for _, i := range arguments {
			if i >= len(c.Args) {
				err = fmt.Errorf("a call of it has no argument %d", i)
				return false
			}
			s.insert(c.Args[i].Pos(), wrap+"(")
			s.insert(c.Args[i].End(), ")")
		}
		if line == 0 {
			line = s.line(c.Pos())
		}
		return true
	})
	if line == 0 && err == nil {
		err = fmt.Errorf("nothing calls it")
	}
	return line, err
}

// wrapLiterals puts a call around every path below the service account's directory, in the point's function or, without
// one, in the whole file. It turns constants into variables.
func (s *source) wrapLiterals(p *point) (line int, err error) {
	var root ast.Node = s.file
	if p.function != "" {
		f := s.function(p.receiver, p.function)
		if f == nil {
			return 0, fmt.Errorf("no such function")
		}
		root = f
	}
	var constant *ast.GenDecl
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			if n.Tok == token.CONST {
				constant = n
			} else {
				constant = nil
			}
		case *ast.BasicLit:
			value, err := strconv.Unquote(n.Value)
			if n.Kind != token.STRING || err != nil || !strings.HasPrefix(value, serviceAccountDir) {
				return true
			}
			if constant != nil && constant.Pos() <= n.Pos() && n.End() <= constant.End() {
				e := edit{s.offset(constant.TokPos), s.offset(constant.TokPos) + len("const"), "var"}
				if len(s.edits) == 0 || !s.has(e) {
					s.edits = append(s.edits, e)
				}
			}
			s.insert(n.Pos(), p.insert.wrap+"(")
			s.insert(n.End(), ")")
			if line == 0 {
				line = s.line(n.Pos())
			}
		}
		return true
	})
	if line == 0 {
		return 0, fmt.Errorf("no path below %s in it", serviceAccountDir)
	}
	return line, nil
}

func (s *source) has(e edit) bool {
	for _, other := range s.edits {
		if other == e {
			return true
		}
	}
	return false
}

func expand(text string, g *signature) (string, error) {
	t, err := template.New("").Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if err := t.Execute(&b, g); err != nil {
		// text/template wraps the errors of the signature's methods; its own position is not useful here.
		if i := strings.LastIndex(err.Error(), ": "); i >= 0 {
			return "", fmt.Errorf("%s", err.Error()[i+2:])
		}
		return "", err
	}
	return b.String(), nil
}

// A PatchedPoint is one place that a build changes.
type PatchedPoint struct {
	wire.CompiledPoint // Point is empty if nothing is observed
	Path               string
}

// patchModule patches the files of a module's copy in dir. Positions are those in the module's origin.
func patchModule(m moduleCopy, dir string) ([]PatchedPoint, error) {
	files := map[string]*source{}
	found, err := m.applyPoints(files)
	if err != nil {
		return nil, err
	}
	annotated, err := annotateModule(files, m, dir)
	if err != nil {
		return nil, err
	}
	found = append(found, annotated...)
	for name, s := range files {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), s.patched(), 0o644); err != nil {
			return nil, err
		}
	}
	for _, h := range helpers {
		if h.module != m.path || !hasGoFiles(filepath.Join(m.dir, filepath.FromSlash(h.dir))) {
			continue // the version has no such package, or the build does not use it
		}
		text, err := h.expand(dir, m.byGoroutine)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %s: %w", m.path, m.version, h.dir, err)
		}
		name := filepath.Join(dir, filepath.FromSlash(h.dir), "zz_trommel_"+path.Base(path.Join(h.module, h.dir))+".go")
		if err := os.WriteFile(name, importHook(text, m.hook), 0o644); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// applyPoints makes the edits of the module's points in its files, which it adds to those that are read.
func (m *moduleCopy) applyPoints(files map[string]*source) ([]PatchedPoint, error) {
	var found []PatchedPoint
	for _, p := range pointsOf(m.path, m.like(), m.byGoroutine) {
		if m.partial && !hasGoFiles(filepath.Join(m.dir, filepath.FromSlash(path.Dir(p.file)))) {
			continue
		}
		notFound := func(reason string) error {
			return &NotFoundError{Module: m.path, Version: m.version, File: p.file, Function: p.name(), Reason: reason,
				Dir: m.dir}
		}
		s, err := sourceOf(files, m.dir, p.file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, notFound("no such file")
		}
		if err != nil {
			return nil, err
		}
		line := 0
		if p.insert == (insertion{}) {
			line = found[len(found)-1].Line // the same place has a second point
		} else {
			var err error
			if line, err = s.apply(&p); err != nil {
				return nil, notFound(err.Error())
			}
		}
		found = append(found, PatchedPoint{
			CompiledPoint: wire.CompiledPoint{
				Point: p.observes, Module: m.path, Version: m.version, File: p.file, Line: line, Receiver: p.receiver,
				Function: p.function,
			},
			Path: s.path,
		})
	}
	return found, nil
}

// hasGoFiles reports whether there is a package in a directory. A directory without one may have packages below it.
func hasGoFiles(dir string) bool {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	return err == nil && len(names) > 0
}

// sourceOf parses a file of the module in root, only once.
func sourceOf(files map[string]*source, root, name string) (*source, error) {
	if s := files[name]; s != nil {
		return s, nil
	}
	path := filepath.Join(root, filepath.FromSlash(name))
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s, err := parse(path, text)
	if err != nil {
		return nil, err
	}
	files[name] = s
	return s, nil
}

func (p *point) name() string {
	switch {
	case p.function == "":
		return "paths of the service account"
	case p.receiver != "":
		return "(" + p.receiver + ")." + p.function
	}
	return p.function
}

// importHook makes source text import the hook's packages from their real import paths.
func importHook(text []byte, hook string) []byte {
	text = bytes.ReplaceAll(text, []byte(`"`+hookModule+`"`), []byte(`"`+hook+`"`))
	return bytes.ReplaceAll(text, []byte(`"`+hookModule+`/`), []byte(`"`+hook+`/`))
}

// expand executes the helper's template for the package in dir's module. The template can check by name whether the
// package declares something.
func (h *helper) expand(dir string, byGoroutine bool) ([]byte, error) {
	names, err := declared(filepath.Join(dir, filepath.FromSlash(h.dir)))
	if err != nil {
		return nil, err
	}
	text, err := templates.ReadFile("points/" + h.template)
	if err != nil {
		return nil, err
	}
	t, err := template.New(h.template).Funcs(template.FuncMap{
		"has":         func(name string) bool { return names[name] },
		"byGoroutine": func() bool { return byGoroutine },
	}).Parse(string(text))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("// Code generated by trommel. DO NOT EDIT.\n\n")
	if err := t.Execute(&b, nil); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// declared lists what a package declares at top level: functions, constants, variables, types, generic types also as
// Type[], fields as Type.field, and methods as Type.Method, those whose first parameter is a context also as
// Type.Method(ctx).
func declared(dir string) (map[string]bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") ||
			strings.HasPrefix(e.Name(), "zz_trommel_") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil,
			parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					names[d.Name.Name] = true
					continue
				}
				method := strings.TrimPrefix(receiverOf(d), "*") + "." + d.Name.Name
				names[method] = true
				if params := d.Type.Params.List; len(params) > 0 {
					if t, ok := params[0].Type.(*ast.SelectorExpr); ok && t.Sel.Name == "Context" {
						names[method+"(ctx)"] = true
					}
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok {
						for _, n := range v.Names {
							names[n.Name] = true
						}
					}
					if t, ok := spec.(*ast.TypeSpec); ok {
						names[t.Name.Name] = true
						if t.TypeParams != nil {
							names[t.Name.Name+"[]"] = true
						}
						if st, ok := t.Type.(*ast.StructType); ok {
							for _, field := range st.Fields.List {
								for _, n := range field.Names {
									names[t.Name.Name+"."+n.Name] = true
								}
							}
						}
					}
				}
			}
		}
	}
	return names, nil
}
