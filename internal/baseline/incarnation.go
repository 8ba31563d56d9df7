package baseline

import "github.com/trommel-dev/trommel/internal/facts"

// incarnations compares how often an object that ends alike was created; nil: as often as without faults.
//
// A controller under test is responsible for what it creates or deletes itself. Others, such as the garbage collector
// or the StatefulSet controller, do what it has led them to: if they have deleted an object that held data, the data is
// lost. Any other object that was replaced more often, such as a pod in a further rollout, has cost time at most. Fewer
// replacements may be right: a controller that did not see a state need not bring about what that state asked for.
func incarnations(key facts.Key, want, got *facts.Object) *Difference {
	if got.Made >= want.Made && got.Made <= want.MostMade || (want.End == nil) != (got.End == nil) {
		return nil
	}
	d := &Difference{Key: key, Want: facts.TimesOf(want), Got: facts.TimesOf(got), Count: true}
	lost := facts.HoldsData(key.Type()) && want.MostMade > 0 && got.Made > want.MostMade
	d.Note = !want.Ours && !got.Ours && !lost
	return d
}
