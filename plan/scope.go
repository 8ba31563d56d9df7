package plan

import "cmp"

// Scope says which objects a pause or a failure of calls is about. The zero value was not given: then it is about
// everything, and what ends a pause or a failure is about any scope.
type Scope struct {
	Key ResourceKey // zero: everything
	All bool        // everything, because "*" was given
}

// ParseScope reads a resource key or "*".
func ParseScope(text string) (Scope, error) {
	switch text {
	case "":
		return Scope{}, nil
	case "*":
		return Scope{All: true}, nil
	}
	key, err := ParseResourceKey(text)
	return Scope{Key: key}, err
}

// MustScope is [ParseScope] for constant texts. It panics on a mistake.
func MustScope(text string) Scope {
	s, err := ParseScope(text)
	if err != nil {
		panic(err)
	}
	return s
}

// Scope is what the action's pause or failure of calls is about.
func (a *Action) Scope() Scope { return cmp.Or(a.PauseScope, a.CallScope) }

// IsZero reports whether the scope was not given.
func (s Scope) IsZero() bool { return s == Scope{} }

// Everything reports whether the scope has no resource key.
func (s Scope) Everything() bool { return s.Key.IsZero() }

// String gives the form used in plans; empty: it was not given.
func (s Scope) String() string {
	switch {
	case s.All:
		return "*"
	case s.Everything():
		return ""
	}
	return s.Key.String()
}

// selects reports whether what names this scope ends what has another scope.
func (s Scope) selects(other Scope) bool { return s.IsZero() || s.Key == other.Key }
