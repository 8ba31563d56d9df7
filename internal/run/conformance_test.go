package run

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/trommel-dev/trommel/actions"
	"github.com/trommel-dev/trommel/coordinator"
	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/instrumentation/points"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/internal/run/site"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// TestConformance compares the table of plan.Meanings, and so docs/plan-format.md, with what happens: a controller does
// each kind of read and write with each kind of client, and the test predicts the number of matches of each condition
// at each point.
//
// For each operation one plan waits for all conditions at once: each as often as predicted, which must be satisfied,
// and once more, which must not. Then each condition with a predicted match gets its own plan, so that rules of other
// conditions do not help it. Finally a pause of the object must hold the operation.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	rig := newConformance(t)
	began := time.Now()
	plans := 0
	for _, v := range verbs {
		t.Run(v.name(), func(t *testing.T) { plans += rig.conform(t, v) })
	}
	t.Logf("%d plans in %s", plans, time.Since(began).Round(time.Millisecond))
	t.Run("reconcile", func(t *testing.T) { rig.conformReconcile(t) })
	t.Run("annotated calls fail", func(t *testing.T) { rig.failCalled(t) })
}

// effect is what an operation does to its object, or shows of it, at a point.
type effect struct {
	kind     plan.EventKind // empty: nothing
	old, new string         // the object's step; a deletion has old only, a read new only
}

func (e effect) read() bool { return e.kind == plan.Read }

// verb is an operation of the controller with its predictions.
type verb struct {
	operation string
	variant   string // of the operation: the state before it
	object    kind
	field     string // of the step: data, spec, status, replicas, hostname
	absent    bool   // there is no object before
	finalizer bool
	does      effect
	events    *effect // what the API server and informers see, if that differs
	noisy     bool    // other clients write the object too: events are not predicted
	// unforeseen: the outcome is unknown before the write, because the API server adds to it; then conditions on states
	// are not predicted at "before" timings.
	unforeseen bool
	collection bool // the call does not name an object
}

func (v verb) name() string { return strings.TrimSuffix(v.operation+" "+v.variant, " ") }

type kind struct {
	gvr       schema.GroupVersionResource
	name      string
	informers int // of the controller
}

var (
	configMaps = kind{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap", 2}
	widgets    = kind{schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, "Widget",
		1}
	ingresses = kind{schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
		"Ingress", 0}
	deployments = kind{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "Deployment",
		0}
	pods = kind{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", 0}
)

var (
	created = effect{plan.Created, "", "new"}
	updated = effect{plan.Updated, "old", "new"}
	deleted = effect{plan.Deleted, "old", ""}
	found   = effect{plan.Read, "", "old"}
	nowhere = effect{plan.Read, "", ""}
	nothing = effect{}
)

var verbs = slices.Concat(
	of(verb{object: configMaps, field: "data", does: found},
		"typed-get", "dynamic-get", "prefixed-get", "live-get", "cached-get", "lister-get"),
	of(verb{object: configMaps, field: "data", does: found, collection: true},
		"typed-list", "typed-list-all", "dynamic-list", "prefixed-list", "live-list", "cached-list", "cached-list-all",
		"lister-list", "lister-list-all"),
	of(verb{object: configMaps, field: "data", does: effect{plan.Read, "", "unknown"}}, "metadata-get"),
	of(verb{object: configMaps, field: "data", does: effect{plan.Read, "", "unknown"}, collection: true},
		"metadata-list"),
	of(verb{object: configMaps, field: "data", does: nowhere, absent: true, variant: "(nothing there)"},
		"typed-get", "dynamic-get", "metadata-get", "live-get", "cached-get", "lister-get"),
	of(verb{object: configMaps, field: "data", does: nowhere, absent: true, collection: true,
		variant: "(nothing there)"},
		"typed-list", "typed-list-all", "dynamic-list", "metadata-list", "live-list", "cached-list", "cached-list-all",
		"lister-list", "lister-list-all"),
	of(verb{object: configMaps, field: "data", does: nothing, collection: true}, "typed-list-elsewhere", "typed-watch"),
	of(verb{object: widgets, field: "spec", does: found}, "dynamic-get-status"),
	of(verb{object: widgets, field: "spec", does: nothing}, "dynamic-get-scale"),

	of(verb{object: configMaps, field: "data", does: created, absent: true}, "typed-create", "cached-create"),
	of(verb{object: widgets, field: "spec", does: created, absent: true}, "dynamic-create", "prefixed-create"),
	of(verb{object: configMaps, field: "data", does: nothing, absent: true}, "typed-create-dry"),

	of(verb{object: configMaps, field: "data", does: updated}, "typed-update", "cached-update",
		"typed-patch-merge", "typed-patch-json", "typed-patch-strategic", "dynamic-patch-strategic",
		"metadata-patch-merge",
		"cached-patch-merge", "cached-patch-json", "cached-patch-strategic", "cached-patch-metadata", "typed-apply",
		"cached-apply"),
	of(verb{object: widgets, field: "spec", does: updated}, "dynamic-update", "prefixed-update",
		"dynamic-patch-merge", "dynamic-patch-json", "metadata-patch-json",
		"cached-patch-unstructured", "dynamic-apply", "cached-apply-unstructured"),
	of(verb{object: widgets, field: "status", does: updated, variant: "(status)"}, "dynamic-update-status",
		"prefixed-update-status", "cached-update-status", "dynamic-patch-status-merge",
		"dynamic-patch-status-json", "metadata-patch-status", "cached-patch-status-merge", "cached-patch-status-json",
		"dynamic-apply-status"),
	// An update of the object itself does not change its status.
	of(verb{object: widgets, field: "status", does: effect{plan.Updated, "old", "old"}, variant: "(its status)"},
		"dynamic-update", "dynamic-apply"),
	of(verb{object: ingresses, field: "hostname", does: updated}, "typed-update-status", "typed-patch-status-merge",
		"typed-patch-status-strategic", "typed-apply-status"),
	of(verb{object: widgets, field: "replicas", does: updated}, "dynamic-patch-scale", "cached-scale"),
	of(verb{object: deployments, field: "replicas", does: updated, noisy: true}, "typed-scale", "typed-patch-scale"),
	of(verb{object: configMaps, field: "data", does: created, absent: true, variant: "(nothing there)"}, "typed-apply",
		"cached-apply"),
	of(verb{object: widgets, field: "spec", does: created, absent: true, variant: "(nothing there)"}, "dynamic-apply"),

	of(verb{object: pods, field: "label", does: deleted, noisy: true}, "typed-evict", "cached-evict"),
	of(verb{object: pods, field: "label", does: effect{plan.Updated, "old", "old"}, noisy: true, unforeseen: true},
		"typed-bind"),
	of(verb{object: configMaps, field: "data", does: deleted}, "typed-delete", "metadata-delete",
		"prefixed-delete", "cached-delete"),
	of(verb{object: configMaps, field: "data", does: deleted, collection: true}, "typed-delete-collection",
		"metadata-delete-collection", "cached-delete-collection"),
	of(verb{object: configMaps, field: "data", does: nothing, collection: true}, "typed-delete-other-collection"),
	of(verb{object: configMaps, field: "data", does: nothing}, "typed-delete-dry"),
	of(verb{object: widgets, field: "spec", does: deleted}, "dynamic-delete"),
	of(verb{object: widgets, field: "spec", does: deleted, collection: true}, "dynamic-delete-collection"),
	of(verb{object: configMaps, field: "data", does: deleted, finalizer: true,
		events: &effect{plan.Updated, "old", "old"}, variant: "(a finalizer)"},
		"typed-delete", "cached-delete"),
)

func of(v verb, operations ...string) []verb {
	var list []verb
	for _, o := range operations {
		v.operation = o
		list = append(list, v)
	}
	return list
}

// condition is one form of a condition. prev and cur are values of the step: old, new, or another one.
type condition struct {
	label     string
	typ       plan.TriggerType
	prev, cur string
	// "prev" or "cur": that state names a label that no operation changes; "absent": cur requires it to be absent
	same  string
	where bool // on that label
}

var conditions = []condition{
	{label: "creation", typ: plan.OnObjectCreation},
	{label: "creation-new", typ: plan.OnObjectCreation, cur: "new"},
	{label: "creation-other", typ: plan.OnObjectCreation, cur: "other"},
	{label: "update", typ: plan.OnObjectUpdate},
	{label: "update-new", typ: plan.OnObjectUpdate, cur: "new"},
	{label: "update-old", typ: plan.OnObjectUpdate, cur: "old"},
	{label: "update-old-new", typ: plan.OnObjectUpdate, prev: "old", cur: "new"},
	{label: "update-from-old", typ: plan.OnObjectUpdate, prev: "old"},
	{label: "update-other", typ: plan.OnObjectUpdate, cur: "other"},
	{label: "update-same", typ: plan.OnObjectUpdate, same: "cur"},
	{label: "update-absent", typ: plan.OnObjectUpdate, same: "absent"},
	{label: "update-where", typ: plan.OnObjectUpdate, where: true},
	{label: "deletion", typ: plan.OnObjectDeletion},
	{label: "deletion-old", typ: plan.OnObjectDeletion, prev: "old"},
	{label: "deletion-other", typ: plan.OnObjectDeletion, prev: "other"},
	{label: "any-old", typ: plan.OnAnyFieldModified, prev: "old"},
	{label: "any-same", typ: plan.OnAnyFieldModified, same: "prev"},
	{label: "all-old", typ: plan.OnAllFieldsModified, prev: "old"},
}

// matches predicts whether an effect satisfies the condition. It follows the documentation, not the code.
func (c condition) matches(e effect) bool {
	changed := e.old != e.new
	switch e.kind {
	case plan.Created:
		return c.typ == plan.OnObjectCreation && (c.cur == "" || c.cur == e.new)
	case plan.Deleted:
		return c.typ == plan.OnObjectDeletion && (c.prev == "" || c.prev == e.old)
	case plan.Read:
		if e.new == "" {
			return c.typ == plan.OnObjectDeletion
		}
		return c.typ == plan.OnObjectUpdate && (c.cur == "" || c.cur == e.new) && c.same != "absent"
	case plan.Looking:
		return c.typ == plan.OnObjectUpdate
	case plan.Updated:
		switch c.typ {
		case plan.OnObjectUpdate:
			one := (c.prev == "") != (c.cur == "")
			return c.same == "" && (c.prev == "" || c.prev == e.old) && (c.cur == "" || c.cur == e.new) &&
				(!one || changed)
		case plan.OnAnyFieldModified, plan.OnAllFieldsModified:
			return c.same == "" && c.prev == e.old && changed
		}
	}
	return false
}

// refused reports whether, by the table, a condition has no meaning at a point.
func (c condition) refused(point string, before bool) bool {
	for _, m := range plan.Meanings {
		if !slices.Contains(m.Conditions, c.typ) || !slices.Contains(m.Points, point) {
			continue
		}
		text, without := m.After, m.NoStatesAfter
		if before {
			text, without = m.Before, m.NoStatesBefore
		}
		return text == "" || slices.Contains(without, "prevState") && (c.prev != "" || c.same == "prev") ||
			slices.Contains(without, "curState") && (c.cur != "" || c.same == "cur" || c.same == "absent") ||
			slices.Contains(without, "where") && c.where
	}
	return true
}

// state returns a partial object in which the verb's step has a value.
func (v verb) state(value string) map[string]any {
	switch v.field {
	case "replicas":
		return map[string]any{"spec": map[string]any{"replicas": map[string]int{"old": 1, "new": 2, "other": 3}[value]}}
	case "hostname":
		return map[string]any{"status": map[string]any{
			"loadBalancer": map[string]any{"ingress": []any{map[string]any{"hostname": value}}},
		}}
	case "label":
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{"step": value}}}
	}
	return map[string]any{v.field: map[string]any{"step": value}}
}

func (v verb) key(name string) plan.ResourceKey {
	return plan.ResourceKey{Type: strings.ToLower(v.object.name), Group: v.object.gvr.Group, Namespace: "default",
		Name: name}
}

// definition returns the condition for the verb's object with that name.
func (c condition) definition(v verb, name string, timing plan.Timing, repeat int) plan.Definition {
	cond := plan.Condition{Type: c.typ, ResourceKey: v.key(name), Repeat: repeat}
	if c.prev != "" {
		cond.PrevState = v.state(c.prev)
	}
	if c.cur != "" {
		cond.CurState = v.state(c.cur)
	}
	label := func(value string) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{"of": value}}}
	}
	switch c.same {
	case "prev":
		cond.PrevState = label(name)
	case "cur":
		cond.CurState = label(name)
	case "absent":
		cond.CurState = label(plan.Absent)
	}
	if c.where {
		cond.Where = fmt.Sprintf("object.metadata.labels.of == %q", name)
	}
	by := "verbs"
	if strings.HasSuffix(string(timing), "APIServerRecv") {
		by = "apiserver-1"
	}
	return plan.Definition{
		Name: fmt.Sprintf("%s.%s.%d", timing, c.label, repeat), Condition: cond,
		Observe: plan.ObservationPoint{Timing: timing, ObserveBy: by},
	}
}

// prediction returns how often a condition matches at a timing; -1: not predicted.
func (v verb) prediction(c condition, timing plan.Timing) int {
	point := strings.TrimPrefix(strings.TrimPrefix(string(timing), "before"), "after")
	before := strings.HasPrefix(string(timing), "before")
	e, times := v.does, 1
	switch point {
	case "ControllerRead":
		if !e.read() {
			return 0
		}
		if before {
			e.kind = plan.Looking
		}
	case "ControllerWrite":
		if e.read() {
			return 0
		}
		if before && v.unforeseen && (c.prev != "" || c.cur != "" || c.same != "" || c.where) {
			return -1
		}
	default:
		if v.noisy {
			return -1
		}
		if e.read() {
			return 0
		}
		if v.events != nil {
			e = *v.events
		}
		if point == "ControllerRecv" {
			times = v.object.informers
		}
	}
	if !c.matches(e) {
		return 0
	}
	return times
}

type conformance struct {
	objects *objects.Client
	dynamic dynamic.Interface
	monitor *monitor.Monitor
	verbs   *process
	runs    int
	// follower watches the current plan.
	follower *follower
}

// process is the controller.
type process struct {
	in  io.Writer
	out *bufio.Scanner
}

func (p *process) do(operation, name, version string) error {
	if _, err := fmt.Fprintln(p.in, operation, name, version); err != nil {
		return err
	}
	if !p.out.Scan() {
		return fmt.Errorf("the controller has exited: %v", p.out.Err())
	}
	if answer := p.out.Text(); answer != "ok" {
		return fmt.Errorf("%s", answer)
	}
	return nil
}

func newConformance(t *testing.T) *conformance {
	built, err := instrumentation.Build(t.Context(), instrumentation.BuildConfig{
		Dir:            "../../testdata/controllers/verbs",
		AnnotatedCalls: []points.AnnotatedCall{{Name: "called", Function: "called"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := clustertest.Start(t, embedded.Config{APIServers: 1, Nodes: 1})
	config, err := c.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = -1, 0
	r := &conformance{dynamic: dynamic.NewForConfigOrDie(config)}
	if r.objects, err = objects.New(config); err != nil {
		t.Fatal(err)
	}
	definition, err := manifests.Read("testdata/widgets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range definition {
		if _, err := r.objects.Apply(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	address, token := c.Rendezvous()
	if r.monitor, err = monitor.Listen(monitor.Config{Address: address, Token: token}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.monitor.Close() })
	kubeconfig, err := c.Kubeconfig("")
	if err != nil {
		t.Fatal(err)
	}
	r.verbs = start(t, built.Binary, append(os.Environ(),
		"KUBECONFIG="+kubeconfig, wire.EnvCoordinator+"="+address, wire.EnvToken+"="+token, wire.EnvIdentity+"=verbs"))
	clustertest.Eventually(t, func(context.Context) error {
		if n := len(r.monitor.Sessions()); n < 2 {
			return fmt.Errorf("%d sessions", n)
		}
		return nil
	})
	// The controller's informers have created the watch caches of both types; this creates that of ingresses.
	for _, k := range []kind{configMaps, widgets, ingresses, pods, deployments} {
		if _, err := r.dynamic.Resource(k.gvr).List(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func start(t *testing.T, binary string, env []string) *process {
	t.Helper()
	cmd := exec.Command(binary)
	cmd.Env = env
	log, err := os.Create(t.ArtifactDir() + "/verbs.log")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	cmd.Stderr = log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if !p.out.Scan() || p.out.Text() != "ready" {
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("the controller is not ready: %s\n%s", p.out.Text(), text)
	}
	return p
}

// follower watches a coordinator and records what a pause holds.
type follower struct {
	mu   sync.Mutex
	held []string
}

func (*follower) Event(record.Event) error           { return nil }
func (*follower) Action(record.Action) error         { return nil }
func (*follower) Fired(int, *plan.Action, string)    {}
func (*follower) Completed(int, *plan.Action, error) {}
func (*follower) Released(int)                       {}
func (*follower) Next(int, string)                   {}
func (*follower) Waiting(string)                     {}
func (*follower) Info(string)                        {}

// holds returns what pauses have held so far.
func (q *follower) holds() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.held)
}

func (q *follower) Held(_ int, o *record.Observation, why string) {
	if !strings.HasPrefix(why, "paused by") {
		return // until an action is complete
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = append(q.held, fmt.Sprintf("%s %s %s/%s", o.Phase, o.Point, o.Namespace, o.Name))
}

// noWrites ignores the writes of plans: this test is not about what actions do.
type noWrites struct{ actions.Objects }

func (noWrites) Delete(context.Context, plan.ResourceKey) error { return nil }

// carryOut runs a plan while f runs; it returns the coordinator's status when f has returned, and what was held.
func (r *conformance) carryOut(
	t *testing.T, acts []plan.Action, f func(c *coordinator.Coordinator),
) (coordinator.Status, []string) {
	t.Helper()
	p := &plan.Plan{TestName: "conformance", Actions: acts}
	p.Complete(nil)
	if err := p.Validate(nil); err != nil {
		t.Fatal(err)
	}
	q := &follower{}
	r.follower = q
	c, err := coordinator.New(coordinator.Config{
		Plan: p, Monitor: r.monitor, Tools: actions.Tools{Objects: noWrites{}},
		Lookup:   (&site.Site{Objects: r.objects}).Lookup(nil),
		Hold:     time.Minute,
		Recorder: q, Watcher: q, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Resolve: func(k plan.ResourceKey) wire.Rule {
			ty, err := r.objects.Resolve(t.Context(), k)
			if err != nil {
				t.Error(err)
			}
			return wire.Rule{
				Kind: strings.ToLower(ty.Kind.Kind), Resource: ty.Resource.Resource, Group: ty.Resource.Group,
				Namespace: k.Namespace, Name: k.Name,
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	if err := c.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	f(c)
	status, err := c.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.End(ctx); err != nil {
		t.Fatal(err)
	}
	return status, q.holds()
}

// deleting returns an action, without effect, that fires when all definitions are satisfied.
func deleting(definitions ...plan.Definition) plan.Action {
	var names []string
	for _, d := range definitions {
		names = append(names, d.Name)
	}
	return plan.Action{
		Type:    plan.DeleteObject,
		Writing: plan.Writing{ResourceKey: plan.ResourceKey{Type: "configmap", Namespace: "default", Name: "none"}},
		Trigger: plan.Trigger{Definitions: definitions, Expression: strings.Join(names, "&")},
	}
}

// awaitNext waits until the plan waits for none of the named definitions.
func awaitNext(t *testing.T, c *coordinator.Coordinator, names ...string) {
	t.Helper()
	clustertest.Eventually(t, func(ctx context.Context) error {
		s, err := c.Status(ctx)
		if err != nil {
			return err
		}
		if s.Fired == s.Total {
			return nil
		}
		for _, line := range s.Waiting {
			for _, n := range names {
				if strings.Contains(line, fmt.Sprintf("%q", n)) {
					return fmt.Errorf("%s", line)
				}
			}
		}
		return nil
	})
}

// arrivals returns definitions that are satisfied when an event of an object has reached the API server and every
// informer of the controller.
func (v verb) arrivals(typ plan.TriggerType, label, name string) []plan.Definition {
	c := condition{label: label, typ: typ}
	list := []plan.Definition{c.definition(v, name, plan.AfterAPIServerRecv, 1)}
	if v.object.informers > 0 {
		list = append(list, c.definition(v, name, plan.AfterControllerRecv, v.object.informers))
	}
	return list
}

func namesOf(definitions []plan.Definition) []string {
	var names []string
	for _, d := range definitions {
		names = append(names, d.Name)
	}
	return names
}

// setUp creates the verb's object, if it needs one, and waits until the API server and all informers have it.
func (r *conformance) setUp(t *testing.T, v verb) (name, version string) {
	t.Helper()
	r.runs++
	name = fmt.Sprintf("object-%d", r.runs)
	if v.absent {
		return name, ""
	}
	u := &unstructured.Unstructured{Object: v.content()}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: v.object.gvr.Group, Version: v.object.gvr.Version,
		Kind: v.object.name})
	u.SetNamespace("default")
	u.SetName(name)
	u.SetLabels(map[string]string{"of": name, "step": "old"})
	if v.finalizer {
		u.SetFinalizers([]string{"example.com/stay"})
	}
	client := r.dynamic.Resource(v.object.gvr).Namespace("default")
	arrivals := v.arrivals(plan.OnObjectCreation, "arrived", name)
	r.carryOut(t, []plan.Action{deleting(arrivals...)}, func(c *coordinator.Coordinator) {
		made, err := client.Create(t.Context(), u, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		version = made.GetResourceVersion()
		awaitNext(t, c, namesOf(arrivals)...)
	})
	if status, there := u.Object["status"]; there {
		// A create request does not set the status.
		arrivals := v.arrivals(plan.OnObjectUpdate, "status", name)
		r.carryOut(t, []plan.Action{deleting(arrivals...)}, func(c *coordinator.Coordinator) {
			u.Object["status"] = status
			u.SetResourceVersion(version)
			made, err := client.UpdateStatus(t.Context(), u, metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			version = made.GetResourceVersion()
			awaitNext(t, c, namesOf(arrivals)...)
		})
	}
	return name, version
}

// content is the object that exists before the operation; its step is "old".
func (v verb) content() map[string]any {
	switch v.object.name {
	case "ConfigMap":
		return map[string]any{"data": map[string]any{"step": "old", "same": "same"}}
	case "Widget":
		return map[string]any{
			"spec":   map[string]any{"step": "old", "same": "same", "replicas": int64(1)},
			"status": map[string]any{"step": "old", "replicas": int64(1)},
		}
	case "Ingress":
		return map[string]any{
			"spec": map[string]any{"defaultBackend": map[string]any{
				"resource": map[string]any{"kind": "x", "name": "x"},
			}},
			"status": map[string]any{"loadBalancer": map[string]any{
				"ingress": []any{map[string]any{"hostname": "old"}},
			}},
		}
	case "Deployment":
		labels := map[string]any{"app": "x"}
		return map[string]any{"spec": map[string]any{
			"replicas": int64(1), "paused": true, "selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{
				"schedulerName": "nobody", "containers": []any{map[string]any{"name": "x", "image": "x"}},
			}},
		}}
	}
	return map[string]any{"spec": map[string]any{"schedulerName": "nobody",
		"containers": []any{map[string]any{"name": "x", "image": "x"}}}}
}

// barrier makes sure that all earlier events of the verb's type have been received, by sending one of another object.
func (r *conformance) barrier(t *testing.T, v verb, c *coordinator.Coordinator, definitions []plan.Definition) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"run":"%d"}}}`, r.runs)
	if _, err := r.dynamic.Resource(v.object.gvr).Namespace("default").
		Patch(t.Context(), v.barrierName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitNext(t, c, namesOf(definitions)...)
}

func (v verb) barrierName() string { return "barrier" }

var timings = []plan.Timing{
	plan.BeforeAPIServerRecv, plan.AfterAPIServerRecv, plan.BeforeControllerRecv, plan.AfterControllerRecv,
	plan.BeforeControllerRead, plan.AfterControllerRead, plan.BeforeControllerWrite, plan.AfterControllerWrite,
}

var waits = regexp.MustCompile(`trigger "([^"]+)" still waits`)

// conform tests one verb and returns the number of plans that it ran.
func (r *conformance) conform(t *testing.T, v verb) (plans int) {
	r.ensureBarrier(t, v)
	name, version := r.setUp(t, v)
	var definitions []plan.Definition
	expected := map[string]bool{} // by definition: must be satisfied
	single := map[string]func(name string) plan.Definition{}
	for _, timing := range timings {
		point := strings.TrimPrefix(strings.TrimPrefix(string(timing), "before"), "after")
		for _, c := range conditions {
			if c.refused(point, strings.HasPrefix(string(timing), "before")) {
				checkRefused(t, c.definition(v, name, timing, 1))
				continue
			}
			times := v.prediction(c, timing)
			if times < 0 {
				continue
			}
			never := c.definition(v, name, timing, times+1)
			definitions = append(definitions, never)
			expected[never.Name] = false
			if times > 0 {
				d := c.definition(v, name, timing, times)
				definitions = append(definitions, d)
				expected[d.Name] = true
				single[d.Name] = func(name string) plan.Definition { return c.definition(v, name, timing, times) }
			}
		}
	}
	barrier := v.arrivals(plan.OnObjectUpdate, "barrier", v.barrierName())
	status, _ := r.carryOut(t, []plan.Action{deleting(append(definitions, barrier...)...)},
		func(c *coordinator.Coordinator) {
			if err := r.verbs.do(v.operation, name, version); err != nil && v.does != nowhere {
				t.Fatal(err)
			}
			r.barrier(t, v, c, barrier)
		})
	waiting := map[string]string{}
	for _, line := range status.Waiting {
		if m := waits.FindStringSubmatch(line); m != nil {
			waiting[m[1]] = line
		}
	}
	for _, d := range definitions {
		line, still := waiting[d.Name]
		if still != expected[d.Name] {
			continue
		}
		if expected[d.Name] {
			t.Errorf("not satisfied: %s", line)
		} else {
			t.Errorf("satisfied, and should not be: %s", d.Name)
		}
	}
	for _, d := range slices.Sorted(mapKeys(single)) {
		name, version := r.setUp(t, v)
		one := single[d](name)
		plans++
		r.carryOut(t, []plan.Action{deleting(one)}, func(c *coordinator.Coordinator) {
			if err := r.verbs.do(v.operation, name, version); err != nil && v.does != nowhere {
				t.Fatal(err)
			}
			awaitNext(t, c, one.Name)
		})
	}
	r.holds(t, v)
	return plans + 2
}

func mapKeys[V any](m map[string]V) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (r *conformance) ensureBarrier(t *testing.T, v verb) {
	t.Helper()
	client := r.dynamic.Resource(v.object.gvr).Namespace("default")
	if _, err := client.Get(t.Context(), v.barrierName(), metav1.GetOptions{}); err == nil {
		return
	}
	u := &unstructured.Unstructured{Object: v.content()}
	delete(u.Object, "status")
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: v.object.gvr.Group, Version: v.object.gvr.Version,
		Kind: v.object.name})
	u.SetName(v.barrierName())
	if _, err := client.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// checkRefused checks that validation agrees with the table.
func checkRefused(t *testing.T, d plan.Definition) {
	t.Helper()
	p := &plan.Plan{TestName: "refused", Actions: []plan.Action{deleting(d)}}
	if err := p.Validate(nil); err == nil {
		t.Errorf("%s is valid, but by the table it has no meaning", d.Name)
	}
}

// holds pauses the verb's object before the operation, which must be held once.
func (r *conformance) holds(t *testing.T, v verb) {
	t.Helper()
	at := plan.BeforeControllerWrite
	if v.does.read() {
		at = plan.BeforeControllerRead
	}
	want := 1
	if v.does == nothing && (v.collection && v.operation != "typed-delete-other-collection" ||
		strings.HasSuffix(v.operation, "-dry")) {
		want = 0 // another object, or no effect
	}
	if v.operation == "dynamic-get-scale" {
		at = plan.BeforeControllerRead // the call names the object but does not return it
	}
	name, version := r.setUp(t, v)
	held := r.heldBy(t, at, v.key(name).String(), want, func() {
		if err := r.verbs.do(v.operation, name, version); err != nil && v.does != nowhere {
			t.Error(err)
		}
	})
	if len(held) != want {
		t.Errorf("a pause at %s of %s held %d times, want %d: %v", at, v.key(name), len(held), want, held)
	}
}

// heldBy runs f under a pause and returns what the pause held. The pause lasts until something is held; if nothing is
// to be held, until f has returned and the definitions are satisfied. Then the end of the plan releases it.
func (r *conformance) heldBy(
	t *testing.T, at plan.Timing, scope string, want int, f func(), until ...plan.Definition,
) []string {
	t.Helper()
	now := plan.Trigger{Definitions: []plan.Definition{{Name: "now", Condition: plan.Condition{Type: plan.OnNone}}}}
	acts := []plan.Action{{Type: plan.PauseController, Target: "verbs",
		Pausing: plan.Pausing{PauseAt: at, PauseScope: plan.MustScope(scope)}, Trigger: now}}
	if len(until) > 0 {
		acts = append(acts, deleting(until...))
	}
	done := make(chan struct{})
	_, held := r.carryOut(t, acts, func(c *coordinator.Coordinator) {
		go func() {
			defer close(done)
			f()
		}()
		if want == 0 {
			<-done
			awaitNext(t, c, namesOf(until)...)
			return
		}
		clustertest.Eventually(t, func(context.Context) error {
			if len(r.follower.holds()) == 0 {
				return errors.New("nothing is held")
			}
			return nil
		})
	})
	<-done
	return held
}

// conformReconcile tests the points without an object, a reconcile and an annotated call, as triggers and with scoped
// pauses.
func (r *conformance) conformReconcile(t *testing.T) {
	for _, at := range []plan.Timing{plan.BeforeReconcile, plan.AfterReconcile, plan.BeforeAnnotatedCall,
		plan.AfterAnnotatedCall} {
		d := plan.Definition{Name: "there", Condition: plan.Condition{Type: plan.OnReconcile},
			Observe: plan.ObservationPoint{Timing: at, ObserveBy: "verbs"}}
		if strings.HasSuffix(string(at), "AnnotatedCall") {
			d.Condition = plan.Condition{Type: plan.OnAnnotatedCall, Call: "called"}
		}
		r.carryOut(t, []plan.Action{deleting(d)}, func(c *coordinator.Coordinator) {
			if err := r.verbs.do("reconcile", "one", ""); err != nil {
				t.Fatal(err)
			}
			awaitNext(t, c, "there")
		})
		for scope, want := range map[string]int{"": 1, "*": 1, "configmap/default/one": 1, "configmap/*/o*": 1,
			"configmap/default/two": 0} {
			held := r.heldBy(t, at, scope, want, func() {
				if err := r.verbs.do("reconcile", "one", ""); err != nil {
					t.Error(err)
				}
			}, d)
			if len(held) != want {
				t.Errorf("a pause at %s of %q held %v, want %d", at, scope, held, want)
			}
		}
	}
}

// failCalled makes an annotated call fail in each way: at the call that fires the action, and until it is restored.
func (r *conformance) failCalled(t *testing.T) {
	there := plan.Definition{
		Name: "there", Condition: plan.Condition{Type: plan.OnAnnotatedCall, Call: "called"},
		Observe: plan.ObservationPoint{Timing: plan.BeforeAnnotatedCall, ObserveBy: "verbs"},
	}
	// The condition of the second action begins with the second call.
	second := there
	second.Name, second.Condition.Repeat = "second", 2
	action := func(typ plan.ActionType, f plan.Failing, d plan.Definition) plan.Action {
		return plan.Action{Type: typ, Target: "verbs", Failing: f, Trigger: plan.Trigger{
			Definitions: []plan.Definition{d}, Expression: d.Name,
		}}
	}
	const (
		refused = "ran: false, timeout: false: called: the test plan made this call fail"
		lost    = "ran: true, timeout: true: called: context deadline exceeded (the test plan has lost the answer)"
	)
	for _, test := range []struct {
		name    string
		actions []plan.Action
		want    [3]string // of three calls in turn
	}{
		{
			name: "refused", want: [3]string{refused},
			actions: []plan.Action{action(plan.FailCall, plan.Failing{Call: "called", Answer: plan.Refused}, there)},
		},
		{
			name: "lost", want: [3]string{lost},
			actions: []plan.Action{action(plan.FailCall, plan.Failing{Call: "called", Answer: plan.Lost}, there)},
		},
		{
			name: "of one object", want: [3]string{lost},
			actions: []plan.Action{action(plan.FailCall,
				plan.Failing{Call: "called", CallScope: plan.MustScope("configmap/default/one"),
					Answer: plan.Lost}, there)},
		},
		{
			name: "of another object",
			actions: []plan.Action{action(plan.FailCall,
				plan.Failing{Call: "called", CallScope: plan.MustScope("configmap/default/two"),
					Answer: plan.Lost}, there)},
		},
		{
			name: "twice", want: [3]string{refused, refused},
			actions: []plan.Action{action(plan.FailCall,
				plan.Failing{Call: "called", Answer: plan.Refused, Times: 2}, there)},
		},
		{
			name: "until restored", want: [3]string{lost, lost},
			actions: []plan.Action{
				action(plan.FailCall, plan.Failing{Call: "called", Answer: plan.Lost, UntilRestored: true}, there),
				action(plan.RestoreCalls, plan.Failing{Call: "called"}, second),
			},
		},
		{
			name:    "writes only",
			actions: []plan.Action{action(plan.FailCall, plan.Failing{Answer: plan.Refused}, there)},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			r.carryOut(t, test.actions, func(*coordinator.Coordinator) {
				for i, want := range test.want {
					got := ""
					if err := r.verbs.do("reconcile", "one", ""); err != nil {
						got = err.Error()
					}
					if got != want {
						t.Errorf("call %d: %q, want %q", i+1, got, want)
					}
				}
			})
		})
	}
}
