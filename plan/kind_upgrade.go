package plan

import (
	"slices"

	"github.com/trommel-dev/trommel/plan/internal/yamlfile"
)

// Upgrade is the type of actions that install another build of the controllers.
const Upgrade ActionType = "upgrade"

// Upgrading has the fields of upgrade.
type Upgrading struct {
	To  string     `yaml:"to" doc:"The build of the suite that is installed; default: the suite itself."`
	How UpgradeHow `yaml:"how" default:"kill" doc:"How the processes are replaced."`
}

// UpgradeHow is a way to replace the processes of controllers by those of another build.
type UpgradeHow string

// The ways to upgrade.
const (
	UpgradeKill    UpgradeHow = "kill"    // all are killed, and only then the other build is installed
	UpgradeRolling UpgradeHow = "rolling" // it is installed while they run; their Deployments' rollouts end them
)

// Name names the build.
func (u *Upgrading) Name() string { return buildName(u.To) }

// buildName names a build in sentences.
func buildName(name string) string {
	if name == "" {
		return "the suite's own build"
	}
	return "the build " + name
}

// An upgrade does what a user does who applies the other version's manifests. What only the former version's manifests
// have stays.
var upgrade = ActionKind{
	Type:    Upgrade,
	Summary: "Install another build of the controllers, with its manifests, and wait until it runs.",
	Doc: "installs another of the suite's [builds](upgrades.md) and waits until only its controllers run; " +
		"`how` is `kill` (default) or `rolling`",
	Own: func() any { return &Upgrading{} },
	Check: func(c *ActionCheck) {
		checkBuildName(c.at.Field("to"), c.Suite, ownFields[Upgrading](c.Action).To)
	},
	Explain: func(a *Action) string {
		u := ownFields[Upgrading](a)
		if u.How == UpgradeRolling {
			return "install " + u.Name() + ", whose controllers take over one by one"
		}
		return "kill all controllers and install " + u.Name()
	},
	Object:  func(a *Action) string { return ownFields[Upgrading](a).To },
	Needs:   []Capability{InstallBuilds},
	Effects: func(a *Action) []Effect { return []Effect{ownFields[Upgrading](a)} },
}

// checkBuildName checks the name of a build; empty is the suite itself.
func checkBuildName(at *yamlfile.Place, s *Suite, name string) {
	if s == nil || name == "" {
		return
	}
	if _, ok := s.Builds[name]; !ok {
		at.Errorf("unknown build %q (%s)", name, suiteHas(s.BuildNames()))
	}
}

// Upgrades reports whether an action of the plan, or one of its own steps, installs another build.
func (p *Plan) Upgrades() bool {
	return AnyHas[*Upgrading](p.Actions) ||
		slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Upgrade != nil })
}

// LastBuild is the build that is installed when all actions have been carried out; empty: the suite itself.
func (p *Plan) LastBuild() string {
	last := p.Build
	for i := range p.Actions {
		if u := EffectOf[*Upgrading](&p.Actions[i]); u != nil {
			last = u.To
		}
	}
	return last
}

// Builds lists the builds of the suite that a run of the plan needs, its first one first; an empty name is the suite
// itself. Steps are those of its workload.
func (p *Plan) Builds(steps []Step) []string {
	all := []string{p.Build}
	add := func(name string) {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	for i := range p.Actions {
		if u := EffectOf[*Upgrading](&p.Actions[i]); u != nil {
			add(u.To)
		}
	}
	for i := range steps {
		if u := steps[i].Upgrade; u != nil {
			add(u.To)
		}
	}
	return all
}
