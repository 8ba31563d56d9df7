package actions

import (
	"context"

	"github.com/trommel-dev/trommel/plan"
)

// Upgrades installs other builds of the controllers.
type Upgrades interface {
	// Upgrade installs a build, "" for the suite's own, and returns when only its controllers run.
	Upgrade(ctx context.Context, to string, how plan.UpgradeHow) error
	// Recover starts the controllers that an upgrade has left killed.
	Recover(ctx context.Context) error
}

func init() {
	Register(plan.Upgrade, func(a *plan.Action, t Tools) Action {
		return &upgrade{upgrades: t.Upgrades, what: plan.EffectOf[*plan.Upgrading](a)}
	})
}

type upgrade struct {
	upgrades Upgrades
	what     *plan.Upgrading
}

func (u *upgrade) Do(ctx context.Context) (string, error) {
	return "", u.upgrades.Upgrade(ctx, u.what.To, u.what.How)
}

// Undo does not bring the former build back: an upgrade is a write.
func (u *upgrade) Undo(ctx context.Context) error { return u.upgrades.Recover(ctx) }
