package points

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"text/template"
)

const serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

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
