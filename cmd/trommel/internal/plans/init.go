package plans

import (
	"context"
	"errors"
	"fmt"
	goversion "go/version"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/buildinfo"
	"github.com/trommel-dev/trommel/internal/doctor"
	"github.com/trommel-dev/trommel/internal/run/preflight"
	"github.com/trommel-dev/trommel/internal/scaffold"
	"github.com/trommel-dev/trommel/plan"
)

// NewInitCommand returns `trommel init`.
func NewInitCommand(s output.Streams) *cobra.Command {
	var force, check, goTest bool
	c := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a first suite and a first plan for a controller's repository",
		Long: `Init looks through a controller's repository (main packages, kustomizations, charts, custom resource
definitions, samples) and writes a commented trommel.yaml and a first plan there. If several ways to install the
controller can be applied, it takes the one that the Makefile deploys. It does not overwrite existing files. It adds
trommel-runs/ to .gitignore, because run records can contain Secrets.

With --go-test it also writes trommel-tests, a Go module with a test that runs the plans. If there is a suite already,
it writes only that.

With --check it writes nothing. It shows in a table what Trommel needs and what this machine has: Go, memory, disk,
open files, what is built already, and about how long the first build takes here. Exit code 4 says that something is
missing.`,
		Example: `  trommel init
  trommel init --check
  trommel init --go-test && cd trommel-tests && go mod tidy && go test -timeout 30m
  trommel init ../my-operator && trommel -p ../my-operator/trommel-plans/restart.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			if check {
				switch missing, err := doctor.Check(c.Context(), s.Out, dir); {
				case err != nil:
					return exit.With(exit.CannotRun, err)
				case missing:
					return exit.With(exit.CannotRun, nil)
				}
				return nil
			}
			if _, err := os.Stat(filepath.Join(dir, plan.SuiteFile)); err != nil || force || !goTest {
				if err := initialize(c.Context(), s, dir, force); err != nil {
					return exit.With(exit.Usage, err)
				}
			}
			if goTest {
				if err := writeGoTest(s, dir, force); err != nil {
					return exit.With(exit.Usage, err)
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&force, "force", false, "overwrite existing files")
	c.Flags().BoolVar(&goTest, "go-test", false, "also write a Go module with a test that runs the plans")
	c.Flags().BoolVar(&check, "check", false, "write nothing; show what Trommel needs and what this machine has")
	return c
}

func initialize(ctx context.Context, s output.Streams, dir string, force bool) error {
	slow := showSlow(s.Err, initPatience)
	defer slow.stop()
	s.Err = slow
	r, err := inspect(ctx, dir, slow.begin)
	if err != nil {
		return err
	}
	files, err := r.Files()
	if err != nil {
		return err
	}
	for name, text := range files {
		kind := "TestPlan"
		if name == plan.SuiteFile {
			kind = "Suite"
		}
		files[name] = plan.EditorLine(kind, buildinfo.Version()) + text
	}
	if err := writeFiles(s, dir, files, force); err != nil {
		return err
	}
	ignore, err := scaffold.Ignore(dir)
	if err != nil {
		return err
	}
	if ignore != "" {
		if err := os.WriteFile(filepath.Join(dir, scaffold.IgnoreFile), []byte(ignore), 0o644); err != nil {
			return err
		}
		fmt.Fprintln(s.Out, filepath.Join(dir, scaffold.IgnoreFile))
	}
	for _, note := range r.Notes {
		fmt.Fprintf(s.Err, "to do: %s\n", note)
	}
	// Read the written files as `trommel run` does.
	slow.begin("checking the suite")
	suite, err := plan.LoadSuite(filepath.Join(dir, plan.SuiteFile))
	if err != nil {
		return fmt.Errorf("the suite needs manual changes:\n%w", err)
	}
	if _, err := (&preflight.Suites{Warnings: s.Err}).CheckObjects(suite); err != nil {
		return fmt.Errorf("the suite needs manual changes:\n%w", err)
	}
	if _, err := plan.LoadWith(filepath.Join(dir, scaffold.PlanFile), suite); err != nil {
		return fmt.Errorf("the plan needs manual changes:\n%w", err)
	}
	fmt.Fprintf(s.Err, "next: trommel -p %s\n", filepath.Join(dir, scaffold.PlanFile))
	if r.Sample.Key != "" { // what propose needs; propose.Check would build the kustomization once more
		fmt.Fprintf(s.Err, "more workloads: trommel propose -c %s --write\n", dir)
	}
	return nil
}

// inspect is scaffold.Inspect, which reads files only. It returns when the context ends, and leaves the reading to the
// process that ends then.
func inspect(ctx context.Context, dir string, stage func(string)) (*scaffold.Repository, error) {
	type result struct {
		found *scaffold.Repository
		err   error
	}
	done := make(chan result, 1)
	go func() {
		found, err := scaffold.Inspect(dir, stage)
		done <- result{found, err}
	}()
	select {
	case r := <-done:
		return r.found, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// initPatience is how long init says nothing.
const initPatience = 3 * time.Second

// slowWork says what is being done once that has taken long. Others write to its writer through it. It is safe for
// concurrent use.
type slowWork struct {
	mu    sync.Mutex
	out   io.Writer
	what  string // "": it was stopped
	late  bool
	timer *time.Timer
}

func showSlow(out io.Writer, after time.Duration) *slowWork {
	w := &slowWork{out: out, what: "starting"}
	w.timer = time.AfterFunc(after, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.what != "" {
			w.late = true
			fmt.Fprintf(w.out, "init: %s\n", w.what)
		}
	})
	return w
}

// begin says what is done from now on.
func (w *slowWork) begin(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.what = what; w.late {
		fmt.Fprintf(w.out, "init: %s\n", what)
	}
}

// stop ends the messages.
func (w *slowWork) stop() {
	w.timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.what = ""
}

// Write writes to the writer.
func (w *slowWork) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(text)
}

// writeGoTest writes a module with a Go test that runs the plans, and says how to run it.
func writeGoTest(s output.Streams, dir string, force bool) error {
	files, err := scaffold.GoTest(dir, buildinfo.Version(), goVersion())
	if err != nil {
		return err
	}
	if err := writeFiles(s, dir, files, force); err != nil {
		return err
	}
	words := []string{"cd " + filepath.Join(dir, scaffold.GoTestDir)}
	if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
		words = append(words, "export GOWORK=off") // the module is none of the workspace's
	}
	if !scaffold.Released(buildinfo.Version()) {
		words = append(words, "go get github.com/trommel-dev/trommel@latest")
	}
	words = append(words, "go mod tidy", "go test -timeout 30m")
	fmt.Fprintf(s.Err, "go test: %s\n", strings.Join(words, " && "))
	return nil
}

// goVersion is the release of Go that Trommel was built with, without its last number, as go.mod files have it.
func goVersion() string {
	return strings.TrimPrefix(goversion.Lang(runtime.Version()), "go") + ".0"
}

// writeFiles writes files in dir, by path relative to it, and prints their paths. It overwrites none unless force is
// set.
func writeFiles(s output.Streams, dir string, files map[string]string, force bool) error {
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
		if err := os.WriteFile(path, []byte(files[name]), 0o644); err != nil {
			return err
		}
		fmt.Fprintln(s.Out, path)
	}
	return nil
}
