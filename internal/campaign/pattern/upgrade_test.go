package pattern

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Plans of upgrades begin with the former build and strike at its writes; what is left of them without their actions is
// the upgrade at rest, and of that one the latter build alone.
func TestUpgrades(t *testing.T) {
	file := filepath.Join(t.TempDir(), plan.SuiteFile)
	text := "controllers: [{name: op, build: {dir: .}}]\nworkloads: {w: [{sleep: 1s}]}\nbuilds: {old: {}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := plan.LoadSuite(file)
	if err != nil {
		t.Fatal(err)
	}
	former := baselines([]facts.Change{
		change("", wire.Create, "configmap/default/a", record.Created, nil, object{}),
		change("op", wire.Create, "secret/default/a", record.Created, nil, object{}),
		change("op", wire.Create, "service/default/a", record.Created, nil, object{}),
	})
	for _, tt := range []struct {
		pattern, from, to string
	}{{Upgrade, "old", ""}, {Rollback, "", "old"}} {
		t.Run(tt.pattern, func(t *testing.T) {
			var got []string
			var rest, at *Candidate
			all := Upgrades(s, tt.pattern, tt.from, tt.to, former)
			for i := range all {
				c := &all[i]
				if c.Plan == nil {
					t.Fatalf("%s: %s", c.Why, c.Dropped)
				}
				if c.Plan.Build != tt.from || c.Plan.LastBuild() != tt.to || c.Pattern != tt.pattern {
					t.Errorf("%s: from %q to %q", c.Plan.TestName, c.Plan.Build, c.Plan.LastBuild())
				}
				u := plan.EffectOf[*plan.Upgrading](&c.Plan.Actions[0])
				d := c.Plan.Actions[0].Trigger.Definitions
				text := string(u.How) + " at " + d[0].Condition.ResourceKey.String()
				if len(d) > 1 {
					text += " and later"
				}
				if c.Plan.Actions[0].Async != (u.How == plan.UpgradeRolling && len(d) == 1) {
					t.Errorf("%s: async %t", text, c.Plan.Actions[0].Async)
				}
				switch text {
				case "kill at service/default/a and later":
					rest = c
				case "kill at secret/default/a":
					at = c
				}
				got = append(got, text)
			}
			slices.Sort(got)
			want := []string{
				"kill at secret/default/a", "kill at service/default/a", "kill at service/default/a and later",
				"rolling at service/default/a", "rolling at service/default/a and later",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatal(diff)
			}
			if at.Without != rest.Plan {
				t.Errorf("without its actions: %+v", at.Without)
			}
			if alone := rest.Without; alone == nil || len(alone.Actions) > 0 || alone.Build != tt.to {
				t.Errorf("the upgrade at rest without its actions: %+v", alone)
			}
		})
	}
	// What all upgrades of a workload have in common is tried first, of one workload after the other.
	both := [][]Candidate{Upgrades(s, Upgrade, "old", "", former), Upgrades(s, Upgrade, "old", "", former)}
	first := map[int]int{}
	for i, p := range Order(both...) {
		if both[p.Workload][p.Index].AtRest() {
			first[p.Workload] = i
		}
	}
	if first[0] != 0 || first[1] == 0 || first[1] > 5 {
		t.Errorf("upgrades at rest come at %v of %d plans", first, len(both[0])+len(both[1]))
	}
	if all := Upgrades(s, Upgrade, "old", "", baselines(former.Changes[:1])); all != nil {
		t.Errorf("a build that does nothing: %+v", all)
	}
	for _, c := range Generate(s, former) {
		if c.Pattern == Upgrade || c.Pattern == Rollback {
			t.Errorf("without a baseline of another build: %s", c.Why)
		}
	}
}
