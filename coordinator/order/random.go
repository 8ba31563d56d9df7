package order

// random chooses each step with the same probability. Time passes only if nothing waits.
type random struct{ dice }

func (r random) choose(number int, steps []Step, _ bool) int {
	return int(r.throw("choice", number) * float64(len(steps)))
}
