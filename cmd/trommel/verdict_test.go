package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/record"
	"github.com/trommel-dev/trommel/trommeltest"
)

// failsAnyway is a plan whose workload also fails without the plan's actions: no controller writes what it waits for.
const failsAnyway = `testName: fails-anyway
steps:
- apply: {apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}
- wait:
    resourceKey: configmap/default/a
    condition: has(object.data) && "written" in object.data
    timeout: 2s
actions:
- actionType: restartController
  actionTarget: claim-operator
  trigger:
    definitions:
    - triggerName: created
      condition: {triggerType: onObjectCreation, resourceKey: configmap/default/a}
      observationPoint: {timing: afterAPIServerRecv, observeBy: apiserver-1}
`

// Regression: a plan whose workload fails anyway was inconclusive on the command line, and a bug in a Go test.
func TestAllCallersFindTheSameVerdict(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	suite, err := filepath.Abs("../../examples/testdata/claim-operator/trommel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	const plans = "plans"
	file := filepath.Join(plans, "fails-anyway.yaml")
	if err := os.Mkdir(plans, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(failsAnyway), 0o600); err != nil {
		t.Fatal(err)
	}
	command := func(args ...string) (code int, out string) {
		var both bytes.Buffer
		code = execute(t.Context(), args, output.Streams{In: &bytes.Buffer{}, Out: &both, Err: &both})
		return code, both.String()
	}
	verdictOf := func(t *testing.T, dir string) record.Verdict {
		t.Helper()
		r, err := record.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		return r.Meta.Verdict
	}
	const want = record.Inconclusive
	t.Run("trommel run", func(t *testing.T) {
		code, out := command("run", file, "-c", suite, "--record", "run")
		if got := verdictOf(t, "run"); code != exit.Inconclusive || got != want {
			t.Errorf("exit code %d, verdict %s, want %s\n%s", code, got, want, out)
		}
		if got := verdictOf(t, "run-without-actions"); got != record.Bug {
			t.Errorf("without actions: %s", got)
		}
	})
	t.Run("trommel test", func(t *testing.T) {
		code, out := command("test", "--plans", plans, "-c", suite, "--runs", "2", "--repeat", "1", "--parallel", "1",
			"--dir", "test", "--baseline", "baselines", "--junit", "junit.xml")
		if code != exit.Inconclusive {
			t.Errorf("exit code %d\n%s", code, out)
		}
		junit, err := os.ReadFile("junit.xml")
		if err != nil || !bytes.Contains(junit, []byte("skipped")) || bytes.Contains(junit, []byte("<failure")) {
			t.Errorf("%v\n%s", err, junit)
		}
	})
	t.Run("trommeltest", func(t *testing.T) {
		r := trommeltest.Suite(t, suite).RunFile(t, file, trommeltest.Expect(trommeltest.Inconclusive))
		if got := r.Verdict(); got != want {
			t.Errorf("verdict %s, want %s", got, want)
		}
	})
}
