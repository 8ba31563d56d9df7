package plans

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/plan"
)

const sievePlans = "../../../../testdata/plans/sieve"

// command runs a subcommand and returns its exit code.
func command(
	t *testing.T, create func(output.Streams) *cobra.Command, args ...string,
) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	c := create(output.Streams{In: strings.NewReader(""), Out: &out, Err: &err})
	c.SetArgs(args)
	c.SilenceUsage, c.SilenceErrors = true, true
	if failed := c.ExecuteContext(context.Background()); failed != nil {
		code = exit.Usage
		if ee, ok := errors.AsType[*exit.Error](failed); ok {
			code = ee.Code
			if ee.Err == nil {
				return code, out.String(), err.String()
			}
		}
		err.WriteString(failed.Error())
	}
	return code, out.String(), err.String()
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

const (
	smallSuite = "controllers: [{name: db, build: {dir: .}}]\nworkloads: {w: [{sleep: 1s}]}\n"
	smallPlan  = `actions:
  - actionType: restartController
    trigger:
      definitions:
        - triggerName: a
          condition: {triggerType: onObjectUpdate, resourceKey: pod/default/a}
          observationPoint: {timing: afterControllerWrite}
        - triggerName: b
          condition: {triggerType: onTimeout, timeout: 5s}
      expression: a | b
`
)

func TestValidate(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "trommel.yaml", smallSuite)
	good := write(t, dir, "plans/good.yaml", smallPlan)
	write(t, dir, "crd.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")

	code, out, stderr := command(t, NewValidateCommand, dir)
	if code != exit.Pass || stderr != "" || out != filepath.Join(dir, "trommel.yaml")+
		": suite, 1 controller, 1 workload\n"+good+": plan, 1 action\n" {
		t.Errorf("directory: code %d, out %q, err %q", code, out, stderr)
	}

	bad := write(t, dir, "plans/bad.yaml", strings.Replace(smallPlan, "restartController",
		"restartController\n    actionTarget: web", 1))
	code, out, stderr = command(t, NewValidateCommand, good, bad, filepath.Join(dir, "missing.yaml"))
	want := bad + `:3:19: unknown controller "web" (the suite has: db)` + "\n" + filepath.Join(dir, "missing.yaml") +
		": no such file\n"
	if code != exit.Usage || out != good+": plan, 1 action\n" || stderr != want {
		t.Errorf("mistakes: code %d, out %q, err %q, want %q", code, out, stderr, want)
	}

	stale := write(t, dir, "plans/stale.yaml", strings.Replace(smallPlan, "restartController",
		"pauseAPIServer\n    actionTarget: apiserver-2", 1))
	const unknown = "db: its client-go version is unknown, so it is unknown whether it can be shown stale state\n"
	if code, out, stderr = command(t, NewValidateCommand, stale); code != exit.Pass || out != stale+
		": plan, 1 action\n  "+unknown {
		t.Errorf("plan about stale state: code %d, out %q, err %q", code, out, stderr)
	}
	if code, out, stderr = command(t, NewExplainCommand, "-p", stale); code != exit.Pass ||
		!strings.HasSuffix(out, "\n"+unknown) {
		t.Errorf("explained: code %d, out %q, err %q", code, out, stderr)
	}

	// The suite's mistakes are reported once, for any number of plans.
	write(t, dir, "trommel.yaml", smallSuite+"cluster: {apiServers: 9}\n")
	code, _, stderr = command(t, NewValidateCommand, dir)
	if code != exit.Usage || strings.Count(stderr, "apiServers is 9") != 1 ||
		!strings.Contains(stderr, "not checked against its suite, which has mistakes") {
		t.Errorf("bad suite: code %d, err %q", code, stderr)
	}

	code, out, stderr = command(t, NewValidateCommand, sievePlans)
	if code != exit.Pass || strings.Count(out, "no suite to check it against\n") != 45 {
		t.Errorf("Sieve's plans: code %d, out %q, err %q", code, out, stderr)
	}
	if code, _, stderr = command(t, NewValidateCommand, t.TempDir()); code != exit.Usage ||
		!strings.HasSuffix(stderr, ": no plan and no suite in this directory") {
		t.Errorf("empty directory: code %d, err %q", code, stderr)
	}
	if code, _, stderr = command(t, NewValidateCommand, good, "--cluster", "no-such-cluster"); code != exit.CannotRun {
		t.Errorf("cluster that is not running: code %d, err %q", code, stderr)
	}
}

func TestConvert(t *testing.T) {
	code, out, stderr := command(t, NewConvertCommand, sievePlans+"/modes/xtradb_stale_1.yaml")
	if code != exit.Pass || !strings.Contains(out, "\napiVersion: trommel.dev/v1alpha1\nkind: TestPlan\n"+
		"testName: xtradb_stale_1\nactions:\n") {
		t.Errorf("file: code %d, out %q, err %q", code, out, stderr)
	}
	to := t.TempDir()
	code, out, stderr = command(t, NewConvertCommand, sievePlans, "-o", to)
	if code != exit.Pass || strings.Count(out, "\n") != 45 {
		t.Errorf("directory: code %d, out %q, err %q", code, out, stderr)
	}
	if code, out, stderr = command(t, NewValidateCommand, to); code != exit.Pass || strings.Count(out, "\n") != 45 {
		t.Errorf("converted plan: code %d, out %q, err %q", code, out, stderr)
	}
	again := t.TempDir()
	if code, _, stderr = command(t, NewConvertCommand, to, "-o", again); code != exit.Pass {
		t.Fatalf("again: code %d, err %q", code, stderr)
	}
	for _, name := range []string{"modes/nifi_intmd_1.yaml", "actions/cassandra-operator-indirect-1.yaml"} {
		a, _ := os.ReadFile(filepath.Join(to, name))
		b, _ := os.ReadFile(filepath.Join(again, name))
		if len(a) == 0 || !bytes.Equal(a, b) {
			t.Errorf("%s changes when it is converted again", name)
		}
	}
	if code, _, stderr = command(t, NewConvertCommand, sievePlans); code != exit.Usage ||
		!strings.Contains(stderr, "name the output directory with -o") {
		t.Errorf("directory without -o: code %d, err %q", code, stderr)
	}

	// Paths in a plan are relative to it, wherever it is written.
	project := t.TempDir()
	suite := write(t, project, "suites/a.yaml", smallSuite)
	write(t, project, "plans/object.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
	file := write(t, project, "plans/plan.yaml", "suite: ../suites/a.yaml\n"+smallPlan+"  - actionType: apply\n"+
		"    manifestFile: object.yaml\n"+
		"    trigger: {definitions: [{triggerName: c, condition: {triggerType: none}}]}\n")
	moved := filepath.Join(project, "some", "where", "else.yaml")
	if code, _, stderr = command(t, NewConvertCommand, file, "-o", moved); code != exit.Pass {
		t.Fatalf("to another directory: code %d, err %q", code, stderr)
	}
	if found, err := plan.FindSuite(moved); err != nil || found != suite {
		t.Errorf("the converted plan's suite: %s, %v", found, err)
	}
	if code, _, stderr = command(t, NewValidateCommand, moved); code != exit.Pass {
		t.Errorf("converted to another directory: code %d, err %q", code, stderr)
	}

	// One plan cannot be read: nothing is written.
	from := t.TempDir()
	write(t, from, "a.yaml", smallPlan)
	bad := write(t, from, "b.yaml", "mode: stale-state\nce-color: red\n")
	none := filepath.Join(t.TempDir(), "out")
	code, _, stderr = command(t, NewConvertCommand, from, "-o", none)
	if code != exit.Usage || stderr != bad+`:2:1: unknown field "ce-color" in a plan of Sieve's mode format` {
		t.Errorf("bad plan: code %d, err %q", code, stderr)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("something was written")
	}
}

func TestGraph(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "trommel.yaml", smallSuite)
	file := write(t, dir, "plan.yaml", smallPlan)
	for format, want := range map[string]string{
		"text":    "1. restartController db\na -> *\nb -> *\n",
		"mermaid": "%% 1. restartController db\nflowchart LR\n",
	} {
		code, out, stderr := command(t, NewGraphCommand, "-p", file, "-o", format)
		if code != exit.Pass || !strings.HasPrefix(out, want) {
			t.Errorf("%s: code %d, out %q, err %q", format, code, out, stderr)
		}
	}
	if code, out, stderr := command(t, NewGraphCommand, "-p", file, "-o", "svg"); code != exit.Usage || out != "" ||
		stderr != `unknown format "svg" (known: text, mermaid)` {
		t.Errorf("unknown format: code %d, out %q, err %q", code, out, stderr)
	}
	if code, _, stderr := command(t, NewGraphCommand); code != exit.Usage || stderr != "no plan given: -p plan.yaml" {
		t.Errorf("no plan: code %d, err %q", code, stderr)
	}
	large := write(t, dir, "large.yaml", strings.Replace(smallPlan, "a | b", strings.Repeat("a;", 600)+"b", 1))
	for _, tt := range []struct {
		format, out, note string
		count             int // of out
	}{
		{"text", "a;", "action 1 has 601 triggers, too many to draw: this is its expression; -o mermaid writes the " +
			"whole graph\n", 600},
		{"mermaid", "([\"a\"])", "action 1 has 601 triggers, more than Mermaid draws by default; raise its maxEdges\n",
			600},
		{"mermaid", " --> ", "action 1 has 601 triggers, more than Mermaid draws by default; raise its maxEdges\n",
			602},
	} {
		code, out, stderr := command(t, NewGraphCommand, "-p", large, "-o", tt.format)
		if code != exit.Pass || strings.Count(out, tt.out) != tt.count || stderr != tt.note ||
			!strings.HasSuffix(out, "\n") {
			t.Errorf("large as %s: code %d, %q %d times, err %q", tt.format, code, tt.out,
				strings.Count(out, tt.out), stderr)
		}
	}
}

func TestExplainAndSchema(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "plan.yaml", smallPlan)
	code, out, stderr := command(t, NewExplainCommand, "-p", file)
	if code != exit.Pass || !strings.Contains(out, "1. When a or b, kill the controller and start it again.\n"+
		"   - a: the controller has sent an update of pod/default/a\n") {
		t.Errorf("explain: code %d, out %q, err %q", code, out, stderr)
	}
	for _, what := range []string{"plan", "suite"} {
		if code, out, stderr := command(t, NewSchemaCommand, what); code != exit.Pass ||
			!strings.Contains(out, "2020-12") {
			t.Errorf("schema %s: code %d, err %q", what, code, stderr)
		}
	}
	if code, _, stderr := command(t, NewSchemaCommand, "run"); code != exit.Usage || stderr == "" {
		t.Errorf("unknown schema: code %d, err %q", code, stderr)
	}
}

// TestConvertOriginals converts objects of other projects, from one file and from a directory.
func TestConvertOriginals(t *testing.T) {
	const originals = "../../../../testdata/originals/"
	code, out, stderr := command(t, NewConvertCommand, originals+"cyclops/nodegroup.yaml")
	if code != exit.Pass || !strings.Contains(out, "apiVersion: nodes.trommel.dev/v1alpha1\nkind: NodeGroup\n") ||
		!strings.Contains(stderr, "nodegroup.yaml:10:3: the NodeGroup reports which nodes are out of date") {
		t.Errorf("code %d, out %q, err %q", code, out, stderr)
	}
	to := t.TempDir()
	if code, out, stderr = command(t, NewConvertCommand, originals+"cyclops", "-o", to); code != exit.Pass {
		t.Fatalf("code %d, err %q", code, stderr)
	}
	if lines := strings.Count(out, "\n"); lines != 9 {
		t.Errorf("%d files were written: %s", lines, out)
	}
	for _, name := range []string{"cnr7.yaml", "cycling.yaml"} {
		data, err := os.ReadFile(filepath.Join(to, name))
		if !strings.Contains(string(data), "kind: \"CycleNodeRequest\"") {
			t.Errorf("%s: %v, %q", name, err, data)
		}
	}
	code, out, stderr = command(t, NewConvertCommand, originals+"chaos-controller/on_init.yaml")
	if code != exit.Usage || out != "" || !strings.Contains(stderr, "on_init.yaml:13:11: spec.onInit has no equal") {
		t.Errorf("on init: code %d, out %q, err %q", code, out, stderr)
	}
	none := filepath.Join(t.TempDir(), "out")
	code, _, stderr = command(t, NewConvertCommand, originals+"chaos-controller", "-o", none)
	if _, err := os.Stat(none); code != exit.Usage || err == nil || strings.Count(stderr, "has no equal") < 8 {
		t.Errorf("all of them: code %d, %v, err %q", code, err, stderr)
	}
}
