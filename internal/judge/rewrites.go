package judge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// rewrites notes what an upgrade changes in objects at rest, although no user has asked for it. Another template of
// pods replaces all of them.
type rewrites struct{}

func (rewrites) Is() Traits { return is("rewrites", eachCluster, whatHappened) }

func (rewrites) Judge(_ context.Context, e Evidence) ([]record.Finding, error) {
	var all []record.Finding
	for _, u := range e.upgradesAtRest() {
		f, err := e.follower()
		if err != nil {
			return nil, err
		}
		lines, replaced := changedSince(f, u)
		if len(lines) == 0 {
			continue
		}
		title := fmt.Sprintf("the upgrade %s changes %s at rest", u.what, wording.Count(len(lines), "object"))
		if replaced > 0 {
			title += fmt.Sprintf(", and replaces the pods of %d of them", replaced)
		}
		all = append(all, record.Finding{
			Severity: record.SeverityNote, Judge: record.JudgeUpgrade, Subject: u.what, Time: u.began,
			Title: title + ": " + lines[0], Detail: strings.Join(lines, "\n"),
		})
	}
	return all, nil
}

// upgraded is an upgrade at which everything was at rest.
type upgraded struct {
	what       string // "to the build v2"
	began, end time.Time
}

// upgradesAtRest lists the upgrades of the plan that began when the workload was done, and those of the workload, whose
// next step begins when they are done.
func (e Evidence) upgradesAtRest() (all []upgraded) {
	for _, a := range e.Actions {
		if a.Index >= len(e.Plan.Actions) || a.Error != "" || a.Began.IsZero() || a.Began.Before(e.Meta.WorkloadEnd) {
			continue
		}
		if u := plan.EffectOf[*plan.Upgrading](&e.Plan.Actions[a.Index]); u != nil {
			all = append(all, upgraded{"to " + u.Name(), a.Began, e.Meta.Observed})
		}
	}
	for i, s := range e.Meta.Steps {
		if s.Upgrade == "" {
			continue
		}
		end := e.Meta.WorkloadEnd
		if i+1 < len(e.Meta.Steps) {
			end = e.Meta.Steps[i+1].Started
		}
		all = append(all, upgraded{"to " + s.Upgrade, s.Started, end})
	}
	return all
}

// changedSince says, a line for each object, what was changed in the course of an upgrade, and of how many objects the
// pods are replaced. What an upgrade is meant to change is not among that: the controllers' own Deployments, which the
// follower leaves out, and what the manifests themselves say.
func changedSince(f *facts.Follower, u upgraded) (lines []string, replaced int) {
	changes, objects := f.Changes(), f.Objects()
	fields := map[facts.Key][]string{}
	what := map[facts.Key]string{}
	var keys []facts.Key
	for i := range changes {
		c := &changes[i]
		if c.Time.Before(u.began) || c.Time.After(u.end) || c.Installs() ||
			c.Event == record.Deleted && c.By == "" && objects[c.Key].OfManifests() {
			continue
		}
		names := slices.DeleteFunc(baseline.Fields(c), func(name string) bool {
			return strings.HasPrefix(name, "status")
		})
		if c.Event == record.Updated && len(names) == 0 {
			continue
		}
		if _, known := what[c.Key]; !known {
			keys = append(keys, c.Key)
		}
		what[c.Key] = c.Event
		for _, name := range names {
			if !slices.Contains(fields[c.Key], name) {
				fields[c.Key] = append(fields[c.Key], name)
			}
		}
	}
	for _, key := range keys {
		line := fmt.Sprintf("%s is %s", key, what[key])
		if names := fields[key]; what[key] == record.Updated {
			line += " (" + strings.Join(names, ", ")
			template := func(name string) bool { return strings.HasPrefix(name, "spec.template.") }
			if slices.ContainsFunc(names, template) &&
				slices.Contains([]string{"deployment.apps", "statefulset.apps", "daemonset.apps"}, key.Type()) {
				line += ": its pods are replaced"
				replaced++
			}
			line += ")"
		}
		lines = append(lines, line)
	}
	return lines, replaced
}
