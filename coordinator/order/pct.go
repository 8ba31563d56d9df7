package order

import "github.com/trommel-dev/trommel/record"

// pct gives each stream, and time, a priority. At a few choices the stream that would go on gets the lowest one
// (Burckhardt et al., ASPLOS 2010).
type pct struct {
	dice
	changes map[int]bool // the numbers of these choices
	lowered map[string]float64
}

// span is within how many choices the priorities change.
const span = 80

func newPCT(d dice, depth int) *pct {
	p := &pct{dice: d, changes: map[int]bool{}, lowered: map[string]float64{}}
	for i := range depth {
		p.changes[1+int(d.throw("change", i)*span)] = true
	}
	return p
}

func (p *pct) choose(number int, steps []Step, time bool) int {
	best := p.highest(steps, time)
	if !p.changes[number] {
		return best
	}
	stream := record.TimeStream
	if best != Time {
		stream = steps[best].Stream
	}
	p.lowered[stream] = -float64(number)
	return p.highest(steps, time)
}

func (p *pct) highest(steps []Step, time bool) int {
	best, most := Time, -1e9
	if time {
		most = p.priority(record.TimeStream)
	}
	for i, s := range steps {
		if priority := p.priority(s.Stream); priority > most {
			best, most = i, priority
		}
	}
	return best
}

func (p *pct) priority(stream string) float64 {
	if low, ok := p.lowered[stream]; ok {
		return low
	}
	return p.throw("priority", stream)
}
