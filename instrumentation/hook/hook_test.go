package hook

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
	"go.uber.org/goleak"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

const childEnv = "TROMMEL_HOOK_TEST_CHILD"

func TestMain(m *testing.M) {
	if role := os.Getenv(childEnv); role == childMonitor || role == childController {
		runChild(role)
	} else if role != "" {
		fmt.Printf("enabled=%t connected=%t", Enabled(), Connected())
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// monitor is the coordinator's side, with the same libraries as the real one.
type monitor struct {
	t        testing.TB
	address  string
	listener net.Listener
	sessions chan *monitored
	wg       sync.WaitGroup

	mu     sync.Mutex
	reject string
	limits wire.Limits
	rules  []wire.Rule
	open   []*monitored
}

type monitored struct {
	monitor   *monitor
	mux       *yamux.Session
	control   *rpc.Client
	hello     wire.Hello
	arrived   chan *held
	abandoned chan wire.Abandoned
	missed    chan wire.Missed
	troubles  chan wire.Trouble
}

type held struct {
	wire.Observation
	done    chan struct{}
	failure *wire.Failure // read when done is closed
}

func (h *held) release() { close(h.done) }

func (h *held) fail(f wire.Failure) {
	h.failure = &f
	h.release()
}

func listen(t testing.TB, address string, rules ...wire.Rule) *monitor {
	t.Helper()
	network, path, _ := strings.Cut(address, "://")
	l, err := net.Listen(network, path)
	if err != nil {
		t.Fatal(err)
	}
	m := &monitor{t: t, address: l.Addr().Network() + "://" + l.Addr().String(), listener: l, rules: rules,
		sessions: make(chan *monitored, 16)}
	m.wg.Add(1)
	go func() {
		defer m.wg.Done()
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			m.wg.Add(1)
			go func() { defer m.wg.Done(); m.serve(conn) }()
		}
	}()
	t.Cleanup(m.kill)
	return m
}

// kill ends the monitor like SIGKILL: connections drop, the socket is gone.
func (m *monitor) kill() {
	_ = m.listener.Close()
	m.mu.Lock()
	for _, s := range m.open {
		_ = s.mux.Close()
	}
	m.mu.Unlock()
	m.wg.Wait()
}

func (m *monitor) serve(conn net.Conn) {
	config := yamux.DefaultConfig()
	config.EnableKeepAlive = false
	config.LogOutput = discard{}
	mux, err := yamux.Server(conn, config)
	if err != nil {
		return
	}
	defer mux.Close()
	s := &monitored{monitor: m, mux: mux, arrived: make(chan *held, 1024), abandoned: make(chan wire.Abandoned, 16),
		missed: make(chan wire.Missed, 16), troubles: make(chan wire.Trouble, 16)}
	m.mu.Lock()
	m.open = append(m.open, s)
	m.mu.Unlock()
	stream, err := mux.AcceptStream()
	if err != nil {
		return
	}
	server := rpc.NewServer()
	if err := server.RegisterName(wire.MonitorService, &monitorService{s}); err != nil {
		panic(err)
	}
	server.ServeConn(stream)
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

type monitorService struct{ s *monitored }

func (v *monitorService) Hello(h *wire.Hello, w *wire.Welcome) error {
	m := v.s.monitor
	m.mu.Lock()
	w.Reject, w.Limits = m.reject, m.limits
	w.Interests = wire.Interests{Generation: 1, Rules: m.rules}
	m.mu.Unlock()
	v.s.hello = *h
	go func() { // ends with the session
		stream, err := v.s.mux.OpenStream()
		if err != nil {
			return
		}
		v.s.control = rpc.NewClient(stream)
		m.sessions <- v.s
		<-v.s.mux.CloseChan()
		_ = v.s.control.Close()
	}()
	return nil
}

func (v *monitorService) Observe(o *wire.Observation, answer *wire.Release) error {
	h := &held{Observation: *o, done: make(chan struct{})}
	v.s.arrived <- h
	select {
	case <-h.done:
		answer.Failure = h.failure
	case <-v.s.mux.CloseChan():
	}
	return nil
}

func (v *monitorService) Abandon(a *wire.Abandoned, _ *wire.Release) error {
	v.s.abandoned <- *a
	return nil
}

func (v *monitorService) Miss(x *wire.Missed, _ *wire.Release) error {
	v.s.missed <- *x
	return nil
}

func (v *monitorService) Trouble(t *wire.Trouble, _ *wire.Release) error {
	v.s.troubles <- *t
	return nil
}

func (s *monitored) configure(generation uint64, rules ...wire.Rule) {
	s.monitor.t.Helper()
	var ack wire.Ack
	if err := s.control.Call(wire.HookService+".Configure", wire.Interests{Generation: generation, Rules: rules},
		&ack); err != nil {
		s.monitor.t.Fatal(err)
	}
	if ack.Generation != generation {
		s.monitor.t.Fatalf("acknowledged generation %d, want %d", ack.Generation, generation)
	}
}

func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("no %s within 10s", what)
		panic("unreachable")
	}
}

// start runs an agent like init.
func start(t testing.TB, address string) *agent {
	t.Helper()
	a := newAgent(address, "secret", "db")
	go a.run()
	t.Cleanup(func() {
		close(a.stop)
		<-a.done
	})
	receive(t, "first attempt", a.tried)
	return a
}

func socket(t testing.TB) string { return "unix://" + filepath.Join(t.TempDir(), "s") }

func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10s: %s", what)
		}
	}
}

var podWrites = wire.Rule{Point: ControllerWrite, Phase: wire.Before, Kind: "pod", Resource: "pods", Name: "web-*"}

func write(name string) *Observation {
	return &Observation{Point: ControllerWrite, Operation: Create, Resource: "pods", GroupKnown: true,
		Namespace: "default", Name: name}
}

func TestHandshakeIsDoneBeforeMain(t *testing.T) {
	for _, address := range []string{"tcp://127.0.0.1:0", socket(t)} {
		m := listen(t, address)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"=1", wire.EnvCoordinator+"="+m.address, wire.EnvToken+"=secret",
			wire.EnvIdentity+"=db")
		out, err := cmd.CombinedOutput()
		if err != nil || string(out) != "enabled=true connected=true" {
			t.Errorf("%s: main saw %q (%v)", address, out, err)
		}
		s := receive(t, "session", m.sessions)
		if s.hello.ProtocolVersion != wire.ProtocolVersion || s.hello.Token != "secret" || s.hello.Identity != "db" ||
			s.hello.PID != cmd.Process.Pid {
			t.Errorf("%s: hello %+v", address, s.hello)
		}
	}
}

func TestMainDoesNotWaitForAnAbsentCoordinator(t *testing.T) {
	for _, address := range []string{socket(t), "tcp://127.0.0.1:1", "nonsense", ""} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"=1", wire.EnvCoordinator+"="+address)
		began := time.Now()
		out, err := cmd.CombinedOutput()
		want := fmt.Sprintf("enabled=%t connected=false", address != "")
		if err != nil || string(out) != want {
			t.Errorf("%q: main saw %q (%v), want %q", address, out, err, want)
		}
		// A process that waited for the handshake would have taken that long.
		if took := time.Since(began); took >= helloTimeout {
			t.Errorf("%q: main waited %s", address, took)
		}
	}
}

func TestManifestIsShownInTheHandshake(t *testing.T) {
	manifest = base64.StdEncoding.EncodeToString(
		[]byte(`{"Builder":"v1","Points":[{"Point":"reconcile","Function":"Reconcile","Line":3}]}`))
	defer func() { manifest = "" }()
	m := listen(t, socket(t))
	start(t, m.address)
	got := receive(t, "session", m.sessions).hello.Manifest
	if got.Builder != "v1" || len(got.Points) != 1 || got.Points[0].Point != Reconcile || got.Points[0].Line != 3 {
		t.Errorf("manifest %+v", got)
	}
}

func TestCallsAreHeldUntilReleasedAndArriveInOrder(t *testing.T) {
	m := listen(t, socket(t), podWrites)
	start(t, m.address)
	s := receive(t, "session", m.sessions)

	const n = 50
	returned := make([]chan struct{}, n)
	var calls []*held
	for i := range returned {
		returned[i] = make(chan struct{})
		go func() {
			defer close(returned[i])
			BeginLong(write(fmt.Sprintf("web-%d", i))).Before([]byte(`{"i":1}`), nil)
		}()
		h := receive(t, "observation", s.arrived)
		if want := fmt.Sprintf("web-%d", i); h.Name != want || string(h.Object) != `{"i":1}` || h.Phase != wire.Before {
			t.Fatalf("observation %+v, want one of %s", h.Observation, want)
		}
		calls = append(calls, h)
	}
	for i := n - 1; i >= 0; i-- {
		select {
		case <-returned[i]:
			t.Fatalf("call %d returned without release", i)
		default:
		}
		calls[i].release()
		receive(t, "return", returned[i])
	}
}

func TestConcurrentCallsKeepTheirOrder(t *testing.T) {
	m := listen(t, socket(t), wire.Rule{Point: AnnotatedCall, Phase: wire.Before})
	start(t, m.address)
	s := receive(t, "session", m.sessions)
	// net/rpc's server does not keep the order; the call numbers must have no gaps or duplicates in any order.
	const n = 300
	var wg sync.WaitGroup
	for range n {
		wg.Add(1)
		go func() { defer wg.Done(); BeginCall(context.Background(), "x") }()
	}
	seen := map[uint64]bool{}
	for range n {
		h := receive(t, "observation", s.arrived)
		if seen[h.Call] || h.Call == 0 {
			t.Fatalf("call %d twice", h.Call)
		}
		seen[h.Call] = true
		h.release()
	}
	wg.Wait()
}

func TestBeforeAndAfterShareTheirCall(t *testing.T) {
	after := podWrites
	after.Phase = wire.After
	m := listen(t, socket(t), podWrites, after)
	start(t, m.address)
	s := receive(t, "session", m.sessions)
	go func() {
		c := BeginLong(write("web-0"))
		c.Before(nil, nil)
		c.After(map[string]int{"a": 1}, nil, errors.New("boom"), 409)
	}()
	b := receive(t, "before", s.arrived)
	b.release()
	a := receive(t, "after", s.arrived)
	a.release()
	if a.Call != b.Call || a.Phase != wire.After || a.Error != "boom" || a.Code != 409 ||
		string(a.Object) != `{"a":1}` {
		t.Errorf("before %+v, after %+v", b.Observation, a.Observation)
	}
}

func TestAHeldCallEndsWithItsContext(t *testing.T) {
	after := podWrites
	after.Phase = wire.After
	for _, phase := range []wire.Phase{wire.Before, wire.After} {
		t.Run(string(phase), func(t *testing.T) {
			m := listen(t, socket(t), podWrites, after)
			start(t, m.address)
			s := receive(t, "session", m.sessions)
			ctx, cancel := context.WithCancel(context.Background())
			var before, after error
			returned := make(chan struct{})
			go func() {
				defer close(returned)
				c := BeginLong(write("web-0")).Until(ctx)
				before = c.Before(nil, nil)
				after = c.After(nil, nil, nil, 200)
			}()
			h := receive(t, "before", s.arrived)
			if phase == wire.After {
				h.release()
				h = receive(t, "after", s.arrived)
			}
			cancel()
			gone := receive(t, "abandoned", s.abandoned)
			if phase == wire.Before {
				// The end of the call is reported too, also without waiting; net/rpc's server may swap the two.
				receive(t, "after", s.arrived)
				if other := receive(t, "abandoned", s.abandoned); other.Phase == wire.Before {
					gone = other
				}
			}
			receive(t, "return", returned)
			if gone.Call != h.Call || gone.Phase != phase || gone.Error != context.Canceled.Error() {
				t.Errorf("abandoned %+v, the call is %d", gone, h.Call)
			}
			if (before != nil) != (phase == wire.Before) || after != context.Canceled {
				t.Errorf("before: %v, after: %v", before, after)
			}
		})
	}
}

func TestAPanicOfAHookIsToldAndHarmsNobody(t *testing.T) {
	atomic.StoreInt32(&troubles, 0) // a process reports only a limited number
	m := listen(t, socket(t), podWrites)
	start(t, m.address)
	s := receive(t, "session", m.sessions)
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		_ = BeginLong(write("web-0")).Before(panics{}, nil)
		func() {
			defer IgnorePanic()
			panic("in a template")
		}()
	}()
	h := receive(t, "observation", s.arrived)
	if h.Object != nil {
		t.Errorf("object %s", h.Object)
	}
	h.release()
	receive(t, "return", returned)
	var told []string
	for range 2 {
		trouble := receive(t, "trouble", s.troubles)
		told = append(told, trouble.Text)
		if !strings.Contains(trouble.Stack, "TestAPanicOfAHookIsToldAndHarmsNobody") {
			t.Errorf("stack %s", trouble.Stack)
		}
	}
	sort.Strings(told)
	if got := strings.Join(told, ", "); got != "encode hook.panics: boom, in a template" {
		t.Errorf("told: %s", got)
	}
}

func TestAListReportsWhatRulesAskFor(t *testing.T) {
	list := wire.Rule{Point: ControllerRead, Phase: wire.After, Resource: "pods", Operations: []wire.Operation{List}}
	asking := list
	asking.Items, asking.ItemNamespace, asking.ItemName = true, "default", "web-*"
	items := func() ([]interface{}, bool) {
		var typedNil *named
		return []interface{}{
			&named{"default", "web-0"}, []byte(`{"metadata":{"namespace":"default","name":"web-1"}}`),
			&named{"default", "db-0"},
			&named{"other", "web-0"}, nil, typedNil,
		}, true
	}
	for _, test := range []struct {
		rule    wire.Rule
		err     error
		want    []string
		partial bool
	}{
		{asking, nil, []string{`{"Namespace":"default","Name":"web-0"}`,
			`{"metadata":{"namespace":"default","name":"web-1"}}`}, true},
		{list, nil, nil, false},
		{asking, errors.New("boom"), nil, false},
	} {
		m := listen(t, socket(t), test.rule)
		start(t, m.address)
		s := receive(t, "session", m.sessions)
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			_ = Begin(&Observation{Point: ControllerRead, Operation: List, Resource: "pods",
				Namespace: "default"}).AfterList(items, test.err, 0)
		}()
		h := receive(t, "list", s.arrived)
		h.release()
		receive(t, "return", returned)
		var got []string
		for _, o := range h.Objects {
			got = append(got, string(o))
		}
		if strings.Join(got, ",") != strings.Join(test.want, ",") || h.Partial != test.partial {
			t.Errorf("%+v: %q, partial %t; want %q, %t", test.rule, got, h.Partial, test.want, test.partial)
		}
		m.kill()
	}
}

type named struct{ Namespace, Name string }

func (n *named) GetNamespace() string { return n.Namespace }
func (n *named) GetName() string      { return n.Name }

// untypedObject is like an unstructured object: it contains its kind.
type untypedObject struct{ kind string }

func (u *untypedObject) GetKind() string       { return u.kind }
func (u *untypedObject) GetAPIVersion() string { return "v1" }

func TestDescribeTakesWhateverItIsGiven(t *testing.T) {
	var noObject *named
	var noUntyped *untypedObject
	for _, tc := range []struct {
		name   string
		object interface{}
		want   Observation
	}{
		{"nil", nil, Observation{}},
		{"typed nil", noObject, Observation{Kind: "named"}},
		{"unstructured nil", noUntyped, Observation{}},
		{"unstructured without a kind", &untypedObject{}, Observation{}},
		{"no metadata", &struct{ A int }{1}, Observation{}},
		{"JSON", []byte(`{"metadata":{"name":"a"}}`), Observation{Name: "a"}},
		{"no JSON", []byte("k8s"), Observation{}},
		{"object", &named{"ns", "a"}, Observation{Kind: "named", Namespace: "ns", Name: "a"}},
	} {
		var o Observation
		Describe(&o, tc.object)
		if o.Kind != tc.want.Kind || o.Namespace != tc.want.Namespace || o.Name != tc.want.Name {
			t.Errorf("%s: %+v, want %+v", tc.name, o, tc.want)
		}
	}
}

func TestConfigureIsInForceWhenItReturns(t *testing.T) {
	m := listen(t, socket(t))
	start(t, m.address)
	s := receive(t, "session", m.sessions)
	if Listening(ControllerWrite) {
		t.Error("listening without rules")
	}
	for generation := uint64(2); generation < 40; generation += 2 {
		s.configure(generation, podWrites)
		if !Listening(ControllerWrite) || Begin(write("web-0")) == nil || Begin(write("db-0")) != nil {
			t.Fatal("new rules are not in force")
		}
		s.configure(generation + 1)
		if Listening(ControllerWrite) || Begin(write("web-0")) != nil {
			t.Fatal("old rules are still in force")
		}
	}
	var ack wire.Ack
	if err := s.control.Call(wire.HookService+".Configure",
		wire.Interests{Generation: 3, Rules: []wire.Rule{podWrites}}, &ack); err != nil || ack.Generation != 39 {
		t.Errorf("an outdated generation is acknowledged as %d (%v)", ack.Generation, err)
	}
	if Listening(ControllerWrite) {
		t.Error("an outdated generation is in force")
	}
}

func TestRulesThatComeDuringALongCallTakeItsEnd(t *testing.T) {
	m := listen(t, socket(t))
	start(t, m.address)
	s := receive(t, "session", m.sessions)
	c := BeginLong(&Observation{Point: Reconcile, Namespace: "default", Name: "db"})
	c.Before(nil, nil) // nobody listens
	s.configure(2, wire.Rule{Point: Reconcile, Phase: wire.After})
	done := make(chan struct{})
	go func() { defer close(done); c.After(nil, nil, nil, 0) }()
	receive(t, "after", s.arrived).release()
	receive(t, "return", done)
}

func TestKilledCoordinatorLetsGoAndIsFoundAgain(t *testing.T) {
	address := socket(t)
	m := listen(t, address, podWrites)
	start(t, address)
	for range 3 {
		s := receive(t, "session", m.sessions)
		const n = 20
		done := make(chan struct{}, n)
		for range n {
			go func() {
				Begin(write("web-0")).Before(nil, nil)
				done <- struct{}{}
			}()
		}
		for range n {
			receive(t, "observation", s.arrived)
		}
		m.kill()
		for range n {
			receive(t, "return of a held call", done)
		}
		eventually(t, "inert", func() bool { return !Connected() })
		if c := Begin(write("web-0")); c != nil {
			t.Fatal("a call begins although nobody listens")
		}
		m = listen(t, address, podWrites)
		eventually(t, "connected again", Connected)
	}
}

func TestRejectedProcessStaysInertAndDoesNotDialAgain(t *testing.T) {
	m := listen(t, socket(t))
	m.mu.Lock()
	m.reject = "wrong token"
	m.mu.Unlock()
	a := start(t, m.address)
	receive(t, "end of the agent", a.done)
	if Connected() {
		t.Error("connected")
	}
	receive(t, "session", m.sessions)
	select {
	case <-m.sessions:
		t.Error("dialed again")
	case <-time.After(3 * redialEvery):
	}
}

func TestSilentCoordinatorDoesNotKeepMain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // the kernel accepts connections, but nothing answers
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1", wire.EnvCoordinator+"=tcp://"+l.Addr().String())
	began := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "enabled=true connected=false" {
		t.Errorf("main saw %q (%v)", out, err)
	}
	if took := time.Since(began); took < helloTimeout || took > helloTimeout+3*time.Second {
		t.Errorf("main began after %s", took)
	}
}

func TestGroupOfAGoType(t *testing.T) {
	for pkg, want := range map[string]string{
		"k8s.io/api/core/v1": "", "k8s.io/api/apps/v1beta2": "apps", "k8s.io/api/rbac/v1": "rbac.authorization.k8s.io",
		"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1": "apiextensions.k8s.io",
	} {
		if got, known := groupOf(pkg); got != want || !known {
			t.Errorf("groupOf(%q) = %q, %t; want %q", pkg, got, known, want)
		}
	}
	if _, known := groupOf("example.com/api/v1"); known {
		t.Error("the group of a foreign package is known")
	}
}

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("boom") }

func TestEncode(t *testing.T) {
	var nilPointer *wire.Rule
	for _, tc := range []struct {
		name   string
		object interface{}
		want   string
	}{
		{"nothing", nil, ""},
		{"nil pointer", nilPointer, ""},
		{"JSON", []byte(`{"a":1}`), `{"a":1}`},
		{"a JSON patch is no object", []byte(`[{"op":"add"}]`), ""},
		{"protobuf is no JSON", []byte("k8s\x00"), ""},
		{"lazy", Lazy(func() interface{} { return map[string]int{"a": 1} }), `{"a":1}`},
		{"panic", panics{}, ""},
		{"lazy panic", Lazy(func() interface{} { panic("boom") }), ""},
	} {
		if got := string(Encode(tc.object)); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestNilCallDoesNothing(t *testing.T) {
	var c *Call
	c.Before(nil, nil)
	c.After(nil, nil, nil, 0)
	c.Name("a", "b")
	BeginCall(context.Background(), "x").After(nil, nil, nil, 0)
}

func TestServiceAccountFile(t *testing.T) {
	const token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	if got := ServiceAccountFile(token); got != token {
		t.Errorf("without %s: %s", wire.EnvServiceAccountDir, got)
	}
	t.Setenv(wire.EnvServiceAccountDir, "/run/sa")
	if got := ServiceAccountFile(token); got != "/run/sa/token" {
		t.Errorf("with %s: %s", wire.EnvServiceAccountDir, got)
	}
}

// TestNoListenerCostsNoAllocation checks that hooks cost almost nothing in a process that is not observed.
func TestNoListenerCostsNoAllocation(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		if Listening(ControllerRecv) || Connected() {
			t.Fatal("somebody listens")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkNoListener(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if Listening(ControllerRecv) {
			b.Fatal("somebody listens")
		}
	}
}

func BenchmarkNotInterested(b *testing.B) {
	m := listen(b, socket(b), wire.Rule{Point: ControllerWrite, Phase: wire.Before, Kind: "pod", Resource: "pods",
		Namespace: "default", Name: "web-0"})
	a := newAgent(m.address, "secret", "db")
	go a.run()
	<-a.tried
	o := write("other")
	b.ReportAllocs()
	for b.Loop() {
		if Listening(ControllerWrite) {
			if Begin(o) != nil {
				b.Fatal("somebody is interested")
			}
		}
	}
	close(a.stop)
	<-a.done
}

func BenchmarkObservedAndReleased(b *testing.B) {
	m := listen(b, socket(b), wire.Rule{Point: ControllerWrite, Phase: wire.Before})
	a := newAgent(m.address, "secret", "db")
	go a.run()
	<-a.tried
	s := <-m.sessions
	go func() {
		for h := range s.arrived {
			h.release()
		}
	}()
	object := []byte(`{"data":"` + strings.Repeat("x", 4096) + `"}`)
	o := write("web-0")
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		Begin(o).Before(object, nil)
		took = append(took, time.Since(began))
	}
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-µs")
	close(a.stop)
	<-a.done
	m.kill()
	close(s.arrived)
}

// A request to the API server that the environment names goes to the process's own cluster.
func TestServer(t *testing.T) {
	before := own
	t.Cleanup(func() { own = before })
	own = "127.0.0.1:6443"
	for host, want := range map[string]string{
		"127.0.0.1:6443": wire.OwnServer, "127.0.0.1:7443": "127.0.0.1:7443", "localhost:6443": "localhost:6443",
	} {
		if got := Server(host); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}
