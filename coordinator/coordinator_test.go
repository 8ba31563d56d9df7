package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trommel-dev/trommel/actions"
	"github.com/trommel-dev/trommel/coordinator/machine"
	"github.com/trommel-dev/trommel/coordinator/machine/plantest"
	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/coordinator/monitor/monitortest"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal records in one list what a coordinator does.
type journal struct {
	mu      sync.Mutex
	entries []string
	events  []record.Event
	actions []record.Action
	causes  []string
	fail    error // returned by Kill
	down    bool  // the killed controller was not running
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, fmt.Sprintf(format, args...))
}

func (j *journal) list() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

func (j *journal) Event(e record.Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
	return nil
}

func (j *journal) Action(a record.Action) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.actions = append(j.actions, a)
	return nil
}

func (j *journal) Fired(_ int, _ *plan.Action, by string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.causes = append(j.causes, by)
}
func (j *journal) Completed(int, *plan.Action, error)    {}
func (j *journal) Held(int, *record.Observation, string) {}
func (j *journal) Released(int)                          {}
func (j *journal) Next(int, string)                      {}
func (j *journal) Waiting(text string)                   { j.add("waiting %s", text) }
func (j *journal) Info(text string)                      { j.add("info %s", text) }
func (j *journal) Kill(_ context.Context, c string) (bool, error) {
	j.add("kill %s", c)
	return !j.down, j.fail
}
func (j *journal) Start(_ context.Context, c string) (bool, error) {
	j.add("start %s", c)
	return false, nil
}
func (j *journal) Freeze(_ context.Context, c string, pid int) error {
	j.add("freeze %s %d", c, pid)
	return j.fail
}
func (j *journal) Thaw(_ context.Context, c string, kill bool) (int, error) {
	j.add("thaw %s %t", c, kill)
	return 1, nil
}
func (j *journal) Route(_ context.Context, c, s string) error {
	j.add("route %s to %s", c, s)
	return nil
}
func (j *journal) CutConnections(_ context.Context, c, _ string) error {
	j.add("cut %s", c)
	return nil
}

// rig is a coordinator that serves one process, apiserver-1, over a real socket.
type rig struct {
	*Coordinator
	*journal
	monitor *monitor.Monitor
	process *monitortest.Process
	stop    func() error
}

// oneReplica is a cluster in which every object has one replica.
type oneReplica struct{}

func (oneReplica) Foresee(context.Context, string, *wire.Observation) (Foresight, error) {
	return Foresight{Old: []byte(`{"spec":{"replicas":1}}`)}, nil
}

func (oneReplica) State(context.Context, string, *wire.Observation) ([]byte, error) {
	return []byte(`{"spec":{"replicas":1}}`), nil
}

func newRig(t testing.TB, p *plan.Plan, hold time.Duration) *rig {
	t.Helper()
	m, err := monitor.Listen(monitor.Config{Address: "unix://" + filepath.Join(t.TempDir(), "s"), Token: "t",
		AckTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	j := &journal{}
	c, err := New(Config{
		Plan: p, Monitor: m, Tools: actions.Tools{Controllers: j, Objects: j},
		Controllers: []record.Controller{{Name: "db", Hooks: true, APIServer: "apiserver-1"}},
		Resolve: func(k plan.ResourceKey) wire.Rule {
			return wire.Rule{Kind: k.Type, Namespace: k.Namespace, Name: k.Name}
		},
		Lookup: oneReplica{},
		Hold:   hold, Recorder: j, Watcher: j,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	r := &rig{Coordinator: c, journal: j, monitor: m}
	r.stop = sync.OnceValue(func() error {
		cancel()
		err := <-done
		return errors.Join(err, m.Close())
	})
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	r.process = r.connect(t, "apiserver-1")
	return r
}

func (r *rig) connect(t testing.TB, identity string) *monitortest.Process {
	t.Helper()
	p := monitortest.Dial(t, r.monitor.Addr())
	if w := p.Hello(wire.Hello{ProtocolVersion: wire.ProtocolVersion, Token: "t", Identity: identity}); w.Reject != "" {
		t.Fatal(w.Reject)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.WaitConnected(ctx, identity, 0, 1); err != nil {
		t.Fatal(err)
	}
	return p
}

func pod(name string) wire.Observation {
	return wire.Observation{
		Call: 1, Point: wire.APIServerRecv, Phase: wire.After, Operation: wire.Create, Kind: "pod", GroupKnown: true,
		Namespace: "default", Name: name, Object: []byte(`{}`),
	}
}

func (r *rig) observe(t testing.TB, o wire.Observation) {
	t.Helper()
	call := r.process.Observe(o)
	select {
	case <-call.Done:
		if call.Error != nil {
			t.Fatal(call.Error)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("%s was not released within 10s; journal: %v", o.Name, r.list())
	}
}

func TestActionIsCompleteBeforeItsObservationIsReleased(t *testing.T) {
	p := &plan.Plan{Actions: []plan.Action{plantest.Restart(plantest.Trigger(t, "a", "a")), {
		Type: plan.ReconnectController, Target: "db",
		Reconnecting: plan.Reconnecting{ReconnectAPIServer: "apiserver-2", ReconnectBy: plan.ReconnectCut},
		Trigger:      plantest.Trigger(t, "b", "b"),
	}}}
	r := newRig(t, p, time.Minute)
	ctx := context.Background()
	r.observe(t, pod("a")) // before Begin, no observation is judged
	if err := r.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	r.observe(t, pod("b"))
	r.add("released b")
	r.observe(t, pod("a"))
	r.add("released a")
	r.observe(t, pod("b"))
	r.add("released b")
	want := "released b, kill db, start db, released a, route db to apiserver-2, cut db, released b"
	if got := strings.Join(r.list(), ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if err := r.End(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.Undo(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	fires, _, err := machine.Replay(p, nil, r.journal.events)
	if err != nil {
		t.Fatal(err)
	}
	if err := machine.CompareReplay(fires, r.journal.actions); err != nil || len(fires) != 2 {
		t.Errorf("replay: %v, %d actions", err, len(fires))
	}
	// The record survives encoding and decoding.
	data, err := json.Marshal(r.journal.events)
	if err != nil {
		t.Fatal(err)
	}
	var back []record.Event
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	fires, _, err = machine.Replay(p, nil, back)
	if err != nil || machine.CompareReplay(fires, r.journal.actions) != nil {
		t.Errorf("replay of the written record: %v, %v", fires, err)
	}
}

func TestPausePutsRulesIntoForceBeforeItCompletes(t *testing.T) {
	p := &plan.Plan{Actions: []plan.Action{
		{Type: plan.PauseAPIServer, Target: "apiserver-1",
			Pausing: plan.Pausing{PauseScope: plan.MustScope("pod/default/x")}, Trigger: plantest.Trigger(t, "a", "a")},
		{Type: plan.ResumeAPIServer, Target: "apiserver-1",
			Pausing: plan.Pausing{PauseScope: plan.MustScope("pod/default/x")}, Trigger: plantest.Trigger(t, "b", "b")},
	}}
	r := newRig(t, p, time.Minute)
	ctx := context.Background()
	if err := r.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	for len(r.process.Interests) > 0 {
		<-r.process.Interests
	}
	r.observe(t, pod("a"))
	select {
	case i := <-r.process.Interests:
		if !slices.ContainsFunc(i.Rules, func(r wire.Rule) bool { return r.Phase == wire.Before && r.Name == "x" }) {
			t.Errorf("rules while paused: %+v", i.Rules)
		}
	default:
		t.Fatal("the observation was released before the process knew of the pause")
	}
	x := pod("x")
	x.Phase = wire.Before
	held := r.process.Observe(x)
	select {
	case <-held.Done:
		t.Fatal("not held by the pause")
	case <-time.After(50 * time.Millisecond):
	}
	r.observe(t, pod("b"))
	<-held.Done
}

func TestAHoldEndsWithItsCallersContext(t *testing.T) {
	p := &plan.Plan{Actions: []plan.Action{{Type: plan.PauseAPIServer, Target: "apiserver-1",
		Trigger: plantest.Trigger(t, "now", "now@none")}}}
	r := newRig(t, p, time.Minute)
	ctx := context.Background()
	if err := r.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	x := pod("x")
	x.Phase = wire.Before
	held := r.process.Observe(x)
	if err := r.process.Abandon(x, context.DeadlineExceeded.Error()); err != nil {
		t.Fatal(err)
	}
	// The monitor also answers the call that its caller has given up.
	if err := (<-held.Done).Error; err != nil {
		t.Fatal(err)
	}
	s, err := r.Status(ctx)
	if err != nil || len(s.Findings) > 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if got := strings.Join(r.list(), ", "); !strings.Contains(got, "its caller gave up (context deadline exceeded)") {
		t.Errorf("the Watcher was not told: %s", got)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(r.journal.events, func(e record.Event) bool { return e.Abandoned != nil }) {
		t.Error("the record lacks it")
	}
}

// TestARunThatWasNotObservedThroughoutIsInconclusive: hooks that release on their own, processes that are cut off, and
// processes that do not answer.
func TestARunThatWasNotObservedThroughoutIsInconclusive(t *testing.T) {
	p := &plan.Plan{Actions: []plan.Action{
		{Type: plan.PauseAPIServer, Target: "apiserver-1", Trigger: plantest.Trigger(t, "now", "now@none")},
		{Type: plan.ResumeAPIServer, Target: "apiserver-1", Trigger: plantest.Trigger(t, "a", "a")},
	}}
	x := pod("x")
	x.Phase = wire.Before
	for _, test := range []struct {
		name, want string
		do         func(t *testing.T, r *rig)
	}{
		{"let go", "apiserver-1 was released by its hook: too long", func(t *testing.T, r *rig) {
			held := r.process.Observe(x)
			for range 2 { // the second is for a call that is no longer held
				if err := r.process.LetGo(x, "too long"); err != nil {
					t.Fatal(err)
				}
			}
			<-held.Done
			r.observe(t, pod("a")) // processed after both
		}},
		{"missed", "apiserver-1 was not observed for a time: so it was", func(t *testing.T, r *rig) {
			for range 2 { // reported once
				if err := r.process.Miss("so it was"); err != nil {
					t.Fatal(err)
				}
			}
			r.observe(t, pod("a"))
		}},
		{"cut off", "apiserver-1 was cut off: it did not acknowledge its reporting rules: no answer within 2s",
			func(t *testing.T, r *rig) {
				for len(r.process.Interests) < cap(r.process.Interests) {
					r.process.Interests <- wire.Interests{}
				}
				ended, err := r.Changed(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				r.monitor.SetRules(context.Background(), nil)
				<-ended
				<-r.process.Interests
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, p, time.Minute)
			ctx := context.Background()
			if err := r.process.Miss("before the plan has begun"); err != nil {
				t.Fatal(err)
			}
			r.observe(t, pod("a"))
			if err := r.Begin(ctx); err != nil {
				t.Fatal(err)
			}
			test.do(t, r)
			s, err := r.Status(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Findings) != 1 || s.Findings[0].Judge != record.JudgeSession ||
				s.Findings[0].Title != test.want || s.Findings[0].IsBug() {
				t.Errorf("findings %+v, want one: %s", s.Findings, test.want)
			}
		})
	}
}

func TestHoldEndsAtItsDeadlineWithAFinding(t *testing.T) {
	p := &plan.Plan{Actions: []plan.Action{{Type: plan.PauseAPIServer, Target: "apiserver-1",
		Trigger: plantest.Trigger(t, "now", "now@none")}}}
	r := newRig(t, p, 100*time.Millisecond)
	ctx := context.Background()
	if err := r.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	if s, err := r.Status(ctx); err != nil || s.Completed != 1 {
		t.Fatalf("a pause at once is not complete when Begin returns: %+v, %v", s, err)
	}
	x := pod("x")
	x.Phase = wire.Before
	r.observe(t, x)
	s, err := r.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Findings) != 1 || s.Findings[0].Judge != record.JudgeHold ||
		!strings.Contains(s.Findings[0].Title, "held for 100ms") {
		t.Errorf("findings %+v", s.Findings)
	}
}

// The timeouts of a plan that begins before its workload count from the workload's beginning. Its other triggers do not
// wait.
func TestPlanThatBeginsBeforeItsWorkload(t *testing.T) {
	soon := plantest.Trigger(t, "soon", "soon@timeout")
	soon.Definitions[0].Condition.Timeout = time.Millisecond
	r := newRig(t, &plan.Plan{Actions: []plan.Action{
		{Type: plan.KillController, Target: "db", Trigger: plantest.Trigger(t, "now", "now@none")},
		{Type: plan.StartController, Target: "db", Trigger: soon},
	}}, time.Minute)
	begins, err := r.BeginEarly(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // no event shows that nothing happens
	if got := strings.Join(r.list(), ", "); got != "kill db" {
		t.Errorf("before the workload: %s", got)
	}
	if err := begins(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.loop.until(t.Context(), func() bool { return r.machine.Done() }); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.list(), ", "); got != "kill db, start db" {
		t.Errorf("with the workload: %s", got)
	}
}

func TestWatchdogTellsOnceWhoWaitsForWhom(t *testing.T) {
	p := &plan.Plan{Actions: []plan.Action{
		{Type: plan.PauseAPIServer, Target: "apiserver-1", Trigger: plantest.Trigger(t, "now", "now@none")},
		{Type: plan.ResumeAPIServer, Target: "apiserver-1", Trigger: plantest.Trigger(t, "a", "a")},
	}}
	r := newRig(t, p, 2*time.Second) // the watchdog is half of that
	if err := r.Begin(context.Background()); err != nil {
		t.Fatal(err)
	}
	x := pod("x")
	x.Phase = wire.Before
	r.observe(t, x)
	const chain = "apiserver-1's receipt of the creation of pod/default/x has been held for N by action 1 " +
		"(pauseAPIServer apiserver-1), which action 2 (resumeAPIServer apiserver-1) ends when: onObjectCreation of " +
		"pod/default/a, afterAPIServerRecv at apiserver-1; a deadlock: apiserver-1 waits for itself"
	timeless := func(text string) string { return regexp.MustCompile(`for \d+s by`).ReplaceAllString(text, "for N by") }
	if got := timeless(strings.Join(r.list(), "\n")); got != "waiting "+chain {
		t.Errorf("told %q", got)
	}
	s, err := r.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Findings) != 1 || !strings.HasPrefix(timeless(s.Findings[0].Detail), chain+"\nA pause outlasted") {
		t.Errorf("findings %+v", s.Findings)
	}
	if !strings.HasPrefix(s.Stuck, "action 1 (pauseAPIServer apiserver-1) has nothing to hold yet") {
		t.Errorf("at the end: %s", s.Stuck)
	}
}

// An observation that only a side rule asks for is not progress, and nothing is looked up for it.
func TestObservationsBesideThePlan(t *testing.T) {
	p := &plan.Plan{Actions: []plan.Action{{Type: plan.PauseAPIServer, Target: "apiserver-1",
		Pausing: plan.Pausing{PauseScope: plan.MustScope("pod/default/x")}, Trigger: plantest.Trigger(t, "a", "a")}}}
	r := newRig(t, p, time.Minute)
	api := r.process
	db := r.connect(t, "db")
	if err := r.Begin(context.Background()); err != nil {
		t.Fatal(err)
	}
	before, err := r.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	r.process = db
	received := pod("x")
	received.Point = wire.ControllerRecv
	r.observe(t, received)
	lease := wire.Observation{
		Call: 1, Point: wire.ControllerWrite, Phase: wire.After, Operation: wire.Update, Kind: "lease",
		Resource: "leases", Group: "coordination.k8s.io", GroupKnown: true, Namespace: "default", Name: "db",
	}
	r.observe(t, lease)
	after, err := r.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !after.LastEvent.Equal(before.LastEvent) {
		t.Error("they count as progress")
	}
	r.process = api
	r.observe(t, pod("a"))
	var aside []bool
	for _, e := range r.journal.events {
		if e.Observation != nil {
			aside = append(aside, e.Observation.Aside)
		}
	}
	if !slices.Equal(aside, []bool{true, true, false}) {
		t.Errorf("aside: %v", aside)
	}
	if s, err := r.Status(context.Background()); err != nil || s.Completed != 1 ||
		!s.LastEvent.After(before.LastEvent) {
		t.Errorf("status %+v, %v", s, err)
	}
}

func TestCoordinatorThatStopsHoldsNothing(t *testing.T) {
	p := &plan.Plan{Actions: []plan.Action{{Type: plan.PauseAPIServer, Target: "apiserver-1",
		Trigger: plantest.Trigger(t, "now", "now@none")}}}
	r := newRig(t, p, time.Minute)
	if err := r.Begin(context.Background()); err != nil {
		t.Fatal(err)
	}
	x := pod("x")
	x.Phase = wire.Before
	var calls []<-chan struct{}
	for range 10 {
		call := r.process.Observe(x)
		done := make(chan struct{})
		go func() { <-call.Done; close(done) }()
		calls = append(calls, done)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	for _, done := range calls {
		<-done
	}
}

func TestFailedActionIsAFindingAndIsUndone(t *testing.T) {
	r := newRig(t, &plan.Plan{Actions: []plan.Action{plantest.Restart(plantest.Trigger(t, "a", "a"))}}, time.Minute)
	r.fail = errors.New("no such process")
	ctx := context.Background()
	if err := r.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	r.observe(t, pod("a"))
	s, err := r.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Findings) != 1 || s.Findings[0].Title != "action 1 (restartController db) failed: no such process" ||
		s.Completed != 1 {
		t.Errorf("status %+v", s)
	}
	if err := r.Undo(ctx); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.list(), ", "); got != "kill db, start db" {
		t.Errorf("journal: %s", got)
	}
}

func TestStateBeforeAWriteIsLookedUp(t *testing.T) {
	tr := plantest.Trigger(t, "a", "a")
	tr.Definitions[0].Condition = plan.Condition{
		Type: plan.OnObjectUpdate, ResourceKey: plan.ResourceKey{Type: "statefulset", Namespace: "default", Name: "a"},
		Repeat: 1, PrevState: map[string]any{"spec": map[string]any{"replicas": 1}},
		CurState: map[string]any{"spec": map[string]any{"replicas": 2}},
	}
	tr.Definitions[0].Observe = plan.ObservationPoint{Timing: plan.AfterControllerWrite, ObserveBy: "db"}
	r := newRig(t, &plan.Plan{Actions: []plan.Action{plantest.Restart(tr)}}, time.Minute)
	r.process = r.connect(t, "db")
	if err := r.Begin(context.Background()); err != nil {
		t.Fatal(err)
	}
	write := wire.Observation{
		Call: 5, Point: wire.ControllerWrite, Phase: wire.Before, Operation: wire.Patch, Kind: "statefulset",
		Namespace: "default", Name: "a",
		Object: []byte(`{}`),
	}
	r.observe(t, write)
	write.Phase, write.Object = wire.After, []byte(`{"spec":{"replicas":2}}`)
	r.observe(t, write)
	if got := strings.Join(r.list(), ", "); got != "kill db, start db" {
		t.Errorf("journal: %q", got)
	}
}

// BenchmarkObserveRelease measures the round trip of an observation of a 4 KB object that a trigger examines: over a
// unix socket, through monitor and state machine, and back.
func BenchmarkObserveRelease(b *testing.B) {
	tr := plan.Trigger{Expression: "a", Graph: plantest.Graph(b, "a"),
		Definitions: []plan.Definition{{Name: "a", Condition: plan.Condition{
			Type: plan.OnObjectUpdate, ResourceKey: plan.ResourceKey{Type: "pod", Namespace: "default", Name: "a"},
			Repeat:   1,
			CurState: map[string]any{"spec": map[string]any{"nodeName": "elsewhere"}},
		}, Observe: plan.ObservationPoint{Timing: plan.AfterAPIServerRecv, ObserveBy: "apiserver-1"}}}}
	r := newRig(b, &plan.Plan{Actions: []plan.Action{plantest.Restart(tr)}}, time.Minute)
	if err := r.Begin(context.Background()); err != nil {
		b.Fatal(err)
	}
	o := pod("a")
	o.Operation = wire.Update
	object, err := json.Marshal(map[string]any{"spec": map[string]any{"nodeName": "here"},
		"metadata": map[string]any{"annotations": map[string]string{
			"text": strings.Repeat("x", 4000),
		}}})
	if err != nil {
		b.Fatal(err)
	}
	o.Object = object
	var times []time.Duration
	for b.Loop() {
		start := time.Now()
		r.observe(b, o)
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
	if len(r.list()) != 0 {
		b.Errorf("the trigger fired: %v", r.list())
	}
}

// Regression: the cause of an action with trigger type none was always "the start of the plan", even after another
// action.
func TestCauses(t *testing.T) {
	now := func() plan.Trigger { return plantest.Trigger(t, "now", "now@none") }
	p := &plan.Plan{Actions: []plan.Action{
		plantest.Restart(now()), plantest.Restart(now()), plantest.Restart(plantest.Trigger(t, "a", "a")),
		plantest.Restart(now()),
		plantest.Restart(plantest.Trigger(t, "soon", "soon@timeout")),
	}}
	r := newRig(t, p, time.Minute)
	if err := r.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.observe(t, pod("a"))
	r.complete(t, len(p.Actions))
	want := []string{
		"the start of the plan", "the completion of action 1",
		"create of pod/default/a (after apiServerRecv at apiserver-1)", "the completion of action 3", "a timeout",
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.causes, want) {
		t.Errorf("causes %q\nwant   %q", r.causes, want)
	}
	for i, a := range r.journal.actions {
		if a.Cause != want[i] {
			t.Errorf("recorded cause of action %d: %q", i+1, a.Cause)
		}
	}
}

// complete waits until that many actions are complete.
func (r *rig) complete(t *testing.T, count int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		changed, err := r.Changed(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if s.Completed == count {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%d of %d actions are complete", s.Completed, count)
		}
	}
}

// Regression: a kill that found nothing to kill was not mentioned.
func TestNoteOfAnActionThatChangedNothing(t *testing.T) {
	p := &plan.Plan{Actions: []plan.Action{
		{Type: plan.KillController, Target: "db", Trigger: plantest.Trigger(t, "a", "a")},
	}}
	r := newRig(t, p, time.Minute)
	r.down = true
	if err := r.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.observe(t, pod("a"))
	s, err := r.Status(t.Context())
	if err != nil || len(s.Findings) > 0 {
		t.Errorf("a note is not a finding: %v (%v)", s.Findings, err)
	}
	want := "kill db, info note: action 1 (killController db) found nothing to kill: db was not running"
	if got := strings.Join(r.list(), ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.journal.actions) != 1 || r.journal.actions[0].Note != "found nothing to kill: db was not running" {
		t.Errorf("recorded: %+v", r.journal.actions)
	}
}

// Regression: a finding did not name the action's object: "action 1 (patch ) failed".
func TestFindingNamesTheObjectOfTheAction(t *testing.T) {
	key := plan.ResourceKey{Type: "pod", Namespace: "default", Name: "x"}
	p := &plan.Plan{Actions: []plan.Action{{Type: plan.DeleteObject,
		Writing: plan.Writing{ResourceKey: key}, Trigger: plantest.Trigger(t, "a", "a")}}}
	r := newRig(t, p, time.Minute)
	if err := r.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := r.Status(t.Context())
	if err != nil || len(s.Waiting) != 1 ||
		!strings.HasPrefix(s.Waiting[0], "action 1 (delete pod/default/x): trigger ") {
		t.Errorf("waiting %q (%v)", s.Waiting, err)
	}
	r.observe(t, pod("a"))
	s, err = r.Status(t.Context())
	if err != nil || len(s.Findings) != 1 || s.Findings[0].Title != "action 1 (delete pod/default/x) failed: refused" ||
		s.Findings[0].Subject != "pod/default/x" {
		t.Errorf("findings %+v (%v)", s.Findings, err)
	}
}

func (j *journal) Delete(context.Context, plan.ResourceKey) error { return errors.New("refused") }
func (j *journal) Apply(context.Context, map[string]any) error    { return errors.New("refused") }
func (j *journal) ApplyFile(context.Context, string) error        { return errors.New("refused") }
func (j *journal) Patch(context.Context, plan.ResourceKey, string, string, any) error {
	return errors.New("refused")
}
