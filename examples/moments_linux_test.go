package examples

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"maps"
	"math/rand/v2"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// What TestMoments reads from its environment.
const (
	envLong    = "TROMMEL_TEST_LONG"    // have it run; `make long` sets it
	envMoments = "TROMMEL_TEST_MOMENTS" // how many moments each plan gets
	envSeed    = "TROMMEL_TEST_SEED"    // of an earlier run, to repeat its moments
)

const defaultMoments = 30

// The deadlines are for what hangs. Nothing that is checked depends on how fast the machine is.
const (
	runDeadline  = 10 * time.Minute
	goneDeadline = 2 * time.Minute // until the processes of a run that was killed are gone
)

const (
	// shortStop has no effect on other processes. After a longer one timeouts have passed, such as a leader election's.
	shortStop = 2 * time.Second
	// longStop is longer than a hook waits for a coordinator that does not answer: 20 s, after up to 4 s.
	longStop = 27 * time.Second
)

// TestMoments kills, interrupts and stops runs of all plans of the examples at random moments: half of them on clusters
// of their own, half on a cluster that the runs of an example share. Nothing is left running or held, and the next run
// comes to what it must come to. Each moment is a test with a name of its own, which -run repeats, given the seed.
func TestMoments(t *testing.T) {
	if os.Getenv(envLong) == "" {
		t.Skipf("takes more than an hour; set %s", envLong)
	}
	m := &moments{
		trommel: buildTrommel(t), number: defaultMoments, seed: uint64(time.Now().UnixNano()), tally: map[string]int{},
	}
	var err error
	if s := os.Getenv(envMoments); s != "" {
		if m.number, err = strconv.Atoi(s); err != nil {
			t.Fatalf("%s: %v", envMoments, err)
		}
	}
	if s := os.Getenv(envSeed); s != "" {
		if m.seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s: %v", envSeed, err)
		}
	}
	t.Logf("repeat with %s=%d %s=%d", envSeed, m.seed, envMoments, m.number)
	for _, example := range []string{database, statefulset} {
		t.Run(example, func(t *testing.T) {
			others := func(p examplePlan) bool { return p.example != example }
			ofExample := slices.DeleteFunc(slices.Clone(plans), others)
			c := m.startCluster(t, ofExample[0])
			for _, p := range ofExample {
				t.Run(strings.TrimPrefix(p.name(), example+"/"), func(t *testing.T) { m.disturb(t, p, c) })
			}
		})
	}
	for _, what := range slices.Sorted(maps.Keys(m.tally)) {
		t.Logf("%4d %s", m.tally[what], what)
	}
}

// moments is what all tests of TestMoments share.
type moments struct {
	trommel string
	number  int // for each plan
	seed    uint64
	tally   map[string]int // how runs ended, for the log
}

// moment is when and how a run is disturbed.
type moment struct {
	number int
	shared bool           // the run is on the shared cluster
	signal syscall.Signal // SIGKILL, SIGINT or SIGSTOP
	group  bool           // the signal goes to the whole process group, as a terminal's does
	at     float64        // as a part of the time that an undisturbed run takes; a little more than 1 is after its end
	stop   time.Duration  // until SIGCONT
}

func (m moment) String() string {
	cluster := "own"
	if m.shared {
		cluster = "shared"
	}
	return fmt.Sprintf("%02d-%s-%s", m.number, cluster, unix.SignalName(m.signal))
}

// draw gives the moments of a plan, which depend on nothing but the seed and its name.
func (m *moments) draw(plan string) []moment {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(plan))
	random := rand.New(rand.NewPCG(m.seed, hash.Sum64()))
	signals := []syscall.Signal{unix.SIGKILL, unix.SIGINT, unix.SIGSTOP}
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(random.Int64N(int64(most-least)))
	}
	var drawn []moment
	for i := range m.number {
		next := moment{number: i + 1, shared: i%2 == 1, signal: signals[i%3], at: 1.05 * random.Float64()}
		next.group = next.signal == unix.SIGINT && random.IntN(2) == 0
		switch random.IntN(4) {
		case 0, 1:
			next.stop = between(200*time.Millisecond, shortStop)
		case 2:
			next.stop = between(shortStop, longStop)
		case 3:
			next.stop = longStop
		}
		drawn = append(drawn, next)
	}
	return drawn
}

// disturb runs a plan undisturbed, then at its moments, then undisturbed again.
func (m *moments) disturb(t *testing.T, p examplePlan, c *sharedCluster) {
	own := place{tmp: shortTempDir(t)}
	undisturbed := func(where place) time.Duration {
		ended := m.run(t, p, where, nil, 0)
		if err := p.check(ended.code, ended.record); err != nil {
			t.Fatalf("undisturbed: %v\n%s", err, ended.out)
		}
		return ended.took
	}
	alone, together := undisturbed(own), undisturbed(c.place)
	for _, at := range m.draw(p.name()) {
		t.Run(at.String(), func(t *testing.T) {
			if at.shared {
				m.disturbShared(t, p, c, at, together)
			} else {
				m.disturbOwn(t, p, own, at, alone)
			}
		})
	}
	undisturbed(own)
	if left := files(t, own.tmp); len(left) > 0 {
		t.Errorf("files left after a further run: %v", left)
	}
}

// disturbOwn disturbs a run on a cluster of its own.
func (m *moments) disturbOwn(t *testing.T, p examplePlan, own place, at moment, length time.Duration) {
	before := files(t, own.tmp)
	ended := m.run(t, p, own, &at, length)
	m.judge(t, p, at, ended)
	if err := awaitEnd(own.tmp, nil); err != nil {
		t.Error(err)
	}
	// What was killed is cleaned up by the next run.
	for _, file := range files(t, own.tmp) {
		if ended.code >= 0 && !slices.Contains(before, file) {
			t.Errorf("left behind: %s", file)
		}
	}
}

// disturbShared disturbs a run on the shared cluster, and has another one follow.
func (m *moments) disturbShared(t *testing.T, p examplePlan, c *sharedCluster, at moment, length time.Duration) {
	ended := m.run(t, p, c.place, &at, length)
	m.judge(t, p, at, ended)
	if err := awaitEnd(c.place.tmp, nil); err != nil {
		t.Error(err)
	}
	if ended.code >= 0 {
		c.check(t, "after the disturbed run")
	}
	next := m.run(t, p, c.place, nil, 0)
	if err := p.check(next.code, next.record); err != nil {
		t.Errorf("the next run: %v\n%s\nThe disturbed run:\n%s", err, next.out, ended.out)
	}
	c.check(t, "after the next run")
}

// place is where runs run.
type place struct {
	tmp     string // TMPDIR, by which all processes of the runs are known
	cluster string // "": each has its own
}

// ended is how a run ended.
type ended struct {
	code   int           // exit code; -1: it was ended by a signal
	by     unix.Signal   // that signal
	out    string        // all it printed
	record string        // folder
	took   time.Duration // in all
	at     time.Duration // when it was disturbed; 0: it had ended before, or was not to be disturbed
}

// run runs a plan. With a moment it is disturbed then, and length is how long an undisturbed run takes.
func (m *moments) run(t *testing.T, p examplePlan, where place, at *moment, length time.Duration) ended {
	t.Helper()
	dir, err := os.MkdirTemp(t.ArtifactDir(), "run-")
	if err != nil {
		t.Fatal(err)
	}
	result := ended{record: filepath.Join(dir, "record")}
	// A file and no pipe, which a child that outlives the run would keep open.
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(m.trommel, p.args(".", result.record)...)
	if where.cluster != "" {
		cmd.Args = append(cmd.Args, "--cluster", where.cluster)
	}
	cmd.Env = append(os.Environ(), "TMPDIR="+where.tmp)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	send := func(signal syscall.Signal, group bool) {
		pid := cmd.Process.Pid
		if group {
			pid = -pid
		}
		if err := unix.Kill(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Errorf("%s: %v", unix.SignalName(signal), err)
		}
	}
	over := func(after time.Duration) bool {
		select {
		case <-done:
			return true
		case <-time.After(after):
			return false
		}
	}
	if at != nil && !over(time.Duration(at.at*float64(length))) {
		result.at = time.Since(began)
		send(at.signal, at.group)
		if at.signal == unix.SIGSTOP {
			over(at.stop)
			send(unix.SIGCONT, false)
		}
	}
	hangs := !over(runDeadline)
	if hangs {
		send(unix.SIGQUIT, false) // it says where
		if !over(goneDeadline) {
			send(unix.SIGKILL, false)
			<-done
		}
	}
	result.took = time.Since(began)
	result.code = cmd.ProcessState.ExitCode()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		result.by = status.Signal()
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	result.out = string(text)
	if hangs {
		t.Fatalf("does not end:\n%s", result.out)
	}
	return result
}

// judge says whether a disturbed run ended as it may.
func (m *moments) judge(t *testing.T, p examplePlan, at moment, ended ended) {
	t.Helper()
	how, err := outcome(p, at, ended)
	what := at.String()[3:]
	when := "after its end"
	if ended.at > 0 {
		when = fmt.Sprintf("at %s", ended.at.Round(time.Millisecond))
	}
	if at.signal == unix.SIGSTOP {
		switch {
		case at.stop >= longStop:
			what += " for long"
		case at.stop >= shortStop:
			what += " for a while"
		}
		when += fmt.Sprintf(" for %s", at.stop.Round(time.Millisecond))
	}
	if at.group {
		when += ", the whole group"
	}
	if err != nil {
		m.tally[what+": WRONG"]++
		t.Errorf("disturbed %s: %v\n%s", when, err, ended.out)
		return
	}
	t.Logf("disturbed %s: %s", when, how)
	how, _, _ = strings.Cut(how, ":")
	m.tally[what+": "+how]++
}

// outcome says how a disturbed run ended; an error if it may not end like this.
func outcome(p examplePlan, at moment, ended ended) (string, error) {
	right := p.check(ended.code, ended.record)
	switch {
	case ended.at == 0 && right != nil:
		return "", fmt.Errorf("not disturbed at all: %w", right)
	case right == nil:
		return "the plan's own verdict", nil
	}
	switch at.signal {
	case unix.SIGKILL:
		if ended.by == unix.SIGKILL {
			return "killed", nil
		}
	case unix.SIGINT:
		if ended.by == unix.SIGINT && ended.out == "" {
			return "ended before it could take signals", nil
		}
		tornDown := !strings.Contains(ended.out, "teardown:") // which an error there begins with
		if ended.code == cannotRun && strings.Contains(ended.out, "interrupted") && tornDown {
			return "interrupted", nil
		}
	case unix.SIGSTOP:
		return stopped(p, ended)
	}
	return "", fmt.Errorf("%w (signal %q)", right, unix.SignalName(ended.by))
}

// stopped is the outcome of a run that was stopped for a time and has not come to the very same as without. It may be
// inconclusive if it says that this was so, and it may find that out beside the bug. It never finds another bug.
func stopped(p examplePlan, ended ended) (string, error) {
	findings, err := readFindings(ended.record)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(filepath.Join(ended.record, "meta.json"))
	if err != nil {
		return "", err
	}
	var meta struct{ Notes []string }
	if err := json.Unmarshal(data, &meta); err != nil {
		return "", err
	}
	var said, others []string // what says that the run was stopped, and other findings that make it inconclusive
	for _, note := range meta.Notes {
		if strings.HasPrefix(note, "trommel itself did not run for") {
			said = append(said, note)
		}
	}
	findings = slices.DeleteFunc(findings, func(f finding) bool {
		switch {
		case f.Judge == "session":
			said = append(said, f.Title)
		case f.Severity == "inconclusive" && f.Judge != "staleness":
			others = append(others, f.Title)
		default:
			return f.Severity == "note"
		}
		return true
	})
	why := strings.Join(append(others, said...), "; ")
	bugs := slices.ContainsFunc(findings, func(f finding) bool { return f.Severity == "bug" })
	switch {
	case len(said) == 0:
	case ended.code == inconclusive && !bugs:
		return "inconclusive: " + why, nil
	case ended.code == p.want && p.compare(findings) == nil:
		return "the plan's own verdict, and that it was not observed for a time: " + why, nil
	}
	return "", fmt.Errorf("%w\nfindings %q\nnotes %q", p.check(ended.code, ended.record), findings, meta.Notes)
}

// shortTempDir makes a folder with a path that leaves room for the names of sockets.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// files lists what lies in a TMPDIR of runs, but for the lock that they share.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // another process is removing it
		}
		if err == nil && !d.IsDir() && d.Name() != ".lock" {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// process is a running process.
type process struct {
	pid  int
	args string
}

// processesOf lists the processes that have a folder in their arguments or their environment.
func processesOf(folder string) ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if bytes.Contains(args, []byte(folder)) || bytes.Contains(env, []byte(folder)) {
			found = append(found, process{pid, string(bytes.ReplaceAll(args, []byte{0}, []byte(" ")))})
		}
	}
	return found, nil
}

// awaitEnd waits until no process of a folder is left but some that stay, which are given by their arguments.
func awaitEnd(folder string, stay []string) error {
	deadline := time.Now().Add(goneDeadline)
	for {
		left, err := processesOf(folder)
		if err != nil {
			return err
		}
		for _, args := range stay {
			if i := slices.IndexFunc(left, func(p process) bool { return p.args == args }); i >= 0 {
				left = slices.Delete(left, i, i+1)
			}
		}
		if len(left) == 0 {
			return nil
		}
		fd, err := unix.PidfdOpen(left[0].pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return err
		}
		rest := max(0, time.Until(deadline).Milliseconds())
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(rest))
		_ = unix.Close(fd)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("still running after %s: %v", goneDeadline, left)
		}
	}
}

// sharedCluster is a cluster of `trommel cluster up`, and how it was in the beginning.
type sharedCluster struct {
	place     place  // of the runs on it
	trommel   string // executable
	tmp       string // TMPDIR of the cluster itself
	dir       string // its folder
	resources []schema.GroupVersionResource
	client    dynamic.Interface
	objects   map[string]string // by resource, namespace and name
	processes []string          // their arguments
}

// startCluster starts the cluster for the plans of an example, and runs one of them on it: what is built is built then,
// and what the cluster does at first is done.
func (m *moments) startCluster(t *testing.T, p examplePlan) *sharedCluster {
	c := &sharedCluster{
		trommel: m.trommel, tmp: shortTempDir(t),
		place: place{tmp: shortTempDir(t), cluster: fmt.Sprintf("moments-%d-%s", os.Getpid(), p.example)},
	}
	up := exec.Command(m.trommel, "cluster", "up", "--name", c.place.cluster)
	if p.example == statefulset {
		up.Args = append(up.Args, "--disable-controllers", "statefulset-controller")
	}
	up.Env = append(os.Environ(), "TMPDIR="+c.tmp)
	if out, err := up.CombinedOutput(); err != nil {
		t.Fatalf("trommel cluster up: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		down := exec.Command(m.trommel, "cluster", "down", "--name", c.place.cluster)
		if out, err := down.CombinedOutput(); err != nil {
			t.Errorf("trommel cluster down: %v\n%s", err, out)
		}
		if err := awaitEnd(c.tmp, nil); err != nil {
			t.Error(err)
		}
		if left := files(t, c.tmp); len(left) > 0 {
			t.Errorf("the cluster has left %v", left)
		}
	})
	kubeconfig := regexp.MustCompile(`\S+\.kubeconfig`).FindString(c.status(t))
	c.dir = filepath.Dir(kubeconfig)
	first := m.run(t, p, c.place, nil, 0)
	if err := p.check(first.code, first.record); err != nil {
		t.Fatalf("the first run: %v\n%s", err, first.out)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	if c.client, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	lists, err := client.ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists)
	kinds, err := discovery.GroupVersionResources(lists)
	if err != nil {
		t.Fatal(err)
	}
	c.resources = slices.Collect(maps.Keys(kinds))
	c.objects = c.list(t)
	running, err := processesOf(c.tmp)
	if err != nil {
		t.Fatal(err)
	}
	if len(running) < 7 {
		t.Fatalf("only %d processes of the cluster; does the test miss some? %v", len(running), running)
	}
	for _, p := range running {
		c.processes = append(c.processes, p.args)
	}
	return c
}

func (c *sharedCluster) status(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(c.trommel, "cluster", "status", "--name", c.place.cluster).CombinedOutput()
	if err != nil {
		t.Fatalf("trommel cluster status: %v\n%s", err, out)
	}
	return string(out)
}

// list gives all objects of the cluster, without what changes by itself.
func (c *sharedCluster) list(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, resource := range c.resources {
		if resource.Resource == "events" || resource.Resource == "componentstatuses" {
			continue
		}
		list, err := c.client.Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatalf("list %s: %v", resource.Resource, err)
		}
		for _, o := range list.Items {
			if resource.Resource == "leases" && strings.HasPrefix(o.GetName(), "apiserver-") {
				continue // each process of an API server has another
			}
			key := fmt.Sprintf("%s %s/%s", resource.GroupResource(), o.GetNamespace(), o.GetName())
			if resource.Resource == "leases" {
				all[key] = ""
				continue
			}
			o.SetResourceVersion("")
			text, err := json.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			all[key] = string(text)
		}
	}
	return all
}

// check sees whether the cluster is as it was in the beginning.
func (c *sharedCluster) check(t *testing.T, when string) {
	t.Helper()
	if status := c.status(t); strings.Contains(status, "down") || strings.Contains(status, "unknown") {
		t.Fatalf("%s:\n%s", when, status)
	}
	now := c.list(t)
	for key, text := range now {
		if was, ok := c.objects[key]; !ok {
			t.Errorf("%s: %s is new", when, key)
		} else if was != text {
			t.Errorf("%s: %s was\n%s\nand is\n%s", when, key, was, text)
		}
	}
	for key := range c.objects {
		if _, ok := now[key]; !ok {
			t.Errorf("%s: %s is gone", when, key)
		}
	}
	if _, err := os.Stat(filepath.Join(c.dir, "snapshot.json")); err == nil {
		t.Errorf("%s: the snapshot is still there", when)
	}
	if err := awaitEnd(c.tmp, c.processes); err != nil {
		t.Errorf("%s: %v", when, err)
	}
}
