package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/shrink"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/record"
)

// This program is also the workers of its tests, so that they can be killed.
func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv("TEST_CLIENTS")); err == nil {
		service, err := time.ParseDuration(os.Getenv("TEST_SERVICE"))
		if err == nil {
			err = simulate(os.Getenv("TEST_SERVER"), os.Getenv("TEST_TOKEN"), n, service)
		}
		fmt.Println(err)
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "worker" { // in a pod
		if err := workAsPod(os.Args[2:]); err != nil {
			fmt.Println(err)
			os.Exit(4)
		}
		os.Exit(0)
	}
	if os.Getenv("TEST_WORKER") == "" {
		os.Exit(m.Run())
	}
	w := &Worker{
		Server: os.Getenv("TEST_SERVER"), Token: os.Getenv("TEST_TOKEN"), Name: os.Getenv("TEST_WORKER"),
		Trommel: "v1", Cache: os.Getenv("TEST_CACHE"), Dir: os.Getenv("TEST_DIR"),
		Files: os.Getenv("TEST_FILES"), Patience: 30 * time.Second,
		Open: func(_ context.Context, e Equipment) (Runner, error) {
			return &fakeRunner{suite: e.Suite, binaries: e.Binaries, controlPlane: e.ControlPlane}, nil
		},
		Say: func(text string) { fmt.Println(text) },
	}
	if err := w.Work(context.Background()); err != nil {
		fmt.Println(err)
		os.Exit(4)
	}
	os.Exit(0)
}

// fakeRunner makes records without a cluster. What a plan's name begins with says what happens.
type fakeRunner struct {
	suite        *plan.Suite
	binaries     []builds.Binary
	controlPlane string
}

func (f *fakeRunner) Close(context.Context) error { return nil }

func (f *fakeRunner) RunWith(
	ctx context.Context, p *plan.Plan, dir string, o run.RunOptions,
) (*record.Meta, error) {
	what, _, _ := strings.Cut(p.TestName, "-")
	w, err := record.Create(dir)
	if err != nil {
		return nil, err
	}
	meta := record.Meta{
		Plan: p.TestName, Verdict: record.Pass, Suite: f.suite.File, PlanFile: p.File,
		ActionsTotal: len(p.Actions), ActionsFired: len(p.Actions),
	}
	var found []record.Finding
	switch what {
	case "kills":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		<-ctx.Done()
	case "once": // it kills the first worker
		if os.Getenv("TEST_WORKER") == "first" {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			<-ctx.Done()
		}
	case "short":
		time.Sleep(200 * time.Millisecond)
	case "long":
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Second):
		}
	case "fails":
		return nil, errors.Join(errors.New("disk full"), w.Close())
	case "wrong":
		return nil, &run.UserError{Err: errors.Join(errors.New("this plan is wrong"), w.Close())}
	case "bug":
		if len(p.Actions) == 0 {
			break
		}
		meta.Verdict = record.Bug
		found = []record.Finding{{Severity: record.SeverityBug, Judge: record.JudgeInvariant, Title: "found it"}}
	}
	// What the campaign has sent is here.
	for _, path := range []string{
		f.binaries[0].Path, f.controlPlane, plan.Beside(f.suite.File, "manifests/a.yaml"),
		plan.Beside(f.suite.File, "elsewhere/b.yaml"),
	} {
		if _, err := os.Stat(path); err != nil {
			return nil, err
		}
	}
	if o.Baseline != nil && (o.Baseline.Workload != "create" || len(o.Baseline.Tried) != 1) {
		return nil, fmt.Errorf("the baseline is %+v", o.Baseline)
	}
	return &meta, errors.Join(
		os.WriteFile(w.LogFile("op.log"), []byte("a log"), record.FileMode),
		w.Event(record.Event{}), w.Findings(found), w.Meta(meta), w.Close())
}

// writerIn returns what writes executables into a directory, and returns their paths.
func writerIn(t testing.TB, dir string) func(name, text string) string {
	return func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		return file
	}
}

// serve serves a campaign of a small suite.
func serve(t testing.TB, change func(*Config)) *Server {
	t.Helper()
	write := writerIn(t, t.TempDir())
	write("go.mod", "module a\n")
	write("op/manifests/a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: b}}")
	write("op/manifests/kustomization.yaml", "resources: [a.yaml, ../elsewhere/b.yaml]\n")
	write("op/elsewhere/b.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: n}, data: {a: b}}")
	write("op/not-named.yaml", "a secret of somebody's")
	file := write("op/"+plan.SuiteFile, "controllers: [{name: op, build: {dir: .}}]\nmanifests: [manifests]\n"+
		"workloads:\n  create: [{sleep: 1s}]\n")
	suite, err := plan.LoadSuite(file)
	if err != nil {
		t.Fatal(err)
	}
	config := Config{
		Address: "127.0.0.1:0", Dir: t.TempDir(), Trommel: "v1", Lease: 30 * time.Second,
		Source: Source{
			Suite: suite, Binaries: []builds.Binary{{Path: write("bin/op", "#!/bin/sh\n")}},
			ControlPlane: write("bin/controlplane", "#!/bin/sh\n# it is large\n"),
		},
	}
	if change != nil {
		change(&config)
	}
	s, err := Serve(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(false) })
	return s
}

// process starts a worker as a process. It ends with the test.
func process(t *testing.T, s *Server, name string, env ...string) *exec.Cmd {
	t.Helper()
	token, err := s.Token()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "TEST_WORKER="+name, "TEST_TOKEN="+token, "TEST_SERVER=https://"+s.Address(),
		"TEST_CACHE="+t.TempDir(), "TEST_DIR="+t.TempDir())
	c.Env = append(c.Env, env...)
	c.Stdout, c.Stderr = t.Output(), t.Output()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c
}

// named returns a plan.
func named(t testing.TB, name string) *plan.Plan {
	t.Helper()
	p, err := build.Plan(name).Workload("create").
		Then(build.RestartController("op").When(build.AtOnce())).Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// runPlan has a plan run by a worker.
func runPlan(t *testing.T, s *Server, name string, o run.RunOptions) (*record.Run, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "record")
	meta, err := s.Runner(1).RunWith(t.Context(), named(t, name), dir, o)
	if err != nil {
		return nil, err
	}
	r, err := record.Open(dir)
	if err == nil && (r.Meta.Verdict != meta.Verdict || r.Meta.Plan != name) {
		t.Errorf("%+v, not %+v", r.Meta, meta)
	}
	return r, err
}

func TestWorkersMakeRuns(t *testing.T) {
	s := serve(t, nil)
	workers := []*exec.Cmd{process(t, s, "one"), process(t, s, "two")}
	ref := &baseline.Baseline{Workload: "create", Variations: baseline.Variations{Tried: []string{"slow"}}}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			name := fmt.Sprintf("%s-%d", []string{"fine", "bug"}[i%2], i)
			r, err := runPlan(t, s, name, run.RunOptions{Baseline: ref, Brief: i%4 == 0})
			if err != nil {
				t.Error(err)
				return
			}
			if want := i%2 == 1; (r.Meta.Verdict == record.Bug) != want || (len(r.Findings) == 1) != want {
				t.Errorf("%s: %+v %+v", name, r.Meta, r.Findings)
			}
			if len(r.Events) == 0 != (i%4 == 0) || r.Truncated {
				t.Errorf("%s: %d events, truncated: %t", name, len(r.Events), r.Truncated)
			}
			if r.Meta.Suite != s.config.Source.Suite.File || r.Meta.PlanFile != "" {
				t.Errorf("%s: the suite is %s, the plan %q", name, r.Meta.Suite, r.Meta.PlanFile)
			}
		})
	}
	all.Wait()
	if err := s.Close(true); err != nil {
		t.Error(err)
	}
	for _, w := range workers {
		if err := w.Wait(); err != nil {
			t.Errorf("a worker of a campaign that is over: %v", err)
		}
	}
	if c := s.Counts(); c.Done != 20 || c.Lost+c.Late+c.GivenUp+c.Returned != 0 {
		t.Errorf("%+v", c)
	}
	if _, err := os.Stat(s.incoming()); !os.IsNotExist(err) {
		t.Errorf("something is left of what came in: %v", err)
	}
}

// A file that is not named is not sent.
func TestBundleHasOnlyWhatIsNamed(t *testing.T) {
	s := serve(t, nil)
	b, err := s.config.Source.bundle(newBlobs(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range b.Files {
		rel, err := filepath.Rel(filepath.Dir(s.config.Source.Suite.File), f.Path)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, rel)
	}
	slices.Sort(names)
	want := []string{"../go.mod", "elsewhere/b.yaml", "manifests/a.yaml", "manifests/kustomization.yaml",
		"trommel.yaml"}
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// The charts on which a chart depends travel with it, wherever they are, and what only has a name like theirs does not.
func TestChartsBesideAChartTravel(t *testing.T) {
	dir := t.TempDir()
	write := writerIn(t, dir)
	write("charts/op/Chart.yaml", "name: op\ndependencies: [{name: crds, repository: 'file://../crds'}]\n")
	write("charts/op/templates/op.yaml", "")
	write("charts/crds/Chart.yaml", "name: crds\ndependencies: [{name: op, repository: 'file://../op'}]\n")
	write("charts/crds/crds/crd.yaml", "")
	write("charts/other/Chart.yaml", "name: other\n")
	write("charts/broken/Chart.yaml", "\t")
	g := &gathering{blobs: newBlobs(t.TempDir()), seen: map[string]bool{}}
	for _, chart := range []string{"op", "broken"} {
		if err := g.tree(filepath.Join(dir, "charts", chart)); err != nil {
			t.Fatal(err)
		}
	}
	names := g.names(t, dir)
	want := []string{"charts/broken/Chart.yaml", "charts/crds/Chart.yaml", "charts/crds/crds/crd.yaml",
		"charts/op/Chart.yaml", "charts/op/templates/op.yaml"}
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// names lists the files below a directory that travel, sorted.
func (g *gathering) names(t *testing.T, dir string) (names []string) {
	t.Helper()
	for _, f := range g.files {
		rel, err := filepath.Rel(dir, f.Path)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, filepath.ToSlash(rel))
	}
	slices.Sort(names)
	return names
}

// What the images of controllers have travels, and nothing beside it.
func TestFilesOfControllersTravel(t *testing.T) {
	dir := t.TempDir()
	write := writerIn(t, dir)
	for _, name := range []string{"trommel.yaml", "bin/op", "config/crds/a.yaml", "config/secret.yaml", "settings"} {
		write(name, name)
	}
	g := &gathering{blobs: newBlobs(t.TempDir()), seen: map[string]bool{}}
	if err := g.suite(&plan.Suite{File: filepath.Join(dir, "trommel.yaml"), Controllers: []plan.Controller{
		{Name: "op", Binary: "bin/op", Files: map[string]string{"/crds": "config/crds", "/settings": "settings"}},
	}}); err != nil {
		t.Fatal(err)
	}
	names := g.names(t, dir)
	if want := []string{"config/crds/a.yaml", "settings", "trommel.yaml"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// A worker fetches nothing from the campaign that its image has, but for a file with another content.
func TestFilesOfTheImage(t *testing.T) {
	s := serve(t, nil)
	controlPlane, controllers, rest := s.Contents()
	if len(controlPlane) != 1 || len(controllers) != 1 || len(rest) != 6 { // five files, and their list
		t.Fatalf("%d, %d, %d", len(controlPlane), len(controllers), len(rest))
	}
	var names []string
	dir := t.TempDir()
	for _, c := range slices.Concat(controlPlane, controllers, rest) {
		data := c.Data
		if c.File != "" {
			var err error
			if data, err = os.ReadFile(c.File); err != nil {
				t.Fatal(err)
			}
		}
		if digestOf(data) != c.Digest {
			t.Errorf("%s has another content", c.Digest)
		}
		if err := os.WriteFile(filepath.Join(dir, c.Digest), data, 0o700); err != nil {
			t.Fatal(err)
		}
		names = append(names, c.Digest)
	}
	if slices.Sort(names); len(slices.Compact(names)) != 8 {
		t.Errorf("some are there twice: %q", names)
	}
	fetched := func() (all []string) {
		found, err := filepath.Glob(filepath.Join(s.blobs.dir, "*.gz"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			all = append(all, strings.TrimSuffix(filepath.Base(file), ".gz"))
		}
		return all
	}
	process(t, s, "one", "TEST_FILES="+dir)
	if r, err := runPlan(t, s, "bug-one", run.RunOptions{}); err != nil || r.Meta.Verdict != record.Bug {
		t.Fatal(err)
	}
	if got := fetched(); len(got) > 0 {
		t.Errorf("%q were fetched", got)
	}
	// What is learned later is not in the image, and a file that is broken is not used.
	broken := controllers[0].Digest
	if err := os.WriteFile(filepath.Join(dir, broken), []byte("#!/bin/other"), 0o700); err != nil {
		t.Fatal(err)
	}
	s = serve(t, nil)
	process(t, s, "two", "TEST_FILES="+dir)
	ref := &baseline.Baseline{Workload: "create", Variations: baseline.Variations{Tried: []string{"slow"}}}
	if _, err := runPlan(t, s, "fine-two", run.RunOptions{Baseline: ref}); err != nil {
		t.Fatal(err)
	}
	got := fetched()
	if len(got) != 3 || !slices.Contains(got, broken) || !slices.Contains(got, s.bundleIs) {
		t.Errorf("%q were fetched, want the list, the broken file and the baseline", got)
	}
}

// The runs by which a plan is made smaller are handed out like any others.
func TestShrinkByWorkers(t *testing.T) {
	s := serve(t, nil)
	process(t, s, "one")
	action := func() *build.Action { return build.RestartController("op").When(build.AtOnce()) }
	large, err := build.Plan("bug-large").Workload("create").Then(action(), action(), action()).Build()
	if err != nil {
		t.Fatal(err)
	}
	large.Complete(s.config.Source.Suite)
	result, err := shrink.Shrink(t.Context(), shrink.Config{
		Runner: s.Runner(1), Suite: s.config.Source.Suite, Plan: large, Dir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if result.After.Actions != 1 || !result.Minimal || result.Finding.Title != "found it" {
		t.Errorf("%+v", result)
	}
	if n := s.Counts().Done; n != result.Runs {
		t.Errorf("workers made %d of %d runs", n, result.Runs)
	}
}

// quickly misses workers soon.
func quickly(c *Config) { c.Lease = 3 * time.Second }

func TestKilledWorker(t *testing.T) {
	s := serve(t, quickly)
	process(t, s, "first")
	done := make(chan error, 1)
	go func() {
		_, err := runPlan(t, s, "once-killed", run.RunOptions{})
		done <- err
	}()
	if err := s.queue.AwaitWorkers(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for s.Counts().Lost == 0 { // the second one must not get it first
		time.Sleep(10 * time.Millisecond)
	}
	process(t, s, "second")
	if err := <-done; err != nil {
		t.Error(err)
	}
	if c := s.Counts(); c.Lost != 1 || c.Done != 1 {
		t.Errorf("%+v", c)
	}
}

// A plan that takes each worker with it is an error, and the others are run.
func TestPlanThatKillsWorkers(t *testing.T) {
	s := serve(t, quickly)
	for _, name := range []string{"one", "two", "three"} {
		process(t, s, name)
	}
	bad := make(chan error, 1)
	go func() {
		_, err := runPlan(t, s, "kills-all", run.RunOptions{})
		bad <- err
	}()
	for i := range 5 {
		if _, err := runPlan(t, s, fmt.Sprint("fine-", i), run.RunOptions{}); err != nil {
			t.Error(err)
		}
	}
	if err := <-bad; err == nil || !strings.Contains(err.Error(), "it was given up after 2 attempts: worker ") {
		t.Errorf("it is %v", err)
	}
	if _, err := runPlan(t, s, "fine-after", run.RunOptions{}); err != nil {
		t.Error(err)
	}
}

func TestRunsThatCannotBeMade(t *testing.T) {
	s := serve(t, nil)
	process(t, s, "one")
	process(t, s, "two")
	_, err := runPlan(t, s, "fails-here", run.RunOptions{})
	if err == nil || err.Error() != "it was given up after 2 attempts: disk full; disk full" {
		t.Errorf("%v", err)
	}
	_, err = runPlan(t, s, "wrong-plan", run.RunOptions{})
	if user := new(run.UserError); !errors.As(err, &user) || err.Error() != "this plan is wrong" {
		t.Errorf("%v", err)
	}
}

// A campaign that was killed is resumed at its address: workers find it again, and what they did for the former one
// counts no more.
func TestCampaignIsResumed(t *testing.T) {
	var config Config
	s := serve(t, func(c *Config) { config = *c })
	process(t, s, "one")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Runner(1).RunWith(ctx, named(t, "long-one"), filepath.Join(t.TempDir(), "record"), run.RunOptions{})
		done <- err
	}()
	for s.Counts().Running == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if err := s.Close(false); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-done
	config.Address = ""
	next, err := Serve(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = next.Close(false) })
	if next.Address() != s.Address() {
		t.Errorf("it listens at %s, and no more at %s", next.Address(), s.Address())
	}
	if _, err := runPlan(t, next, "long-one", run.RunOptions{}); err != nil {
		t.Error(err)
	}
	if c := next.Counts(); c.Done != 1 {
		t.Errorf("%+v", c)
	}
}

func TestStrangers(t *testing.T) {
	s, other := serve(t, nil), serve(t, nil)
	token, err := s.Token()
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := other.Token()
	if err != nil {
		t.Fatal(err)
	}
	secret, digest, _ := strings.Cut(token, ".")
	_, digestOfOther, _ := strings.Cut(foreign, ".")
	for _, tt := range []struct{ name, token, build, want string }{
		{"no token", "", "v1", "this is not the token of a campaign"},
		{"another secret", "x" + secret + "." + digest, "v1", "the token is not that of this campaign (401)"},
		{"another campaign", secret + "." + digestOfOther, "v1", errOtherCampaign.Error()},
		{"another build", token, "v2", "the campaign runs with trommel v1, and this is v2: both must be the same"},
	} {
		w := &Worker{
			Server: "https://" + s.Address(), Token: tt.token, Name: "w", Trommel: tt.build, Cache: t.TempDir(),
			Dir: t.TempDir(), Patience: 10 * time.Second,
		}
		if err := w.Work(t.Context()); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		} else if !errors.Is(err, ErrRefused) {
			t.Errorf("%s: it seems to be of use to try again: %v", tt.name, err)
		}
	}
	c, err := newClient("https://"+s.Address(), token, "w", time.Second, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodPut, "/v1/leases/x/record/" + digestOf([]byte("a")), "b", http.StatusGone},
		{http.MethodPut, "/v1/leases/..%2f..%2fa/record/" + digestOf([]byte("a")), "b", http.StatusGone},
		{http.MethodPut, "/v1/leases/x/record/..%2f..%2fa", "b", http.StatusBadRequest},
		{http.MethodGet, "/v1/blobs/" + digestOf([]byte("a")), "", http.StatusNotFound},
		{http.MethodGet, "/v1/blobs/..%2fcredentials.json", "", http.StatusNotFound},
		{http.MethodPost, "/v1/leases/x/beat", "", http.StatusGone},
		{http.MethodPost, "/v1/leases/x/result", `{"record":"../a"}`, http.StatusBadRequest},
		{http.MethodPost, "/v1/leases/x/result", `{"record":"` + digestOf([]byte("a")) + `"}`, http.StatusGone},
		{http.MethodPost, "/v1/leases/x/result", `{}`, http.StatusGone},
	} {
		_, err := c.once(t.Context(), tt.method, tt.path, strings.NewReader(tt.body))
		if !is(err, tt.want) {
			t.Errorf("%s %s: %v, want %d", tt.method, tt.path, err, tt.want)
		}
	}
	// Who has a run cannot send something else than he says, nor a result without its record.
	go func() { _, _ = s.queue.Do(t.Context(), Job{Name: "a"}) }()
	job, err := c.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own := "/v1/leases/" + job.Lease
	_, err = c.once(t.Context(), http.MethodPut, own+"/record/"+digestOf([]byte("a")), strings.NewReader("b"))
	if !is(err, http.StatusBadRequest) {
		t.Errorf("other content: %v", err)
	}
	if err := c.tell(t.Context(), own+"/result", Result{Record: digestOf([]byte("a"))}); !is(err, http.StatusConflict) {
		t.Errorf("no record: %v", err)
	}
	for range 2 { // to send it again does nothing
		resp, err := c.once(t.Context(), http.MethodPut, own+"/record/"+digestOf([]byte("a")), strings.NewReader("a"))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	if err := c.tell(t.Context(), own+"/result", Result{Record: digestOf([]byte("a"))}); err != nil {
		t.Error(err)
	}
}

// A worker that receives the signal to leave gives its run back, and the run does not count as lost.
func TestWorkerLeaves(t *testing.T) {
	s := serve(t, nil)
	token, err := s.Token()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir()) // the worker changes it
	ctx, cancel := context.WithCancel(t.Context())
	w := &Worker{
		Server: "https://" + s.Address(), Token: token, Name: "leaves", Trommel: "v1", Cache: t.TempDir(),
		Dir: t.TempDir(), Patience: 10 * time.Second,
		Open: func(_ context.Context, e Equipment) (Runner, error) {
			return &fakeRunner{suite: e.Suite, binaries: e.Binaries, controlPlane: e.ControlPlane}, nil
		},
	}
	left := make(chan error, 1)
	go func() { left <- w.Work(ctx) }()
	done := make(chan error, 1)
	go func() {
		_, err := runPlan(t, s, "long-one", run.RunOptions{})
		done <- err
	}()
	for s.Counts().Running == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if c := s.Counts(); c.Returned != 1 || c.Lost != 0 || c.Workers != 0 {
		t.Errorf("%+v", c)
	}
	process(t, s, "next")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestSuitesThatStayOnOneMachine(t *testing.T) {
	s := serve(t, nil)
	suite := *s.config.Source.Suite
	suite.Manifests = []plan.Manifest{{Path: "/etc/manifests"}}
	source := s.config.Source
	source.Suite = &suite
	_, err := source.bundle(newBlobs(t.TempDir()))
	if err == nil || !strings.Contains(err.Error(), "names /etc/manifests, which other machines have elsewhere") {
		t.Error(err)
	}
}

// A worker has the suite's other builds, in several clusters, too: their executables, and what they install.
func TestBuildsTravel(t *testing.T) {
	dir := t.TempDir()
	write := writerIn(t, dir)
	const config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {version: %q}}"
	write("now/go.mod", "module a\n")
	write("now/new.yaml", fmt.Sprintf(config, "new"))
	write("now/"+plan.SuiteFile, "clusters: {east: {}, west: {}}\n"+
		"controllers: [{name: op, cluster: west, build: {dir: .}}]\nmanifests: [{cluster: west, path: new.yaml}]\n"+
		"builds: {old: {dir: ../then, manifests: [{cluster: west, path: old.yaml}]}}\n"+
		"workloads:\n  create: [{sleep: 1s}]\n")
	write("then/go.mod", "module a\n")
	write("then/old.yaml", fmt.Sprintf(config, "old"))
	suite, err := plan.LoadSuite(filepath.Join(dir, "now", plan.SuiteFile))
	if err != nil {
		t.Fatal(err)
	}
	old, paths, err := builds.Located(t.Context(), suite, "old")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, func(c *Config) {
		c.Source = Source{
			Suite: suite, Binaries: []builds.Binary{{Path: write("bin/new", "new")}},
			ControlPlane: write("bin/cp", "cp"),
			Builds: map[string]*builds.Build{
				"old": {Suite: old, Paths: paths, Binaries: []builds.Binary{{Path: write("bin/old", "old")}}},
			},
		}
	})
	token, err := s.Token()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	enough := errors.New("enough")
	var got Equipment
	w := &Worker{
		Server: "https://" + s.Address(), Token: token, Name: "w", Trommel: "v1", Cache: t.TempDir(), Dir: t.TempDir(),
		Patience: 10 * time.Second,
		Open:     func(_ context.Context, e Equipment) (Runner, error) { got = e; return nil, enough },
	}
	if err := w.Work(t.Context()); !errors.Is(err, enough) {
		t.Fatal(err)
	}
	for name, build := range map[string]*builds.Build{
		"new": {Suite: got.Suite, Binaries: got.Binaries}, "old": got.Builds["old"],
	} {
		if build == nil || len(build.Suite.Manifests) != 1 || build.Suite.Manifests[0].Cluster != "west" {
			t.Fatalf("%s: %+v", name, build)
		}
		file := plan.Beside(build.Suite.File, build.Suite.Manifests[0].Path)
		text, err := os.ReadFile(file)
		if err != nil || string(text) != fmt.Sprintf(config, name) || !strings.HasPrefix(file, w.Dir) {
			t.Errorf("%s: %s has %q (%v)", name, file, text, err)
		}
		binary, err := os.ReadFile(build.Binaries[0].Path)
		if err != nil || string(binary) != name || !strings.HasPrefix(build.Binaries[0].Path, w.Dir) {
			t.Errorf("%s: %s has %q (%v)", name, build.Binaries[0].Path, binary, err)
		}
	}
}

// Only the user can make room on the campaign's disk. The message comes once for all workers.
func TestComplains(t *testing.T) {
	var said []string
	s := &Server{config: Config{Say: func(text string) { said = append(said, text) }}}
	full := &fs.PathError{Op: "write", Path: "/a", Err: syscall.ENOSPC}
	for _, err := range []error{nil, errOver, io.ErrUnexpectedEOF, fmt.Errorf("compress: %w", full), full} {
		s.answer(httptest.NewRecorder(), err)
	}
	want := []string{"workers cannot go on: compress: write /a: no space left on device"}
	if !slices.Equal(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
}
