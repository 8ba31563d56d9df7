package examples

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// envSoak is how long TestSoak runs, such as 8h; `make soak` sets it.
const envSoak = "TROMMEL_TEST_SOAK"

// soaked are the examples whose plans TestSoak runs, in turn.
var soaked = []string{database, queues, tokens, ports, upgrades, nodeCycling, statefulset}

// A round of TestSoak is one trommel with so many runs.
const (
	runsOfRound     = 60
	runsInRealTime  = 12 // each takes ten times as long
	roundOfRealTime = 4  // each fourth round is in real time
)

// TestSoak runs the plans of the examples again and again, many of them by one trommel on one cluster, mixed, some in
// real time. Each run comes to what its plan must come to, by the same actions as the plan's first run. Nothing grows
// with the number of runs, and nothing is left: processes, open files, memory, files.
func TestSoak(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv(envSoak))
	if os.Getenv(envSoak) == "" {
		t.Skipf("takes as long as %s says, such as 1h", envSoak)
	}
	if err != nil {
		t.Fatalf("%s: %v", envSoak, err)
	}
	s := &soak{trommel: buildTrommel(t), actions: map[string]string{}}
	end := time.Now().Add(length)
	for round := 0; time.Now().Before(end); round++ {
		example, clock := soaked[round%len(soaked)], "virtual"
		if round%roundOfRealTime == roundOfRealTime-1 {
			clock = "real"
		}
		t.Run(fmt.Sprintf("%03d-%s-%s", round+1, example, clock), func(t *testing.T) { s.round(t, example, clock) })
	}
	t.Logf("%d runs, %d of them in real time, %d wrong", s.runs, s.inRealTime, s.wrong)
}

// soak is what the rounds share.
type soak struct {
	trommel                 string
	actions                 map[string]string // of each plan's first run
	runs, inRealTime, wrong int
	cache                   int64 // bytes after the first rounds of all examples
}

// round runs an example's plans by one trommel.
func (s *soak) round(t *testing.T, example, clock string) {
	number := runsOfRound
	if clock == "real" {
		number = runsInRealTime
	}
	var chosen []examplePlan
	for _, p := range plans {
		// Its processes keep time real, and what a run in real time waits for takes days.
		days := p.plan == "two-days" || p.plan == "missed-rotation" || p.plan == "wrong-clock"
		if p.example == example && p.variant == "" && (clock == "virtual" || !days) {
			chosen = append(chosen, p)
		}
	}
	dir, tmp := t.ArtifactDir(), shortTempDir(t)
	args := []string{"-q", "--time", clock}
	name := regexp.MustCompile(`(?m)^testName: .*`)
	of := map[string]examplePlan{} // by the name of a run
	for i := range number {
		p := chosen[i%len(chosen)]
		text, err := os.ReadFile(filepath.Join(example, "plans", p.plan+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		as := fmt.Sprintf("%s-%03d", p.plan, i+1)
		of[as] = p
		file := filepath.Join(dir, "plans", fmt.Sprintf("%03d.yaml", i+1))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, name.ReplaceAll(text, []byte("testName: "+as)), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, "-p", file)
	}
	suite, err := filepath.Abs(filepath.Join(example, "trommel.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(s.trommel, append(args, "--suite", suite)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+tmp)
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	samples := s.sample(t, cmd, tmp, filepath.Join(dir, "trommel-runs"))
	for as, p := range of {
		s.judge(t, p, clock, as, dir)
	}
	s.compare(t, samples)
	if err := awaitEnd(tmp, nil); err != nil {
		t.Error(err)
	}
	if left := files(t, tmp); len(left) > 0 {
		t.Errorf("files left: %v", left)
	}
	s.checkCache(t)
	if t.Failed() {
		text, _ := os.ReadFile(out.Name())
		t.Logf("%s", text)
	} else if err := os.RemoveAll(dir); err != nil { // hours of records fill a disk
		t.Error(err)
	}
}

// judge sees whether a run has come to what its plan must come to, by the same actions as before.
func (s *soak) judge(t *testing.T, p examplePlan, clock, as, dir string) {
	s.runs++
	if clock == "real" {
		s.inRealTime++
	}
	wrong := func(format string, args ...any) {
		s.wrong++
		t.Errorf("%s: %s", as, fmt.Sprintf(format, args...))
	}
	records, err := filepath.Glob(filepath.Join(dir, "trommel-runs", as+"-*"))
	if err != nil || len(records) != 1 {
		wrong("records %v, %v", records, err)
		return
	}
	code, err := recordedCode(records[0])
	if err == nil {
		err = p.check(code, records[0])
	}
	if err != nil {
		wrong("%s: %v", records[0], err)
		return
	}
	actions, err := actionsOf(records[0])
	switch first, ok := s.actions[p.name()]; {
	case err != nil:
		wrong("%v", err)
	case !ok:
		s.actions[p.name()] = actions
	case actions != first:
		wrong("actions\n%s\nin the first run\n%s", actions, first)
	}
}

// actionsOf lists the actions of a run without times.
func actionsOf(recordDir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(recordDir, "actions.jsonl"))
	if err != nil {
		return "", err
	}
	var all []string
	for line := range strings.Lines(string(data)) {
		var a struct {
			Type, Target, Error string
		}
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			return "", fmt.Errorf("%s: %w", recordDir, err)
		}
		all = append(all, fmt.Sprintf("%+v", a))
	}
	return strings.Join(all, "\n"), nil
}

// usage is what the processes of a round use: trommel itself, and all others together.
type usage struct {
	runs                             int // that have ended
	files, threads, memory           int // of trommel; memory in MB
	processes, othersFiles, othersMB int
}

// sample looks each second at what the round's processes use, until trommel has ended.
func (s *soak) sample(t *testing.T, cmd *exec.Cmd, tmp, records string) []usage {
	t.Helper()
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	const most = 2 * time.Hour // for what hangs
	deadline := time.After(most)
	var all []usage
	for {
		select {
		case <-done:
			return all
		case <-deadline:
			_ = unix.Kill(cmd.Process.Pid, unix.SIGQUIT) // it says where
			<-done
			t.Errorf("does not end in %s", most)
			return all
		case <-time.After(time.Second):
		}
		ended, err := filepath.Glob(filepath.Join(records, "*", "findings.json"))
		if err != nil {
			t.Fatal(err)
		}
		u := usage{runs: len(ended)}
		running, err := processesOf(tmp)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range running {
			files, threads, memory := usedBy(p.pid)
			if p.pid == cmd.Process.Pid {
				u.files, u.threads, u.memory = files, threads, memory
				continue
			}
			u.processes++
			u.othersFiles += files
			u.othersMB += memory
		}
		all = append(all, u)
	}
}

// usedBy gives the open files, threads and resident memory in MB of a process; zeros if it has ended.
func usedBy(pid int) (files, threads, memory int) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	open, _ := os.ReadDir(filepath.Join(dir, "fd"))
	status, _ := os.ReadFile(filepath.Join(dir, "status"))
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		n, _ := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), " kB")))
		switch name {
		case "Threads":
			threads = n
		case "VmRSS":
			memory = n >> 10
		}
	}
	return len(open), threads, memory
}

// compare compares the second quarter of a round with its last one. In the first one caches fill.
func (s *soak) compare(t *testing.T, all []usage) {
	t.Helper()
	if len(all) == 0 {
		return
	}
	last := all[len(all)-1].runs
	quarter := func(n int) []usage {
		return slices.DeleteFunc(slices.Clone(all), func(u usage) bool { return u.runs*4/max(last, 1) != n })
	}
	// What is allowed is more than what a garbage collector lets vary, and less than what a leak in each run adds.
	for _, m := range []struct {
		what    string
		of      func(usage) int
		allowed func(before int) int
	}{
		{"open files of trommel", func(u usage) int { return u.files }, func(b int) int { return b + 20 }},
		{"threads of trommel", func(u usage) int { return u.threads }, func(b int) int { return b + 10 }},
		{"MB of trommel", func(u usage) int { return u.memory }, func(b int) int { return b*3/2 + 64 }},
		{"other processes", func(u usage) int { return u.processes }, func(b int) int { return b + 3 }},
		{"open files of others", func(u usage) int { return u.othersFiles }, func(b int) int { return b + b/4 + 40 }},
		{"MB of others", func(u usage) int { return u.othersMB }, func(b int) int { return b*3/2 + 128 }},
	} {
		before, after := median(quarter(1), m.of), median(quarter(3), m.of)
		t.Logf("%s: %d, then %d", m.what, before, after)
		if before > 0 && after > m.allowed(before) {
			t.Errorf("%s: %d in the second quarter of the runs, %d in the last", m.what, before, after)
		}
	}
}

func median(all []usage, of func(usage) int) int {
	if len(all) == 0 {
		return 0
	}
	var values []int
	for _, u := range all {
		values = append(values, of(u))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// checkCache sees whether Trommel's cache grows with the rounds. When each example had one, everything is built.
func (s *soak) checkCache(t *testing.T) {
	t.Helper()
	var size int64
	_ = filepath.WalkDir(cacheDir(t), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				size += info.Size()
			}
		}
		return nil // others may use the cache
	})
	t.Logf("cache: %d MB", size>>20)
	if s.cache > 0 && size > s.cache+1<<20 {
		t.Errorf("the cache has grown from %d to %d bytes", s.cache, size)
	}
	if s.runs > len(soaked)*runsOfRound {
		s.cache = size
	}
}
