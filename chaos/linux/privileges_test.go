package linux

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/chaos/kinds"
)

// TestPrivilegesAreEnough runs injectors with the capabilities that their chaos pods get, and with one less.
func TestPrivilegesAreEnough(t *testing.T) {
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Skip(err)
	}
	n := newNode(t)
	// A path through a directory of another user's.
	private := filepath.Join(n.dir, "private")
	n.check(os.MkdirAll(private, 0o700))
	n.check(os.Chown(private, 65534, 65534))
	file := filepath.Join(private, "file")
	n.check(os.WriteFile(file, nil, 0o600))
	for _, tt := range []struct {
		kind, spec string
		dryRun     bool
	}{
		{"containerFailure", `{"once": true}`, false}, {"containerFailure", `{"once": true}`, true},
		{"diskPressure", fmt.Sprintf(`{"path": %q, "readBytesPerSecond": 1000000}`, file), false},
		{"diskPressure", fmt.Sprintf(`{"path": %q, "readBytesPerSecond": 1000000}`, file), true},
		{"diskFailure", fmt.Sprintf(`{"paths": [%q]}`, file), false},
		{"diskFailure", fmt.Sprintf(`{"paths": [%q]}`, file), true},
		{"cpuPressure", `{"load": 10}`, true}, {"memoryPressure", `{"target": 30}`, true},
		{"dns", `{"records": [{"name": "example.org", "fault": "nxdomain"}]}`, true},
		{"network", `{"hosts": [{"host": "example.org"}], "drop": 50}`, true},
	} {
		t.Run(fmt.Sprintf("%s, dry run %t", tt.kind, tt.dryRun), func(t *testing.T) {
			needs := kinds.Of(tt.kind).Privileges(tt.dryRun)
			if needs.All {
				t.Fatal("all privileges")
			}
			for without := range len(needs.Capabilities) + 1 {
				if without < len(needs.Capabilities) && needs.Capabilities[without] == "KILL" {
					continue // the target is root's, here
				}
				target := n.newPod(false)
				target.start("app", limits{"memory.limit_in_bytes": fmt.Sprint(100 << 20)})
				var capabilities []string
				for i, c := range needs.Capabilities {
					if i != without {
						capabilities = append(capabilities, "+"+strings.ToLower(c))
					}
				}
				said, injected := withCapabilities(t, target, tt.kind, tt.spec, tt.dryRun, capabilities)
				if all := without == len(needs.Capabilities); injected != all {
					t.Errorf("with %s: injected %t\n%s", capabilities, injected, said)
				}
			}
		})
	}
}

// withCapabilities runs an injector as root with no other capabilities, until it has injected its fault or cannot.
func withCapabilities(
	t *testing.T, target *runningPod, kind, spec string, dryRun bool, capabilities []string,
) (said string, injected bool) {
	t.Helper()
	bin, ready := t.TempDir(), filepath.Join(t.TempDir(), "ready")
	// setpriv gives a program the name by which it found it.
	if err := os.Symlink(must(os.Executable())(t), filepath.Join(bin, asInjector)); err != nil {
		t.Fatal(err)
	}
	r := request(target, kind, spec)
	c := exec.Command("setpriv", append([]string{"--bounding-set", strings.Join(append([]string{"-all"},
		capabilities...), ","), asInjector, "inject", kind, "--spec", spec, "--disruption", r.Disruption,
		"--disruption-uid", string(r.DisruptionUID), "--target-uid", string(r.Target.UID), "--target-node", "worker",
		"--duration", "1h", "--target-namespace", "default", "--target-pod", "target", "--journal", t.TempDir(),
		"--ready-file", ready}, map[bool][]string{true: {"--dry-run"}}[dryRun]...)...)
	c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	log := &strings.Builder{}
	c.Stderr = log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-ended:
			return log.String(), false
		case <-look.C:
			if exists(ready) {
				if err := c.Process.Signal(os.Interrupt); err != nil {
					t.Fatal(err)
				}
				err := <-ended
				return fmt.Sprint(log.String(), err), err == nil
			}
		}
	}
}
