// Package trommel contains tests for the rules about imports in this module.
package trommel

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/trommel-dev/trommel/plan"
)

const module = "github.com/trommel-dev/trommel/"

// floors are the layers of packages from the top to the bottom. A package imports packages of its own folder and of
// lower floors, so that it does not depend on those built on it. docs/how-it-works.md draws the same layers.
var floors = [][]string{
	{"cmd", "trommeltest"},
	{"internal/bugs", "internal/doctor"},
	{"internal/campaign", "internal/fleet"},
	{"internal/run", "chaos/command", "nodes/command"},
	{"internal/confirm"},
	{"internal/judge", "internal/workload", "internal/report", "internal/scaffold", "coordinator",
		"chaos/controller", "nodes/controller", "internal/testing"},
	{"internal/baseline", "internal/lead", "internal/objects", "internal/effect", "actions",
		"nodes/simulated"},
	{"internal/cluster/embedded", "internal/cluster/existing", "internal/cluster/kind"},
	{"internal/cluster/egress"},
	{"internal/processnode"},
	{"internal/cluster", "internal/facts", "nodes/provider"},
	{"plan", "record", "instrumentation", "instrumentation/hook", "chaos/inject", "nodes/api",
		"internal/originals"},
	{"expr", "instrumentation/wire", "internal/atomicfile", "internal/buildcache", "internal/cel", "internal/child",
		"internal/clock", "internal/controllers", "internal/download", "internal/errorlog", "internal/layer",
		"internal/metadata", "internal/mistake", "internal/notify", "internal/pki", "internal/privatedir",
		"internal/progress", "internal/wording", "chaos/api", "chaos/config", "chaos/kinds", "nodes/config",
		"install", "docs"},
	{"internal/buildinfo", "internal/filelock"},
}

// rooms is how many folders there may be at the top. A new subject moves into a room that is there.
const rooms = 15

// forbidden lists forbidden imports, direct or through other packages. A package includes the packages below it.
var forbidden = []struct {
	from, to string
	reason   string
}{
	{"expr", module, "the expression language is usable on its own"},
	{"plan/sieve", module, "plan calls it, with YAML nodes, and must not be called back"},
	{"plan", "k8s.io/", "editors and generators read, check and build plans without a client"},
	{"plan", module + "instrumentation", "a plan says what is observed, not how"},
	{"internal/cel", module, "conditions know JSON, but neither plans nor clusters"},
	{"record", module + "plan", "programs that do not know plans read records"},
	{"record", "k8s.io/", "a record is plain files"},
	{"actions", module + "internal/cluster", "an action declares the few capabilities that it needs of a cluster"},
	{"actions", "k8s.io/client-go", "an action declares what it needs and is given a client"},
	{"coordinator", module + "internal/cluster", "a recorded run is replayed without a cluster"},
	{"coordinator", module + "internal/workload", "the run starts both; neither waits for the other on its own"},
	{"coordinator", module + "internal/judge", "what judges a run must not steer it"},
	{"coordinator/machine", module + "actions", "the state machine decides; the coordinator carries out"},
	{"coordinator/machine", module + "internal/clock", "the state machine has no clock: events bring their times"},
	{"coordinator", "k8s.io/client-go", "the state machine sees the cluster only through observations"},
	{"internal/campaign/schedule", module + "internal/run", "it is a pure state machine: its caller runs plans"},
	{"internal/judge", module + "coordinator", "a verdict is based on the record, not on the run's state"},
	{"internal/judge", module + "internal/workload", "a verdict is based on the record"},
	{"internal/judge", module + "internal/cluster", "a verdict is based on the record, not on a live cluster"},
	{"internal/judge", module + "internal/objects", "a verdict is based on the record, not on a live cluster"},
	{"internal/judge", "k8s.io/client-go", "a verdict is based on the record, not on a live cluster"},
	{"internal/facts", module + "plan", "facts are what a record says"},
	{"internal/confirm", module + "coordinator", "a check says which runs it needs, and runs nothing itself"},
	{"internal/confirm", module + "internal/cluster", "a check says which runs it needs, and runs nothing itself"},
	{"internal/workload", module + "coordinator", "a workload does what a user would do: it is not told of observers"},
	{"internal/workload", module + "internal/judge", "a step reports what failed; judges decide what that means"},
	{"internal/report", module + "coordinator", "every report is made only from the run record"},
	{"internal/report", module + "internal/cluster", "every report is made only from the run record"},
	{"internal/report", "k8s.io/client-go", "every report is made only from the run record"},
	{"internal/cluster", module + "plan", "a cluster is useful without a plan"},
	{"chaos/inject", module + "internal/cluster", "an injector runs on any node; a socket leads to the process node"},
	{"chaos/inject", module + "plan", "disruptions are useful without plans"},
	{"chaos/inject", module + "internal/run", "disruptions are useful without plans"},
	{"chaos/inject", module + "coordinator", "disruptions are useful without plans"},
	{"instrumentation", module + "plan", "hooks do not depend on the plan; one build serves all plans"},
	{"instrumentation", "k8s.io/", "it rewrites any version of those modules, so it must not depend on one"},
	{"", module + "cmd", "the CLI uses the packages like any other user"},
	{"", "k8s.io/kubernetes", "this dependency belongs in the nested module instrumentation/controlplane"},
	{"", "sigs.k8s.io/kwok", "this dependency belongs in the nested module instrumentation/controlplane"},
	{"", "go.etcd.io/etcd/server", "this dependency belongs in the nested module instrumentation/controlplane"},
	{"", "helm.sh/helm/v3/pkg/action",
		"charts are only rendered; the packages that install them depend on registries, storage and SQL"},
	{"", "k8s.io/apiserver",
		"an API server's dependencies are as many as all of ours; where its answer matters, a real one runs"},
	{"", "github.com/stretchr/testify", "tests use the standard library and go-cmp"},
}

// exempt lists imports that a rule forbids with others of their kind, and that are allowed.
var exempt = []struct{ from, to, reason string }{
	{"plan", "k8s.io/apimachinery/pkg/api/resource",
		"the quantities of conditions: it parses numbers, and is no client"},
	{"plan", "k8s.io/apimachinery/pkg/runtime/serializer/cbor", "quantities import it"},
}

// only lists packages that may import only these packages and the standard library.
var only = []struct {
	from   string
	may    []string
	reason string
}{
	{"instrumentation/wire", nil, "it is compiled into controllers of any age"},
	{"instrumentation/hook", []string{module + "instrumentation/wire", "github.com/hashicorp/yamux"},
		"it is linked into other programs and must not change their dependencies"},
	{"expr", []string{"github.com/alecthomas/participle/v2"}, "the expression language is usable on its own"},
	{"plan/sieve", []string{"gopkg.in/yaml.v3"}, "it turns YAML into YAML"},
	{"internal/progress", nil, "all that runs has events to tell, and programs that read them need nothing else"},
}

// edges are products of their own, with the packages of the core that may import them. The core is all that is not an
// edge itself, a program, or trommeltest, which contains the program of injectors.
var edges = []struct {
	product string
	may     []string
}{
	{"chaos", []string{
		"internal/run/addons",                  // runs the controllers
		"internal/processnode/faults",          // implements the protocol of injectors
		"internal/processnode/faults/requests", // carries out what the specs say about requests
		"internal/objects/manifests",           // knows the definitions, which are data
		"plan/internal/crd",                    // knows the definitions and the table of kinds, which are data
	}},
	{"nodes", []string{"internal/run/addons", "internal/objects/manifests", "plan/internal/crd"}},
}

func TestCoreDoesNotKnowTheProductsAtItsEdges(t *testing.T) {
	used := map[string]bool{}
	for name, p := range packages(t) {
		pkg, ours := strings.CutPrefix(name, module)
		if !ours || within(pkg, "cmd") || within(pkg, "trommeltest") || within(pkg, "chaos") || within(pkg, "nodes") {
			continue
		}
		for _, i := range p.Imports {
			for _, edge := range edges {
				if !within(i, module+edge.product) {
					continue
				}
				if !slices.Contains(edge.may, pkg) {
					t.Errorf("%s imports %s: only %v know %s", pkg, i, edge.may, edge.product)
				}
				used[edge.product+" "+pkg] = true
			}
		}
	}
	for _, edge := range edges {
		for _, pkg := range edge.may {
			if !used[edge.product+" "+pkg] {
				t.Errorf("%s does not import %s: the exception has no effect", pkg, edge.product)
			}
		}
	}
}

type listed struct {
	ImportPath string
	Imports    []string
	Standard   bool
	ForTest    string
}

// packages lists the module's packages and all their imports.
func packages(t *testing.T) map[string]listed {
	t.Helper()
	all, err := listing()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return all
}

// listing asks Go once for all tests.
var listing = sync.OnceValues(func() (map[string]listed, error) {
	out, err := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Imports,Standard,ForTest", "./...").Output()
	if err != nil {
		return nil, err
	}
	all := map[string]listed{}
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all[p.ImportPath] = p
	}
})

// within reports whether a package is the root or below it; a root "x/" means everything with that prefix.
func within(pkg, root string) bool {
	if strings.HasSuffix(root, "/") {
		return strings.HasPrefix(pkg, root)
	}
	return pkg == root || strings.HasPrefix(pkg, root+"/")
}

func TestImports(t *testing.T) {
	all := packages(t)
	// reach returns, for each direct or indirect import of a package, which package imports it.
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
				if slices.ContainsFunc(exempt, func(e struct{ from, to, reason string }) bool {
					return rule.from == e.from && within(to, e.to)
				}) {
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
		t.Errorf("only %d packages of the module were checked", ours)
	}
	for _, rule := range forbidden {
		if _, ok := all[module+rule.from]; !ok && rule.from != "" {
			t.Errorf("package %s does not exist; the rule about it has no effect", rule.from)
		}
	}
	for _, e := range exempt {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(reach(module+e.from))), func(to string) bool {
			return within(to, e.to)
		}) {
			t.Errorf("%s does not import %s: the exception has no effect", e.from, e.to)
		}
	}
}

// room returns the floor and the room of a package: the longest name in floors that the package is within.
func room(pkg string) (floor int, name string) {
	for f, names := range floors {
		for _, n := range names {
			if within(pkg, n) && len(n) > len(name) {
				floor, name = f, n
			}
		}
	}
	return floor, name
}

func TestImportsRunDownwards(t *testing.T) {
	for name, p := range packages(t) {
		pkg, ours := strings.CutPrefix(name, module)
		if !ours {
			continue
		}
		floor, from := room(pkg)
		if from == "" {
			t.Errorf("%s stands in no room: give it one in floors", pkg)
			continue
		}
		for _, i := range p.Imports {
			imported, ours := strings.CutPrefix(i, module)
			if !ours {
				continue
			}
			if below, to := room(imported); to != from && below <= floor {
				t.Errorf("%s imports %s: %s is not below %s", pkg, imported, to, from)
			}
		}
	}
}

// The page that draws the layers shows the same floors.
func TestFloorsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("docs/how-it-works.md")
	if err != nil {
		t.Fatal(err)
	}
	_, drawn, ok := strings.Cut(string(page), "```\ncmd, trommeltest\n")
	if !ok {
		t.Fatal("docs/how-it-works.md has no list of floors")
	}
	drawn, _, _ = strings.Cut("cmd, trommeltest\n"+drawn, "\n```")
	// A floor that ends with a semicolon goes on in the next line; a name without a folder is in the folder of the name
	// before it.
	var got []string
	for line := range strings.SplitSeq(strings.ReplaceAll(drawn, ";\n", "; "), "\n") {
		var names []string
		for part := range strings.SplitSeq(line, "; ") {
			folder := ""
			for name := range strings.SplitSeq(part, ", ") {
				if f, _, below := strings.Cut(name, "/"); below {
					folder = f + "/"
				} else {
					name = folder + name
				}
				names = append(names, name)
			}
		}
		slices.Sort(names)
		got = append(got, strings.Join(names, ", "))
	}
	var want []string
	for _, floor := range floors {
		want = append(want, strings.Join(slices.Sorted(slices.Values(floor)), ", "))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the page has the floors\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestNoMoreRoomsThanDecided(t *testing.T) {
	out, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		t.Skip("not a git checkout: ", err)
	}
	top := map[string]bool{}
	for file := range strings.Lines(string(out)) {
		if dir, _, below := strings.Cut(file, "/"); below && !strings.HasPrefix(dir, ".") {
			top[dir] = true
		}
	}
	if len(top) > rooms {
		t.Errorf("%d folders at the top, at most %d: %v", len(top), rooms, slices.Sorted(maps.Keys(top)))
	}
	for _, fixed := range []string{
		"actions", "cmd", "coordinator", "examples", "expr", "instrumentation", "plan", "testdata",
	} {
		if !top[fixed] {
			t.Errorf("the folder %s is missing: its place is promised", fixed)
		}
	}
}

// Only main packages exit the process; all others return errors. In trommeltest/injector.go the executable of a
// package's tests is not a test but another program.
func TestOnlyMainExits(t *testing.T) {
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			// Nested modules consist of main packages; testdata contains foreign code.
			if name := d.Name(); path != "." &&
				(strings.HasPrefix(name, ".") || name == "testdata" || name == "examples" || name == "controlplane") {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || path == "trommeltest/injector.go" {
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

// Code that needs to know what an action does must ask for its effects: each place that names an action type would have
// to change for every new type. In package plan a type is named in the file that declares it, and in the list of all.
func TestNobodyElseNamesActionTypes(t *testing.T) {
	types := map[string]string{} // by name: the file that declares it
	declared := map[string]bool{ // where actions of all types are built, and carried out
		"plan/build": true, "actions": true, "coordinator/machine/plantest": true,
	}
	set := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join("plan", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*ast.File{}
	for _, name := range paths {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if files[name], err = parser.ParseFile(set, name, nil, 0); err != nil {
			t.Fatal(err)
		}
		ast.Inspect(files[name], func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "ActionType" {
					for _, declares := range spec.Names {
						types[declares.Name] = name
					}
				}
			}
			return true
		})
	}
	if n := len(plan.ActionTypes()); len(types) != n {
		t.Fatalf("found %d of %d action types: %v", len(types), n, types)
	}
	for name, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				return false // the field of a step may have the same name
			case *ast.Field:
				return false
			case *ast.Ident:
				if in := types[n.Name]; in != "" && in != name {
					t.Errorf("%s names %s: ask for the action's effects, or for its kind",
						set.Position(n.Pos()), n.Name)
				}
			}
			return true
		})
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
			if s, ok := n.(*ast.SelectorExpr); ok && types[s.Sel.Name] != "" {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "plan" {
					t.Errorf("%s names plan.%s: ask for the action's effects instead",
						set.Position(s.Pos()), s.Sel.Name)
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
