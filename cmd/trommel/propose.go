package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/flags"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/buildinfo"
	"github.com/trommel-dev/trommel/internal/campaign"
	"github.com/trommel-dev/trommel/internal/campaign/propose"
	"github.com/trommel-dev/trommel/plan"
)

type proposeOptions struct {
	testOptions
	sample       string
	fields       []string
	differential bool
	write        bool
	out          string
}

func newProposeCommand(s output.Streams) *cobra.Command {
	o := proposeOptions{testOptions: testOptions{parallel: 1}}
	o.Learn, o.Repeat = 2, 1 // no flags of this command
	c := &cobra.Command{
		Use:   "propose [-c trommel.yaml]",
		Short: "Derive workloads from a sample and its definition",
		Long: `Propose prints workloads that you can edit and commit. It starts from a custom resource that the suite's
first workload applies, and from the schema of its CustomResourceDefinition. It proposes workloads that

  - create, delete and create the resource again
  - work with two resources at a time
  - change a field of the spec, change it and change it back, and change it before the last change is done

It tries the fields one by one, and keeps those to whose changes the controllers react. It runs each workload, and
prints those that pass.

Exit codes: 0 nothing found, 1 an operation has shown a bug, 2 usage, 4 could not run.`,
		Example: `  trommel propose
  trommel propose -c database-operator --field spec.replicas --write
  trommel propose --sample config/samples/database.yaml --differential --explain`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return proposeWorkloads(c.Context(), s, &o) },
	}
	f := c.Flags()
	flags.Suite(f, &o.SuiteFile, &o.Variant)
	f.StringSliceVar(&o.Workloads, "workload", nil,
		"`name` of the workload that applies the sample (default: the first)")
	f.StringVar(&o.sample, "sample", "", "`file` with the sample, instead of one of a workload")
	f.StringSliceVar(&o.fields, "field", nil,
		"try only this `field` of the spec, such as spec.replicas, and those below it")
	f.DurationVar(&o.Budget, "budget", 0, "try no new field after this `time` (default: no limit)")
	f.BoolVar(&o.differential, "differential", false,
		"compare the state after each change with that of an object that is created like that")
	f.BoolVar(&o.write, "write", false, "add the workloads to the suite file, instead of printing them")
	f.StringVar(&o.out, "out", "",
		"write a suite that has only the proposed workloads to this `file`, in the directory of the suite")
	f.BoolVar(&o.explain, "explain", false, "also list the fields without a workload, with the reason of each")
	f.StringVar(&o.dir, "dir", "",
		"`directory` for the records of the trial runs (default: trommel-runs/propose-<time>)")
	o.progress.Register(f)
	flags.FromSource(f)
	c.MarkFlagsMutuallyExclusive("write", "out")
	return c
}

// proposeWorkloads derives workloads. The error is an exit.Error.
func proposeWorkloads(ctx context.Context, s output.Streams, o *proposeOptions) error {
	if err := o.check(); err != nil {
		return exit.With(exit.Usage, err)
	}
	console, s, err := o.progress.Open(s)
	if err != nil {
		return err
	}
	defer console.Close()
	return o.inSession(ctx, console, "propose", func(c campaign.Config) error {
		config := propose.Config{
			Runner: c.Runners[0], Suite: c.Suite, Dir: c.Dir, Sample: o.sample, Fields: o.fields, Budget: o.Budget,
			Differential: o.differential, Workload: first(o.Workloads),
			Progress: func(format string, args ...any) { console.Info(fmt.Sprintf(format, args...)) },
		}
		result, err := propose.Run(ctx, config)
		if len(result.Workloads) > 0 {
			err = errors.Join(err, o.put(s, c.Suite, result))
		}
		o.describe(s, result)
		if err == nil && len(result.Findings) > 0 {
			return exit.With(exit.Bug, nil)
		}
		return err
	})
}

// check checks the flags against the suite, before anything is built.
func (o *proposeOptions) check() error {
	suite, _, err := o.suite()
	if err != nil {
		return err
	}
	if len(o.Workloads) > 1 {
		return errors.New("--workload: name one workload, which applies the sample")
	}
	if o.out != "" {
		if o.out, err = besideSuite(suite, o.out); err != nil {
			return err
		}
	}
	return propose.Check(suite, first(o.Workloads), o.sample)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// besideSuite is the path of a file that must be in the suite's directory, because the suite's paths are relative to
// it.
func besideSuite(suite *plan.Suite, file string) (string, error) {
	there, err := filepath.Abs(filepath.Dir(suite.File))
	if err != nil {
		return "", err
	}
	path, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	if filepath.Base(file) == file {
		path = filepath.Join(there, file)
	}
	if filepath.Dir(path) != there || filepath.Base(path) == filepath.Base(suite.File) {
		return "", fmt.Errorf("--out %s: it must be another file in %s, because the suite's paths are relative to "+
			"that directory", file, there)
	}
	return path, nil
}

// put writes the workloads to where the user wants them.
func (o *proposeOptions) put(s output.Streams, suite *plan.Suite, result *propose.Result) error {
	file := suite.File
	switch {
	case o.out != "":
		file = o.out
	case !o.write:
		block, err := propose.Render(result.Workloads, "")
		if err != nil {
			return err
		}
		fmt.Fprintln(s.Out, "workloads:")
		for line := range bytes.Lines(block) {
			fmt.Fprintf(s.Out, "  %s", line)
		}
		return nil
	}
	text, added, err := result.Text(suite, o.out != "")
	if err != nil {
		return err
	}
	if o.out != "" && !bytes.HasPrefix(text, []byte("# yaml-language-server")) {
		text = append([]byte(plan.EditorLine("Suite", buildinfo.Version())), text...)
	}
	if now, err := os.ReadFile(suite.File); err != nil {
		return err
	} else if o.write && !bytes.Equal(now, suite.Text()) {
		return fmt.Errorf("%s was changed in the meantime; it is left as it is", suite.File)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "%s: %d workloads\n", file, added)
	if there := len(result.Workloads) - added; there > 0 {
		fmt.Fprintf(s.Out, "%d are not added: workloads of the suite do the same\n", there)
	}
	return nil
}

// describe says what was found, from which workloads no plan can be made, and which fields have no workload.
func (o *proposeOptions) describe(s output.Streams, result *propose.Result) {
	if len(result.Findings) > 0 {
		fmt.Fprintln(s.Out, "findings, without any fault")
	}
	for _, f := range result.Findings {
		fmt.Fprintf(s.Out, "  %s\n    %s\n", f.What, f.Title)
		for _, line := range f.Lines {
			fmt.Fprintf(s.Out, "    %s\n", line)
		}
		for _, dir := range f.Records {
			fmt.Fprintf(s.Out, "    %s\n", dir)
		}
	}
	if result.Trouble != "" {
		fmt.Fprintf(s.Out, "the sample, without any fault\n  %s;\n  %s\n", result.Trouble, propose.TroubleAdvice)
	}
	if len(result.Planless) > 0 {
		fmt.Fprintln(s.Out, "workloads from which no plan can be made")
	}
	for _, d := range result.Planless {
		fmt.Fprintf(s.Out, "  %s: %s\n", d.Field, d.Reason)
	}
	fmt.Fprintf(s.Err, "%d workloads in %d runs, %d fields or changes without one", len(result.Workloads), result.Runs,
		len(result.Dropped))
	if !o.explain {
		fmt.Fprintln(s.Err, " (--explain lists them)")
		return
	}
	fmt.Fprintln(s.Err)
	for _, d := range result.Dropped {
		fmt.Fprintf(s.Out, "no workload: %s: %s\n", d.Field, d.Reason)
	}
}
