package manifests

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
)

// A chart's randAlphaNum and its like must give the same text each time: what is installed would otherwise differ from
// one campaign to the next, and from its baselines. They cannot be replaced in Helm's engine, but they read
// crypto/rand's Reader. Keys and certificates stay random.
func init() { rand.Reader = &templateRandom{real: rand.Reader} }

// templateRandom reads fixed bytes for the functions of templates while a chart is rendered, and random ones for all
// else. It is safe for concurrent use, but charts must be rendered one at a time.
type templateRandom struct {
	real      io.Reader
	rendering atomic.Bool
	reads     atomic.Uint64 // since the rendering began
}

// fixRandom lets templates read the same bytes as at the last time, until the returned function is called.
func fixRandom() func() {
	r := rand.Reader.(*templateRandom)
	r.reads.Store(0)
	r.rendering.Store(true)
	return func() { r.rendering.Store(false) }
}

func (r *templateRandom) Read(p []byte) (int, error) {
	if !r.rendering.Load() || !calledByTemplate() {
		return r.real.Read(p)
	}
	for n := 0; n < len(p); {
		block := sha256.Sum256(binary.BigEndian.AppendUint64(nil, r.reads.Add(1)))
		n += copy(p[n:], block[:])
	}
	return len(p), nil
}

// stringFunctions is the package with which Helm's templates make random strings.
const stringFunctions = "github.com/Masterminds/goutils."

// calledByTemplate reports whether this goroutine makes a random string for a template.
func calledByTemplate() bool {
	var stack [16]uintptr
	frames := runtime.CallersFrames(stack[:runtime.Callers(2, stack[:])])
	for {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, stringFunctions) {
			return true
		}
		if !more {
			return false
		}
	}
}
