// Package list has the command that lists workloads, plans, patterns, runs and findings.
package list

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/completion"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/flags"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/planfiles"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/records"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/runsdir"
	"github.com/trommel-dev/trommel/internal/campaign/learn"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// NewCommand returns `trommel list`.
func NewCommand(s output.Streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List workloads, plans, patterns, runs or findings",
		Long: `List shows what there is to run, and what was run. It prints a table; -o wide has more columns,
-o name only the names, one a line, and -o json and -o yaml everything.`,
		Example: `  trommel list workloads
  trommel list runs trommel-runs/test-20260102-150405 -o wide
  trommel list patterns -o name`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newListPatternsCommand(s), newListWorkloadsCommand(s), newListPlansCommand(s), newListRunsCommand(s),
		newListFindingsCommand(s))
	return c
}

// listedPattern is a pattern as it is listed.
type listedPattern struct {
	Name      string `json:"name"`
	Finds     string `json:"finds"`
	OnRequest bool   `json:"onRequest"`
}

func newListPatternsCommand(s output.Streams) *cobra.Command {
	list := output.List[listedPattern]{
		Columns: []output.Column[listedPattern]{
			{Title: "NAME", Text: func(p listedPattern) string { return p.Name }},
			{Title: "ON REQUEST", Text: func(p listedPattern) string { return yes(p.OnRequest) }, Wide: true},
			{Title: "FINDS", Text: func(p listedPattern) string { return p.Finds }},
		},
		Name: func(p listedPattern) string { return p.Name },
	}
	var format output.Format
	c := &cobra.Command{
		Use:   "patterns",
		Short: "List the patterns of trommel test and trommel generate",
		Long: "Patterns lists the kinds of faults that plans are generated for. Those on request must be named with " +
			"--pattern.",
		Example: "  trommel list patterns -o wide",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			var all []listedPattern
			for _, p := range pattern.Patterns() {
				all = append(all, listedPattern{p.Name, p.Finds, p.OnRequest})
			}
			return exit.IfUnprinted(list.Print(s.Out, format, all))
		},
	}
	format.Register(c)
	return c
}

// listedWorkload is a workload as it is listed.
type listedWorkload struct {
	Name    string   `json:"name"`
	Steps   []string `json:"steps"`             // their names, or what they do
	Command []string `json:"command,omitempty"` // instead of steps
	Learned bool     `json:"learned"`           // there is a baseline, of today's suite or an earlier one
}

func newListWorkloadsCommand(s output.Streams) *cobra.Command {
	list := output.List[listedWorkload]{
		Columns: []output.Column[listedWorkload]{
			{Title: "NAME", Text: func(w listedWorkload) string { return w.Name }},
			{Title: "STEPS", Text: func(w listedWorkload) string { return strconv.Itoa(len(w.Steps)) }},
			{Title: "LEARNED", Text: func(w listedWorkload) string { return yes(w.Learned) }},
			{Title: "WHAT IT DOES", Wide: true, Text: func(w listedWorkload) string {
				return strings.Join(append(slices.Clone(w.Steps), w.Command...), "; ")
			}},
		},
		Name: func(w listedWorkload) string { return w.Name }, None: "the suite has no workloads",
	}
	var format output.Format
	var controller, variant string
	c := &cobra.Command{
		Use:   "workloads",
		Short: "List the workloads of a suite",
		Long: `Workloads lists the workloads of a suite, the number of their steps, and whether a baseline was
learned where trommel test has it.`,
		Example: "  trommel list workloads -c database-operator",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			file, err := flags.SuiteFile(controller)
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			suite, err := plan.LoadSuite(file)
			if err == nil && variant != "" {
				suite, err = suite.WithVariant(variant)
			}
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			dir, err := runsdir.Baselines(suite, variant)
			if err != nil {
				return exit.With(exit.CannotRun, err)
			}
			var all []listedWorkload
			for _, name := range slices.Sorted(maps.Keys(suite.Workloads)) {
				w := suite.Workloads[name]
				each := listedWorkload{Name: name, Steps: []string{}, Command: w.Command}
				for i := range w.Steps {
					each.Steps = append(each.Steps, stepText(&w.Steps[i]))
				}
				_, err := os.Stat(learn.BaselineFile(dir, name))
				each.Learned = err == nil
				all = append(all, each)
			}
			return exit.IfUnprinted(list.Print(s.Out, format, all))
		},
	}
	flags.Suite(c.Flags(), &controller, &variant)
	format.Register(c)
	return c
}

// listedPlan is a plan as it is listed.
type listedPlan struct {
	Name     string   `json:"name"`
	File     string   `json:"file"`
	Workload string   `json:"workload,omitempty"` // empty: the plan has steps of its own
	Variant  string   `json:"variant,omitempty"`
	Actions  []string `json:"actions"`
}

func newListPlansCommand(s output.Streams) *cobra.Command {
	list := output.List[listedPlan]{
		Columns: []output.Column[listedPlan]{
			{Title: "NAME", Text: func(p listedPlan) string { return p.Name }},
			{Title: "WORKLOAD", Text: func(p listedPlan) string { return output.OrDash(p.Workload) }},
			{Title: "ACTIONS", Text: func(p listedPlan) string { return strconv.Itoa(len(p.Actions)) }},
			{Title: "FILE", Text: func(p listedPlan) string { return p.File }},
			{Title: "VARIANT", Text: func(p listedPlan) string { return output.OrDash(p.Variant) }, Wide: true},
			{Title: "WHAT IT DOES", Wide: true, Text: func(p listedPlan) string {
				return strings.Join(p.Actions, "; ")
			}},
		},
		Name: func(p listedPlan) string { return p.File }, None: "there are no plans",
	}
	var format output.Format
	c := &cobra.Command{
		Use:   "plans [FILE|DIR...]",
		Short: "List plans",
		Long: `Plans lists the plans in directories, without those in run records; without arguments those in
the current directory but not in trommel-runs. A name, as -o name prints it, is the plan's file. A plan with mistakes
is left out and reported, with exit code 2.`,
		Example: `  trommel list plans
  trommel list plans trommel-runs/generate-20260102-150405/plans -o wide`,
		ValidArgsFunction: completion.Files,
		RunE: func(_ *cobra.Command, args []string) error {
			files, err := plansToList(args)
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			var all []listedPlan
			var wrong []error
			for _, file := range files {
				p, err := plan.Load(file)
				if err != nil {
					wrong = append(wrong, err)
					continue
				}
				each := listedPlan{p.TestName, file, p.Workload, p.Variant, []string{}}
				for i := range p.Actions {
					each.Actions = append(each.Actions, p.Actions[i].String())
				}
				all = append(all, each)
			}
			err = exit.IfUnprinted(list.Print(s.Out, format, all))
			if err == nil && len(wrong) > 0 {
				err = exit.With(exit.Usage, errors.Join(wrong...))
			}
			return err
		},
	}
	format.Register(c)
	return c
}

// plansToList are the plans in the arguments, or those of the current directory that were not generated.
func plansToList(args []string) ([]string, error) {
	given := len(args) > 0
	if !given {
		args = []string{"."}
	}
	var all []string
	for _, arg := range args {
		files, err := planfiles.Find([]string{arg})
		if err != nil && given {
			return nil, err
		}
		all = append(all, files...)
	}
	return slices.DeleteFunc(all, func(file string) bool {
		kind, err := planfiles.Kind(file)
		return err == nil && kind == "Suite" || !given && strings.HasPrefix(file, runsdir.Name+"/")
	}), nil
}

// listedRun is a run as it is listed.
type listedRun struct {
	Record   string         `json:"record"` // its directory
	Plan     string         `json:"plan"`
	Variant  string         `json:"variant,omitempty"`
	Verdict  record.Verdict `json:"verdict"`
	Reason   string         `json:"reason,omitempty"`
	Started  time.Time      `json:"started,omitzero"`
	Seconds  float64        `json:"seconds"` // that it took, by the machine's clock
	Findings int            `json:"findings"`
}

// unfinishedRun is the verdict of a run that has not ended, or was killed.
const unfinishedRun record.Verdict = "unfinished"

func newListRunsCommand(s output.Streams) *cobra.Command {
	list := output.List[listedRun]{
		Columns: []output.Column[listedRun]{
			{Title: "PLAN", Text: func(r listedRun) string { return output.OrDash(r.Plan) }},
			{Title: "VERDICT", Text: func(r listedRun) string { return string(r.Verdict) }},
			{Title: "FINDINGS", Text: func(r listedRun) string { return strconv.Itoa(r.Findings) }},
			{Title: "STARTED", Text: func(r listedRun) string {
				if r.Started.IsZero() {
					return "-"
				}
				return wording.Ago(time.Since(r.Started))
			}},
			{Title: "RECORD", Text: func(r listedRun) string { return r.Record }},
			{Title: "VARIANT", Text: func(r listedRun) string { return output.OrDash(r.Variant) }, Wide: true},
			{Title: "TOOK", Wide: true, Text: func(r listedRun) string { return fmt.Sprintf("%.1fs", r.Seconds) }},
			{Title: "REASON", Wide: true, Text: func(r listedRun) string {
				return output.OrDash(wording.FirstLine(r.Reason))
			}},
		},
		Name: func(r listedRun) string { return r.Record }, None: "there are no runs",
	}
	var format output.Format
	c := &cobra.Command{
		Use:   "runs [DIR...]",
		Short: "List run records",
		Long: `Runs lists the run records in directories, the newest first; without arguments those in trommel-runs,
with the runs of campaigns. A name, as -o name prints it, is the directory of the record.`,
		Example: `  trommel list runs
  trommel list runs trommel-runs/test-20260102-150405 -o json`,
		ValidArgsFunction: completion.Records,
		RunE: func(_ *cobra.Command, args []string) error {
			all, _, err := runsToList(args)
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			return exit.IfUnprinted(list.Print(s.Out, format, all))
		},
	}
	format.Register(c)
	return c
}

// listedFinding is a finding of a run as it is listed.
type listedFinding struct {
	record.Finding
	Plan   string `json:"plan"`
	Record string `json:"record"`
}

func newListFindingsCommand(s output.Streams) *cobra.Command {
	list := output.List[listedFinding]{
		Columns: []output.Column[listedFinding]{
			{Title: "PLAN", Text: func(f listedFinding) string { return f.Plan }},
			{Title: "SEVERITY", Text: func(f listedFinding) string { return string(f.Severity) }},
			{Title: "JUDGE", Text: func(f listedFinding) string { return f.Judge }},
			{Title: "FINDING", Text: func(f listedFinding) string { return wording.FirstLine(f.Title) }},
			{Title: "RECORD", Text: func(f listedFinding) string { return f.Record }, Wide: true},
		},
		Name: func(f listedFinding) string { return wording.FirstLine(f.Title) }, None: "there are no findings",
	}
	var format output.Format
	c := &cobra.Command{
		Use:   "findings [DIR...]",
		Short: "List the findings of run records",
		Long: `Findings lists what the runs in directories have found, the newest runs first; without arguments those in
trommel-runs. It lists single runs: whether a finding comes every time, the summary of trommel test says.`,
		Example: `  trommel list findings
  trommel list findings trommel-runs/test-20260102-150405 -o wide`,
		ValidArgsFunction: completion.Records,
		RunE: func(_ *cobra.Command, args []string) error {
			_, all, err := runsToList(args)
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			return exit.IfUnprinted(list.Print(s.Out, format, all))
		},
	}
	format.Register(c)
	return c
}

// runsToList are the runs in directories, or those in trommel-runs, and their findings; the newest first. Of a record
// only the small files are read.
func runsToList(dirs []string) ([]listedRun, []listedFinding, error) {
	if len(dirs) == 0 {
		if _, err := os.Stat(runsdir.Name); errors.Is(err, fs.ErrNotExist) {
			return nil, nil, nil
		}
		dirs = []string{runsdir.Name}
	}
	names, err := records.In(dirs)
	if err != nil && !(len(dirs) == 1 && dirs[0] == runsdir.Name) {
		return nil, nil, err
	}
	var runs []listedRun
	found := map[string][]record.Finding{}
	for _, dir := range names {
		var meta record.Meta
		var findings []record.Finding
		for file, to := range map[string]any{record.MetaFile: &meta, record.FindingsFile: &findings} {
			data, err := os.ReadFile(filepath.Join(dir, file))
			if err == nil {
				err = json.Unmarshal(data, to)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, nil, fmt.Errorf("%s: %w", filepath.Join(dir, file), err)
			}
		}
		findings = slices.DeleteFunc(findings, func(f record.Finding) bool { return f.Severity == record.SeverityNote })
		found[dir] = findings
		each := listedRun{dir, meta.Plan, meta.Variant, meta.Verdict, meta.Reason, meta.Began(), meta.Took().Seconds(),
			len(findings)}
		if each.Verdict == "" {
			each.Verdict, each.Seconds = unfinishedRun, 0
		}
		runs = append(runs, each)
	}
	slices.SortStableFunc(runs, func(a, b listedRun) int { return b.Started.Compare(a.Started) })
	var all []listedFinding
	for _, r := range runs {
		for _, f := range found[r.Record] {
			all = append(all, listedFinding{f, r.Plan, r.Record})
		}
	}
	return runs, all, nil
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// stepText is a step's name, or else what it does.
func stepText(s *plan.Step) string {
	switch {
	case s.Name != "":
		return s.Name
	case s.Apply != nil && s.Apply.File != "":
		return "apply " + s.Apply.File
	case s.Apply != nil:
		return "apply " + wording.Count(len(s.Apply.Objects), "object")
	case s.Delete != nil:
		return "delete " + s.Delete.ResourceKey.String()
	case s.Patch != nil:
		return "patch " + s.Patch.ResourceKey.String()
	case s.Wait != nil:
		return "wait"
	case s.Exec != nil:
		return "exec"
	case s.Sleep > 0:
		return "sleep " + s.Sleep.String()
	case s.AdvanceTime > 0:
		return "advance time " + s.AdvanceTime.String()
	case s.Upgrade != nil:
		return "upgrade to " + s.Upgrade.Name()
	}
	return "call " + s.Go
}
