package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/flags"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/records"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/runsdir"
	"github.com/trommel-dev/trommel/internal/bugs"
	"github.com/trommel-dev/trommel/internal/buildinfo"
	"github.com/trommel-dev/trommel/internal/wording"
)

// envMirror is the default of --mirror.
const envMirror = "TROMMEL_MIRROR"

// resultsFile has the last results, in the directory of the table.
const resultsFile = "results.json"

// bugsOptions are the flags of `trommel bugs run`.
type bugsOptions struct {
	verifyOptions
	table  string
	mirror string
	update bool
}

func newBugsCommand(s output.Streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "bugs",
		Short: "Show known bugs of real controllers, one command each",
		Long: `Bugs works with the table of known bugs: a folder for each bug, with the commit that has it, a suite,
plans that show it, and the finding that is expected. The table is examples/bugs in a clone of Trommel's repository.`,
		Example: `  trommel bugs list
  trommel bugs run jobset-deletes-finished-jobs`,
	}
	c.AddCommand(newBugsListCommand(s), newBugsRunCommand(s))
	return c
}

func tableFlag(c *cobra.Command, table *string) {
	c.Flags().StringVar(table, "table", filepath.Join("examples", "bugs"), "`directory` of the table")
}

func newBugsListCommand(s output.Streams) *cobra.Command {
	var table, format string
	c := &cobra.Command{
		Use:   "list",
		Short: "List the known bugs and what the last runs have shown",
		Long: `List lists the bugs of the table, and what the last run of each has shown. With -o markdown it writes the
page docs/bugs.md.`,
		Example: `  trommel bugs list
  trommel bugs list -o markdown > docs/bugs.md`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, results, err := readTable(table)
			if err != nil {
				return exit.With(exit.Usage, err)
			}
			switch format {
			case "markdown":
				missing, err := bugs.LoadMissing(table)
				if err != nil {
					return exit.With(exit.Usage, err)
				}
				return bugs.WritePage(s.Out, all, results, missing)
			case "text":
				return bugs.WriteList(s.Out, all, results)
			}
			return exit.With(exit.Usage, fmt.Errorf("unknown format %q (text, markdown)", format))
		},
	}
	tableFlag(c, &table)
	c.Flags().StringVarP(&format, "output", "o", "text", "`format`: text or markdown")
	return c
}

func readTable(dir string) ([]*bugs.Bug, bugs.Results, error) {
	all, err := bugs.Load(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w (the table is in a clone of Trommel's repository; --table names it)", err)
	}
	if err != nil {
		return nil, nil, err
	}
	if len(all) == 0 {
		return nil, nil, fmt.Errorf("%s: no folder in it has a %s", dir, bugs.File)
	}
	results, err := bugs.ReadResults(filepath.Join(dir, resultsFile))
	return all, results, err
}

func newBugsRunCommand(s output.Streams) *cobra.Command {
	o := bugsOptions{}
	c := &cobra.Command{
		Use:   "run [NAME...]",
		Short: "Check that known bugs are shown, and are gone where they are fixed",
		Long: `Run gets the source that has a bug, adds the bug's suite and plans, builds it and runs the plans. The bug
is shown if each run has the expected finding. If the table knows a source without the bug, no run of that may have
it. Without names it runs all bugs of the table.

Sources are kept in Trommel's cache. --mirror takes the place of https:// in the URLs of repositories.

Exit codes: 0 each bug is shown, and gone where it is fixed; 1 one is not; 2 usage; 4 could not run.`,
		Example: `  trommel bugs run jobset-deletes-finished-jobs
  trommel bugs run --mirror /srv/mirror/ --update`,
		RunE: func(c *cobra.Command, args []string) error { return o.runAll(c.Context(), s, args) },
	}
	f := c.Flags()
	tableFlag(c, &o.table)
	f.StringVar(&o.mirror, "mirror", os.Getenv(envMirror),
		"`base` that takes the place of https:// in the URLs of repositories (default: $"+envMirror+")")
	f.BoolVar(&o.update, "update", false, "write the results and reports into the table")
	f.IntVar(&o.Repeat, "repeat", 3, "how often each plan is run on each source")
	f.IntVar(&o.Learn, "runs", 3, "how often each workload is run without faults, to learn which fields differ anyway")
	f.IntVar(&o.parallel, "parallel", 0,
		"`number` of clusters that run plans side by side (default: one for each core, if there is memory for them)")
	f.StringVar(&o.dir, "dir", "", "`directory` for plans and run records (default: trommel-runs/bugs-<time>)")
	o.progress.Register(f)
	flags.FromSource(f)
	return c
}

// runAll runs the named bugs one after the other, and writes a line about each.
func (o *bugsOptions) runAll(ctx context.Context, s output.Streams, names []string) error {
	if o.Repeat < 1 || o.Learn < 2 {
		return exit.With(exit.Usage, errors.New("--runs must be at least 2, and --repeat at least 1"))
	}
	table, results, err := readTable(o.table)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	chosen, err := bugs.Choose(table, names)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	sources := bugs.Sources{Mirror: o.mirror}
	console, s, err := o.progress.Open(s)
	if err != nil {
		return err
	}
	defer console.Close()
	o.dir = cmp.Or(o.dir, filepath.Join(runsdir.Name, "bugs-"+time.Now().Format("20060102-150405")))
	good, failed := true, false
	for _, b := range chosen {
		r, err := o.show(ctx, console, sources, b)
		if ctx.Err() != nil {
			return exit.With(exit.CannotRun, fmt.Errorf("interrupted while it ran %s", b.Name))
		}
		if err != nil {
			failed = true // the others may run
			fmt.Fprintf(s.Out, "%s: could not run: %v\n", b.Name, err)
			continue
		}
		good = good && r.Good()
		fmt.Fprintf(s.Out, "%s: %s\n", b.Name, r)
		if r.Named != nil {
			fmt.Fprintf(s.Out, "  line: %s\n", r.Named)
		}
		if results[b.Name] = r; o.update {
			if err := results.Write(filepath.Join(o.table, resultsFile), table); err != nil {
				return exit.With(exit.CannotRun, err)
			}
		}
	}
	switch {
	case failed:
		return exit.With(exit.CannotRun, nil)
	case !good:
		return exit.With(exit.Bug, nil)
	}
	return nil
}

// show runs the plans of one bug on the source that has it and, if they show it, on the one without it.
func (o *bugsOptions) show(
	ctx context.Context, console *output.Console, sources bugs.Sources, b *bugs.Bug,
) (*bugs.Result, error) {
	began := time.Now()
	console.Info("getting the source of " + b.Project)
	with, err := sources.Get(ctx, b)
	if err != nil {
		return nil, err
	}
	without, err := sources.GetFixed(ctx, b)
	if err != nil {
		return nil, err
	}
	v := o.verifyOptions
	v.SuiteFile = with.Suite
	if without != nil {
		v.fixed = without.Dir
	}
	before, after, err := v.sides(with.Plans, len(with.Plans))
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(o.dir, b.Name)
	before.trace = true
	if err := v.run(ctx, console, b.Name, before, dir); err != nil {
		return nil, err
	}
	outcomes := before.found.Outcomes
	r := &bugs.Result{Date: began.Format(time.DateOnly), Trommel: buildinfo.Version()}
	r.Count(b, outcomes)
	recorded := filepath.Join(dir, before.name)
	if r.Shown == 0 && o.Repeat > 1 {
		// A plan that passes is run only once. A bug that comes now and then may come in further runs.
		before.name = "more"
		before.repeat(len(with.Plans), o.Repeat)
		before.plans = before.plans[len(with.Plans):]
		if err := v.run(ctx, console, b.Name+" again", before, dir); err != nil {
			return nil, err
		}
		r.Count(b, append(outcomes, before.found.Outcomes...))
		recorded = filepath.Join(dir, before.name)
	}
	if r.Of == 0 {
		return nil, fmt.Errorf("none of its plans has a result; %s: %s", outcomes[0].Plan, outcomes[0].Reason)
	}
	if after != nil && r.Shown > 0 {
		if err := v.run(ctx, console, b.Name+" at the fix", after, dir); err != nil {
			return nil, err
		}
		r.CountFixed(b, after.found.Outcomes)
	}
	r.Total = time.Since(began)
	if o.update && r.Good() {
		err := writeReport(ctx, b, r, recorded)
		if errors.Is(err, records.ErrNoBug) {
			console.Info("there is no report: the finding comes without the plan's actions, too")
		} else if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// writeReport writes the page for the project's bug tracker into the bug's folder, from the records of the runs.
func writeReport(ctx context.Context, b *bugs.Bug, r *bugs.Result, dir string) error {
	page, err := records.IssueAbout(ctx, dir, b.Finding.Matches)
	if err != nil {
		return err
	}
	page.Show = "git clone https://github.com/trommel-dev/trommel && cd trommel\n" +
		"go run ./cmd/trommel bugs run " + b.Name
	for _, c := range page.Record.Meta.Controllers {
		if b.Commit != "" {
			page.Commits[c.Name] = b.Commit
		}
	}
	if r.OfFixed > 0 {
		page.Fixed = fmt.Sprintf("It came in %d of %s of the source with a fix.", r.ShownFixed,
			wording.Count(r.OfFixed, "run"))
	}
	var text bytes.Buffer
	if err := page.Write(&text); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.Dir, bugs.ReportFile), text.Bytes(), 0o644)
}
