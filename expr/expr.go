// Package expr compiles a test plan's expression over trigger names to a graph, and walks it.
//
// An expression joins names with ";" (sequence), "|" (either) and "&" (both); "&" binds tightest, then "|", then ";".
// Parentheses group, up to [MaxNesting] deep; blanks are ignored. A name consists of letters, digits, "_", "-" and ".";
// it may occur more than once, and each occurrence is a separate node.
//
// [Parse] reads the text, [Expr.Graph] compiles it, and a [Progress] is one walk through the graph. All of them are
// linear in the size of the expression: 100,000 names are possible.
package expr

import "strings"

// Expr is a parsed expression. It is immutable.
type Expr struct {
	root  *term
	names []*term // the names in text order
	terms int     // number of terms
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

// term is a part of an expression: a name, or two or more kids joined by one operator. No kid has the operator of its
// parent, so that the depth of an expression is at most three times that of its parentheses.
type term struct {
	op     operator
	name   string
	offset int // of the name in the text, in bytes
	kids   []*term

	// Set by newExpr.
	id   int   // among all terms
	node int   // of a name: its index among all names
	up   *term // nil at the root
}

// join makes one term of others. A term with the same operator gives its kids: a;(b;c) becomes a;b;c.
func join(op operator, parts []*term) *term {
	if len(parts) == 1 {
		return parts[0]
	}
	t := &term{op: op, kids: make([]*term, 0, len(parts))}
	for _, part := range parts {
		if part.op == op {
			t.kids = append(t.kids, part.kids...)
		} else {
			t.kids = append(t.kids, part)
		}
	}
	return t
}

func newExpr(root *term) *Expr {
	e := &Expr{root: root}
	e.number(root)
	return e
}

func (e *Expr) number(t *term) {
	t.id = e.terms
	e.terms++
	if t.op == leaf {
		t.node = len(e.names)
		e.names = append(e.names, t)
	}
	for _, kid := range t.kids {
		kid.up = t
		e.number(kid)
	}
}

// Name is one occurrence of a name in an expression's text.
type Name struct {
	Name   string
	Offset int // in bytes
}

// Names returns the names in text order, one entry for each occurrence; the index is the node number in the graph.
func (e *Expr) Names() []Name {
	names := make([]Name, len(e.names))
	for i, t := range e.names {
		names[i] = Name{t.name, t.offset}
	}
	return names
}

// String returns the expression with as few parentheses as possible and no blanks. Parsing it gives an equal
// expression.
func (e *Expr) String() string {
	var b strings.Builder
	e.root.print(&b)
	return b.String()
}

func (t *term) print(b *strings.Builder) {
	b.WriteString(t.name)
	for i, kid := range t.kids {
		if i > 0 {
			b.WriteString(t.op.String())
		}
		if kid.op > t.op {
			kid.print(b)
			continue
		}
		b.WriteByte('(')
		kid.print(b)
		b.WriteByte(')')
	}
}

// Keep returns the expression without the names for whose node number keep is false; nil: none is left. The others are
// joined as before.
func (e *Expr) Keep(keep func(node int) bool) *Expr {
	if left := e.root.keep(keep); left != nil {
		return newExpr(left)
	}
	return nil
}

func (t *term) keep(keep func(node int) bool) *term {
	if t.op == leaf {
		if !keep(t.node) {
			return nil
		}
		return &term{op: leaf, name: t.name, offset: t.offset}
	}
	var left []*term
	for _, kid := range t.kids {
		if k := kid.keep(keep); k != nil {
			left = append(left, k)
		}
	}
	if left == nil {
		return nil
	}
	return join(t.op, left)
}
