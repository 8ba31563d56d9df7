package expr

import (
	"math/bits"
	"slices"
)

// Progress is one walk through a [Graph]: which nodes are enabled, and whether the whole expression is satisfied.
//
// In a sequence, the first kid is enabled first, and each further one when the one before it is satisfied. In an
// either, all kids are enabled, the first to be satisfied satisfies the either, and the rest of the others is disabled
// permanently. In a both, all kids are enabled and all must be satisfied. A node is satisfied once and never enabled
// again.
//
// A Progress is not safe for concurrent use.
type Progress struct {
	g       *Graph
	terms   []termProgress
	enabled []uint64 // one bit for each node
}

type termProgress struct {
	state   state
	waiting int32 // both: number of kids not yet satisfied; sequence: the active kid
}

type state uint8

const (
	asleep    state = iota // not reached
	active                 // reached, not satisfied
	satisfied              // done
	dropped                // in an arm of an either that another arm has satisfied
)

// NewProgress starts a walk: the first nodes are enabled.
func NewProgress(g *Graph) *Progress {
	p := &Progress{g: g, terms: make([]termProgress, len(g.terms)), enabled: make([]uint64, (len(g.names)+63)/64)}
	p.enable(0, nil)
	return p
}

// Done reports whether the whole expression is satisfied. Nothing is enabled then.
func (p *Progress) Done() bool { return p.terms[0].state == satisfied }

// IsEnabled reports whether the node is enabled.
func (p *Progress) IsEnabled(node int) bool {
	return node >= 0 && node < len(p.g.nodes) && p.enabled[node/64]&(1<<(node%64)) != 0
}

// Enabled returns the enabled nodes in ascending order.
func (p *Progress) Enabled() []int {
	var nodes []int
	for i, word := range p.enabled {
		for ; word != 0; word &= word - 1 {
			nodes = append(nodes, i*64+bits.TrailingZeros64(word))
		}
	}
	return nodes
}

// Clone returns an independent copy of the walk.
func (p *Progress) Clone() *Progress {
	return &Progress{g: p.g, terms: slices.Clone(p.terms), enabled: slices.Clone(p.enabled)}
}

// Satisfy satisfies all the given nodes at the same moment, for one event that several triggers waited for. Nodes that
// are not enabled at the call are ignored, so one event never takes two steps of a sequence. It returns, each in
// ascending order, the nodes that are enabled now and were not before, and the nodes that were enabled before and will
// never be satisfied because another arm of an either was.
func (p *Progress) Satisfy(nodes ...int) (enabled, disabled []int) {
	hits := make([]int, 0, len(nodes))
	for _, n := range nodes {
		if p.IsEnabled(n) {
			hits = append(hits, n)
		}
	}
	if len(hits) == 0 {
		return nil, nil
	}
	slices.Sort(hits)
	hits = slices.Compact(hits)
	// Arms of an either that fire together: the first decides, the others are dropped on the way. Nodes that an arm
	// enables before a later arm drops it are not reported.
	c := &changes{}
	for _, n := range hits {
		if p.IsEnabled(n) {
			p.satisfy(p.g.nodes[n], c)
		}
	}
	for _, n := range c.enabled {
		if p.IsEnabled(n) {
			enabled = append(enabled, n)
		}
	}
	slices.Sort(enabled)
	slices.Sort(c.enabled)
	for _, n := range c.disabled {
		_, hit := slices.BinarySearch(hits, n)
		_, fresh := slices.BinarySearch(c.enabled, n)
		if !hit && !fresh {
			disabled = append(disabled, n)
		}
	}
	slices.Sort(disabled)
	return enabled, disabled
}

// changes collects what a call of Satisfy enables and disables.
type changes struct{ enabled, disabled []int }

// satisfy marks the term as satisfied, then its parents as far as they are satisfied by it.
func (p *Progress) satisfy(at int32, c *changes) {
	for {
		t := &p.g.terms[at]
		p.terms[at].state = satisfied
		if t.op == leaf {
			p.enabled[t.node/64] &^= 1 << (t.node % 64)
		}
		if t.up < 0 {
			return
		}
		up := &p.terms[t.up]
		switch p.g.terms[t.up].op {
		case sequence:
			if t.next >= 0 {
				up.waiting = t.next
				p.enable(t.next, c)
				return
			}
		case both:
			if up.waiting--; up.waiting > 0 {
				return
			}
		case either:
			for kid := p.g.terms[t.up].first; kid >= 0; kid = p.g.terms[kid].next {
				if p.terms[kid].state == active {
					p.drop(kid, c)
				}
			}
		}
		at = t.up
	}
}

// enable marks the term as active, and those of its parts that are enabled with it.
func (p *Progress) enable(at int32, c *changes) {
	stack := []int32{at}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		t := &p.g.terms[at]
		p.terms[at].state = active
		switch t.op {
		case leaf:
			p.enabled[t.node/64] |= 1 << (t.node % 64)
			if c != nil {
				c.enabled = append(c.enabled, int(t.node))
			}
		case sequence:
			p.terms[at].waiting = t.first
			stack = append(stack, t.first)
		default:
			p.terms[at].waiting = t.kids
			for kid := t.first; kid >= 0; kid = p.g.terms[kid].next {
				stack = append(stack, kid)
			}
		}
	}
}

// drop disables everything that is enabled in the term. Each term is dropped at most once in a walk.
func (p *Progress) drop(at int32, c *changes) {
	stack := []int32{at}
	for len(stack) > 0 {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		t := &p.g.terms[at]
		p.terms[at].state = dropped
		switch t.op {
		case leaf:
			p.enabled[t.node/64] &^= 1 << (t.node % 64)
			c.disabled = append(c.disabled, int(t.node))
		case sequence:
			stack = append(stack, p.terms[at].waiting)
		default:
			for kid := t.first; kid >= 0; kid = p.g.terms[kid].next {
				if p.terms[kid].state == active {
					stack = append(stack, kid)
				}
			}
		}
	}
}
