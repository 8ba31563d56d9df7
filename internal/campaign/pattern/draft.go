package pattern

import (
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
)

// draft is a plan that is still to be built, or the rule by which there is none.
type draft struct {
	signature string // see Candidate
	why       string
	dropped   string // the rule; empty: there is a plan

	actions     []*build.Action
	checkCaches bool
	schedule    *plan.Schedule
	chance      float64 // how likely it finds something, compared with others of its pattern
	once        bool    // it is left out if a plan with its signature comes before it
	again       strike  // see Candidate
}

// object is an object or a part of it, as in JSON.
type object = map[string]any

// drafts are what a pattern makes of a workload, in the order of the workload.
type drafts []draft

// drop notes that there is no plan for a moment.
func (d *drafts) drop(signature, why, rule string) {
	*d = append(*d, draft{signature: signature, why: why, dropped: rule})
}

// add adds a plan.
func (d *drafts) add(signature, why string, actions ...*build.Action) {
	d.addWith(1, signature, why, actions...)
}

// addWith adds a plan that is more or less likely than others of its pattern to find something.
func (d *drafts) addWith(chance float64, signature, why string, actions ...*build.Action) {
	*d = append(*d, draft{signature: signature, why: why, chance: chance, actions: actions})
}
