package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/record"
)

// withoutActions runs a plan's workload once more without the plan's actions, if all that the plan has found is that
// its workload failed. If it fails in the same step then, too, the plan has shown nothing: the run becomes
// inconclusive, also in its record. That run has a record beside the plan's.
func withoutActions(
	ctx context.Context, console *console, session *run.Session, l *loaded, r *record.Run, how run.RunOptions,
) (*record.Run, error) {
	if len(l.plan.Actions) == 0 || !onlyWorkload(r.Findings) {
		return r, nil
	}
	p := *l.plan
	p.TestName, p.Description, p.File, p.Actions = l.plan.TestName+"-without-actions", "", "", nil
	p.Complete(l.suite)
	dir := r.Dir + "-without-actions"
	console.Info("only its workload failed: running that without the plan's actions")
	if _, err := session.RunWith(ctx, &p, dir, how); err != nil {
		return r, fmt.Errorf("run the workload without the plan's actions: %w", err)
	}
	quiet, err := record.Open(dir)
	if err != nil {
		return r, fmt.Errorf("read run record: %w", err)
	}
	return r, blameWorkload(r, quiet)
}

func onlyWorkload(findings []record.Finding) bool {
	bugs := 0
	for _, f := range findings {
		if f.IsBug() {
			if f.Judge != record.JudgeWorkload {
				return false
			}
			bugs++
		}
	}
	return bugs > 0
}

// blameWorkload makes a run inconclusive if all its bugs came in the run without the plan's actions, too.
func blameWorkload(r, quiet *record.Run) error {
	var title string
	for i, f := range r.Findings {
		if !f.IsBug() {
			continue
		}
		if !slices.ContainsFunc(quiet.Findings, func(q record.Finding) bool { return q.IsBug() && f.Same(q) }) {
			return nil
		}
		if title == "" {
			title = f.Title
		}
		r.Findings[i].Severity = record.SeverityInconclusive
	}
	r.Meta.Verdict = record.Inconclusive
	r.Meta.Reason = fmt.Sprintf("the workload does not pass without the plan's actions either: %s\n"+
		"change the workload in %s; its run without actions is in %s", wording.FirstLine(title), r.Meta.Suite,
		quiet.Dir)
	return record.Revise(r.Dir, r.Meta, r.Findings)
}
