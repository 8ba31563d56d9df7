package baseline

import (
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Setup is how the controllers under test that have hooks were set up in the runs.
type Setup struct {
	// Controllers are their names.
	Controllers []string `json:"controllers"`
	// Streaming are those that fill their caches by a streaming list; see StaleBy.
	Streaming []string `json:"streaming,omitempty"`
	// Replicas is how many processes each has, and Leases the leases by which they are elected leader.
	Replicas map[string]int      `json:"replicas"`
	Leases   map[string][]string `json:"leases,omitempty"`
	// LeaseLasts is how long the lease of each lasts without being renewed.
	LeaseLasts map[string]time.Duration `json:"leaseLasts,omitempty"`
	// Failing names the annotated calls of each that a plan can make fail.
	Failing map[string][]string `json:"failing,omitempty"`
}

// setupOf is the setup in a recorded run.
func setupOf(r *record.Run) Setup {
	s := Setup{Replicas: map[string]int{}, Failing: map[string][]string{}}
	for _, c := range r.Meta.Controllers {
		if !c.Hooks {
			continue
		}
		s.Controllers = append(s.Controllers, c.Name)
		if c.WatchList {
			s.Streaming = append(s.Streaming, c.Name)
		}
		s.Replicas[c.Name] = c.Replicas
		if len(c.FailingCalls) > 0 {
			s.Failing[c.Name] = c.FailingCalls
		}
		if c.LeaseLasts > 0 {
			if s.LeaseLasts == nil {
				s.LeaseLasts = map[string]time.Duration{}
			}
			s.LeaseLasts[c.Name] = c.LeaseLasts
		}
		for _, lock := range c.Locks {
			if key, err := plan.ParseResourceKey(lock); err == nil && key.Type == "lease" {
				if s.Leases == nil {
					s.Leases = map[string][]string{}
				}
				s.Leases[c.Name] = append(s.Leases[c.Name], lock)
			}
		}
	}
	return s
}
