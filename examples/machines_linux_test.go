package examples

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// poorMachine is a machine on which something is scarce or slow.
type poorMachine struct {
	name string
	// script sets it up and replaces itself by "$@", in namespaces of its own; $small is an empty directory.
	script string
	// says is what trommel says when it could not run; empty: it comes to the plan's own verdict.
	says   string
	small  string // what is in $small: TMPDIR, TROMMEL_CACHE or the record
	root   bool
	jitter bool
}

var poorMachines = []poorMachine{
	{name: "the record's disk is full", script: `mount -t tmpfs -o size=200k none "$small"; exec "$@"`, small: "record",
		says: "no space left on device"},
	{name: "the disk of temporary files is full", script: `mount -t tmpfs -o size=4m none "$small"; exec "$@"`,
		small: "TMPDIR", says: "no space left on device"},
	{name: "the cache's disk is full", script: `mount -t tmpfs -o size=3m none "$small"; exec "$@"`,
		small: "TROMMEL_CACHE", says: "no space left on device"},
	{name: "the cache is read-only", script: `mount --bind "$cache" "$cache"
		mount -o remount,bind,ro "$cache"; exec "$@"`,
		says: "read-only file system"},
	{name: "no inotify instance", script: `echo 0 > /proc/sys/user/max_inotify_instances; exec "$@"`},
	{name: "no inotify watch", script: `echo 0 > /proc/sys/user/max_inotify_watches; exec "$@"`},
	{name: "64 open files", script: `ulimit -n 64; exec "$@"`, says: "file descriptor limit"},
	{name: "one core", script: `exec taskset -c 0 "$@"`},
	{name: "2 GB of memory", script: `g=/sys/fs/cgroup/memory/trommel-$$; mkdir $g; echo 2G > $g/memory.limit_in_bytes
		echo $$ > $g/cgroup.procs; "$@"; code=$?; echo $$ > $g/../cgroup.procs; rmdir $g; exit $code`, root: true},
	{name: "processes stand still for up to 200 ms", script: `exec "$@"`, jitter: true},
}

// TestPoorMachines runs a plan that finds a bug, and the same where it is fixed, on machines on which something is
// scarce. Each run says in one error what is missing, or comes to the plan's own verdict; nothing is left.
func TestPoorMachines(t *testing.T) {
	if os.Getenv(envLong) == "" {
		t.Skipf("takes minutes; set %s", envLong)
	}
	m := &moments{trommel: buildTrommel(t), tally: map[string]int{}}
	stale := func(p examplePlan) bool { return p.example != database || p.plan != "stale-deletion" }
	for _, p := range slices.DeleteFunc(slices.Clone(plans), stale) {
		first := m.run(t, p, place{tmp: shortTempDir(t)}, nil, 0) // builds
		if err := p.check(first.code, first.record); err != nil {
			t.Fatalf("%v\n%s", err, first.out)
		}
		for _, on := range poorMachines {
			if on.says == "" || p.want == bug {
				t.Run(strings.TrimSuffix(on.name+"/"+p.variant, "/"), func(t *testing.T) { on.run(t, m.trommel, p) })
			}
		}
	}
}

func (on poorMachine) run(t *testing.T, trommel string, p examplePlan) {
	if on.root && os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir, tmp := t.ArtifactDir(), shortTempDir(t)
	small, recordDir := filepath.Join(tmp, "small"), filepath.Join(dir, "record")
	cache := cacheDir(t)
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "small="+small, "cache="+cache, "TROMMEL_CACHE="+cache, "TMPDIR="+tmp)
	if on.small == "record" {
		recordDir = filepath.Join(small, "record")
	} else if on.small != "" {
		env = append(env, on.small+"="+small)
	}
	namespaces := []string{"unshare", "--user", "--map-root-user", "--mount"}
	if on.root {
		namespaces = []string{"unshare", "--mount"}
	}
	if out, err := exec.Command(namespaces[0], append(namespaces[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no namespaces here: %v %s", err, out)
	}
	args := append(namespaces, "sh", "-ec", on.script, "sh", trommel)
	cmd := exec.Command(args[0], append(args[1:], p.args(".", recordDir)...)...)
	cmd.Env = env
	stop := func() {}
	if on.jitter {
		stop = disturbAll(t, tmp)
	}
	out, err := cmd.CombinedOutput()
	stop()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	code := cmd.ProcessState.ExitCode()
	switch {
	case on.says != "":
		if code != cannotRun || !strings.Contains(string(out), on.says) {
			t.Errorf("exit code %d, want %d and %q\n%s", code, cannotRun, on.says, out)
		}
	case on.jitter && code == inconclusive:
		t.Log("inconclusive")
	default:
		if err := p.check(code, recordDir); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	if err := awaitEnd(tmp, nil); err != nil {
		t.Error(err)
	}
	if left := files(t, tmp); len(left) > 0 {
		t.Errorf("files left: %v", left)
	}
}

// disturbAll stops a process of a folder, chosen at random, for up to 200 ms, again and again until stop is called.
func disturbAll(t *testing.T, folder string) (stop func()) {
	ended, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-ended:
				done <- nil
				return
			case <-time.After(time.Duration(rand.Int64N(int64(200 * time.Millisecond)))):
			}
			running, err := processesOf(folder)
			if err != nil {
				done <- fmt.Errorf("list processes: %w", err)
				return
			}
			if len(running) == 0 {
				continue
			}
			pid := running[rand.IntN(len(running))].pid
			if unix.Kill(pid, unix.SIGSTOP) == nil {
				time.Sleep(time.Duration(rand.Int64N(int64(200 * time.Millisecond))))
				_ = unix.Kill(pid, unix.SIGCONT)
			}
		}
	}()
	return func() {
		close(ended)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// cacheDir is the directory of Trommel's cache.
func cacheDir(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("TROMMEL_CACHE"); dir != "" {
		return dir
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "trommel")
}
