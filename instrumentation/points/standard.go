package points

import (
	"encoding/json"
	"fmt"
	gobuild "go/build"
	goversion "go/version"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/buildcache"
)

// Standard is the module name of Go's standard library in points and patched places. Its version is Go's.
const Standard = "std"

// StandardMarker is contained in executables whose standard library is patched: such a process finds its pod's files,
// address and names through its environment.
const StandardMarker = "trommel.dev/pod-environment=v1"

// FaultsMarker is contained in executables whose standard library is patched so that faults of files and connections
// reach their processes while they run.
const FaultsMarker = "trommel.dev/pod-faults=v1"

// OldestGo is the first version of Go that the points in the standard library are known to fit.
const OldestGo = "go1.21"

// standardPoint is a place in the standard library. Instead of an insertion, it may put a call around arguments of all
// calls of a function in its file.
type standardPoint struct {
	point
	system    func(goos, goarch string) bool // nil: all
	call      string
	arguments []int
}

func (p *standardPoint) name() string {
	if p.call != "" {
		return "call of " + p.call
	}
	return p.point.name()
}

type standardHelper struct {
	dir, template, name string
	needs               []string // what the package must declare
	system              func(goos, goarch string) bool
}

func onLinux(goos, _ string) bool { return goos == "linux" }

// inotify describes where an fsnotify watch is redirected to the pod's file.
func inotify(goos, goarch string) bool {
	return goos == "linux" && slices.Contains([]string{"amd64", "arm64", "ppc64le", "riscv64", "loong64"}, goarch)
}

// podPath redirects paths in arguments of system calls to the pod's files. The file is a directory if the file that
// makes the call depends on Go's version.
func podPath(file, call string, arguments ...int) standardPoint {
	return standardPoint{
		point: point{module: Standard, file: file, insert: insertion{wrap: "syscall.TrommelPath"}}, call: call,
		arguments: arguments,
	}
}

// diskFault lets a method of os.File fail, or wait for a slow disk. Without faults it costs a comparison.
func diskFault(function, operation, fails, transfer string) standardPoint {
	enter := "if syscall.TrommelFaults() != 0 { " +
		"if err := syscall.TrommelFault({{.Receiver}}.name, syscall." + operation + "); err != nil { " + fails + " }"
	if transfer != "" {
		enter += "; " + strings.ReplaceAll(transfer, "OPERATION", "syscall."+operation)
	}
	return standardPoint{point: point{
		module: Standard, file: "os/file_posix.go", receiver: "*File", function: function,
		insert: insertion{enter: enter + " }"},
	}}
}

// How diskFault waits: what is read is known afterwards.
const (
	afterReading  = "defer func() { {{.Receiver}}.trommelTransfer(OPERATION, {{.Result}}) }()"
	beforeWriting = "{{.Receiver}}.trommelTransfer(OPERATION, len({{.Param 0}}))"
)

// standardPoints have the same form as those of modules. They give a process its pod's environment, and faults of its
// files and connections while there are some; they observe nothing.
var standardPoints = []standardPoint{
	podPath("os/", "syscall.Open", 0),
	podPath("os/", "syscall.Stat", 0),
	podPath("os/", "syscall.Lstat", 0),
	podPath("os/", "syscall.Mkdir", 0),
	podPath("os/", "syscall.Chdir", 0),
	podPath("os/", "syscall.Rename", 0, 1),
	podPath("os/", "syscall.Unlink", 0),
	podPath("os/", "syscall.Rmdir", 0),
	podPath("os/", "syscall.Link", 0, 1),
	podPath("os/", "syscall.Symlink", 0, 1),
	podPath("os/", "syscall.Readlink", 0),
	podPath("os/", "syscall.Chmod", 0),
	podPath("os/", "syscall.Chown", 0),
	podPath("os/", "syscall.Lchown", 0),
	podPath("os/", "syscall.Truncate", 0),
	podPath("os/", "syscall.UtimesNano", 0),
	podPath("os/", "syscall.StartProcess", 0),
	podPath("os/exec/", "unix.Eaccess", 0),
	{point: point{
		module: Standard, file: "os/exec_posix.go", function: "startProcess",
		insert: insertion{do: "attr.Dir", replaces: "syscall.TrommelPath(attr.Dir)"},
	}},
	{point: point{
		module: Standard, file: "os/", function: "open",
		insert: insertion{enter: "if syscall.TrommelFaults() != 0 { " +
			"if err := syscall.TrommelFault({{.Param 0}}, syscall.TrommelOpen); err != nil { " +
			"return -1, poll.SysFile{}, err } }"},
	}},
	diskFault("read", "TrommelRead", "return 0, err", afterReading),
	diskFault("pread", "TrommelRead", "return 0, err", afterReading),
	diskFault("write", "TrommelWrite", "return 0, err", beforeWriting),
	diskFault("pwrite", "TrommelWrite", "return 0, err", beforeWriting),
	diskFault("Sync", "TrommelSync", `return {{.Receiver}}.wrapErr("sync", err)`, ""),
	// Copies by the kernel pass neither read nor write.
	{point: point{
		module: Standard, file: "os/", receiver: "*File", function: "readFrom",
		insert: insertion{enter: "if syscall.TrommelFaults() != 0 { return 0, false, nil }"},
	}, system: onLinux},
	{point: point{
		module: Standard, file: "net/tcpsock_posix.go", receiver: "*TCPConn", function: "readFrom",
		insert: insertion{enter: "if syscall.TrommelFaults() != 0 { " +
			"return genericReadFrom({{.Receiver}}, {{.Param 0}}) }"},
	}},
	// It descends from the parent, which may not be one of the pod's directories even if the path is.
	{point: point{
		module: Standard, file: "os/removeall_at.go", function: "removeAll",
		insert: insertion{enter: "{{.Param 0}} = syscall.TrommelPath({{.Param 0}})"},
	}},
	{point: point{
		module: Standard, file: "os/sys_linux.go", function: "hostname",
		insert: insertion{enter: `if host := syscall.TrommelHostname(); host != "" { return host, nil }`},
	}, system: onLinux},
	{point: point{
		module: Standard, file: "syscall/syscall_linux.go", function: "Syscall",
		insert: insertion{enter: "if {{.Param 0}} == SYS_INOTIFY_ADD_WATCH && trommelFiles != nil { " +
			"return trommelWatch({{.Param 1}}, {{.Param 2}}, {{.Param 3}}) }"},
	}, system: inotify},
	{point: point{
		module: Standard, file: "net/ipsock_posix.go", function: "internetSocket",
		insert: insertion{enter: "if trommelOutside({{.Param 0}}) { return trommelSocket({{.Param 0}}, {{.Param 1}}, " +
			"{{.Param 2}}, {{.Param 3}}, {{.Param 6}}, " +
			"func(trommelCtx context.Context, trommelNet string, trommelLocal, " +
			"trommelRemote sockaddr) (*netFD, error) { " +
			"return internetSocket(trommelCtx, trommelNet, trommelLocal, trommelRemote, {{.Param 4}}, {{.Param 5}}, " +
			"{{.Param 6}}, {{.Param 7}}) }) }"},
	}},
	{point: point{
		module: Standard, file: "net/lookup.go", receiver: "*Resolver", function: "lookupIPAddr",
		insert: insertion{enter: "if trommelOutside({{.Param 0}}) { ips, name, err := trommelLookup({{.Param 0}}, " +
			"{{.Param 1}}, {{.Param 2}}); " +
			"if err != nil || ips != nil { return ips, err }; {{.Param 2}} = name }"},
	}},
	{point: point{
		module: Standard, file: "net/lookup.go", receiver: "*Resolver", function: "LookupHost",
		insert: insertion{
			enter: `if trommelOutside({{.Param 0}}) { ` +
				`ips, name, err := trommelLookup({{.Param 0}}, "ip", {{.Param 1}}); ` +
				"if err != nil { return nil, err }; " +
				"if ips != nil { for _, ip := range ips { {{.Result}} = append({{.Result}}, ip.String()) }; " +
				"return {{.Result}}, nil }; {{.Param 1}} = name }"},
	}},
}

var standardHelpers = []standardHelper{
	{dir: "syscall", template: "standard_syscall.go.tmpl", name: "zz_trommel_syscall.go"},
	{dir: "syscall", template: "standard_inotify.go.tmpl", name: "zz_trommel_inotify.go", system: inotify},
	{dir: "syscall", template: "standard_faults.go.tmpl", name: "zz_trommel_faults.go"},
	{dir: "os", template: "standard_os.go.tmpl", name: "zz_trommel_os.go"},
	{dir: "net", template: "standard_net.go.tmpl", name: "zz_trommel_net.go"},
}

// The goroutine's label is the only thing that goroutines inherit. The program may set its own labels, which replace
// all others.
var (
	goroutineStandardPoints = []standardPoint{{point: point{
		module: Standard, file: labelsDir + "/runtime.go", function: "SetGoroutineLabels",
		insert: insertion{enter: "{{.Param 0}} = trommelKeep({{.Param 0}})"},
	}}}
	goroutineStandardHelpers = []standardHelper{{
		dir: labelsDir, template: "standard_pprof.go.tmpl", name: "zz_trommel_pprof.go",
		needs: []string{"labelContextKey", "labelMap", "runtime_getProfLabel", "runtime_setProfLabel", "Label",
			"WithLabels"},
	}}
)

const labelsDir = "runtime/pprof"

// GoRoot is a Go installation and its target.
type GoRoot struct {
	Dir          string // GOROOT
	Version      string // go1.26.8
	GOOS, GOARCH string
	Cgo          bool
	ByGoroutine  bool // see ModuleCopy

	noClock bool // the points of the clock do not fit
}

func (g *GoRoot) points() []standardPoint {
	list := slices.Clone(standardPoints)
	if g.ByGoroutine {
		list = append(list, goroutineStandardPoints...)
	}
	if g.hasClock() {
		list = append(list, clockPoints...)
	}
	return list
}

func (g *GoRoot) helpers() []standardHelper {
	list := slices.Clone(standardHelpers)
	if g.ByGoroutine {
		list = append(list, goroutineStandardHelpers...)
	}
	if g.hasClock() {
		list = append(list, clockHelpers...)
	}
	return list
}

// Known reports whether the points fit this version. A version that is not a release is treated as the newest.
func (g *GoRoot) Known() bool {
	return !goversion.IsValid(g.Version) || goversion.Compare(g.Version, OldestGo) >= 0
}

// Copy returns a copy of a Go installation: links to everything except the source of the standard library.
func (g *GoRoot) Copy(c *buildcache.Cache) (string, error) {
	return c.Make("goroot/"+g.Version+"-"+buildcache.Digest(g.Dir), func(dir string) error {
		entries, err := os.ReadDir(g.Dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Name() == "src" {
				continue
			}
			if err := os.Symlink(filepath.Join(g.Dir, e.Name()), filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
		return copyModule(filepath.Join(g.Dir, "src"), filepath.Join(dir, "src"))
	})
}

// Context returns the build context, which selects the files of a build with these tags.
func (g *GoRoot) Context(tags []string) *gobuild.Context {
	c := gobuild.Default
	c.GOROOT, c.GOOS, c.GOARCH, c.CgoEnabled, c.BuildTags = g.Dir, g.GOOS, g.GOARCH, g.Cgo, tags
	return &c
}

// files lists the files of a package of the standard library that are compiled, by their paths below src.
func (g *GoRoot) files(pkg string) ([]string, error) {
	dir := filepath.Join(g.Dir, "src", filepath.FromSlash(pkg))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	context := g.Context(nil)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		if ok, err := context.MatchFile(dir, e.Name()); err != nil {
			return nil, err
		} else if ok {
			names = append(names, path.Join(pkg, e.Name()))
		}
	}
	return names, nil
}

// InsertedStandard returns a name for everything that is inserted into the standard library, whatever Go is used. Only
// builds for old controllers have more: the points for goroutines.
func InsertedStandard() (string, error) {
	var parts []string
	for _, p := range slices.Concat(standardPoints, clockPoints) {
		parts = append(parts, standardKey(p))
	}
	for _, h := range slices.Concat(standardHelpers, clockHelpers) {
		text, err := templates.ReadFile(h.template)
		if err != nil {
			return "", err
		}
		parts = append(parts, h.dir, h.name, string(text))
	}
	return buildcache.Digest(append(parts, nowSymbol, realNow)...), nil
}

func standardKey(p standardPoint) string {
	return fmt.Sprintf("%s %s %v", keyOf(p.point), p.call, p.arguments)
}

// Overlay writes the files that replace those of the standard library to the cache, under names that depend only on
// their content. It returns a map from replaced files to these.
func (g *GoRoot) Overlay(c *buildcache.Cache) (map[string]string, []Patched, error) {
	g.tryClock()
	key := []string{g.Dir, g.Version, g.GOOS, g.GOARCH, fmt.Sprint(g.Cgo)}
	packages := map[string]bool{}
	for _, p := range g.points() {
		key = append(key, standardKey(p))
		packages[path.Dir(p.file)] = true
	}
	for _, h := range g.helpers() {
		text, err := templates.ReadFile(h.template)
		if err != nil {
			return nil, nil, err
		}
		key = append(key, h.dir, h.name, string(text))
	}
	for _, p := range slices.Sorted(maps.Keys(packages)) {
		names, err := g.files(p)
		if err != nil {
			return nil, nil, fmt.Errorf("read the standard library: %w", err)
		}
		for _, name := range names {
			text, err := os.ReadFile(g.source(name))
			if err != nil {
				return nil, nil, err
			}
			key = append(key, name, string(text))
		}
	}
	assembly, err := g.assembly()
	if err != nil {
		return nil, nil, fmt.Errorf("read the standard library: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(assembly)) {
		key = append(key, name, string(assembly[name]))
	}
	dir, err := c.Make("std/"+g.Version+"-"+buildcache.Digest(key...), g.patch)
	if err != nil {
		return nil, nil, err
	}
	var made struct {
		Files  []string
		Points []Patched
	}
	data, err := os.ReadFile(filepath.Join(dir, foundFile))
	if err == nil {
		err = json.Unmarshal(data, &made)
	}
	if err != nil {
		return nil, nil, err
	}
	overlay := map[string]string{}
	for _, name := range made.Files {
		overlay[g.source(name)] = filepath.Join(dir, filepath.FromSlash(name))
	}
	return overlay, made.Points, nil
}

func (g *GoRoot) source(name string) string {
	return filepath.Join(g.Dir, "src", filepath.FromSlash(name))
}

// patch writes patched copies of files below dir.
func (g *GoRoot) patch(dir string) error {
	sources := map[string]*source{}
	found, err := g.applyAll(sources, g.points())
	if err != nil {
		return err
	}
	var names []string
	write := func(name string, text []byte) error {
		names = append(names, name)
		to := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o644)
	}
	for name, s := range sources {
		if len(s.edits) == 0 {
			continue
		}
		if err := write(name, s.patched()); err != nil {
			return err
		}
	}
	assembly, err := g.assembly()
	if err != nil {
		return err
	}
	for name, text := range assembly {
		if err := write(name, text); err != nil {
			return err
		}
	}
	for _, h := range g.helpers() {
		if h.system != nil && !h.system(g.GOOS, g.GOARCH) {
			continue
		}
		if err := g.provides(h); err != nil {
			return err
		}
		text, err := templates.ReadFile(h.template)
		if err != nil {
			return err
		}
		if err := write(path.Join(h.dir, h.name), append([]byte("// Code generated by trommel. DO NOT EDIT.\n\n"),
			text...)); err != nil {
			return err
		}
	}
	sort.Strings(names)
	data, err := json.Marshal(map[string]any{"Files": names, "Points": found})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, foundFile), data, 0o644)
}

// provides checks that the package of a helper declares everything that the helper needs.
func (g *GoRoot) provides(h standardHelper) error {
	if len(h.needs) == 0 {
		return nil
	}
	names, err := declared(filepath.Join(g.Dir, "src", filepath.FromSlash(h.dir)))
	if err != nil {
		return err
	}
	for _, name := range h.needs {
		if !names[name] {
			return &NotFoundError{Module: Standard, Version: g.Version, File: h.dir + "/", Function: name,
				Reason: "it is not declared", Dir: g.Dir}
		}
	}
	return nil
}

// applyAll makes the edits of those points that are for this system.
func (g *GoRoot) applyAll(sources map[string]*source, points []standardPoint) (found []Patched, err error) {
	for _, p := range points {
		if p.system != nil && !p.system(g.GOOS, g.GOARCH) {
			continue
		}
		places, err := g.apply(sources, &p)
		if err != nil {
			return nil, err
		}
		found = append(found, places...)
	}
	return found, nil
}

// apply makes the edits of a point. If the point names a directory, the edits are made in each of its files that has
// the place.
func (g *GoRoot) apply(sources map[string]*source, p *standardPoint) ([]Patched, error) {
	names := []string{p.file}
	if folder, ok := strings.CutSuffix(p.file, "/"); ok {
		var err error
		if names, err = g.files(folder); err != nil {
			return nil, err
		}
	}
	var found []Patched
	reason := "no such file"
	for _, name := range names {
		s, err := sourceOf(sources, filepath.Join(g.Dir, "src"), name)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var line int
		if p.call != "" {
			line, err = s.wrapArguments(p.call, p.insert.wrap, p.arguments)
		} else {
			line, err = s.apply(&p.point)
		}
		if err != nil {
			reason = err.Error()
			continue
		}
		found = append(found, Patched{Path: s.path, CompiledPoint: wire.CompiledPoint{
			Module: Standard, Version: g.Version, File: name, Line: line, Receiver: p.receiver,
			Function: p.name(),
		}})
	}
	if len(found) == 0 {
		return nil, &NotFoundError{Module: Standard, Version: g.Version, File: p.file, Function: p.name(),
			Reason: reason, Dir: g.Dir}
	}
	return found, nil
}
