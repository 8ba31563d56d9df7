package hook

import (
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

const (
	maxDepth   = 96 // frames of the stack that are looked at
	maxCallers = 4  // functions that are reported
)

// ownership says to whom a function belongs.
type ownership int

const (
	foreign ownership = iota // the standard library's, Kubernetes' libraries', a generated client's
	shared                   // another module's, such as one that several operators use
	owned                    // the main module's
)

// place is what is known of a program counter.
type place struct {
	frame wire.Frame
	owner ownership
}

// places keeps each program counter's place, once it is known: uintptr to *place.
var places sync.Map

// callers are the places in the program's own code that make the current call, the innermost first: of the main module
// or, if none is, of other modules than Kubernetes' and generated clients. A call takes 1 to 3 µs.
func callers() []wire.Frame {
	var stack [maxDepth]uintptr
	n := runtime.Callers(3, stack[:])
	var main, others []wire.Frame
	for _, pc := range stack[:n] {
		switch p := placeOf(pc); {
		case p.owner == owned && len(main) < maxCallers:
			main = append(main, p.frame)
		case p.owner == shared && len(others) < maxCallers:
			others = append(others, p.frame)
		}
	}
	if len(main) > 0 {
		return main
	}
	return others
}

func placeOf(pc uintptr) *place {
	if known, ok := places.Load(pc); ok {
		return known.(*place)
	}
	f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	p := &place{owner: ownerOf(mainModule(), f.Function, f.File)}
	if p.owner != foreign {
		p.frame = wire.Frame{Function: f.Function, File: f.File, Line: f.Line}
		if p.owner == owned {
			p.frame.File = strings.TrimPrefix(f.File, mainModule()+"/")
		}
	}
	places.Store(pc, p)
	return p
}

var (
	mainOnce sync.Once
	mainPath string
)

// mainModule is the path of the program's main module; empty: unknown.
func mainModule() string {
	mainOnce.Do(func() {
		if info, ok := debug.ReadBuildInfo(); ok {
			mainPath = info.Main.Path
		}
	})
	return mainPath
}

// libraries are beginnings of package paths of which every controller calls the functions, and which decide nothing.
var libraries = []string{"k8s.io/", "sigs.k8s.io/controller-runtime/", "github.com/hashicorp/yamux"}

// generated are parts of the paths of packages that code generators write.
var generated = []string{"/generated/", "/clientset/", "/applyconfiguration", "/informers/", "/listers/"}

// ownerOf says whose a function is. With -trimpath a file of the main module begins with the module's path, and one of
// another module with its path and version.
func ownerOf(module, function, file string) ownership {
	pkg := packageOf(function)
	if pkg == thisPackage {
		return foreign
	}
	for _, part := range generated {
		if strings.Contains(pkg+"/", part) {
			return foreign
		}
	}
	if strings.Contains(file, "/zz_generated") {
		return foreign
	}
	switch {
	case module != "" && (pkg == "main" || pkg == module || strings.HasPrefix(pkg, module+"/")):
		return owned
	case !strings.Contains(strings.SplitN(pkg, "/", 2)[0], "."):
		return foreign // the standard library
	}
	for _, l := range libraries {
		// Kubernetes' own controllers are no library.
		if strings.HasPrefix(pkg, l) && !strings.HasPrefix(pkg, "k8s.io/kubernetes/") {
			return foreign
		}
	}
	return shared
}

// thisPackage is the path under which this package is compiled.
var thisPackage = func() string {
	pc, _, _, _ := runtime.Caller(0)
	return packageOf(runtime.FuncForPC(pc).Name())
}()

// packageOf is the path of a function's package: example.com/x/y of example.com/x/y.(*T).Reconcile.func1.
func packageOf(function string) string {
	slash := strings.LastIndexByte(function, '/') + 1
	if dot := strings.IndexByte(function[slash:], '.'); dot >= 0 {
		return function[:slash+dot]
	}
	return function
}
