// Package judge judges a run: evidence in, findings out, one file a judge. Judges examine only the evidence that the
// run has recorded, so they judge an old record like a new one, and wait for nothing; the verdict follows from their
// findings.
package judge

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Evidence is what judges examine: what the run was to do, and what it has recorded. It gives no access to a cluster.
// Judges must not change it.
type Evidence struct {
	Plan       *plan.Plan
	Invariants *Invariants // of the suite
	Timeouts   plan.Timeouts
	Dir        string      // of the run record, with the logs
	Meta       record.Meta // without a verdict
	Actions    []record.Action
	History    []record.HistoryEntry // ordered by resource version
	Gaps       []string              // where the history may lack states, one line each
	Processes  []record.Process      // of the controllers, oldest first
	Events     []record.Event        // of the controllers' writes and reconciles, as far as they were observed
	// Baseline is what the workload does without faults; nil: nobody has learned it.
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
	Name() string
	Judge(ctx context.Context, e Evidence) ([]record.Finding, error)
}

// Judges lists all judges in the order in which their findings are reported.
func Judges() []Judge {
	return []Judge{
		eventually{}, gaps{}, invariantJudge{}, exits{}, faultFree{},
		duplicates{}, dependents{}, finalizers{}, orphans{}, fights{}, reverts{}, loops{}, hot{}, unrest{}, leases{},
		rewrites{}, waste{}, loggedErrors{}, complaints{},
	}
}

// Hear runs all judges. If one fails or panics, that becomes a finding, and the others still run. What rests on the
// whole run is no bug if the run was not whole; nor is it that the workload failed, which is in e.Found and changed
// there.
func Hear(ctx context.Context, e Evidence, judges []Judge) []record.Finding {
	var all []record.Finding
	var resting []int // indices of findings that rest on the whole run
	e.followed = sync.OnceValues(e.read)
	e.parts = e.byCluster()
	for _, j := range judges {
		of := []Evidence{e}
		if len(e.parts) > 1 && ofOneCluster(j) {
			of = e.parts
		}
		for _, part := range of {
			findings, err := hear(ctx, part, j)
			for _, f := range findings {
				if in := record.In(part.cluster, ""); part.cluster != "" && !strings.Contains(f.Title, in) {
					f.Title = "in " + in + f.Title // it names no object, and so no cluster
				}
				if restsOnAll(j) && f.IsBug() {
					resting = append(resting, len(all))
				}
				all = append(all, f)
			}
			if err != nil {
				all = append(all, Trouble(fmt.Sprintf("judge %q failed: %v", j.Name(), err), e.Meta.Observed))
			}
		}
	}
	e.own(all)
	e.own(e.Found)
	e.bear(all)
	e.recall(e.Found)
	if slices.ContainsFunc(all, isOfCache) {
		noted(all)
		noted(e.Found)
	}
	why := broken(e, all)
	if why != "" {
		for _, i := range resting {
			Doubt(all[i:i+1], why)
		}
	}
	// A workload also waits in vain for what an action should have done, such as to start a controller again.
	if why = cmp.Or(why, inconclusive(e.Found, record.JudgeAction)); why != "" {
		for i := range e.Found {
			if e.Found[i].Judge == record.JudgeWorkload {
				Doubt(e.Found[i:i+1], why)
			}
		}
	}
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

// ofOneCluster reports whether a judge looks at objects, which are those of one cluster.
func ofOneCluster(j Judge) bool {
	switch j.(type) {
	case duplicates, dependents, finalizers, orphans, fights, reverts, rewrites, waste:
		return true
	}
	return false
}

// restsOnAll reports whether a judge looks for what is missing or wrong in the end. That may follow from what went
// wrong in the run, or from what was not observed; something that happened has happened in any case.
func restsOnAll(j Judge) bool {
	switch j.(type) {
	case eventually, faultFree, finalizers:
		return true
	}
	return false
}

// broken says why a run was not whole, given what the judges have found: it was not observed all the time, or the
// controllers were held up by more than its plan. It is empty if the run was.
func broken(e Evidence, found []record.Finding) string {
	return cmp.Or(inconclusive(slices.Concat(e.Found, found), record.JudgeRun, record.JudgeHistory, record.JudgeHook,
		record.JudgeSession, record.JudgeHold, record.JudgeLeadership, record.JudgeEnvironment), e.Stood)
}

// inconclusive is the title of the first inconclusive finding of these judges; empty: there is none.
func inconclusive(findings []record.Finding, judges ...string) string {
	for _, f := range findings {
		if f.Severity == record.SeverityInconclusive && slices.Contains(judges, f.Judge) {
			return f.Title
		}
	}
	return ""
}

func hear(ctx context.Context, e Evidence, j Judge) (findings []record.Finding, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return j.Judge(ctx, e)
}
