package learn

import (
	"path/filepath"
	"slices"
	"time"
)

// build makes the suite's builds that the campaign needs. The budget does not pay for that. What cannot be built is
// said where it is needed.
func (lr *Learner) build() {
	if lr.Builds == nil {
		return
	}
	began := time.Now()
	get := func(name string) {
		if name != "" && lr.Life().Err() == nil {
			_, _ = lr.Builds.Get(lr.Life(), name)
		}
	}
	for _, w := range lr.workloads() {
		get(w.build)
	}
	for _, p := range lr.Plans {
		for _, name := range p.Builds(slices.Concat(p.Steps, lr.Suite.Workloads[WorkloadOf(p)].Steps)) {
			get(name)
		}
	}
	lr.clock.LeaveOut(time.Since(began))
}

// Apart is what is known of a workload with a build, for plans that begin with another one. What runs without their
// actions show is in a file of its own.
func Apart(from, to *Learned, scope string) (*Learned, error) {
	l := *to
	l.Workload, l.Scope = to.Baseline.Workload, "-"+scope
	ref := *to.Baseline
	ref.Alternatives, ref.Kept = slices.Clone(ref.Alternatives), slices.Clone(ref.Kept)
	ref.Tried = slices.Clone(ref.Tried)
	for _, t := range from.Baseline.Types {
		if !slices.Contains(ref.Types, t) {
			ref.Types = append(slices.Clip(ref.Types), t)
		}
	}
	l.Source.Controllers = map[string]string{}
	for _, s := range []struct {
		suffix string
		of     *Learned
	}{{"", to}, {" before", from}} {
		for controller, hash := range s.of.Source.Controllers {
			l.Source.Controllers[controller+s.suffix] = hash + " " + s.of.Source.Suite
		}
	}
	ref.Source = l.Source // what is allowed depends on both builds
	l.Baseline = &ref
	dir := filepath.Dir(to.Allowed)
	l.File, l.Allowed = filepath.Join(dir, "baseline-"+scope+".json"), filepath.Join(dir, "allowed-"+scope+".json")
	if from.Anew || to.Anew {
		if err := forget(l.Allowed); err != nil {
			return nil, err
		}
	}
	if err := ref.ReadAllowed(l.Allowed); err != nil {
		return nil, err
	}
	return &l, nil
}
