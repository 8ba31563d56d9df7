// Package judge judges a run: evidence in, findings out, one file a judge. Judges examine only the evidence that the
// run has recorded, so they judge an old record like a new one, and wait for nothing; the verdict follows from their
// findings.
package judge

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/judge/invariant"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Evidence is what judges examine: what the run was to do, and what it has recorded. It gives no access to a cluster.
// Judges must not change it.
type Evidence struct {
	Plan       *plan.Plan
	Invariants *invariant.Set // of the suite
	Timeouts   plan.Timeouts
	Dir        string      // of the run record, with the logs
	Meta       record.Meta // without a verdict
	Actions    []record.Action
	History    []record.HistoryEntry // ordered by resource version
	Gaps       []string              // where the history may lack states, one line each
	Processes  []record.Process      // of the controllers, oldest first
	Events     []record.Event        // of the controllers' writes and reconciles, as far as they were observed
	// Baseline is what the workload does without faults; nil: it was not learned.
	Baseline *baseline.Baseline
	// Found is what the run itself has found before the judges.
	Found []record.Finding
	// Stood says that this process did not run for a time; empty: it did.
	Stood string

	// cluster is the one of several that this evidence is about; empty: there is only one, or it is about all.
	cluster string

	// parts is what byCluster returns. Hear sets it, so that judges share the work.
	parts []Evidence

	// followed has followed the history. Hear sets it, so that judges share the work.
	followed func() (*facts.Follower, error)
}

// Judge examines one kind of evidence. An error says that it could not finish; findings returned with it are valid.
type Judge interface {
	Is() Traits
	Judge(ctx context.Context, e Evidence) ([]record.Finding, error)
}

// Traits say what a judge is. Only the function is makes them, so that each judge answers all questions.
type Traits struct {
	name   string
	extent extent
	basis  basis
}

func is(name string, e extent, b basis) Traits { return Traits{name, e, b} }

// extent is what a judge looks at in a run with several clusters.
type extent bool

const (
	// allClusters: the judge looks at the whole run once.
	allClusters extent = false
	// eachCluster: the judge looks at objects, which belong to one cluster. It looks at each cluster by itself.
	eachCluster extent = true
)

// basis is what a judge's findings rest on.
type basis bool

const (
	// whatHappened: the judge looks for what has happened. It has happened in any case.
	whatHappened basis = false
	// wholeRun: the judge looks for what is missing or wrong in the end. That may follow from what went wrong in the
	// run, or from what was not observed.
	wholeRun basis = true
)

// Judges lists all judges in the order in which their findings are reported.
func Judges() []Judge {
	return []Judge{
		eventually{}, gaps{}, invariantJudge{}, exits{}, faultFree{},
		duplicates{}, dependents{}, finalizers{}, orphans{}, fights{}, reverts{}, loops{}, hot{}, unrest{}, leases{},
		rewrites{}, waste{}, loggedErrors{}, complaints{},
	}
}

// Hear runs all judges. If one fails or panics, that becomes a finding, and the others still run. Hear also changes the
// severities of what the run itself has found, in e.Found.
func Hear(ctx context.Context, e Evidence, judges []Judge) []record.Finding {
	var all []record.Finding
	var resting []int // indices of findings that rest on the whole run
	e.followed = sync.OnceValues(e.read)
	e.parts = e.byCluster()
	for _, j := range judges {
		of := []Evidence{e}
		if len(e.parts) > 1 && j.Is().extent == eachCluster {
			of = e.parts
		}
		for _, part := range of {
			findings, err := hear(ctx, part, j)
			for _, f := range findings {
				if in := record.In(part.cluster, ""); part.cluster != "" && !strings.Contains(f.Title, in) {
					f.Title = "in " + in + f.Title // it names no object, and so no cluster
				}
				if j.Is().basis == wholeRun && f.IsBug() {
					resting = append(resting, len(all))
				}
				all = append(all, f)
			}
			if err != nil {
				all = append(all, Trouble(fmt.Sprintf("judge %q failed: %v", j.Is().name, err), e.Meta.Observed))
			}
		}
	}
	e.own(all)
	e.own(e.Found)
	e.bear(all)
	e.recall(e.Found)
	e.explainNamespaces(e.Found)
	e.weigh(all, resting)
	e.locate(all)
	e.locate(e.Found)
	return all
}

// byCluster returns the evidence about each of several clusters, in order of their names, or the evidence itself if
// there is only one.
func (e Evidence) byCluster() []Evidence {
	if e.parts != nil {
		return e.parts
	}
	names := map[string]bool{}
	for i := range e.History {
		names[e.History[i].Cluster] = true
	}
	for _, c := range e.Meta.Controllers {
		names[c.Cluster] = true
	}
	delete(names, "")
	if len(names) == 0 {
		return []Evidence{e}
	}
	var parts []Evidence
	for _, name := range slices.Sorted(maps.Keys(names)) {
		part := e
		part.cluster, part.History, part.Events = name, nil, nil
		for _, h := range e.History {
			if h.Cluster == name {
				part.History = append(part.History, h)
			}
		}
		for _, event := range e.Events {
			if o := event.Observation; o == nil || o.Cluster == "" || o.Cluster == name {
				part.Events = append(part.Events, event)
			}
		}
		part.followed = sync.OnceValues(part.read)
		parts = append(parts, part)
	}
	return parts
}

func hear(ctx context.Context, e Evidence, j Judge) (findings []record.Finding, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return j.Judge(ctx, e)
}
