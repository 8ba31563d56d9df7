package order

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
)

// dice is a seed.
type dice int

// throw is a number in [0, 1) that depends on the seed and the words alone. So a step that comes earlier or later than
// in another run gets the same number.
func (d dice) throw(words ...any) float64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, int(d), words)
	return rand.New(rand.NewPCG(h.Sum64(), 1)).Float64() //nolint:gosec // repeatable on purpose
}
