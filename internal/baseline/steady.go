package baseline

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/trommel-dev/trommel/internal/facts"
)

// Steady reports whether the runs differ only in values: in each of them the controllers under test made the same kinds
// of changes to each object in the same order, and each field that counts is in all of them or in none. Plans can be
// made from two such runs.
func Steady(ref *Baseline) bool {
	if slices.ContainsFunc(ref.Found, func(f Found) bool { return f.Reason == Differs && !f.Value }) {
		return false
	}
	usual := steps(ref.Changes)
	return !slices.ContainsFunc(ref.Others, func(changes []facts.Change) bool {
		other := steps(changes)
		if len(other) != len(usual) {
			return true
		}
		for key, all := range usual {
			if !slices.Equal(all, other[key]) {
				return true
			}
		}
		return false
	})
}

// did is a kind of change.
type did struct {
	by    string
	event string
}

// steps are the kinds of changes by the controllers under test, by object.
func steps(changes []facts.Change) map[facts.Key][]did {
	all := map[facts.Key][]did{}
	for i := range changes {
		if c := &changes[i]; c.By != "" {
			all[c.Key] = append(all[c.Key], did{c.By, c.Event})
		}
	}
	return all
}

// JudgeAlike reports whether runs are judged alike with two baselines of the same first run: all that the judges look
// at is the same. Others is left out: further runs there can only remove findings about waste, for which the caller
// looks.
func JudgeAlike(one, other *Baseline) bool {
	a, err := judged(one)
	b, otherErr := judged(other)
	return err == nil && otherErr == nil && bytes.Equal(a, b)
}

// judged is what a baseline consists of that decides how a run is judged.
func judged(ref *Baseline) ([]byte, error) {
	own := *ref
	own.Runs, own.Source, own.Begun, own.Others, own.Courses, own.Took = 0, Source{}, nil, nil, nil, 0
	own.Uneventful, own.Startup = nil, 0
	return json.Marshal(struct {
		*Baseline
		Kept []Kept
	}{&own, own.Kept})
}
