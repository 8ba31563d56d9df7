//go:build amd64 || arm64

package keeper

import (
	"sync/atomic"
	"unsafe"

	"github.com/trommel-dev/trommel/internal/clock"
)

// lines is what the keeper writes and processes read; the template standard_clock.go.tmpl has the same layout and says
// what the fields mean.
type lines struct {
	drawn uint64
	_     [7]uint64
	lines [64]clock.Line
}

const _ = pageSize - unsafe.Sizeof(lines{}) // it fits

// add draws the next line. Calls are one after the other.
func (l *lines) add(line clock.Line) {
	n := l.drawn + 1
	l.lines[n%uint64(len(l.lines))] = line
	atomic.StoreUint64(&l.drawn, n)
}
