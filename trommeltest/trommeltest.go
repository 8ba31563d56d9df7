package trommeltest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/workload"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Verdict is the outcome of a run.
type Verdict = record.Verdict

// The verdicts that a test can expect.
const (
	Pass         = record.Pass
	Bug          = record.Bug
	Inconclusive = record.Inconclusive
)

// Harness runs plans of one suite. [Suite] and [New] make one. Its methods may be called concurrently.
type Harness struct {
	suite    *plan.Suite // as it was read or built
	settings settings

	mu        sync.Mutex
	workloads map[string]plan.Workload // of Go functions; none of them is in suite
	functions map[string]workload.Function
	mistakes  []error // of workloads; the next run reports them
}

// Suite reads a suite from a file, by default trommel.yaml in the directory if it names one. The path is relative to
// the package's directory. The options apply to all runs. A mistake in the suite ends the test; with -short the test is
// skipped. Nothing is built or started before the first run.
func Suite(tb testing.TB, file string, options ...Option) *Harness {
	tb.Helper()
	skip(tb)
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		file = filepath.Join(file, plan.SuiteFile)
	}
	suite, err := plan.LoadSuite(file)
	if err != nil {
		tb.Fatalf("trommeltest: %v", err)
	}
	return newHarness(tb, suite, options)
}

// New takes a suite that was built in Go; see also [Controller] and [FromEnvtest]. Fields that are left out get their
// defaults. The suite's paths are relative to the package's directory. The suite is not changed, and may be changed
// afterwards. Otherwise New does the same as [Suite].
func New(tb testing.TB, suite *plan.Suite, options ...Option) *Harness {
	tb.Helper()
	skip(tb)
	complete, err := completed(suite)
	if err != nil {
		tb.Fatalf("trommeltest: %v", err)
	}
	return newHarness(tb, complete, options)
}

func skip(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("trommeltest starts a control plane: skipped with -short")
	}
}

func newHarness(tb testing.TB, suite *plan.Suite, options []Option) *Harness {
	tb.Helper()
	h := &Harness{suite: suite, workloads: map[string]plan.Workload{}, functions: map[string]workload.Function{}}
	for _, o := range options {
		o(&h.settings)
	}
	if _, err := run.Choose(suite, h.settings.variant); err != nil {
		tb.Fatalf("trommeltest: %v", err)
	}
	return h
}

// builtInGo is the name of a suite in no file. Its path is in the directory that the suite's paths are relative to.
const builtInGo = "suite-built-in-go"

// completed returns the suite as if it had been read from a file.
func completed(suite *plan.Suite) (*plan.Suite, error) {
	text, err := plan.MarshalSuite(suite)
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	parsed, err := plan.ParseSuite(text, filepath.Join(dir, builtInGo))
	if mistakes := (plan.Errors)(nil); errors.As(err, &mistakes) {
		var lines []string
		for _, m := range mistakes {
			lines = append(lines, m.Message) // the lines and columns of that text say nothing to the caller
		}
		return nil, fmt.Errorf("the suite: %s", strings.Join(lines, "\n"))
	}
	return parsed, err
}

// Option changes how plans run: all plans of a harness, or one run.
type Option func(*settings)

type settings struct {
	variant  string
	fresh    bool
	trace    bool
	history  []string
	expect   Verdict // empty: Pass
	findings []string
}

// with returns the settings with further options.
func (s settings) with(options []Option) settings {
	s.history, s.findings = slices.Clone(s.history), slices.Clone(s.findings)
	for _, o := range options {
		o(&s)
	}
	return s
}

// Variant runs a variant of the suite instead of the plan's. A variant has a cluster of its own.
func Variant(name string) Option { return func(s *settings) { s.variant = name } }

// Fresh runs each plan on a cluster that is started for it, and stopped after it, instead of the one that the tests of
// the package share. This takes a few seconds more. The shared cluster is reset between runs, so as a rule both come to
// the same.
func Fresh() Option { return func(s *settings) { s.fresh = true } }

// Trace records everything that can be observed at the API servers and the controllers, not only what the plan needs.
func Trace() Option { return func(s *settings) { s.trace = true } }

// History also records every state of the objects of these types, for [Result.History]: resource keys such as
// "secret/default/*".
func History(keys ...string) Option {
	return func(s *settings) { s.history = append(s.history, keys...) }
}

// Expect says which verdict a plan must come to; another one fails the test. Without it that is [Pass].
//
// With [Bug] a plan becomes a regression test of a bug that is there: the test fails as soon as the bug is mended, or
// becomes another one. The findings, as for [Result.Finding], are then all that the run must find; without any, all
// bugs will do. A run with the bug whose plan was not carried out fails the test too, since its bug is not the plan's.
func Expect(verdict Verdict, findings ...string) Option {
	return func(s *settings) { s.expect, s.findings = verdict, findings }
}

// Controller is a controller that is built from a main package: a directory, or the import path of a package that can
// be built in the package's directory. Trommel builds it with its hooks. Without further fields it runs in a Deployment
// that Trommel generates, with all rights.
func Controller(name, mainPackage string) plan.Controller {
	b := &plan.Build{Package: mainPackage}
	if info, err := os.Stat(mainPackage); err == nil && info.IsDir() {
		b = &plan.Build{Dir: mainPackage}
	}
	return plan.Controller{Name: name, Build: b}
}

// FromEnvtest makes a suite of what a test with controller-runtime's envtest has: the CRDDirectoryPaths of its
// Environment, each a directory or a file, and the controller. Its workloads are Go functions, see [Harness.Workload].
// Unlike envtest it starts the real controller, as a process, and not a manager within the test.
func FromEnvtest(controller plan.Controller, crdDirectoryPaths ...string) *plan.Suite {
	s := &plan.Suite{Controllers: []plan.Controller{controller}}
	for _, path := range crdDirectoryPaths {
		s.Manifests = append(s.Manifests, plan.Manifest{Path: path})
	}
	return s
}

// withWorkloads returns the suite with the workloads that are Go functions, and these functions.
func (h *Harness) withWorkloads() (*plan.Suite, map[string]workload.Function, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := *h.suite
	s.Workloads = map[string]plan.Workload{}
	maps.Copy(s.Workloads, h.suite.Workloads)
	maps.Copy(s.Workloads, h.workloads)
	return &s, maps.Clone(h.functions), errors.Join(h.mistakes...)
}

// fileName is a test's name as the name of a file or directory.
func fileName(test string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>| `, r) {
			return '_'
		}
		return r
	}, test), ".")
}

// isNil reports whether a value that a caller has given is a nil pointer, function or interface.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Interface, reflect.Map:
		return r.IsNil()
	}
	return false
}
