package linux

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/chaos/inject"
)

// newFiles makes two pods, each with a container that obeys, and a directory that both see. Two directories in it are
// mounts of the first one's own.
func newFiles(t *testing.T) (target, control *running, pods [2]*runningPod, dir string) {
	t.Helper()
	n := newNode(t)
	if err := tryDeny(unix.EIO); err != nil {
		t.Skipf("fanotify cannot make files fail here: %v", err)
	}
	dir = filepath.Join(n.dir, "data of pods")
	for _, d := range []string{"sub", "below", "other", "proc"} {
		n.check(os.MkdirAll(filepath.Join(dir, d), 0o755))
		n.check(os.WriteFile(filepath.Join(dir, d, "file"), []byte("text"), 0o600))
	}
	n.check(os.Symlink(dir, filepath.Join(n.dir, "link")))
	pods = [2]*runningPod{n.newPod(false), n.newPod(false)}
	target, control = pods[0].start("app", []string{"obey"}), pods[1].start("app", []string{"obey"})
	for what, at := range map[string]string{filepath.Join(dir, "other"): "below", "/proc": "proc"} {
		if answer := target.ask(t, "mount "+what+" at "+filepath.Join(dir, at)); answer != "" {
			t.Fatal(answer)
		}
	}
	return target, control, pods, dir
}

func TestDiskFailure(t *testing.T) {
	target, control, pods, dir := newFiles(t)
	const works = ""
	if answer := target.ask(t, "keep "+dir+"/sub/file"); answer != works {
		t.Fatal(answer)
	}
	before := pods[0].dump()
	for _, tt := range []struct {
		spec string
		want map[string]string // the end of the error; those that are not here work
	}{
		{`{"paths": [DIR]}`, map[string]string{
			"open sub/file": "input/output error", "open below/file": "input/output error",
			"open new": "input/output error", "read sub/file": "input/output error", "list sub": "input/output error",
			"list .": "input/output error", "list other": "input/output error",
		}},
		{`{"paths": ["DIR/sub"], "error": "ENOSPC"}`, map[string]string{
			"open sub/file": "no space left on device", "read sub/file": "no space left on device",
			"list sub": "no space left on device",
		}},
		{`{"paths": ["LINK/sub/file", "DIR/other"], "error": "EDQUOT"}`, map[string]string{
			"open sub/file": "disk quota exceeded", "read sub/file": "disk quota exceeded",
			"list other": "disk quota exceeded",
		}},
		{`{"paths": [DIR], "operations": ["read"]}`, map[string]string{
			"read sub/file": "input/output error", "list sub": "input/output error", "list .": "input/output error",
			"list other": "input/output error",
		}},
		{`{"paths": ["DIR/new"]}`, map[string]string{"open new": "input/output error"}},
		{`{"paths": ["DIR/su"]}`, nil},
		{`{"paths": [DIR], "percentage": 0}`, nil},
		{`{"paths": ["/"]}`, map[string]string{
			"open sub/file": "input/output error", "open below/file": "input/output error",
			"open new": "input/output error", "read sub/file": "input/output error", "list sub": "input/output error",
			"list .": "input/output error", "list other": "input/output error",
		}},
	} {
		t.Run(tt.spec, func(t *testing.T) {
			_ = os.Remove(dir + "/new")
			spec := strings.NewReplacer("[DIR]", fmt.Sprintf("[%q]", dir), "DIR", dir, "LINK",
				filepath.Join(filepath.Dir(dir), "link")).Replace(tt.spec)
			remove := injecting(t, request(pods[0], "diskFailure", spec))
			commands := []string{"open sub/file", "open below/file", "open new", "read sub/file", "list sub", "list .",
				"list other"}
			at := func(line string) string {
				verb, what, _ := strings.Cut(line, " ")
				return verb + " " + filepath.Join(dir, what)
			}
			for _, line := range commands {
				got, want := target.ask(t, at(line)), tt.want[line]
				if want == works && got != works || !strings.HasSuffix(got, want) {
					t.Errorf("%s: %q, want %q", line, got, want)
				}
				if got := control.ask(t, at(line)); got != works {
					t.Errorf("control target, %s: %q", line, got)
				}
			}
			if got := target.ask(t, "again"); got != works {
				t.Errorf("a file that was open before: %s", got)
			}
			remove()
			for _, line := range commands {
				if got := target.ask(t, at(line)); got != works {
					t.Errorf("afterwards, %s: %q", line, got)
				}
			}
			if diff := cmp.Diff(before, pods[0].dump()); diff != "" {
				t.Errorf("left (-before +after):\n%s", diff)
			}
		})
	}
}

// TestDiskFailureShare: a share of the operations fails.
func TestDiskFailureShare(t *testing.T) {
	target, _, pods, dir := newFiles(t)
	remove := injecting(t, request(pods[0], "diskFailure", fmt.Sprintf(`{"paths": [%q], "percentage": 30}`, dir)))
	failed := 0
	const tries = 500
	for range tries {
		if target.ask(t, "open "+dir+"/sub/file") != "" {
			failed++
		}
	}
	remove()
	if share := failed * 100 / tries; !near(share, 30) {
		t.Errorf("%d %% failed", share)
	}
}

// TestDiskFailureOfAKilledInjector: the kernel asks only as long as the injector lives.
func TestDiskFailureOfAKilledInjector(t *testing.T) {
	target, _, pods, dir := newFiles(t)
	line := "open " + dir + "/sub/file"
	for range 5 {
		journal, ready := t.TempDir(), filepath.Join(t.TempDir(), "ready")
		c := injectorCommand(request(pods[0], "diskFailure", fmt.Sprintf(`{"paths": [%q]}`, dir)), os.Getpid(), journal,
			ready)
		must(0, c.Start())(t)
		for deadline := time.Now().Add(20 * time.Second); !exists(ready) && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if got := target.ask(t, line); !strings.HasSuffix(got, "input/output error") {
			t.Errorf("%q", got)
		}
		must(0, c.Process.Kill())(t)
		_ = c.Wait()
		if got := target.ask(t, line); got != "" {
			t.Errorf("afterwards: %s", got)
		}
		removed, err := inject.CleanAll(t.Context(), journal, []inject.Backend{backend(os.Getpid())},
			slog.New(slog.DiscardHandler))
		if removed != 1 || err != nil {
			t.Errorf("%d, %v", removed, err)
		}
	}
}
