package wire

import "strings"

// Rule selects observations. Point and Phase must be set; any other empty field selects all. Namespace and Name may
// hold '*' for any run of characters.
type Rule struct {
	Point      Point
	Phase      Phase
	Kind       string // singular, lower case: pod
	Resource   string // plural, lower case: pods; a process that knows only one of Kind and Resource compares that one
	Group      string // compared only if the process knows its object's group and AnyGroup is false
	AnyGroup   bool
	Namespace  string
	Name       string
	Operations []Operation
	Live       bool // only reads that go to the API server
	// Items asks for those objects of a list whose namespace and name match ItemNamespace and ItemName, which are
	// patterns like Namespace and Name.
	Items         bool
	ItemNamespace string
	ItemName      string
	Call          string // annotated function's name in the suite
	Callers       bool   // asks for Observation.Callers
}

// Takes reports whether the rule selects the observation. An observation without a phase is one of a call that has yet
// to begin: the rule takes it if it takes one of the phases.
func (r *Rule) Takes(o *Observation) bool {
	return r.Point == o.Point && (o.Phase == "" || r.Phase == o.Phase) && (o.Live || !r.Live) && r.takesType(o) &&
		matches(r.Namespace, o.Namespace) && matches(r.Name, o.Name) && (r.Call == "" || r.Call == o.CallName) &&
		r.takesOperation(o.Operation)
}

// TakesItem reports whether the rule asks for a listed object.
func (r *Rule) TakesItem(namespace, name string) bool {
	return r.Items && matches(r.ItemNamespace, namespace) && matches(r.ItemName, name)
}

func (r *Rule) takesType(o *Observation) bool {
	switch {
	case r.Kind == "" && r.Resource == "":
		return true // a group alone says nothing
	case r.Resource != "" && o.Resource != "":
		// If the resource is known, it decides: the body of pods/eviction is of another kind.
		if r.Resource != o.Resource {
			return false
		}
	case r.Kind == "" || r.Kind != o.Kind:
		return false
	}
	return r.AnyGroup || !o.GroupKnown || r.Group == o.Group
}

func (r *Rule) takesOperation(operation Operation) bool {
	for _, op := range r.Operations {
		if op == operation {
			return true
		}
	}
	return len(r.Operations) == 0
}

// matches compares s with a pattern in which '*' stands for any run of characters. An empty pattern matches all.
func matches(pattern, s string) bool {
	star := strings.IndexByte(pattern, '*')
	if star < 0 {
		return pattern == "" || pattern == s
	}
	if !strings.HasPrefix(s, pattern[:star]) {
		return false
	}
	s, pattern = s[star:], pattern[star+1:]
	for {
		star = strings.IndexByte(pattern, '*')
		if star < 0 {
			return strings.HasSuffix(s, pattern)
		}
		at := strings.Index(s, pattern[:star])
		if at < 0 {
			return false
		}
		s, pattern = s[at+star:], pattern[star+1:]
	}
}
