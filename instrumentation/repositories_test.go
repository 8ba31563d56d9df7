package instrumentation_test

import (
	"archive/zip"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	modzip "golang.org/x/mod/zip"

	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/instrumentation/points"
	"github.com/trommel-dev/trommel/instrumentation/wire"
)

const (
	clientGo        = "k8s.io/client-go"
	clientGoVersion = "v0.36.3" // of testdata/controllers/copier, whose requirements all repositories here have
)

// smallMain uses packages with hooks, and as little else as possible.
const smallMain = `package main

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func main() {
	_, err := rest.InClusterConfig()
	fmt.Println("small", len(cache.NewStore(cache.MetaNamespaceKeyFunc).ListKeys()), err != nil)
}
`

// repositories builds small controllers in repositories of all layouts, with one shared cache.
type repositories struct {
	cache    string
	requires string // the require lines of a go.mod
	sums     string
}

func newRepositories(t *testing.T) *repositories {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles controllers")
	}
	copier := filepath.Join("..", "testdata", "controllers", "copier")
	r := &repositories{cache: filepath.Join(t.TempDir(), "a cache")}
	_, r.requires, _ = strings.Cut(read(t, filepath.Join(copier, "go.mod")), "go 1.26.0\n")
	r.sums = read(t, filepath.Join(copier, "go.sum"))
	// The build cache knows a package by its directory, which differs from run to run, unless paths are trimmed.
	t.Setenv("GOFLAGS", "-trimpath")
	t.Setenv("GOWORK", "")
	return r
}

// goMod returns a go.mod with its go.sum in a directory of the repository.
func (r *repositories) goMod(dir, head string) map[string]string {
	return map[string]string{filepath.Join(dir, "go.mod"): head + r.requires, filepath.Join(dir, "go.sum"): r.sums}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// repository writes files into a new directory, with its real name.
func repository(t *testing.T, files ...map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "repository")
	for _, f := range files {
		write(t, dir, f)
	}
	return dir
}

// build builds in a repository and checks that the repository does not change.
func (r *repositories) build(t *testing.T, repository string, config instrumentation.BuildConfig) (
	*instrumentation.Result, error) {
	t.Helper()
	config.CacheDir = r.cache
	before := tree(t, repository)
	result, err := instrumentation.Build(t.Context(), config)
	unchanged(t, before, tree(t, repository))
	return result, err
}

func unchanged(t *testing.T, before, after map[string]string) {
	t.Helper()
	for path, was := range before {
		if is, ok := after[path]; !ok {
			t.Errorf("%s is gone", path)
		} else if is != was {
			t.Errorf("%s was changed", path)
		}
	}
	for path := range after {
		if _, ok := before[path]; !ok {
			t.Errorf("%s is new", path)
		}
	}
}

// mustPrint builds a controller, runs it, and checks what it prints and that it has the hooks of client-go.
func (r *repositories) mustPrint(t *testing.T, repository string, config instrumentation.BuildConfig,
	want string) *instrumentation.Result {
	t.Helper()
	result, err := r.build(t, repository, config)
	if err != nil {
		t.Fatal(err)
	}
	printed, points := shown(t, result.Binary)
	if printed != want {
		t.Errorf("the controller printed %q, want %q", printed, want)
	}
	for _, p := range []wire.Point{wire.ControllerRecv, wire.ControllerRead, wire.ControllerWrite} {
		if points[p] == 0 {
			t.Errorf("no point %s in the controller", p)
		}
	}
	return result
}

// shown runs a controller and returns what it prints and how often it has each point.
func shown(t *testing.T, binary string) (string, map[wire.Point]int) {
	t.Helper()
	m, err := monitor.Listen(monitor.Config{Address: "unix://" + filepath.Join(t.TempDir(), "s"), Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), wire.EnvCoordinator+"="+m.Addr(), wire.EnvToken+"=secret", wire.EnvIdentity+
		"=controller")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run the controller: %v", err)
	}
	points := map[wire.Point]int{}
	select {
	case e := <-m.Events():
		for _, p := range e.Session.Manifest.Points {
			points[p.Point]++
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the controller shows no points")
	}
	return strings.TrimSpace(string(out)), points
}

func goRun(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// clientGoFork copies client-go's source and changes one of its files.
func clientGoFork(t *testing.T, to, file string, change func(string) string) {
	t.Helper()
	from := goRun(t, filepath.Join("..", "testdata", "controllers", "copier"), "list", "-m", "-f", "{{.Dir}}", clientGo)
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	// The rest is large and not used by any test here.
	for _, name := range []string{"kubernetes", "informers", "listers", "applyconfigurations"} {
		if err := os.CopyFS(filepath.Join(to, name, "scheme"),
			os.DirFS(filepath.Join(from, name, "scheme"))); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		switch {
		case e.Name() == "kubernetes" || e.Name() == "informers" || e.Name() == "listers" ||
			e.Name() == "applyconfigurations":
		case e.IsDir():
			if err := os.CopyFS(filepath.Join(to, e.Name()), os.DirFS(filepath.Join(from, e.Name()))); err != nil {
				t.Fatal(err)
			}
		default:
			write(t, to, map[string]string{e.Name(): read(t, filepath.Join(from, e.Name()))})
		}
	}
	_ = filepath.WalkDir(to, func(path string, _ os.DirEntry, _ error) error { return os.Chmod(path, 0o755) })
	changed := change(read(t, filepath.Join(to, file)))
	write(t, to, map[string]string{file: changed})
}

// forked shows which source a controller is built from.
const forked = "\n\nfunc Forked() string { return \"forked\" }\n"

const forkedMain = `package main

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var _ = cache.NewStore

func main() { fmt.Println(rest.Forked()) }
`

func appendForked(text string) string { return text + forked }

func TestRepositoryModule(t *testing.T) {
	r := newRepositories(t)
	t.Run("a go.mod with all directives", func(t *testing.T) {
		head := "module example.com/group/operator/v2\n\ngo 1.26.0\n\ntoolchain go1.26.1\n\n" +
			"godebug default=go1.26\n\n" +
			"exclude k8s.io/klog/v2 v2.1.0\n\nretract v2.0.1 // broken\n\n" +
			"tool k8s.io/kube-openapi/cmd/openapi-gen\n\nrequire go.uber.org/goleak v1.3.0\n\nignore ./node_modules\n"
		// The directory's name differs from the module's, contains blanks, and is reached through a symbolic link.
		dir := filepath.Join(repository(t), "my operator (1)")
		write(t, dir, r.goMod(".", head))
		write(t, dir, map[string]string{
			"cmd/manager/main.go": `package main

import (
	_ "embed"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"example.com/group/operator/v2/internal/words"
)

` + "//go:generate" + ` go run example.com/nowhere/generator@latest

//go:embed "with blanks.txt"
var embedded string

var stamped, other string

func main() {
	_, err := rest.InClusterConfig()
	fmt.Println(embedded, stamped, other, words.Tagged, words.FromC(), len(cache.NewStore(nil).ListKeys()), err != nil)
}
`,
			"cmd/manager/with blanks.txt": "embedded",
			"internal/words/words.go": "package words\n\n/*\nstatic int fromC(void) { return 7; }\n*/\n" +
				"import \"C\"\n\nfunc FromC() int { return int(C.fromC()) }\n",
			"internal/words/plain.go": "//go:build !special\n\npackage words\n\nconst Tagged = \"plain\"\n",
			"internal/words/special.go": "//go:build special && other\n\npackage words\n\n" +
				"const Tagged = \"special\"\n",
			"internal/words/words_test.go": "package words\n\nimport (\n\t\"testing\"\n\n\t\"go.uber.org/goleak\"\n" +
				")\n\nfunc TestMain(m *testing.M) { goleak.VerifyTestMain(m) }\n",
			"node_modules/x/broken.go": "package x\n\nfunc {\n",
			".hidden":                  "",
			"hack/tools/go.mod": "module example.com/group/operator/v2/hack/tools\n\ngo 1.26.0\n\n" +
				"require example.com/not/there v1.0.0\n",
			"hack/tools/tools.go":           "package tools\n\nimport _ \"example.com/not/there\"\n",
			"api/v1/zz_generated.broken.go": "//go:build ignore\n\npackage broken\n\nfunc {\n",
		})
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		t.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -tags=special,other '-ldflags=-X main.other=wrong'")
		result := r.mustPrint(t, dir, instrumentation.BuildConfig{
			Dir: link, Package: "./cmd/manager", LDFlags: `-s -w -X "main.stamped=two words" -X 'main.other=it is'`,
		}, "embedded two words it is special 7 0 true")
		if filepath.Base(result.Binary) != "manager" {
			t.Errorf("binary %s", result.Binary)
		}

		// The build's own tags come before those of the environment, as with go build; its linker flags come from
		// there.
		r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: filepath.Join(dir, "cmd"), Package: "./manager",
			Tags: []string{"alone"}}, "embedded  wrong plain 7 0 true")
	})

	t.Run("main in the root of a module with a major version", func(t *testing.T) {
		dir := repository(t, r.goMod(".", "module example.com/operator/v3\n\ngo 1.26.0\n"),
			map[string]string{"main.go": smallMain})
		if result := r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: dir}, "small 0 true"); filepath.Base(
			result.Binary) != "operator" {
			t.Errorf("binary %s", result.Binary)
		}
	})

	t.Run("a module within another", func(t *testing.T) {
		dir := repository(t, r.goMod("sub/operator", "module example.com/operator\n\ngo 1.26.0\n"), map[string]string{
			"go.mod": "module example.com\n\ngo 1.26.0\n", "sub/operator/cmd/main.go": smallMain,
		})
		r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: filepath.Join(dir, "sub/operator"), Package: "cmd"},
			"small 0 true")
		_, err := r.build(t, dir, instrumentation.BuildConfig{Dir: dir, Package: "./sub/operator/cmd"})
		if want := "; it is in another module: build it in the directory " +
			filepath.Join(dir, "sub/operator"); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("got %v\nwant ...%s", err, want)
		}
	})

	t.Run("git stamps the binary and keeps its index", func(t *testing.T) {
		dir := repository(t, r.goMod(".", "module example.com/stamped\n\ngo 1.26.0\n"),
			map[string]string{"main.go": strings.Replace(smallMain, `fmt.Println("small"`,
				`info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "vcs.modified" {
			fmt.Print(s.Key, "=", s.Value, " ")
		}
	}
	fmt.Println("small"`, 1)})
		main := filepath.Join(dir, "main.go")
		write(t, dir,
			map[string]string{"main.go": strings.Replace(read(t, main), `"fmt"`, "\"fmt\"\n\t\"runtime/debug\"", 1)})
		for _, args := range [][]string{{"init", "-q"}, {"add", "."},
			{"-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-qm", "all"}} {
			cmd := exec.Command("git", args...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Skipf("git %v: %v %s", args, err, out)
			}
		}
		// Git would update its index, because only the time is new.
		later := time.Now().Add(time.Hour)
		if err := os.Chtimes(main, later, later); err != nil {
			t.Fatal(err)
		}
		t.Setenv("GOFLAGS", "-trimpath -buildvcs=true")
		r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: dir}, "vcs.modified=false small 0 true")
	})
}

// TestRepositoryBeforeLazyLoading has requirements of 2021: no indirect ones, and a go directive that is old or
// missing.
func TestRepositoryBeforeLazyLoading(t *testing.T) {
	r := newRepositories(t)
	const old = "client-go-0.20.15"
	text := read(t, filepath.Join("testdata", "versions", old, "go.mod"))
	sums := read(t, filepath.Join("testdata", "versions", old, "go.sum"))
	for name, text := range map[string]string{"go 1.16": text,
		"no go directive": strings.Replace(text, "\ngo 1.16\n", "", 1)} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(text, "go 1.16") != (name == "go 1.16") {
				t.Fatalf("the test's own go.mod:\n%s", text)
			}
			dir := repository(t, map[string]string{"go.mod": text, "go.sum": sums, "main.go": smallMain})
			r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: dir}, "small 0 true")
		})
	}
}

// TestRepositoryVendor builds what is in the vendor directory, even if it differs from the modules' sources.
func TestRepositoryVendor(t *testing.T) {
	r := newRepositories(t)
	dir := repository(t, r.goMod(".", "module example.com/vendored\n\ngo 1.26.0\n"), map[string]string{
		"main.go": strings.Replace(strings.Replace(smallMain, `"k8s.io/client-go/rest"`,
			"\"k8s.io/client-go/rest\"\n\t\"k8s.io/klog/v2\"", 1),
			`fmt.Println("small"`, `fmt.Println(words.Word, klog.V(2).Enabled(), "small"`, 1),
		"words/words.go": "package words\n\nvar Word = word()\n\nfunc word() string { return \"word\" }\n",
	})
	main := filepath.Join(dir, "main.go")
	write(t, dir, map[string]string{"main.go": strings.Replace(read(t, main), `"fmt"`,
		"\"fmt\"\n\n\t\"example.com/vendored/words\"", 1)})
	goRun(t, dir, "mod", "vendor")
	for _, name := range []string{"vendor/k8s.io/client-go/tools/cache/controller.go", "vendor/modules.txt"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	withoutModules(t)
	r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: dir}, "word false small 0 true")

	for file, change := range map[string]func(string) string{
		// A file that is patched, and one that is not.
		"vendor/k8s.io/client-go/rest/config.go": appendForked,
		"vendor/k8s.io/klog/v2/klog.go": func(text string) string {
			return strings.Replace(text, "func (v Verbose) Enabled() bool {",
				"func (v Verbose) Enabled() bool {\n\tif true {\n\t\treturn true\n\t}", 1)
		},
	} {
		write(t, dir, map[string]string{file: change(read(t, filepath.Join(dir, file)))})
	}
	write(t, dir,
		map[string]string{"main.go": strings.Replace(read(t, main), `fmt.Println(`, `fmt.Println(rest.Forked(), `, 1)})
	result := r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: dir, AnnotatedCalls: []points.AnnotatedCall{
		{Name: "own", Package: "example.com/vendored/words", Function: "word"},
		{Name: "vendored", Package: "k8s.io/klog/v2", Receiver: "Verbose", Function: "Enabled"},
		{Name: "patched", Package: "k8s.io/client-go/rest", Function: "InClusterConfig"},
	}}, "forked word true small 0 true")
	if _, points := shown(t, result.Binary); points[wire.AnnotatedCall] != 3 {
		t.Errorf("%d annotated calls in the controller", points[wire.AnnotatedCall])
	}

	// The compiler's messages name the vendored file.
	broken := "vendor/k8s.io/client-go/rest/config.go"
	text := read(t, filepath.Join(dir, broken))
	write(t, dir, map[string]string{broken: text + "\nvar _ = nonsense\n"})
	_, err := r.build(t, dir, instrumentation.BuildConfig{Dir: dir})
	if want := fmt.Sprintf("%s:%d: undefined: nonsense", broken, strings.Count(text, "\n")+2); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v\nwant ...%s", err, want)
	}

	// The error of go build for a vendor directory that is older than its go.mod.
	write(t, dir, map[string]string{broken: text, "go.mod": strings.Replace(read(t, filepath.Join(dir, "go.mod")),
		"k8s.io/client-go v0.36.3", "k8s.io/client-go v0.36.2", 1)})
	_, err = r.build(t, dir, instrumentation.BuildConfig{Dir: dir})
	var input *instrumentation.InputError
	if !errors.As(err, &input) || !strings.Contains(err.Error(), "inconsistent vendoring") ||
		!strings.Contains(err.Error(), "`go mod vendor`") {
		t.Errorf("got %v", err)
	}
}

// TestRepositoryVendorIsLeftOut builds without the vendor directory if go build would ignore it.
func TestRepositoryVendorIsLeftOut(t *testing.T) {
	r := newRepositories(t)
	dir := repository(t, r.goMod(".", "module example.com/unvendored\n\ngo 1.26.0\n"), map[string]string{
		"main.go": smallMain, "vendor/modules.txt": "# example.com/other v1.0.0\n",
	})
	t.Setenv("GOFLAGS", "-trimpath -mod=readonly")
	r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: dir}, "small 0 true")
}

func TestRepositoryWorkspace(t *testing.T) {
	r := newRepositories(t)
	library := `package library

import "k8s.io/client-go/tools/cache"

func Len() int { return len(cache.NewStore(nil).ListKeys()) }
`
	main := `package main

import (
	"fmt"

	"example.com/far"
	library "example.com/library/v2"
	"k8s.io/client-go/rest"
)

func main() {
	_, err := rest.InClusterConfig()
	fmt.Println(far.Word, library.Len(), err != nil)
}
`
	files := map[string]string{
		"go.work":            "go 1.26.0\n\nuse (\n\t./operator\n\t./library\n)\n\nreplace example.com/far => ./far\n",
		"operator/main.go":   main,
		"library/library.go": library,
		// The library replaces a module for the whole workspace, relative to itself.
		"library/near/near.go": "package near\n",
		"library/near/go.mod":  "module example.com/near\n\ngo 1.20\n",
		"far/go.mod":           "module example.com/far\n\ngo 1.26.0\n",
		"far/far.go":           "package far\n\nconst Word = \"far\"\n",
	}
	operator := r.goMod("operator", "module example.com/operator\n\ngo 1.26.0\n\nrequire example.com/far v0.0.0\n")
	lib := r.goMod("library", "module example.com/library/v2\n\ngo 1.26.0\n\nrequire example.com/near v1.0.0\n\n"+
		"replace example.com/near => ./near\n")
	t.Run("of two modules", func(t *testing.T) {
		dir := repository(t, files, operator, lib)
		result := r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: filepath.Join(dir, "operator"),
			AnnotatedCalls: []points.AnnotatedCall{
				{Name: "len", Package: "example.com/library/v2", Function: "Len"},
			}}, "far 0 true")
		if _, points := shown(t, result.Binary); points[wire.AnnotatedCall] != 1 {
			t.Errorf("no annotated call in the other module")
		}
		// A module that the workspace does not use is built on its own.
		write(t, dir, r.goMod("alone", "module example.com/alone\n\ngo 1.26.0\n"))
		write(t, dir, map[string]string{"alone/main.go": smallMain})
		r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: filepath.Join(dir, "alone")}, "small 0 true")
		// A module that needs the workspace is built without it.
		_, err := r.build(t, dir, instrumentation.BuildConfig{Dir: filepath.Join(dir, "operator"),
			Env: map[string]string{"GOWORK": "off"}})
		if err == nil || !strings.Contains(err.Error(), "go build .` there must work first") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("with a fork of client-go in it", func(t *testing.T) {
		dir := repository(t, files, operator, lib, map[string]string{
			"go.work":          strings.Replace(files["go.work"], "./library", "./library\n\t./client-go", 1),
			"operator/main.go": strings.Replace(main, "fmt.Println(", "fmt.Println(rest.Forked(), ", 1),
		})
		clientGoFork(t, filepath.Join(dir, "client-go"), "rest/config.go", appendForked)
		r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: filepath.Join(dir, "operator")}, "forked far 0 true")
	})
	t.Run("vendored", func(t *testing.T) {
		dir := repository(t, files, operator, lib)
		goRun(t, dir, "work", "vendor")
		edited := filepath.Join(dir, "vendor/k8s.io/client-go/rest/config.go")
		write(t, dir, map[string]string{
			"vendor/k8s.io/client-go/rest/config.go": appendForked(read(t, edited)),
			"operator/main.go": strings.Replace(main, "fmt.Println(",
				"fmt.Println(rest.Forked(), ", 1),
		})
		withoutModules(t)
		r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: filepath.Join(dir, "operator")}, "forked far 0 true")
	})
}

// moduleProxy serves the contents of the module cache, and a fork of client-go.
func moduleProxy(t *testing.T) (goproxy, sums string) {
	t.Helper()
	const path, version = "example.com/forks/client-go", "v1.2.3"
	fork := filepath.Join(t.TempDir(), "client-go")
	clientGoFork(t, fork, "rest/config.go", appendForked)
	text := strings.Replace(read(t, filepath.Join(fork, "go.mod")), "module "+clientGo+"\n", "module "+path+"\n", 1)
	write(t, fork, map[string]string{"go.mod": text})
	proxy := t.TempDir()
	dir := filepath.Join(proxy, filepath.FromSlash(path), "@v")
	write(t, dir, map[string]string{version + ".mod": text, version + ".info": `{"Version":"` + version + `"}`,
		"list": version + "\n"})
	var b bytes.Buffer
	if err := modzip.CreateFromDir(&b, module.Version{Path: path, Version: version}, fork); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, version+".zip")
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len())); err != nil {
		t.Fatal(err)
	}
	zipHash, err := dirhash.HashZip(name, dirhash.Hash1)
	if err != nil {
		t.Fatal(err)
	}
	modHash, err := dirhash.Hash1([]string{"go.mod"},
		func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil })
	if err != nil {
		t.Fatal(err)
	}
	sums = fmt.Sprintf("%s %s %s\n%[1]s %[2]s/go.mod %[4]s\n", path, version, zipHash, modHash)
	cached := filepath.Join(goRun(t, ".", "env", "GOMODCACHE"), "cache", "download")
	return "file://" + proxy + ",file://" + cached, sums
}

func TestRepositoryReplacesClientGo(t *testing.T) {
	r := newRepositories(t)
	t.Run("by a directory", func(t *testing.T) {
		dir := repository(t, r.goMod("operator", "module example.com/operator\n\ngo 1.26.0\n\n"+
			"replace k8s.io/client-go => ../client-go\n"),
			map[string]string{"operator/main.go": forkedMain})
		clientGoFork(t, filepath.Join(dir, "client-go"), "rest/config.go", appendForked)
		config := instrumentation.BuildConfig{Dir: filepath.Join(dir, "operator")}
		r.mustPrint(t, dir, config, "forked")

		// The next build contains a change in the fork.
		name := "client-go/rest/config.go"
		write(t, dir,
			map[string]string{name: strings.Replace(read(t, filepath.Join(dir, name)), `"forked"`, `"again"`, 1)})
		r.mustPrint(t, dir, config, "again")

		// A fork that differs from the table of points.
		name = "client-go/tools/cache/controller.go"
		write(t, dir, map[string]string{name: strings.ReplaceAll(read(t, filepath.Join(dir, name)), "newQueueFIFO(",
			"newFIFO(")})
		_, err := r.build(t, dir, config)
		var notFound *points.NotFoundError
		if want := "k8s.io/client-go v0.36.3: newQueueFIFO in tools/cache/controller.go: no such " +
			"function; "; !errors.As(err, &notFound) || !strings.HasPrefix(err.Error(), want) ||
			!strings.HasSuffix(err.Error(), "(searched: "+filepath.Join(dir, "client-go")+")") {
			t.Errorf("got  %v\nwant %s...", err, want)
		}
	})
	t.Run("by a directory and without a version, as in Kubernetes", func(t *testing.T) {
		dir := repository(t, map[string]string{
			"operator/go.mod": "module example.com/operator\n\ngo 1.26.0\n\nreplace k8s.io/client-go => " +
				"../client-go\n" + strings.Replace(r.requires, clientGo+" v0.36.3", clientGo+" v0.0.0", 1),
			"operator/go.sum":  r.sums,
			"operator/main.go": forkedMain,
		})
		clientGoFork(t, filepath.Join(dir, "client-go"), "rest/config.go", appendForked)
		result := r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: filepath.Join(dir, "operator")}, "forked")
		if v := result.Points[0].Version; v != clientGoVersion {
			t.Errorf("treated as version %s", v)
		}
	})
	t.Run("by another module", func(t *testing.T) {
		proxy, sums := moduleProxy(t)
		t.Setenv("GOPROXY", proxy)
		t.Setenv("GONOSUMDB", "*")
		t.Setenv("GOMODCACHE", filepath.Join(t.TempDir(), "modules"))
		t.Setenv("GOFLAGS", "-trimpath -modcacherw")
		dir := repository(t, r.goMod(".", "module example.com/operator\n\ngo 1.26.0\n\n"+
			"replace k8s.io/client-go => example.com/forks/client-go v1.2.3\n"),
			map[string]string{"main.go": forkedMain})
		write(t, dir, map[string]string{"go.sum": r.sums + sums})
		var progress []string
		result := r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: dir,
			Progress: func(line string) { progress = append(progress, line) }}, "forked")
		if v := result.Points[0].Version; v != clientGoVersion {
			t.Errorf("treated as version %s", v)
		}
		if !slices.Contains(progress, "download example.com/forks/client-go v1.2.3") {
			t.Errorf("no download was reported: %q", progress)
		}
	})
}

// TestRepositoryWithoutNetwork builds with a module cache that holds the dependencies of the controller and, as after
// go install, those of trommel. withoutModules sets up a module cache with only the hook's dependencies, and no way to
// download others.
func withoutModules(t *testing.T) {
	t.Helper()
	cached := filepath.Join(goRun(t, ".", "env", "GOMODCACHE"), "cache", "download")
	flags := os.Getenv("GOFLAGS")
	t.Setenv("GOMODCACHE", filepath.Join(t.TempDir(), "modules"))
	t.Setenv("GOFLAGS", "-modcacherw")
	t.Setenv("GONOSUMDB", "*")
	t.Setenv("GOPROXY", "file://"+cached)
	goRun(t, t.TempDir(), "mod", "download", "github.com/hashicorp/yamux@v0.1.2")
	t.Setenv("GOFLAGS", flags)
	t.Setenv("GOPROXY", "off")
}

func TestRepositoryWithoutNetwork(t *testing.T) {
	r := newRepositories(t)
	dir := repository(t, r.goMod(".", "module example.com/operator\n\ngo 1.26.0\n"),
		map[string]string{"main.go": smallMain})
	cached := filepath.Join(goRun(t, ".", "env", "GOMODCACHE"), "cache", "download")
	modules := filepath.Join(t.TempDir(), "modules")
	t.Setenv("GOMODCACHE", modules)
	t.Setenv("GOFLAGS", "-trimpath -modcacherw")
	t.Setenv("GONOSUMDB", "*")
	t.Setenv("GOPROXY", "off")
	_, err := r.build(t, dir, instrumentation.BuildConfig{Dir: dir})
	var input *instrumentation.InputError
	if want := "(`go mod download` with a network may fix it)"; !errors.As(err, &input) ||
		!strings.Contains(err.Error(), "GOPROXY=off") || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got  %v\nwant ...%s", err, want)
	}

	t.Setenv("GOPROXY", "file://"+cached)
	goRun(t, dir, "list", "-deps", ".")
	if _, err := os.Stat(filepath.Join(modules, "github.com", "hashicorp", "yamux@v0.1.2")); err == nil {
		t.Fatal("the module cache has a dependency that only the hook needs")
	}
	t.Setenv("GOPROXY", "off")
	_, err = r.build(t, dir, instrumentation.BuildConfig{Dir: dir})
	if want := "run `go mod download github.com/hashicorp/yamux@v0.1.2` with a network"; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got  %v\nwant ...%s...", err, want)
	}
	t.Setenv("GOPROXY", "file://"+cached)
	goRun(t, t.TempDir(), "mod", "download", "github.com/hashicorp/yamux@v0.1.2")
	t.Setenv("GOPROXY", "off")
	r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: dir}, "small 0 true")
	for _, flags := range []string{"-mod=mod", "-mod=readonly"} {
		t.Setenv("GOFLAGS", "-trimpath "+flags)
		r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: dir}, "small 0 true")
	}
}

func TestRepositoryIncomplete(t *testing.T) {
	r := newRepositories(t)
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"no line in go.sum", map[string]string{
			"go.mod":  "module example.com/incomplete\n\ngo 1.26.0\n" + r.requires,
			"go.sum":  regexp.MustCompile(`(?m)^k8s.io/client-go v0.36.3 .*\n`).ReplaceAllString(r.sums, ""),
			"main.go": smallMain,
		}, []string{"missing go.sum entry for module providing package k8s.io/client-go/",
			"`go build .` there must work first (`go mod tidy` may fix it)"}},
		{"no go.sum", map[string]string{"go.mod": "module example.com/incomplete\n\ngo 1.26.0\n" + r.requires,
			"main.go": smallMain},
			[]string{"missing go.sum entry", "(`go mod tidy` may fix it)"}},
		{"no requirement", map[string]string{"go.mod": "module example.com/incomplete\n\ngo 1.26.0\n",
			"main.go": smallMain},
			[]string{"no required module provides package k8s.io/client-go/", "go get k8s.io/client-go/",
				", without trommel: `go build .` there must work first"}},
		{"a go.mod for a newer Go", map[string]string{"go.mod": "module example.com/incomplete\n\ngo 1.999\n" +
			r.requires, "go.sum": r.sums, "main.go": smallMain},
			[]string{"requires go >= 1.999"}},
		{"an unreadable go.mod", map[string]string{"go.mod": "module example.com/incomplete\n\nnonsense\n",
			"main.go": smallMain},
			[]string{"go.mod:3: unknown directive: nonsense"}},
		{"client-go is too old", map[string]string{
			"go.mod": "module example.com/old\n\ngo 1.16\n\n" +
				"require k8s.io/client-go v0.15.12\n",
			"vendor/modules.txt":                  "# k8s.io/client-go v0.15.12\n## explicit\nk8s.io/client-go/rest\n",
			"vendor/k8s.io/client-go/rest/old.go": "package rest\n",
			"main.go": "package main\n\nimport _ \"k8s.io/client-go/rest\"\n\n" +
				"func main() {}\n",
		}, []string{"k8s.io/client-go v0.15.12 is too old: the oldest version that can be observed is v0.16.4; raise " +
			"it in go.mod (go get k8s.io/client-go@v0.16.4)"}},
		{"client-go is replaced by one that is too old", map[string]string{
			"go.mod": "module example.com/old\n\ngo 1.16\n\nrequire k8s.io/client-go v12.0.0+incompatible\n\n" +
				"replace k8s.io/client-go => k8s.io/client-go v0.0.0-20180806134042-1f13a808da65\n",
			"vendor/modules.txt": "# k8s.io/client-go v12.0.0+incompatible => k8s.io/client-go " +
				"v0.0.0-20180806134042-1f13a808da65\n## explicit\nk8s.io/client-go/rest\n" +
				"# k8s.io/client-go => k8s.io/client-go v0.0.0-20180806134042-1f13a808da65\n",
			"vendor/k8s.io/client-go/rest/old.go": "package rest\n",
			"main.go": "package main\n\nimport _ \"k8s.io/client-go/rest\"\n\n" +
				"func main() {}\n",
		}, []string{"k8s.io/client-go v0.0.0-20180806134042-1f13a808da65 is too old, or its source is not that of a " +
			"release: the oldest version that can be observed is v0.16.4; raise it in go.mod (replace " +
			"k8s.io/client-go => k8s.io/client-go v0.16.4)"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("GOTOOLCHAIN", "local")
			dir := repository(t, tc.files)
			_, err := r.build(t, dir, instrumentation.BuildConfig{Dir: dir})
			var input *instrumentation.InputError
			if !errors.As(err, &input) {
				t.Fatalf("got %v, want an InputError", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got  %v\nwant %s in it", err, want)
				}
			}
		})
	}
}

func TestNoGoCommand(t *testing.T) {
	dir := repository(t, map[string]string{"go.mod": "module example.com/m\n",
		"main.go": "package main\n\nfunc main() {}\n"})
	t.Setenv("PATH", t.TempDir())
	_, err := instrumentation.Build(t.Context(), instrumentation.BuildConfig{Dir: dir, CacheDir: t.TempDir()})
	if want := "install Go (https://go.dev/dl) or add it to PATH"; err == nil ||
		!strings.HasSuffix(err.Error(), want) {
		t.Errorf("got  %v\nwant ...%s", err, want)
	}
}

// gate stops the compiler at a package until it is opened.
type gate struct{ dir string }

// newGate puts the gate into GOFLAGS.
func newGate(t *testing.T, pkg string) *gate {
	g := &gate{t.TempDir()}
	write(t, g.dir, map[string]string{"gate.sh": fmt.Sprintf(`#!/bin/sh
if [ "$TOOLEXEC_IMPORTPATH" = %q ] && [ "$2" != -V=full ]; then
	: >%q/reached
	while [ -d %[2]q ] && [ ! -e %[2]q/open ]; do sleep 0.02; done
fi
exec "$@"
`, pkg, g.dir)})
	if err := os.Chmod(filepath.Join(g.dir, "gate.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOFLAGS", "-trimpath -toolexec="+filepath.Join(g.dir, "gate.sh"))
	return g
}

func (g *gate) open(t *testing.T) { write(t, g.dir, map[string]string{"open": ""}) }

func (g *gate) wait(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(g.dir, "reached")); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the build does not reach the package")
		}
	}
}

const libMain = `package main

import (
	"fmt"

	"example.com/changed/lib"
	"example.com/changed/other"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var _, _ = rest.InClusterConfig, cache.NewStore

func main() { fmt.Println(lib.Word(), other.Word) }
`

func libWord(word string) string {
	return fmt.Sprintf("package lib\n\nconst run = %d\n\nfunc Word() string { return %q }\n",
		time.Now().UnixNano(), word)
}

// changing returns a repository that is not in any build cache.
func (r *repositories) changing(t *testing.T) string {
	return repository(t, r.goMod(".", "module example.com/changed\n\ngo 1.26.0\n"), map[string]string{
		"main.go": libMain, "lib/lib.go": libWord("first"),
		"other/other.go": "package other\n\nconst Word = \"other\"\n",
	})
}

// TestRebuild counts the recompiled packages.
func TestRebuild(t *testing.T) {
	r := newRepositories(t)
	dir := r.changing(t)
	var compiled []string
	config := instrumentation.BuildConfig{Dir: dir, Progress: func(line string) {
		if f := strings.Fields(line); f[0] == "compile" {
			compiled = append(compiled, f[len(f)-1])
		}
	}}
	r.mustPrint(t, dir, config, "first other")
	for _, step := range []struct {
		file, text, printed string
		compiled            []string
	}{
		{"", "", "first other", nil},
		{"README.md", "Nothing that is compiled.\n", "first other", nil},
		{"lib/lib.go", libWord("second"), "second other", []string{"example.com/changed", "example.com/changed/lib"}},
		{"main.go", libMain + fmt.Sprintf("\nconst run = %d\n", time.Now().UnixNano()), "second other",
			[]string{"example.com/changed"}},
	} {
		if step.file != "" {
			write(t, dir, map[string]string{step.file: step.text})
		}
		compiled = nil
		began := time.Now()
		result := r.mustPrint(t, dir, config, step.printed)
		t.Logf("change in %q: %s", step.file, time.Since(began).Round(time.Millisecond))
		if slices.Sort(compiled); !slices.Equal(compiled, step.compiled) || result.Cached != (step.compiled == nil) {
			t.Errorf("after a change in %q compiled %v (cached: %t), want %v", step.file, compiled, result.Cached,
				step.compiled)
		}
	}

	// The go command treats the standard library with hooks as the same, wherever its replaced files are.
	r.cache = filepath.Join(t.TempDir(), "another cache")
	compiled = nil
	r.mustPrint(t, dir, config, "second other")
	for _, p := range compiled {
		if first, _, _ := strings.Cut(p, "/"); !strings.Contains(first, ".") {
			t.Errorf("with another cache, package %s of the standard library was compiled again", p)
		}
	}
}

// TestSharedPackages checks that a second controller compiles only its own packages, whatever its directory and flags.
func TestSharedPackages(t *testing.T) {
	r := newRepositories(t)
	t.Setenv("GOFLAGS", "")
	const anotherCache = "another cache of ours"
	first := r.changing(t)
	r.mustPrint(t, first, instrumentation.BuildConfig{Dir: first}, "first other")
	for _, tt := range []struct {
		name, flags string
		config      instrumentation.BuildConfig
		files       map[string]string
	}{
		{"another directory", "", instrumentation.BuildConfig{}, nil},
		{"trimmed paths", "-trimpath", instrumentation.BuildConfig{}, nil},
		{"tags and flags for the linker", "", instrumentation.BuildConfig{Tags: []string{"own"},
			LDFlags: "-X main.version=1"}, nil},
		{"tags in GOFLAGS", "-tags=own -buildvcs=false", instrumentation.BuildConfig{}, nil},
		{"a profile", "", instrumentation.BuildConfig{}, map[string]string{"default.pgo": "not read"}},
		{anotherCache, "", instrumentation.BuildConfig{}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("GOFLAGS", tt.flags)
			if tt.name == anotherCache {
				r.cache = filepath.Join(t.TempDir(), "cache")
			}
			dir := r.changing(t)
			write(t, dir, tt.files)
			config := tt.config
			config.Dir = dir
			var compiled []string
			config.Progress = func(line string) {
				if f := strings.Fields(line); f[0] == "compile" {
					compiled = append(compiled, f[len(f)-1])
				}
			}
			r.mustPrint(t, dir, config, "first other")
			slices.Sort(compiled)
			if want := []string{"example.com/changed", "example.com/changed/lib"}; !slices.Equal(compiled, want) {
				t.Errorf("compiled %d packages, want %v: %v", len(compiled), want, compiled[:min(len(compiled), 20)])
			}
		})
	}
}

func TestTwoBuildsAtOnce(t *testing.T) {
	r := newRepositories(t)
	dir := r.changing(t)
	g := newGate(t, "example.com/changed/lib")
	first := r.start(t, dir, nil)
	g.wait(t)
	waits := make(chan struct{}, 1)
	second := r.start(t, dir, func(line string) {
		if line == "wait for another build of the same package" {
			waits <- struct{}{}
		}
	})
	select {
	case <-waits:
	case b := <-second:
		t.Fatalf("the second build did not wait: %+v", b)
	case <-time.After(5 * time.Minute):
		t.Fatal("the second build neither waits nor ends")
	}
	g.open(t)
	a, b := <-first, <-second
	if a.err != nil || b.err != nil {
		t.Fatalf("%v, %v", a.err, b.err)
	}
	if a.result.Cached || !b.result.Cached || a.result.Binary != b.result.Binary {
		t.Errorf("%+v and %+v", a.result, b.result)
	}
}

type built struct {
	result *instrumentation.Result
	err    error
}

func (r *repositories) start(t *testing.T, dir string, progress func(string)) <-chan built {
	done := make(chan built, 1)
	go func() {
		result, err := instrumentation.Build(t.Context(), instrumentation.BuildConfig{Dir: dir, CacheDir: r.cache,
			Progress: progress})
		done <- built{result, err}
	}()
	return done
}

func TestBuildIsInterrupted(t *testing.T) {
	r := newRepositories(t)
	dir := r.changing(t)
	before := tree(t, dir)
	g := newGate(t, "example.com/changed/lib")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := instrumentation.Build(ctx, instrumentation.BuildConfig{Dir: dir, CacheDir: r.cache})
		done <- err
	}()
	g.wait(t)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	unchanged(t, before, tree(t, dir))
	// It leaves nothing to wait for.
	t.Setenv("GOFLAGS", "-trimpath")
	r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: dir}, "first other")
}

// TestBuildIsKilled kills the process that builds. Its go command and the compilers end with it, so that the next build
// does not wait for them.
func TestBuildIsKilled(t *testing.T) {
	const env = "TROMMEL_TEST_BUILD"
	if dir := os.Getenv(env); dir != "" {
		_, err := instrumentation.Build(t.Context(),
			instrumentation.BuildConfig{Dir: dir, CacheDir: os.Getenv("TROMMEL_CACHE")})
		t.Fatalf("built: %v", err)
	}
	r := newRepositories(t)
	dir := r.changing(t)
	before := tree(t, dir)
	g := newGate(t, "example.com/changed/lib")
	cmd := exec.Command(os.Args[0], "-test.run=^TestBuildIsKilled$")
	cmd.Env = append(os.Environ(), env+"="+dir, "TROMMEL_CACHE="+r.cache)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g.wait(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	unchanged(t, before, tree(t, dir))

	// The compiler is still at the gate, which stays shut, unless it has ended with its parent.
	t.Setenv("GOFLAGS", "-trimpath")
	write(t, dir, map[string]string{"other/other.go": "package other\n\nconst Word = \"changed\"\n"})
	select {
	case b := <-r.start(t, dir, nil):
		if b.err != nil {
			t.Fatal(b.err)
		}
		if printed, _ := shown(t, b.result.Binary); printed != "first changed" {
			t.Errorf("the controller printed %q", printed)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("the next build waits for the go command of the killed one")
	}
}

// TestAnnotatedCallsInFilesOfOneName has files with the same name in two packages.
func TestAnnotatedCallsInFilesOfOneName(t *testing.T) {
	r := newRepositories(t)
	dir := r.changing(t)
	if err := os.Rename(filepath.Join(dir, "other", "other.go"), filepath.Join(dir, "other", "lib.go")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{"other/lib.go": "package other\n\nvar Word = word()\n\nfunc word() string { " +
		"return \"other\" }\n"})
	result := r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: dir, AnnotatedCalls: []points.AnnotatedCall{
		{Name: "a", Package: "example.com/changed/lib", Function: "Word"},
		{Name: "b", Package: "example.com/changed/other", Function: "word"},
	}}, "first other")
	var files []string
	for _, p := range result.Points {
		if p.Point == wire.AnnotatedCall {
			files = append(files, p.File)
		}
	}
	if want := []string{"lib/lib.go", "other/lib.go"}; !slices.Equal(files, want) {
		t.Errorf("annotated calls in %v, want %v", files, want)
	}
}
