package run

import (
	"context"
	"fmt"

	"github.com/trommel-dev/trommel/internal/confirm"
	"github.com/trommel-dev/trommel/internal/run/journal"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// RunConfirmed is RunWith for a plan that no campaign confirms. If the run finds only that its workload failed, the
// workload runs once more without the plan's actions. Its record is beside that of the plan. If it fails in the same
// way, the plan has shown nothing: its verdict becomes inconclusive, also in its record.
func (s *Session) RunConfirmed(
	ctx context.Context, p *plan.Plan, recordDir string, o RunOptions,
) (*record.Meta, error) {
	meta, err := s.RunWith(ctx, p, recordDir, o)
	if err != nil || meta.Verdict != record.Bug || ctx.Err() != nil {
		return meta, err
	}
	revised, err := s.withoutActions(ctx, p, recordDir, o)
	if err != nil {
		journal.NewConsole(s.options.Progress, "").Info(fmt.Sprintf("whether the workload fails without the plan's "+
			"actions is unknown: %v", err))
		return meta, nil
	}
	if revised != nil {
		return revised, nil
	}
	return meta, nil
}

// withoutActions returns what a run without the plan's actions changes in the record; nil: nothing.
func (s *Session) withoutActions(
	ctx context.Context, p *plan.Plan, recordDir string, o RunOptions,
) (*record.Meta, error) {
	r, err := record.Open(recordDir)
	if err != nil || !confirm.NeedsWithoutActions(p, r.Findings) {
		return nil, err
	}
	journal.NewConsole(s.options.Progress, "").Info("only its workload failed: running that without the plan's actions")
	dir := recordDir + confirm.WithoutActionsSuffix
	if _, err := s.RunWith(ctx, confirm.WithoutActions(p, s.suite), dir, o); err != nil {
		return nil, err
	}
	without, err := record.Open(dir)
	if err != nil || !confirm.Compare(r, without) {
		return nil, err
	}
	return &r.Meta, record.Revise(recordDir, r.Meta, r.Findings)
}
