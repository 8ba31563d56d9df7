// Package plans has the commands that write, check and show plans and suites without running them.
package plans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/flags"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/planfiles"
	"github.com/trommel-dev/trommel/internal/campaign"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/run/clientgo"
	"github.com/trommel-dev/trommel/internal/run/preflight"
	"github.com/trommel-dev/trommel/internal/scaffold"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// validateOptions are the flags of `trommel validate`.
type validateOptions struct {
	plans      []string
	controller string
	suite      string
	cluster    string
}

// NewValidateCommand returns `trommel validate`.
func NewValidateCommand(s output.Streams) *cobra.Command {
	var o validateOptions
	c := &cobra.Command{
		Use:   "validate [FILE...]",
		Short: "Check plans and suites without running them",
		Long: `Validate reads plans and suites and reports every mistake with its line and column. It checks a plan
against its suite, if there is one: that of -c, the plan's own, or the nearest trommel.yaml above it. In a directory it
checks every YAML file that is a plan or a suite. Sieve's plans count as plans. Without a file it checks the suite of
-c, or else the nearest one, and the plans in the directory trommel-plans beside it.

For a suite it also reads the manifests, builds kustomizations and charts, and checks their objects and those of the
workloads: custom resources against the definitions in the manifests, Kubernetes' own types for unknown and required
fields, selectors and base64. A field of the manifests that Kubernetes' own types do not have is only a warning. It
does not check what only a running cluster can check (webhooks, CEL rules).

The types of resource keys must be Kubernetes' own, cert-manager's or Trommel's, or be defined by the manifests or by
steps. One that a controller may define itself, because its role allows that, is only noted. With --cluster the types
are checked against that running cluster instead. Types that the suite's manifests define need not exist there yet.

Trommel run and trommel test check the same of what they need, before they build anything.

Exit codes: 0 no mistakes, 2 mistakes.`,
		Example: `  trommel validate
  trommel validate plans/
  trommel validate plans/ -c ../my-operator
  trommel validate plans/stale-deletion.yaml --cluster default`,
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if o.suite, err = flags.NamedSuite(o.controller, o.suite); err != nil {
				return exit.With(exit.Usage, err)
			}
			if args = append(args, o.plans...); len(args) == 0 {
				if args, err = withPlans(o.suite); err != nil {
					return exit.With(exit.Usage, err)
				}
			}
			return validateFiles(c.Context(), s, &o, args)
		},
	}
	c.Flags().StringArrayVarP(&o.plans, "plan", "p", nil, "plan `file` or directory, the same as an argument")
	flags.EitherSuite(c.Flags(), &o.controller, &o.suite, "that of each plan, or the nearest trommel.yaml above it")
	c.Flags().StringVar(&o.cluster, "cluster", "", "check resource types against the running cluster of this `name`")
	return c
}

// withPlans returns a suite, and the directory of plans that `trommel init` makes, if there are plans in it. An empty
// suite is the nearest one.
func withPlans(suite string) (_ []string, err error) {
	if suite == "" {
		if suite, err = plan.FindSuite(plan.SuiteFile); err != nil {
			return nil, err
		}
	}
	all := []string{suite}
	plans := filepath.Join(filepath.Dir(suite), filepath.Dir(scaffold.PlanFile))
	if _, err := os.Stat(plans); err != nil {
		return all, nil
	}
	if _, err := planfiles.Find([]string{plans}); !errors.Is(err, planfiles.ErrNone) {
		all = append(all, plans)
	}
	return all, nil
}

func validateFiles(ctx context.Context, s output.Streams, o *validateOptions, args []string) error {
	files, err := planfiles.Find(args)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	var client *objects.Client
	if o.cluster != "" {
		c, err := embedded.Attach(ctx, o.cluster)
		if err != nil {
			return exit.With(exit.CannotRun, err)
		}
		config, err := c.RESTConfig("")
		if err != nil {
			return exit.With(exit.CannotRun, err)
		}
		if client, err = objects.New(config); err != nil {
			return exit.With(exit.CannotRun, err)
		}
	}
	// Suites first: their mistakes are reported once, not for each of their plans.
	slices.SortStableFunc(files, func(a, b string) int {
		return cmp.Compare(order(a), order(b))
	})
	bad := 0
	v := &validator{options: o, client: client, suites: map[string]error{},
		read: preflight.Suites{ReadBuilds: true, Warnings: s.Err}}
	for _, file := range files {
		ok, err := v.validate(ctx, file)
		if err != nil {
			bad++
			fmt.Fprintln(s.Err, err)
			continue
		}
		fmt.Fprintf(s.Out, "%s: %s\n", file, ok)
	}
	if bad > 0 {
		return exit.With(exit.Usage, nil)
	}
	return nil
}

func order(file string) int {
	if filepath.Base(file) == plan.SuiteFile {
		return 0
	}
	return 1
}

// validator checks files.
type validator struct {
	options *validateOptions
	client  *objects.Client  // of the running cluster; nil: there is none
	suites  map[string]error // those that were checked: a suite's mistakes are reported once
	read    preflight.Suites
}

// validate checks one file and describes it.
func (v *validator) validate(ctx context.Context, file string) (string, error) {
	kind, err := plan.FileKind(file)
	if err != nil {
		return "", err
	}
	if filepath.Base(file) == plan.SuiteFile || kind == "Suite" {
		suite, err := plan.LoadSuite(file)
		if key, keyErr := filepath.Abs(file); keyErr == nil {
			v.suites[key] = err
		}
		if err != nil {
			return "", err
		}
		notes, err := v.read.CheckObjects(suite)
		more, buildsErr := v.read.CheckBuilds(ctx, suite)
		unknown, keysErr := v.checkResources(ctx, suite, nil, suite.CheckResources)
		notes = slices.Concat(notes, more, unknown)
		if err = errors.Join(err, buildsErr, campaign.CheckSkips(suite), keysErr); err != nil {
			return "", err
		}
		what := fmt.Sprintf("suite, %s, %s", wording.Count(len(suite.Controllers), "controller"),
			wording.Count(len(suite.Workloads), "workload"))
		for _, note := range notes {
			what += "\n  " + note
		}
		return what, nil
	}
	suiteFile := v.options.suite
	if suiteFile == "" {
		if suiteFile, err = plan.FindSuite(file); err != nil {
			if list := (plan.Errors{}); errors.As(err, &list) && list[0].Line > 0 {
				_, planErr := plan.Load(file)
				return "", errors.Join(planErr, err) // the plan names a missing suite
			}
			suiteFile = ""
		}
	}
	var suite *plan.Suite
	if suiteFile != "" {
		if suite, err = plan.LoadSuite(suiteFile); err != nil {
			_, planErr := plan.Load(file)
			key, _ := filepath.Abs(suiteFile)
			if _, told := v.suites[key]; told {
				err = fmt.Errorf("%s: not checked against its suite, which has mistakes", file)
			}
			v.suites[key] = err
			return "", errors.Join(planErr, err)
		}
	}
	p, err := plan.LoadWith(file, suite)
	if err != nil {
		return "", err
	}
	what := "plan, " + wording.Count(len(p.Actions), "action")
	if note := planfiles.Moved(p, suiteFile); note != "" && suite != nil && v.options.suite == "" {
		what += "\n  " + note
	}
	if suite == nil {
		what += "; no suite to check it against"
	}
	notes, err := v.checkResources(ctx, suite, p, p.CheckResources)
	if err != nil {
		return "", err
	}
	for _, line := range append(notes, staleness(p, suite)...) {
		what += "\n  " + line
	}
	return what, nil
}

// checkResources checks the resource types of a plan, or of a suite if there is no plan: with a cluster against the
// types that it serves or that the suite's manifests define, since it serves those once the manifests are applied;
// otherwise against those that are known without a cluster. The notes are about types that may or may not be there.
func (v *validator) checkResources(ctx context.Context, suite *plan.Suite, p *plan.Plan,
	check func(func(plan.ResourceKey) error) error) (notes []string, err error) {
	switch {
	case v.client == nil && suite == nil:
		return nil, nil
	case v.client == nil:
		return v.read.CheckKeys(ctx, suite, p, check)
	}
	var later []objects.Type
	if suite != nil {
		if list, _, err := v.read.Installed(suite); err == nil { // reported with the suite
			later = objects.Defined(list)
		}
	}
	return nil, check(func(key plan.ResourceKey) error {
		t, err := v.client.ResolveWith(ctx, key, later)
		if err != nil {
			return err
		}
		return objects.CheckKey(key, t)
	})
}

// staleness says to which controllers a plan that pauses an API server can show stale state.
func staleness(p *plan.Plan, suite *plan.Suite) []string {
	if suite == nil || !p.PausesAPIServer() {
		return nil
	}
	if p.Variant != "" {
		varied, err := suite.WithVariant(p.Variant)
		if err != nil {
			return nil // reported by Validate
		}
		suite = varied
	}
	q := *p
	q.Complete(suite)
	return clientgo.Staleness(&q, suite)
}

// loadPlan reads a plan for a command that only shows it. The suite completes the plan if there is one.
func loadPlan(file, suiteFile string) (*plan.Plan, *plan.Suite, error) {
	if file == "" {
		return nil, nil, exit.With(exit.Usage, errors.New("no plan given: -p plan.yaml"))
	}
	p, err := plan.Load(file)
	if err != nil {
		return nil, nil, exit.With(exit.Usage, err)
	}
	if suiteFile == "" {
		if suiteFile, err = plan.FindSuite(file); err != nil || isRecorded(file) {
			return p, nil, nil
		}
	}
	suite, err := plan.LoadSuite(suiteFile)
	if err == nil {
		p.Complete(suite)
		err = p.Validate(suite)
	}
	if err != nil {
		return nil, nil, exit.With(exit.Usage, err)
	}
	return p, suite, nil
}

// isRecorded reports whether a plan is in a run record: such a plan is complete, and the suite beside it lacks its
// files.
func isRecorded(file string) bool {
	_, err := os.Stat(filepath.Join(filepath.Dir(file), record.ObservationsFile))
	return err == nil
}
