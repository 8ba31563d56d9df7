// Package instrumentation builds API servers and controllers with hooks in them, without touching their source: it
// patches copies of client-go, controller-runtime and apiserver in a cache directory and builds with a generated go.mod
// that uses the copies instead of the modules.
//
// Package points says where the hooks go. The points that were compiled in are the binary's manifest, which it sends in
// its handshake with the coordinator.
package instrumentation

import (
	"fmt"
	"strings"

	"github.com/trommel-dev/trommel/instrumentation/points"
	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// BuildConfig says what to build. Dir may be empty for the working directory; everything else has a default.
type BuildConfig struct {
	Dir     string   // directory of the module
	Package string   // the main package, relative to Dir: ./cmd/manager; default "."
	Tags    []string // build tags
	LDFlags string
	Env     map[string]string // added to the environment of the go command
	Replace map[string]string // modules, by path, and others, PATH@VERSION, that take their place
	Output  string            // the binary; default: in the cache

	AnnotatedCalls []points.AnnotatedCall

	// AnyProgram allows programs without client-go. Nothing of them is observed; they find their pod's files, address
	// and names, and faults of files, connections and names reach them.
	AnyProgram bool

	CacheDir string            // default: buildcache.Dir()
	Progress func(line string) // called with lines for the user, from one goroutine at a time
}

// Result is the result of a build.
type Result struct {
	Binary   string
	Manifest wire.Manifest
	Points   []points.Patched // all changed places, even if nothing is observed there
	Cached   bool             // nothing had to be built
	Prebuilt bool             `json:",omitempty"` // the control plane was built elsewhere, and comes from a release
}

// CompileError says that the Go command could not build a package; Output is what the command printed.
type CompileError struct {
	Package string
	Dir     string // base of relative paths in Output
	Output  string
}

func (e *CompileError) Error() string {
	return fmt.Sprintf("build %s (in %s):\n%s", e.Package, e.Dir, withAdvice(strings.TrimRight(e.Output, "\n")))
}

// InputError is a mistake in what should be built: no module, no main package, nothing to observe.
type InputError struct{ Reason string }

func (e *InputError) Error() string { return e.Reason }

func inputErrorf(format string, args ...any) error {
	return &InputError{fmt.Sprintf(format, args...)}
}
