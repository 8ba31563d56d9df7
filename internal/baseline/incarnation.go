package baseline

import "github.com/trommel-dev/trommel/internal/facts"

// incarnations compares how often an object of which the end is alike was created; nil: as often as without faults.
//
// What a controller under test creates or deletes itself is its own doing. Others, such as the garbage collector or the
// StatefulSet controller, do what it has led them to: if they have deleted what held data, the data is lost, whoever
// did it. That anything else was replaced more often, such as pods in a further rollout, has cost time at most. And
// that it was replaced less often may be right: who did not see a state need not bring about what it asked for.
func incarnations(key facts.Key, want, got *facts.Object) *Difference {
	if got.Made >= want.Made && got.Made <= want.MostMade || (want.End == nil) != (got.End == nil) {
		return nil
	}
	d := &Difference{Key: key, Want: facts.TimesOf(want), Got: facts.TimesOf(got), Count: true}
	lost := facts.HoldsData(key.Type()) && want.MostMade > 0 && got.Made > want.MostMade
	d.Note = !want.Ours && !got.Ours && !lost
	return d
}
