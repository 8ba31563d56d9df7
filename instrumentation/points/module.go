package points

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/buildcache"
)

const foundFile = "trommel-points.json"

// ModuleCopy describes a module to copy and patch.
type ModuleCopy struct {
	Path, Version string
	PointsOf      string // the version whose points it has; empty: Version
	Dir           string
	Local         bool // a directory: its copy is named after its content, which may change
	Calls         []AnnotatedCall
	Hook          string // import path of the hook
	Partial       bool   // packages that are not imported are missing, as in a vendor directory
	ByGoroutine   bool   // the controller's reconciles have no context: their goroutines distinguish them
}

// Like returns the version whose points the module has.
func (m *ModuleCopy) Like() string {
	if m.PointsOf != "" {
		return m.PointsOf
	}
	return m.Version
}

// HasPoints reports whether something is inserted into the module's version.
func (m *ModuleCopy) HasPoints() bool { return len(pointsOf(m.Path, m.Like(), m.ByGoroutine)) > 0 }

// Make patches a copy of the module, unless the cache has it. It returns the copy's directory and what differs there
// from the module. The error is a *NotFoundError if the module lacks a point, and an *UnknownFunctionError if it lacks
// the function of an annotated call.
func (m *ModuleCopy) Make(c *buildcache.Cache) (dir string, found []Patched, err error) {
	table, err := Inserted(m.Path)
	if err != nil {
		return "", nil, err
	}
	key := []string{table, keyOf(m.Calls), m.Dir, m.Path, m.Version}
	if m.Hook != HookModule {
		key = append(key, m.Hook)
	}
	if m.ByGoroutine {
		key = append(key, keyOf(goroutinePoints))
	}
	if m.Local {
		state, err := buildcache.TreeState(m.Dir)
		if err != nil {
			return "", nil, err
		}
		key = append(key, state)
	}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return "", nil, err
	}
	copied, err := c.Make("modules/"+escaped+"@"+m.Version+"-"+buildcache.Digest(key...), func(to string) error {
		if err := copyModule(m.Dir, to); err != nil {
			return fmt.Errorf("copy %s: %w", m.Path, err)
		}
		if err := completeModule(m.Path, to); err != nil {
			return err
		}
		found, err := patchModule(*m, to)
		if err != nil {
			return err
		}
		data, err := json.Marshal(found)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, foundFile), data, 0o644)
	})
	if err != nil {
		return "", nil, err
	}
	data, err := os.ReadFile(filepath.Join(copied, foundFile))
	if err == nil {
		err = json.Unmarshal(data, &found)
	}
	return copied, found, err
}

// copyModule copies a module without its tests.
func copyModule(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			if d.Name() == ".git" {
				return filepath.SkipDir
			}
			return os.MkdirAll(target, 0o755)
		case !d.Type().IsRegular() || strings.HasSuffix(d.Name(), "_test.go"):
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
}

// completeModule adds a go.mod to a module that is older than go.mod files, because the go command accepts no directory
// without one.
func completeModule(path, dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "go.mod"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "module %s\n", path)
	return errors.Join(err, f.Close())
}

// patchModule patches the files of a module's copy in dir. Positions are those in the module's origin.
func patchModule(m ModuleCopy, dir string) ([]Patched, error) {
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
	replaced, err := m.importStandIns(files)
	if err != nil {
		return nil, err
	}
	found = append(found, replaced...)
	for name, s := range files {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), s.patched(), 0o644); err != nil {
			return nil, err
		}
	}
	for _, h := range helpers {
		if h.module != m.Path || !hasGoFiles(filepath.Join(m.Dir, filepath.FromSlash(h.dir))) {
			continue // the version has no such package, or the build does not use it
		}
		text, err := h.expand(dir, m.ByGoroutine)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %s: %w", m.Path, m.Version, h.dir, err)
		}
		name := filepath.Join(dir, filepath.FromSlash(h.dir), "zz_trommel_"+path.Base(path.Join(h.module, h.dir))+".go")
		if err := os.WriteFile(name, ImportHook(text, m.Hook), 0o644); err != nil {
			return nil, err
		}
	}
	return found, m.writeStandIns(dir)
}

// applyPoints makes the edits of the module's points in its files, which it adds to those that are read.
func (m *ModuleCopy) applyPoints(files map[string]*source) ([]Patched, error) {
	var found []Patched
	for _, p := range pointsOf(m.Path, m.Like(), m.ByGoroutine) {
		if m.Partial && !hasGoFiles(filepath.Join(m.Dir, filepath.FromSlash(path.Dir(p.file)))) {
			continue
		}
		notFound := func(reason string) error {
			return &NotFoundError{Module: m.Path, Version: m.Version, File: p.file, Function: p.name(), Reason: reason,
				Dir: m.Dir}
		}
		s, err := sourceOf(files, m.Dir, p.file)
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
		found = append(found, Patched{
			CompiledPoint: wire.CompiledPoint{
				Point: p.observes, Module: m.Path, Version: m.Version, File: p.file, Line: line, Receiver: p.receiver,
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

// ImportHook makes source text import the hook's packages from their real import paths.
func ImportHook(text []byte, hook string) []byte {
	text = bytes.ReplaceAll(text, []byte(`"`+HookModule+`"`), []byte(`"`+hook+`"`))
	return bytes.ReplaceAll(text, []byte(`"`+HookModule+`/`), []byte(`"`+hook+`/`))
}

// expand executes the helper's template for the package in dir's module. The template can check by name whether the
// package declares something.
func (h *helper) expand(dir string, byGoroutine bool) ([]byte, error) {
	names, err := declared(filepath.Join(dir, filepath.FromSlash(h.dir)))
	if err != nil {
		return nil, err
	}
	text, err := templates.ReadFile(h.template)
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

// KnownVersion reports whether a version says what is in a module. Two kinds of versions do not: those
// of commits (v0.0.0-20190918160344-1fbdaa4c8d90), and the old ones of client-go, which did not follow those of
// Kubernetes (v12.0.0+incompatible).
func KnownVersion(version string) bool {
	return version != "" && semver.Compare(version, "v0.0.1-0") >= 0 && semver.Build(version) != "+incompatible"
}

// Newest is a version that is newer than all others.
const Newest = "v0.999.0"

// VersionByPoints returns the first of the newest versions whose points the module all has, for a source whose version
// number is not usable: a commit's sorts below all others (v0.0.0-2020...), and its date does not say which branch it
// is on. If there is none, it returns a version that is too old to be observed.
func (m *ModuleCopy) VersionByPoints() (string, error) {
	// A newer source than any in the table may lack a point because the code has moved.
	if at, err := module.PseudoVersionTime(m.Version); err == nil && at.After(pointsKnownAt) {
		return Newest, nil
	}
	candidates := []string{oldest[m.Path]}
	for _, p := range points {
		if p.module == m.Path && p.from != "" {
			candidates = append(candidates, p.from)
		}
	}
	semver.Sort(candidates)
	slices.Reverse(candidates)
	for _, version := range slices.Compact(candidates) {
		if err := m.find(version); err == nil {
			return version, nil
		} else if notFound := (*NotFoundError)(nil); !errors.As(err, &notFound) {
			return "", err
		}
	}
	return "v0.0.0", nil
}

// find checks that all points of a version are found.
func (m *ModuleCopy) find(version string) error {
	c := *m
	c.PointsOf = version
	_, err := c.applyPoints(map[string]*source{})
	return err
}

// WithoutContext reports whether controller-runtime's reconcilers get no context.
func (m *ModuleCopy) WithoutContext() (bool, error) {
	names, err := declared(filepath.Join(m.Dir, "pkg", "internal", "controller"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // controller-runtime is not used
	}
	return err == nil && names["Controller.Reconcile"] && !names["Controller.Reconcile(ctx)"], err
}
