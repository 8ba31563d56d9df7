package facts

import (
	"fmt"
	"strings"
)

// Existence is what became of an object as a whole: whether it is there in the end, or how often it was created.
type Existence struct {
	// Count: it says how often the object was created. Otherwise it says whether the object is there in the end.
	Count bool
	There bool // in the end
	// Made to MostMade, OwnerGone and TookOver are how often it was created: see Object.
	Made, MostMade, OwnerGone, TookOver int
}

// EndOf is whether an object is there in the end. The object is nil if the run does not know it.
func EndOf(o *Object) Existence {
	if o == nil {
		return Existence{}
	}
	return Existence{
		There: o.End != nil, Made: o.Made, MostMade: max(o.Made, o.MostMade),
		OwnerGone: o.OwnerGone, TookOver: o.TookOver,
	}
}

// TimesOf is how often an object was created.
func TimesOf(o *Object) Existence {
	e := EndOf(o)
	e.Count = true
	return e
}

// Never reports whether there was no such object at any time.
func (e Existence) Never() bool { return !e.There && e.Total() == 0 }

// Total is how many objects of the key there were, one after the other, at most in a run.
func (e Existence) Total() int { return max(e.Made, e.MostMade) + e.OwnerGone + e.TookOver }

// String says it in words.
func (e Existence) String() string {
	switch {
	case e.There && !e.Count:
		return "exists at the end"
	case e.Never():
		return "never created"
	case max(e.Made, e.MostMade) > 0 && !e.Count:
		return "deleted at the end"
	}
	var parts []string
	switch {
	case e.MostMade > e.Made:
		parts = append(parts, fmt.Sprintf("%d to %d times", e.Made, e.MostMade))
	case e.Made > 0:
		parts = append(parts, times(e.Made))
	}
	if e.OwnerGone > 0 {
		parts = append(parts, times(e.OwnerGone)+" for an owner that was being deleted or gone")
	}
	if e.TookOver > 0 {
		parts = append(parts, times(e.TookOver)+" in place of one that left what it owned")
	}
	return "created " + strings.Join(parts, ", and ")
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
