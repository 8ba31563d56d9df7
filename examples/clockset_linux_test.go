package examples

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clockSetScript is process 1 of a User Mode Linux, which has this machine's files and a clock of its own. It runs a
// command, sets the clock back while the workload goes on, and prints the exit code.
const clockSetScript = `
for fs in proc:/proc sysfs:/sys tmpfs:/run; do mount -t ${fs%%:*} none ${fs#*:}; done
ip link set lo up
cd "$DIR"
sh -c "$RUN" > /run/out 2>&1 &
until grep -q ' workload' /run/out || ! kill -0 $! 2> /dev/null; do sleep 0.1; done
date -s "@$(($(date +%s) - BACK))" > /dev/null
wait $!
code=$?
cat /run/out
echo "exit code $code."
echo o > /proc/sysrq-trigger
sleep 10
`

// TestClockSet sets the clock of a machine back while a run goes on. API servers refuse the tokens of that day as not
// yet valid, so that the operator cannot work: that is not its bug. The machine is a User Mode Linux.
func TestClockSet(t *testing.T) {
	if os.Getenv(envLong) == "" {
		t.Skipf("takes minutes; set %s", envLong)
	}
	linux, err := exec.LookPath("linux.uml")
	if err != nil {
		t.Skip("needs Debian's package user-mode-linux")
	}
	trommel, dir := buildTrommel(t), t.ArtifactDir()
	for _, name := range []string{database, "go.mod", "go.sum"} {
		if out, err := exec.Command("cp", "-r", name, dir).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	suite := filepath.Join(dir, database, "trommel.yaml")
	text, err := os.ReadFile(suite)
	if err != nil {
		t.Fatal(err)
	}
	// System calls cost ten times as much there.
	small := strings.Replace(string(text), "  apiServers: 3\n", "  apiServers: 1\n  nodes: 1\n", 1)
	if err := os.WriteFile(suite, []byte(small), 0o600); err != nil {
		t.Fatal(err)
	}
	p := examplePlan{example: database, plan: "interrupted-create", variant: "fixed"}
	code, out := runTrommel(t, trommel, dir, 10*time.Minute, p.args(".", filepath.Join(t.TempDir(), "record"))...)
	if code != pass { // it also builds what the machine below needs
		t.Fatalf("exit code %d\n%s", code, out)
	}
	for _, clock := range []string{"virtual", "real"} {
		t.Run(clock, func(t *testing.T) {
			run := strings.Join(append([]string{trommel, "--time", clock}, p.args(".", "/run/record")...), " ")
			var script strings.Builder
			script.WriteString("#!/bin/sh\n")
			for name, value := range map[string]string{
				"BACK": "3600", "DIR": dir, "HOME": os.Getenv("HOME"), "PATH": os.Getenv("PATH"), "RUN": run,
				"TMPDIR": "/run",
			} {
				script.WriteString("export " + name + "='" + value + "'\n")
			}
			script.WriteString(clockSetScript)
			boot := filepath.Join(dir, "boot-"+clock)
			if err := os.WriteFile(boot, []byte(script.String()), 0o700); err != nil { //nolint:gosec // it is run
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
			defer cancel()
			args := []string{
				"mem=4G", "rootfstype=hostfs", "rootflags=/", "rw", "quiet", "con=null", "con0=fd:0,fd:1",
				"init=" + boot,
			}
			out, err := exec.CommandContext(ctx, linux, args...).CombinedOutput()
			if err != nil && ctx.Err() != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, want := range []string{"exit code 3.", "this machine's clock was set back by 1h0m"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
		})
	}
}
