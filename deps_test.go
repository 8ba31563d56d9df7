// Package trommel states, as tests, which way imports run in this module.
package trommel

import (
	"cmp"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/trommel-dev/trommel/"

// forbidden imports, direct or through other packages. A package stands for the packages below it too.
var forbidden = []struct {
	from, to string
	reason   string
}{
	{"expr", module, "the expression language is usable by itself"},
	{"plan/sieve", module, "plan calls it, with YAML nodes, and must not be called back"},
	{"plan", "k8s.io/", "plans are read, checked and built by editors and generators, which need no client"},
	{"plan", module + "instrumentation", "a plan says what is observed, not how"},
	{"plan", module + "coordinator", "imports run downwards"},
	{"predicate", module, "conditions know JSON, and neither plans nor clusters"},
	{"record", module + "plan", "a record is read by what knows no plan"},
	{"record", "k8s.io/", "a record is plain files"},
	{"actions", module + "coordinator", "the coordinator carries actions out; they do not know it"},
	{"actions", module + "cluster", "an action names the two or three things that it needs of a cluster"},
	{"actions", "k8s.io/client-go", "an action names what it needs; a client is given to it"},
	{"coordinator", module + "cluster", "a recorded run is replayed where there is no cluster"},
	{"coordinator", module + "workload", "the run starts both; neither waits for the other by itself"},
	{"coordinator", module + "oracle", "who judges a run must not steer it"},
	{"coordinator", "k8s.io/client-go", "the state machine sees the cluster through observations alone"},
	{"oracle", module + "coordinator", "a verdict is drawn from the record, not from the run's state"},
	{"oracle", module + "workload", "a verdict is drawn from the record"},
	{"oracle", module + "cluster", "a verdict is drawn from the record: no judge touches a live cluster"},
	{"oracle", module + "objects", "a verdict is drawn from the record: no judge touches a live cluster"},
	{"oracle", "k8s.io/client-go", "a verdict is drawn from the record: no judge touches a live cluster"},
	{"workload", module + "coordinator", "a workload is what a user would do: it does not know that it is watched"},
	{"workload", module + "oracle", "a step reports what failed; what that means others say"},
	{"report", module + "coordinator", "every report is drawn from the run record alone"},
	{"report", module + "cluster", "every report is drawn from the run record alone"},
	{"report", "k8s.io/client-go", "every report is drawn from the run record alone"},
	{"cluster", module + "plan", "a cluster is useful without a plan"},
	{"cluster", module + "coordinator", "imports run downwards"},
	{"instrumentation", module + "plan", "what is compiled in does not depend on the plan; one build serves all plans"},
	{"instrumentation", "k8s.io/", "it rewrites any version of those modules, so it must be bound to none"},
	{"", module + "cmd", "the CLI is a user of the packages, like any other"},
	{"", "k8s.io/kubernetes", "that tree belongs to the nested module controlplane"},
	{"", "sigs.k8s.io/kwok", "that tree belongs to the nested module controlplane"},
	{"", "go.etcd.io/etcd/server", "that tree belongs to the nested module controlplane"},
	{"", "helm.sh/helm/v3/pkg/action",
		"charts are rendered; what installs them brings registries, storage and SQL along"},
	{"", "k8s.io/apiserver",
		"an API server's tree is as large as all of ours; a real one runs where its word is needed"},
	{"", "github.com/stretchr/testify", "tests use the standard library and go-cmp"},
}

// only lists packages that may import, beside the standard library, nothing but what stands here.
var only = []struct {
	from   string
	may    []string
	reason string
}{
	{"instrumentation/wire", nil, "it is compiled into controllers of any age"},
	{"instrumentation/hook", []string{module + "instrumentation/wire", "github.com/hashicorp/yamux"},
		"it is linked into foreign processes and must not change their dependencies"},
	{"expr", []string{"github.com/alecthomas/participle/v2"}, "the expression language is usable by itself"},
	{"plan/sieve", []string{"gopkg.in/yaml.v3"}, "it turns YAML into YAML"},
}

type listed struct {
	ImportPath string
	Imports    []string
	Standard   bool
	ForTest    string
}

// packages lists the module's packages and all that they import.
func packages(t *testing.T) map[string]listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Imports,Standard,ForTest", "./...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]listed{}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
}

// within reports whether a package is the other one or below it; "x/" stands for everything that begins so.
func within(pkg, root string) bool {
	if strings.HasSuffix(root, "/") {
		return strings.HasPrefix(pkg, root)
	}
	return pkg == root || strings.HasPrefix(pkg, root+"/")
}

func TestImports(t *testing.T) {
	all := packages(t)
	// reach returns how a package comes to import each other one.
	reach := func(from string) map[string]string {
		via := map[string]string{}
		queue := []string{from}
		for len(queue) > 0 {
			p := queue[0]
			queue = queue[1:]
			for _, i := range all[p].Imports {
				if _, seen := via[i]; !seen && !all[i].Standard {
					via[i] = p
					queue = append(queue, i)
				}
			}
		}
		return via
	}
	path := func(via map[string]string, from, to string) string {
		steps := []string{to}
		for at := to; at != from; {
			at = via[at]
			steps = append(steps, at)
		}
		slices.Reverse(steps)
		for i := range steps {
			steps[i] = strings.TrimPrefix(steps[i], module)
		}
		return strings.Join(steps, " → ")
	}
	ours := 0
	for name := range all {
		if !strings.HasPrefix(name, module) {
			continue
		}
		ours++
		via := reach(name)
		short := strings.TrimPrefix(name, module)
		for to := range via {
			for _, rule := range forbidden {
				if rule.from != "" && !within(short, rule.from) || !within(to, rule.to) ||
					within(to, module+rule.from) && rule.from != "" {
					continue
				}
				if rule.from == "" && strings.HasPrefix(short, "cmd/") && within(to, module+"cmd") {
					continue
				}
				t.Errorf("%s: %s", path(via, name, to), rule.reason)
			}
			for _, rule := range only {
				if short == rule.from &&
					!slices.ContainsFunc(rule.may, func(may string) bool { return within(to, may) }) {
					t.Errorf("%s: %s", path(via, name, to), rule.reason)
				}
			}
		}
	}
	if ours < 10 {
		t.Errorf("only %d packages of the module were looked at", ours)
	}
	for _, rule := range forbidden {
		if _, ok := all[module+rule.from]; !ok && rule.from != "" {
			t.Errorf("there is no package %s any more; the rule about it protects nothing", rule.from)
		}
	}
}

// Only main packages end the process: everything else returns its errors.
func TestOnlyMainExits(t *testing.T) {
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			// Nested modules are made of main packages; what stands in testdata is somebody else's code.
			if name := d.Name(); path != "." &&
				(strings.HasPrefix(name, ".") || name == "testdata" || name == "examples" || name == "controlplane") {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil || f.Name.Name == "main" {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := call.X.(*ast.Ident)
			if ok && (pkg.Name == "os" && call.Sel.Name == "Exit" ||
				pkg.Name == "log" && strings.HasPrefix(call.Sel.Name, "Fatal")) {
				t.Errorf("%s: %s.%s outside a main package", fset.Position(call.Pos()), pkg.Name, call.Sel.Name)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Who wants to know what an action does asks its kind: a type that is named elsewhere is a place that a new type of
// action would have to change.
func TestNobodyElseNamesActionTypes(t *testing.T) {
	types := map[string]bool{}
	declared := map[string]bool{"plan": true, "plan/build": true, "actions": true} // where types are declared
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, filepath.Join("plan", "plan.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Names) == 1 {
			if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "ActionType" {
				types[spec.Names[0].Name] = true
			}
		}
		return true
	})
	if len(types) < 13 {
		t.Fatalf("found %d action types: %v", len(types), types)
	}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "testdata" || d.Name() == "examples" || d.Name() == "controlplane") {
			return cmp.Or(err, filepath.SkipDir)
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") ||
			declared[filepath.ToSlash(filepath.Dir(path))] {
			return nil
		}
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && types[s.Sel.Name] {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "plan" {
					t.Errorf("%s names plan.%s: ask the action's Effects instead", set.Position(s.Pos()), s.Sel.Name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
