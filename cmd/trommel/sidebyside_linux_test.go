package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const living = `testName: living
workload: live
actions:
  - actionType: restartController
    trigger: {definitions: [{triggerName: now, condition: {triggerType: none}}]}
`

// tenantSuite returns the suite of a controller that listens on the given addresses.
func tenantSuite(executable, listen string) string {
	return fmt.Sprintf(`cluster: {apiServers: 1, nodes: 0}
controllers:
  - name: tenant
    %s
    env: {LISTEN: %q}
timeouts: {step: 60s, ready: 120s}
workloads:
  live:
    - wait:
        resourceKey: deployment.apps/default/tenant
        condition: has(object.status.readyReplicas) && object.status.readyReplicas == 1
    - sleep: 1s
`, executable, listen)
}

// TestSideBySide runs controllers that listen on the same ports at once, on a machine where another program uses one of
// them. Controllers with hooks have their own addresses; for one without, the error names the conflict.
func TestSideBySide(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	trommel, dir := buildTrommel(t), t.TempDir()
	tenant, err := filepath.Abs("../../testdata/controllers/tenant")
	if err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(dir, "tenant")
	build := exec.Command("go", "build", "-o", plain, ".")
	build.Dir = tenant
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	somebody := func(address string) string {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return fmt.Sprintf(":%d", l.Addr().(*net.TCPAddr).Port)
	}
	taken, takenEverywhere := somebody("127.0.0.1:0"), somebody(":0")

	run := func(name, executable, listen string) (int, string) {
		runDir := filepath.Join(dir, name)
		if err := os.Mkdir(runDir, 0o755); err != nil {
			return -1, err.Error()
		}
		for file, text := range map[string]string{"trommel.yaml": tenantSuite(executable, listen),
			"plan.yaml": living} {
			if err := os.WriteFile(filepath.Join(runDir, file), []byte(text), 0o644); err != nil {
				return -1, err.Error()
			}
		}
		cmd := exec.Command(trommel, "-p", "plan.yaml", "--record", "record")
		cmd.Dir = runDir
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return -1, err.Error()
		}
		return cmd.ProcessState.ExitCode(), out.String()
	}
	listen := "127.0.0.1" + somebody("127.0.0.1:0") + " " + taken
	var wg sync.WaitGroup
	for _, name := range []string{"one", "two"} {
		wg.Go(func() {
			if code, out := run(name, "build: {dir: "+tenant+"}", listen); code != 0 {
				t.Errorf("%s: exit code %d\n%s", name, code, out)
			}
		})
	}
	wg.Wait()
	for _, tt := range []struct{ name, executable, port, want string }{
		{"without hooks", "binary: " + plain, taken, "port " + taken +
			" is already in use, perhaps by another run. Build it with `build:`"},
		{"everywhere", "build: {dir: " + tenant + "}", takenEverywhere, "port " + takenEverywhere +
			" is already in use: a program outside this run"},
	} {
		if code, out := run(tt.name, tt.executable, tt.port); code != 4 || !strings.Contains(out, tt.want) {
			t.Errorf("%s: exit code %d, want 4 and %q in\n%s", tt.name, code, tt.want, out)
		}
	}
}
