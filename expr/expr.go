// Package expr compiles a test plan's expression over trigger names to a graph, and walks it.
//
// An expression joins names with ";" (sequence), "|" (either) and "&" (both); "&" binds tightest, then "|", then ";".
// Parentheses group, blanks are ignored. A name consists of letters, digits, "_", "-" and "."; it may occur more than
// once, and each occurrence is a separate node.
//
// [Parse] reads the text, [Expr.Graph] compiles it, and a [Progress] is one walk through the graph. All of them are
// linear in the size of the expression and do not recurse over it, so that 100,000 names or 10,000 nested parentheses
// are possible.
package expr

import (
	"strings"
)

// Expr is a parsed expression. It is immutable.
type Expr struct {
	root  *term
	names int
	terms int // upper bound
}

// operator says how the kids of a term are joined. Higher values bind tighter.
type operator uint8

const (
	sequence operator = iota // ";"
	either                   // "|"
	both                     // "&"
	leaf                     // a name
)

func (o operator) String() string { return [...]string{";", "|", "&", "name"}[o] }

// term is a node of the syntax tree: a name, or two or more kids joined by one operator. After Parse no kid of a
// term has the term's own operator.
type term struct {
	op     operator
	name   string
	offset int // of the name in the text, in bytes
	kids   []*term
}

// Name is one occurrence of a name in an expression's text.
type Name struct {
	Name   string
	Offset int // in bytes
}

// Names returns the names in text order, one entry for each occurrence; the index is the node number in the graph.
func (e *Expr) Names() []Name {
	names := make([]Name, 0, e.names)
	e.walk(func(t *term) {
		if t.op == leaf {
			names = append(names, Name{t.name, t.offset})
		}
	}, nil, nil)
	return names
}

// String returns the expression with as few parentheses as possible and no blanks. Parsing it gives an equal
// expression.
func (e *Expr) String() string {
	var b strings.Builder
	e.walk(
		func(t *term) {
			if t.op == leaf {
				b.WriteString(t.name)
			}
		},
		func(parent, t *term, i int) {
			if i > 0 {
				b.WriteString(parent.op.String())
			}
			if t.op < parent.op {
				b.WriteByte('(')
			}
		},
		func(parent, t *term) {
			if t.op < parent.op {
				b.WriteByte(')')
			}
		},
	)
	return b.String()
}

// Keep returns the expression without the names for whose node number keep is false; nil: none is left. The others are
// joined as before.
func (e *Expr) Keep(keep func(node int) bool) *Expr {
	var left []*term // of the terms around the current one: their kids so far
	var marks []int  // where each of these begins
	kept, node := &Expr{}, 0
	join := func(parent *term) {
		begin := marks[len(marks)-1]
		marks = marks[:len(marks)-1]
		kids := left[begin:]
		switch len(kids) {
		case 0, 1:
		default:
			kept.terms++
			left = append(left[:begin], &term{op: parent.op, kids: append([]*term(nil), kids...)})
		}
	}
	var open []*term
	e.walk(func(t *term) {
		if t.op != leaf {
			open, marks = append(open, t), append(marks, len(left))
			return
		}
		if keep(node) {
			kept.names++
			kept.terms++
			left = append(left, t)
		}
		node++
	}, nil, func(_, t *term) {
		if t.op != leaf {
			open = open[:len(open)-1]
			join(t)
		}
	})
	if len(open) > 0 { // the root
		join(open[0])
	}
	if len(left) == 0 {
		return nil
	}
	kept.root = flatten(left[0])
	return kept
}

// walk visits the tree depth first and in text order: visit at each term, before and after around each kid.
func (e *Expr) walk(visit func(*term), before func(parent, t *term, i int), after func(parent, t *term)) {
	type frame struct {
		t    *term
		next int
	}
	visit(e.root)
	stack := []frame{{t: e.root}}
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		if top.next == len(top.t.kids) {
			stack = stack[:len(stack)-1]
			if len(stack) > 0 && after != nil {
				after(stack[len(stack)-1].t, top.t)
			}
			continue
		}
		kid := top.t.kids[top.next]
		if before != nil {
			before(top.t, kid, top.next)
		}
		top.next++
		visit(kid)
		stack = append(stack, frame{t: kid})
	}
}
