package expr

import (
	"maps"
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
	g     *Graph
	terms []termProgress
}

type termProgress struct {
	state state
	left  int // number of kids that are not yet satisfied
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
	p := &Progress{g: g, terms: make([]termProgress, g.expr.terms)}
	p.enable(g.expr.root, changes{})
	return p
}

// Done reports whether the whole expression is satisfied. Nothing is enabled then.
func (p *Progress) Done() bool { return p.terms[0].state == satisfied }

// IsEnabled reports whether the node is enabled.
func (p *Progress) IsEnabled(node int) bool {
	return node >= 0 && node < p.g.Len() && p.state(node) == active
}

func (p *Progress) state(node int) state { return p.terms[p.g.expr.names[node].id].state }

// Enabled returns the enabled nodes in ascending order.
func (p *Progress) Enabled() []int {
	var nodes []int
	for node := range p.g.Len() {
		if p.IsEnabled(node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// Clone returns an independent copy of the walk.
func (p *Progress) Clone() *Progress { return &Progress{g: p.g, terms: slices.Clone(p.terms)} }

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
	slices.Sort(hits)
	// Arms of an either that fire together: the first decides, the others are dropped on the way. A node that an arm
	// enables before a later arm drops it is not reported.
	before := changes{}
	for _, n := range hits {
		if p.IsEnabled(n) {
			p.satisfy(p.g.expr.names[n], before)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(before)) {
		switch now := p.state(n); {
		case now == active:
			enabled = append(enabled, n)
		case before[n] == active && now == dropped:
			if _, hit := slices.BinarySearch(hits, n); !hit {
				disabled = append(disabled, n)
			}
		}
	}
	return enabled, disabled
}

// changes are the nodes that a call of Satisfy changes, with their states before it.
type changes map[int]state

func (p *Progress) set(t *term, to state, before changes) {
	if _, changed := before[t.node]; t.op == leaf && !changed {
		before[t.node] = p.terms[t.id].state
	}
	p.terms[t.id].state = to
}

// satisfy marks the term as satisfied, then its parents as far as they are satisfied by it.
func (p *Progress) satisfy(t *term, before changes) {
	p.set(t, satisfied, before)
	up := t.up
	if up == nil {
		return
	}
	p.terms[up.id].left--
	left := p.terms[up.id].left
	switch {
	case up.op == either:
		for _, kid := range up.kids {
			p.drop(kid, before)
		}
	case left > 0 && up.op == sequence:
		p.enable(up.kids[len(up.kids)-left], before)
		return
	case left > 0:
		return
	}
	p.satisfy(up, before)
}

// enable marks the term as active, and those of its parts that are enabled with it.
func (p *Progress) enable(t *term, before changes) {
	p.set(t, active, before)
	p.terms[t.id].left = len(t.kids)
	for i, kid := range t.kids {
		if i == 0 || t.op != sequence {
			p.enable(kid, before)
		}
	}
}

// drop disables everything that is enabled in the term.
func (p *Progress) drop(t *term, before changes) {
	if p.terms[t.id].state != active {
		return
	}
	p.set(t, dropped, before)
	for _, kid := range t.kids {
		p.drop(kid, before)
	}
}
