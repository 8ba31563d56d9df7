package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/internal/explore/propose"
	"github.com/trommel-dev/trommel/internal/scaffold"
	"github.com/trommel-dev/trommel/plan"
)

func newInitCommand(s streams) *cobra.Command {
	var force, check bool
	c := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a first suite and a first plan for a controller's repository",
		Long: `Init looks through a controller's repository (main packages, kustomizations, charts, custom resource
definitions, samples) and writes a commented trommel.yaml and a first plan there. It does not overwrite existing
files. It adds trommel-runs/ to .gitignore, because run records can contain Secrets.

With --check it writes nothing. It shows in a table what Trommel needs and what this machine has: Go, memory, disk,
open files, what is built already, and about how long the first build takes here. Exit code 4 says that something is
missing.`,
		Example: `  trommel init
  trommel init --check
  trommel init ../my-operator && trommel -p ../my-operator/trommel-plans/restart.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			if check {
				return checkMachine(c.Context(), s, dir)
			}
			if err := initialize(s, dir, force); err != nil {
				return &exitError{exitUsage, err}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&force, "force", false, "overwrite existing files")
	c.Flags().BoolVar(&check, "check", false, "write nothing; show what Trommel needs and what this machine has")
	return c
}

func initialize(s streams, dir string, force bool) error {
	r, err := scaffold.Inspect(dir)
	if err != nil {
		return err
	}
	files, err := r.Files()
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(files))
	if !force {
		var errs []error
		for _, name := range names {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				errs = append(errs, fmt.Errorf("%s already exists (--force overwrites it)", filepath.Join(dir, name)))
			}
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		kind := "TestPlan"
		if name == plan.SuiteFile {
			kind = "Suite"
		}
		if err := os.WriteFile(path, []byte(plan.EditorLine(kind, version())+files[name]), 0o644); err != nil {
			return err
		}
		fmt.Fprintln(s.out, path)
	}
	ignore, err := scaffold.Ignore(dir)
	if err != nil {
		return err
	}
	if ignore != "" {
		if err := os.WriteFile(filepath.Join(dir, scaffold.IgnoreFile), []byte(ignore), 0o644); err != nil {
			return err
		}
		fmt.Fprintln(s.out, filepath.Join(dir, scaffold.IgnoreFile))
	}
	for _, note := range r.Notes {
		fmt.Fprintf(s.err, "to do: %s\n", note)
	}
	// Read the written files as `trommel run` does.
	suite, err := plan.LoadSuite(filepath.Join(dir, plan.SuiteFile))
	if err != nil {
		return fmt.Errorf("the suite needs manual changes:\n%w", err)
	}
	if _, err := new(readSuites).checkObjects(suite); err != nil {
		return fmt.Errorf("the suite needs manual changes:\n%w", err)
	}
	if _, err := plan.LoadWith(filepath.Join(dir, scaffold.PlanFile), suite); err != nil {
		return fmt.Errorf("the plan needs manual changes:\n%w", err)
	}
	fmt.Fprintf(s.err, "next: trommel -p %s\n", filepath.Join(dir, scaffold.PlanFile))
	if propose.Check(suite, "", "") == nil {
		fmt.Fprintf(s.err, "more workloads: trommel propose -c %s --write\n", dir)
	}
	return nil
}
