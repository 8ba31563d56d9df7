package examples

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// envTypes turns on TestClusterTypes. It says how often each plan runs on each type of cluster. `make types-test` sets
// it.
const envTypes = "TROMMEL_TEST_TYPES"

// containerEngine is the command of the engine that clusters of type kind use.
func containerEngine() string { return cmp.Or(os.Getenv("KIND_EXPERIMENTAL_PROVIDER"), "docker") }

// databaseImage is what the pods of databases run. Containers of it do nothing.
const databaseImage = "registry.example/database:1.0"

// TestClusterTypes runs the same plans on clusters of all types and expects the same verdicts and findings. What needs
// observed API servers, or moves time, is not for all types. The log has a table of the times.
func TestClusterTypes(t *testing.T) {
	times, err := strconv.Atoi(os.Getenv(envTypes))
	if err != nil {
		t.Skip("set " + envTypes)
	}
	trommel := buildTrommel(t)
	suites := map[string]string{"embedded": "."}
	if exec.Command(containerEngine(), "version").Run() == nil {
		makeImage(t, databaseImage)
		suites["kind"] = withCluster(t, "cluster:\n  type: kind\n  images: ["+databaseImage+"]\n")
	}
	suites["existing"] = withCluster(t, existing("types", startCluster(t, trommel, "types"),
		"default, database-system, port-system, queue-system, token-system"))
	for _, p := range plans {
		if !slices.Contains([]string{database, queues, ports, tokens}, p.example) || p.variant == "installed" {
			continue
		}
		for _, kind := range []string{"embedded", "existing", "kind"} {
			if suites[kind] == "" || !p.possible(kind) {
				continue
			}
			t.Run(strings.Join([]string{kind, p.example, p.plan, p.variant}, "/"), func(t *testing.T) {
				var seconds []string
				for range times {
					began := time.Now()
					out, err := p.runOn(t, trommel, suites[kind], kind)
					seconds = append(seconds, fmt.Sprintf("%.1f", time.Since(began).Seconds()))
					if err != nil {
						t.Errorf("%v\n%s", err, out)
					}
				}
				t.Logf("table: %s %s %s %s %s", p.example, p.plan, p.variant, kind, strings.Join(seconds, " "))
			})
		}
	}
}

// runOn runs the plan, with the examples in a directory on a cluster of a type, and returns what it printed, and how
// that differs from what the plan must come to.
func (p examplePlan) runOn(t *testing.T, trommel, examples, kind string) (out []byte, differs error) {
	t.Helper()
	record := filepath.Join(t.TempDir(), "record")
	code, out := runTrommel(t, trommel, ".", 10*time.Minute, p.args(examples, record)...)
	return out, p.checkOn(kind, code, record)
}

// existing is what a suite says of the cluster that startCluster has started, given its name, a kubeconfig, and the
// namespaces.
func existing(name, kubeconfig, namespaces string) string {
	return "cluster:\n  type: existing\n  kubeconfig: " + kubeconfig + "\n  context: trommel-" + name +
		"\n  namespaces: [" + namespaces + "]\n"
}

// checkOn is check for any type of cluster: where volumes and containers are real, the workload may also come to its
// end too late because of the same bug.
func (p examplePlan) checkOn(kind string, code int, recordDir string) error {
	late := slices.ContainsFunc(p.findings, func(title string) bool { return strings.HasPrefix(title, "step ") })
	if kind == "embedded" || p.want != bug || code != bug || late {
		return p.check(code, recordDir)
	}
	findings, err := readFindings(recordDir)
	if err != nil {
		return err
	}
	return p.compare(slices.DeleteFunc(findings, func(f finding) bool { return f.Judge == "workload" }))
}

// possible says whether clusters of a type can do what the plan asks for.
func (p examplePlan) possible(kind string) bool {
	text, err := os.ReadFile(filepath.Join(p.example, "plans", p.plan+".yaml"))
	if err != nil {
		return false
	}
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(string(text), w) })
	}
	switch kind {
	case "existing":
		return !has("advanceTime", "skewClock", "APIServer", "apiserver-", "disrupt")
	case "kind":
		return !has("advanceTime", "skewClock", "disrupt")
	}
	return true
}

// withCluster copies the examples, with another cluster in their suites.
func withCluster(t *testing.T, cluster string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{database, queues, ports, tokens, "go.mod", "go.sum"} {
		if out, err := exec.Command("cp", "-r", name, dir).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		suite := filepath.Join(dir, name, "trommel.yaml")
		text, err := os.ReadFile(suite)
		if err != nil {
			continue // a file
		}
		// Only the embedded cluster can have the controllers of disruptions.
		changed := strings.NewReplacer("cluster:\n  apiServers: 3\n", "",
			"  installed:\n    disruptions: {install: true}\n", "").Replace(string(text))
		if err := os.WriteFile(suite, []byte(changed+"\n"+cluster), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// startCluster starts an embedded cluster that is there for others until the test ends, and returns its kubeconfig.
func startCluster(t *testing.T, trommel, name string) string {
	t.Helper()
	code, out := runTrommel(t, trommel, ".", 15*time.Minute, "cluster", "up", "--name", name)
	if code != pass {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	t.Cleanup(func() {
		if code, out := runTrommel(t, trommel, ".", 2*time.Minute, "cluster", "down", "--name", name); code != pass {
			t.Errorf("exit code %d\n%s", code, out)
		}
	})
	kubeconfig := regexp.MustCompile(`KUBECONFIG=(\S+)`).FindSubmatch(out)
	if kubeconfig == nil {
		t.Fatalf("no kubeconfig in\n%s", out)
	}
	return string(kubeconfig[1])
}

// makeImage makes an image whose only program waits to be killed.
func makeImage(t *testing.T, name string) {
	t.Helper()
	dir := t.TempDir()
	source := "package main\n\nimport (\n\t\"os\"\n\t\"os/signal\"\n\t\"syscall\"\n)\n\nfunc main() {\n" +
		"\tc := make(chan os.Signal, 1)\n\tsignal.Notify(c, syscall.SIGTERM)\n\t<-c\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	script := `CGO_ENABLED=0 go build -o wait main.go && tar c wait |
		` + containerEngine() + ` import --change 'ENTRYPOINT ["/wait"]' - ` + name
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// killedByInjector is interrupted-create, with an injector that kills the operator's container.
const killedByInjector = `
testName: killed-by-injector
workload: create
actions:
- actionType: disrupt
  disruption: {name: kill, containerFailure: {once: true}}
  trigger:
    definitions:
    - triggerName: credentials
      condition: {triggerType: onObjectCreation, resourceKey: secret/default/db-credentials}
      observationPoint: {timing: afterControllerWrite, observeBy: database-operator}
    expression: credentials
- actionType: endDisruption
  disruption: kill
  trigger: {definitions: [{triggerName: later, condition: {triggerType: onTimeout, timeout: 3s}}], expression: later}
`

// TestDisruptionOnKind: a disruption on a real kubelet's pod begins at a moment of a plan. That its container is killed
// is the plan's doing: the operator is blamed only for what it does not make up for.
func TestDisruptionOnKind(t *testing.T) {
	if os.Getenv(envTypes) == "" || exec.Command(containerEngine(), "version").Run() != nil {
		t.Skip("needs a container engine: set " + envTypes)
	}
	makeImage(t, databaseImage)
	trommel := buildTrommel(t)
	suites := withCluster(t, "cluster:\n  type: kind\n  apiServers: 1\n  images: ["+databaseImage+"]\n")
	file := filepath.Join(suites, database, "plans", "killed-by-injector.yaml")
	if err := os.WriteFile(file, []byte(killedByInjector), 0o644); err != nil {
		t.Fatal(err)
	}
	const image = "ghcr.io/trommel-dev/trommel-injector:v0.1.0"
	if exec.Command(containerEngine(), "image", "inspect", image).Run() == nil {
		if out, err := exec.Command(containerEngine(), "image", "rm", image).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	t.Run("without the injector's image", func(t *testing.T) {
		code, out := runTrommel(t, trommel, ".", 10*time.Minute, "-p", file)
		if code != mistake || !strings.Contains(string(out), "disrupt needs the image of injectors") ||
			strings.Contains(string(out), "Creating cluster") {
			t.Errorf("exit code %d\n%s", code, out)
		}
	})
	script := `go run . --root ../.. -o "$0" trommel-injector && ` + containerEngine() + ` load -i "$0"/*.tar`
	images := exec.Command("sh", "-ec", script, t.TempDir())
	images.Dir = "../install/images"
	if out, err := images.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, p := range []examplePlan{
		{example: database, plan: "killed-by-injector", want: bug,
			findings: []string{"invariant every-database-has-a-service:"}},
		{example: database, plan: "killed-by-injector", variant: "fixed", want: pass},
	} {
		t.Run("variant "+p.variant, func(t *testing.T) {
			if out, err := p.runOn(t, trommel, suites, "kind"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
