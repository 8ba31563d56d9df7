package scaffold

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// skippedDirs lists directories that contain neither a controller nor manifests to apply, but old copies, copies for
// other tools, files for tests, and designs.
var skippedDirs = []string{
	"vendor", "testdata", "node_modules", "hack", "tools", "third_party", "site", "website",
	"trommel-runs",
	"trommel-plans",
	"design", "designs", "proposal", "proposals", "enhancements", "rfc", "rfcs", "keps",
	"bundle", "bundles", "csv", "olm", "olm-catalog", "catalog", "scorecard",
}

// docsDirs are directories of documentation. Their manifests are only looked at if no others have a sample.
var docsDirs = []string{"docs", "doc"}

// skipped reports whether a directory of that name is ignored.
func skipped(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || slices.Contains(skippedDirs, name) ||
		slices.Contains(docsDirs, name) ||
		name == "test" || name == "tests" || name == "testing" || strings.HasPrefix(name, "e2e") ||
		strings.HasPrefix(name, "test-") ||
		strings.HasSuffix(name, "-tests") || strings.HasSuffix(name, "-test") || strings.HasSuffix(name, "_test")
}

// walk visits the files below dir with their slash paths relative to it, in the order of their names.
func walk(dir string, visit func(file string) error) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel != "." && skipped(d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		return visit(filepath.ToSlash(rel))
	})
}

// program is a main package.
type program struct {
	pkg    string   // as `go build` takes it: . or ./cmd/manager
	path   string   // as `import` takes it
	binary string   // base name of the executable that it is built to
	module string   // name of the module, which images often have
	tags   []string // with which it is built
	rank   int      // how much it looks like a controller

	controllers int // how many it makes
}

// otherThings lists words in the paths of programs that are not the controller.
var otherThings = []string{
	"agent", "cli", "client", "ctl", "plugin", "migrat", "gen", "tool", "sample", "example", "demo", "test", "bench",
	"webhook-cert", "sidecar",
	"proxy", "exporter", "upgrade",
}

// setUp finds what a controller-runtime controller is set up for, and the rest of the statement; owned, each call that
// makes it the owner of a type.
var (
	setUp = regexp.MustCompile(`\.\s*For\(\s*&(?:\w+\.)?(\w+)\{`)
	owned = regexp.MustCompile(`\.\s*Owns\(`)
)

// countOwned adds up how many types the controllers own that a source file sets up, by the kind that they are for.
func countOwned(text []byte, owns map[string]int) {
	if !bytes.Contains(text, []byte("For(")) { // much faster than the expression
		return
	}
	at := setUp.FindAllSubmatchIndex(text, -1)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		owns[string(text[m[2]:m[3]])] += len(owned.FindAllIndex(text[m[1]:end], -1))
	}
}

// How much a program looks like a controller.
const (
	startsManager  = 35 // it or a package of the module that it imports starts a manager
	importsRuntime = 30 // controller-runtime, or Knative's package for controllers
	watches        = 25 // it or a package of the module that it imports has informers
	importsClient  = 20 // client-go
	importsNeither = 10
)

// pattern finds something in source code. A text with it contains one of the words; looking for these is much faster.
type pattern struct {
	words []string
	in    *regexp.Regexp
}

// evidence finds what makes a package a controller's, by how much that counts.
var evidence = map[int]pattern{
	startsManager: {
		[]string{"ctrl.New", "manager.New", "runtime.New"},
		regexp.MustCompile(`\b(?:ctrl|manager|runtime|controllerruntime)\.New(?:Manager)?\(`),
	},
	watches: {
		[]string{"NewSharedI"},
		regexp.MustCompile(`\bNewSharedInformerFactory|\bcache\.NewSharedIndexInformer\(`),
	},
}

// mostControllers is added to the rank of the program that starts more controllers than each other one.
const mostControllers = 4

// controllers finds where a controller is made: with controller-runtime, or by hand with a queue.
var controllers = pattern{
	[]string{"NewControllerManagedBy", "controller.New", "workqueue.New", ".NewImpl"},
	regexp.MustCompile(`\bNewControllerManagedBy\(|\bcontroller\.New(?:Unmanaged)?\(|` +
		`\bworkqueue\.New\w*Queue|\.NewImpl\w*\(`),
}

// packages are those of a module, by import path.
type packages map[string]*struct {
	imports     []string // of the same module
	rank        int      // by the evidence in it
	controllers int      // how many it makes
}

// add adds a source file to a package.
func (all packages) add(at string, imports []string, module string, text []byte) {
	p := all[at]
	if p == nil {
		p = &struct {
			imports     []string
			rank        int
			controllers int
		}{}
		all[at] = p
	}
	for _, i := range imports {
		if strings.HasPrefix(i, module+"/") {
			p.imports = append(p.imports, i)
		}
	}
	for rank, found := range evidence {
		if rank > p.rank && containsAny(text, found.words) && found.in.Match(text) {
			p.rank = rank
		}
	}
	if containsAny(text, controllers.words) {
		p.controllers += len(controllers.in.FindAllIndex(text, -1))
	}
}

// reached returns the highest rank of a package and of those that it imports, and how many controllers they make.
func (all packages) reached(at string) (rank, controllers int) {
	seen := map[string]bool{at: true}
	for queue := []string{at}; len(queue) > 0; queue = queue[1:] {
		p := all[queue[0]]
		if p == nil {
			continue
		}
		rank = max(rank, p.rank)
		controllers += p.controllers
		for _, i := range p.imports {
			if !seen[i] {
				seen[i] = true
				queue = append(queue, i)
			}
		}
	}
	return rank, controllers
}

// findMains lists the main packages of the module, the likeliest first. It counts in owns how many types the controller
// of a kind owns. Elsewhere are programs of other modules below the directory that are likelier than all of these.
func findMains(dir, module, name string, owns map[string]int) (mains []program, elsewhere []string, err error) {
	byPackage, all := map[string]*program{}, packages{}
	tags := map[string]bool{} // that constraints name
	var nested []string       // directories of other modules
	err = walk(dir, func(file string) error {
		if file != "go.mod" && path.Base(file) == "go.mod" {
			nested = append(nested, path.Dir(file)+"/")
		}
		if path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		countOwned(text, owns)
		constraintTags(text, tags)
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ImportsOnly|parser.ParseComments)
		if err != nil || ignored(text) {
			return nil // the build will report syntax errors
		}
		var imports []string
		for _, i := range parsed.Imports {
			imported, _ := strconv.Unquote(i.Path.Value) // cannot fail: the parser has checked it
			imports = append(imports, imported)
		}
		all.add(path.Join(module, path.Dir(file)), imports, module, text)
		if parsed.Name.Name != "main" {
			return nil
		}
		at := "."
		if d := path.Dir(file); d != "." {
			at = "./" + d
		}
		p := byPackage[at]
		if p == nil {
			p = &program{pkg: at, path: path.Join(module, at), binary: path.Base(at), module: name,
				rank: importsNeither}
			if at == "." {
				p.binary = name
			}
			byPackage[at] = p
		}
		for _, imported := range imports {
			switch {
			case strings.HasPrefix(imported, "sigs.k8s.io/controller-runtime"),
				strings.HasPrefix(imported, "knative.dev/pkg/injection"):
				p.rank = max(p.rank, importsRuntime)
			case strings.HasPrefix(imported, "k8s.io/client-go"):
				p.rank = max(p.rank, importsClient)
			}
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	var others []program
	for _, p := range byPackage {
		var rank int
		rank, p.controllers = all.reached(p.path)
		p.rank = max(p.rank, rank)
		base := path.Base(p.pkg)
		if p.pkg != "." && base != name && containsAny(base, otherThings) {
			p.rank -= 30
		}
		switch base {
		case ".", "cmd", "manager", "operator", "controller", name:
			p.rank += 3
		}
		if slices.ContainsFunc(nested, func(n string) bool {
			return strings.HasPrefix(strings.TrimPrefix(p.pkg, "./")+"/", n)
		}) {
			others = append(others, *p)
		} else {
			mains = append(mains, *p)
		}
	}
	preferMost(mains)
	likeliestFirst(others)
	if len(mains) == 0 {
		text := fmt.Sprintf("%s has no main package, so no program to use as the controller", dir)
		if len(others) > 0 {
			text += fmt.Sprintf("; another module below it has some, the likeliest is %s: run `trommel init` there",
				others[0].pkg)
		}
		return nil, nil, errors.New(text)
	}
	if err := findBinaries(dir, mains, tags); err != nil {
		return nil, nil, err
	}
	likeliestFirst(mains)
	for _, p := range others {
		if p.rank > mains[0].rank {
			elsewhere = append(elsewhere, p.pkg)
		}
	}
	return mains, elsewhere, nil
}

// preferMost raises the rank of the program that makes more controllers than each other one.
func preferMost(programs []program) {
	most, second := -1, 0
	for i, p := range programs {
		switch {
		case most < 0 || p.controllers > programs[most].controllers:
			if most >= 0 {
				second = programs[most].controllers
			}
			most = i
		default:
			second = max(second, p.controllers)
		}
	}
	if most >= 0 && programs[most].controllers > second {
		programs[most].rank += mostControllers
	}
}

// modulesBelow lists the directories below one that are Go modules with a program that may be a controller, the
// likeliest first.
func modulesBelow(dir string) []string {
	type module struct {
		at   string
		main program
	}
	var all []module
	err := walk(dir, func(file string) error {
		if path.Base(file) != "go.mod" {
			return nil
		}
		at := path.Dir(file)
		name, err := modulePath(filepath.Join(dir, at))
		if err != nil {
			return nil
		}
		mains, _, err := findMains(filepath.Join(dir, at), name, controllerName(name), map[string]int{})
		if err == nil && mains[0].rank >= importsClient {
			all = append(all, module{at, mains[0]})
		}
		return nil
	})
	if err != nil {
		return nil
	}
	slices.SortStableFunc(all, func(a, b module) int {
		return cmp.Or(b.main.rank-a.main.rank, b.main.controllers-a.main.controllers)
	})
	var dirs []string
	for _, m := range all {
		dirs = append(dirs, m.at)
	}
	return dirs
}

func containsAny[T string | []byte](text T, words []string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return bytes.Contains([]byte(text), []byte(word)) })
}

func likeliestFirst(programs []program) {
	slices.SortFunc(programs, func(a, b program) int {
		return cmp.Or(b.rank-a.rank, len(a.pkg)-len(b.pkg), strings.Compare(a.pkg, b.pkg))
	})
}

// ignored reports whether the file is never built, such as files that are meant for `go run`.
func ignored(text []byte) bool {
	for _, line := range strings.Split(string(text[:min(len(text), 4096)]), "\n") {
		if e, err := constraint.Parse(strings.TrimSpace(line)); err == nil {
			return !e.Eval(func(tag string) bool { return tag != "ignore" && tag != "tools" && tag != "generate" })
		}
		if strings.HasPrefix(line, "package ") {
			return false
		}
	}
	return false
}

// constraintTags adds the tags that a file's build constraint names.
func constraintTags(text []byte, tags map[string]bool) {
	for _, line := range strings.Split(string(text[:min(len(text), 4096)]), "\n") {
		if e, err := constraint.Parse(strings.TrimSpace(line)); err == nil {
			e.Eval(func(tag string) bool { tags[tag] = true; return false })
		}
		if strings.HasPrefix(line, "package ") {
			return
		}
	}
}

// tagsFlag finds the tags of a build, which may be a variable, and variable the value of one.
var (
	tagsFlag = regexp.MustCompile(`\s-?-tags[ =]["']?([\w.,]+|\$[({]\w+[)}])`)
	variable = regexp.MustCompile(`(?m)^(?:export )?(\w+)\s*[?:]?=\s*["']?([\w.,]+)["']?\s*$`)
)

// tagsIn returns the tags of a command in a file that constraints of the module name. Without them it lacks what they
// are for.
func tagsIn(command, text string, known map[string]bool) (tags []string) {
	m := tagsFlag.FindStringSubmatch(command)
	if m == nil {
		return nil
	}
	value := m[1]
	if name := strings.Trim(value, "$({})"); name != value {
		value = ""
		for _, v := range variable.FindAllStringSubmatch(text, -1) {
			if v[1] == name {
				value = v[2]
			}
		}
	}
	for _, tag := range strings.Split(value, ",") {
		if known[tag] {
			tags = append(tags, tag)
		}
	}
	return tags
}

// buildLine is a command with an output path, perhaps in a directory of its own; it ends where the next command begins.
// The command may be a variable, such as $(GO_BUILD).
var buildLine = regexp.MustCompile(
	`(?i)(?:\bcd\s+(\S+)\s*&&\s*)?[^&|;\n]*?\bgo[ _]?build\b[^&|;\n]*?\s-o[ =](\S+)([^&|;\n]*)`)

// findBinaries reads the programs' output paths and tags from Dockerfiles and Makefiles. Known are the tags that
// constraints name.
func findBinaries(dir string, mains []program, known map[string]bool) error {
	return walk(dir, func(file string) error {
		base := path.Base(file)
		if !strings.Contains(base, "Dockerfile") && base != "Makefile" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		joined := strings.ReplaceAll(string(text), "\\\n", " ")
		for _, m := range buildLine.FindAllStringSubmatch(joined, -1) {
			words := strings.Fields(m[3])
			if len(words) == 0 || path.IsAbs(m[1]) {
				continue
			}
			pkg := path.Join(m[1], words[len(words)-1])
			if path.Ext(pkg) == ".go" {
				pkg = path.Dir(pkg)
			}
			if pkg != "." {
				pkg = "./" + strings.TrimPrefix(pkg, "./")
			}
			for i := range mains {
				if mains[i].pkg != pkg {
					continue
				}
				if !strings.ContainsAny(path.Base(m[2]), "$%@*") {
					mains[i].binary = path.Base(m[2])
				}
				if tags := tagsIn(m[0], joined, known); len(tags) > 0 {
					mains[i].tags = tags
				}
			}
		}
		return nil
	})
}
