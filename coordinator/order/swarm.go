package order

import (
	"math"

	"github.com/trommel-dev/trommel/record"
)

// swarm gives each stream, and time, a weight for the whole run. A choice is likely in proportion to its weight. So in
// one run the deliveries of one type are slow, and in another the answers to writes. The idea is from swarm testing
// (Groce et al., ISSTA 2012).
type swarm struct{ dice }

// seldom is how much less likely time is than a step. Otherwise the first half of a run would use up MostPasses.
const seldom = 0.1

func (s swarm) choose(number int, steps []Step, time bool) int {
	best, most := Time, math.Inf(-1)
	if time {
		most = s.key(record.TimeStream, number)
	}
	for i, step := range steps {
		if key := s.key(step.Stream, step.Number); key > most {
			best, most = i, key
		}
	}
	return best
}

// key is a number; the highest of several is that of one with a probability in proportion to its weight (Efraimidis and
// Spirakis, 2006).
func (s swarm) key(stream string, words ...any) float64 {
	weight := math.Exp(-4 * s.throw("weight", stream))
	if stream == record.TimeStream {
		weight *= seldom
	}
	return math.Log(s.throw("key", stream, words)) / weight
}
