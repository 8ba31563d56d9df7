package moment

import (
	"slices"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
)

type object = map[string]any

// setField sets a value in nested mappings and lists; index has its places in the lists. No value is $absent; a state
// says nothing about an item that is not there.
func setField(m object, path []string, index []int, v any) {
	if v == nil {
		v = plan.Absent
	}
	if len(index) == 0 && slices.Contains(path, facts.Item) {
		return
	}
	with(m, path, index, v)
}

// with returns a mapping or list, or a new one, with a value set at a path below it.
func with(at any, path []string, index []int, v any) any {
	switch {
	case len(path) == 0:
		return v
	case path[0] == facts.Item:
		list, _ := at.([]any)
		for len(list) <= index[0] {
			list = append(list, plan.Present)
		}
		list[index[0]] = with(list[index[0]], path[1:], index[1:], v)
		return list
	}
	m, ok := at.(object)
	if !ok {
		m = object{}
	}
	m[path[0]] = with(m[path[0]], path[1:], index, v)
	return m
}

// fillPlaces sets the items before a place in lists to $present, as setField does, but says nothing of the place
// itself. A field that only one of two states names must have changed; the items that only fill places need not.
func fillPlaces(m object, path []string, index []int) {
	if len(index) > 0 {
		places(m, path, index)
	}
}

// places returns a mapping or list, or a new one, in which the places before those at a path are filled. It returns nil
// if there are none and it is given nil.
func places(at any, path []string, index []int) any {
	switch {
	case !slices.Contains(path, facts.Item):
		return at
	case path[0] != facts.Item:
		m, _ := at.(object)
		if below := places(m[path[0]], path[1:], index); below != nil {
			if m == nil {
				m = object{}
			}
			m[path[0]] = below
			return m
		}
		return at
	}
	list, _ := at.([]any)
	for len(list) < index[0] {
		list = append(list, plan.Present)
	}
	if len(list) == index[0] {
		if below := places(nil, path[1:], index[1:]); below != nil {
			list = append(list, below)
		}
	}
	if len(list) == 0 {
		return at
	}
	return list
}

// ValueAt is the value at a path below an object, or nil.
func ValueAt(o object, path []string) any {
	var v any = o
	for _, step := range path {
		m, _ := v.(object)
		v = m[step]
	}
	return v
}
