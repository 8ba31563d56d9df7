package result

import (
	"time"

	"github.com/trommel-dev/trommel/plan"
)

// Settings are what a resumed campaign has in common with the one that it goes on with. SuiteFile and Baselines are
// required.
type Settings struct {
	SuiteFile string   `json:"suite"`
	Variant   string   `json:"variant,omitempty"`
	Plans     string   `json:"plans,omitempty"`     // the directory of Config.Plans; empty: plans are generated
	Workloads []string `json:"workloads,omitempty"` // default: all of the suite
	Patterns  []string `json:"patterns,omitempty"`  // default: all
	// Baselines is the directory of the baselines, which campaigns share. It is created.
	Baselines string `json:"baselines"`
	// Learn is the number of runs without faults for each workload that are compared; default: as many as for the
	// baseline that is there, or 3.
	Learn int `json:"learn"`
	// Repeat is how often a finding must come to be believed; default 3.
	Repeat int `json:"repeat"`
	// Budget is the time in which all runs end, from the beginning of the first campaign on: none begins that is not
	// expected to end by then, except those that a workload is learned from; 0: no limit.
	Budget time.Duration `json:"budget,omitempty"`
	// FailFast stops the campaign after the first confirmed finding.
	FailFast bool `json:"failFast,omitempty"`
	// Time is how time passes in the runs; default: as the suite says. The suite must say the same.
	Time plan.Time `json:"time,omitempty"`
	// Pace is that of the generated plans' workloads; default: as the workloads were learned. With PaceNone, their runs
	// are not compared with paced runs except in what holds data.
	Pace  plan.Pace `json:"pace,omitempty"`
	Shard Shard     `json:"shard,omitzero"`
}
