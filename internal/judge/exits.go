package judge

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/judge/processlog"
	"github.com/trommel-dev/trommel/record"
)

// exits judges how the controllers' processes exited.
type exits struct{}

func (exits) Is() Traits { return is("exits", allClusters, whatHappened) }

// Judge returns the findings of [processlog.Exits] about processes that exited after the workload began: earlier exits
// belong to the cluster's start, and the controller has come up since. An exit that the plan itself has caused becomes
// a note.
func (exits) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	var findings []record.Finding
	for _, c := range e.Meta.Controllers {
		var processes []record.Process
		for _, p := range e.Processes {
			if p.Controller == c.Name && (p.Running() || !p.Ended.Before(e.Meta.WorkloadStart)) {
				p.LogFile = filepath.Join(e.Dir, filepath.FromSlash(p.LogFile))
				processes = append(processes, p)
			}
		}
		for _, f := range processlog.Exits(c.Module, processes) {
			ended := f.Judge == record.JudgeCrash || f.Judge == record.JudgeLeadership
			ever, lately := frozen(e.Plan, e.Actions, e.Timeouts.Away, c.Name, f.Time)
			server := ServerAway(e.Plan, e.Meta.Controllers, e.Actions, e.Timeouts.Away, c.Name, f.Time)
			cut := disconnected(e.Plan, e.Actions, e.Timeouts.Away, c.Name, f.Time)
			switch {
			case f.Judge == record.JudgeLeadership && pausesLocks(e.Plan, c):
				f.Severity = record.SeverityNote
				f.Title += ", because the plan paused its lock"
			case f.Judge == record.JudgeLeadership && ever || f.Judge == record.JudgeCrash && lately:
				f.Severity = record.SeverityNote
				f.Title += ", when the plan had frozen a process"
			case ended && server != "":
				f.Severity = record.SeverityNote
				f.Title = fmt.Sprintf("%s, while the plan had killed its API server %s", f.Title, server)
			case ended && callsFailed(e.Plan, e.Actions, e.Timeouts.Away, c.Name, f.Time):
				f.Severity = record.SeverityNote
				f.Title += ", when the plan had made its calls fail"
			case ended && cut != "":
				f.Severity = record.SeverityNote
				f.Title += ", when the plan had disturbed its connection to the cluster " + cut
			}
			if processlog.ChangesCache(f) && !f.Callers.Known() {
				if wrote := e.lastWrite(c.Name, f); wrote.Callers.Known() {
					f.Origin, f.Call = wrote, record.WroteIt
				}
			}
			findings = append(findings, f)
		}
	}
	return findings, nil
}

// lastWrite is where the last write of a controller comes from, before a finding, of an object that the controller has
// changed in its cache: such a change is often made to write it.
func (e Evidence) lastWrite(controller string, f record.Finding) (last record.Origin) {
	types, names := processlog.Altered(f)
	for i := range e.Events {
		o := e.Events[i].Observation
		if o == nil || o.By != controller || o.Point != wire.ControllerWrite || !o.Callers.Known() ||
			e.Events[i].Time.After(f.Time) {
			continue
		}
		for n, name := range names {
			typ := strings.ToLower(types[n])
			if name == strings.TrimPrefix(o.Namespace+"/"+o.Name, "/") &&
				(typ == o.Kind || typ == "unstructured" || facts.IsResource(o.Resource, typ)) {
				last = record.Origin{Callers: o.Callers, Event: e.Events[i].Seq}
			}
		}
	}
	return last
}
