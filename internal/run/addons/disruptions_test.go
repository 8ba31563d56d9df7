package addons

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// A disruption without a selector is one of a controller's pods, but never of those that inject disruptions.
func TestDisruptionOf(t *testing.T) {
	d := &disruptions{
		node:        processes{"db": {{Namespace: "old"}, {Namespace: "databases"}}},
		controllers: []string{"db", "web"},
	}
	own := map[string]any{
		"count":            1,
		"filter":           map[string]any{"annotations": map[string]any{cluster.AnnotationController: "db"}},
		"advancedSelector": []any{map[string]any{"key": controller.LabelDisruption, "operator": "DoesNotExist"}},
	}
	for _, test := range []struct {
		name      string
		f         plan.Disruption
		namespace string
		spec      map[string]any
		err       string
	}{
		{name: "of the first controller", f: plan.Disruption{"name": "d", "count": 1}, namespace: "databases",
			spec: own},
		{name: "of a controller",
			f:         plan.Disruption{"name": "d", "count": 1, "controller": "db", "namespace": "databases"},
			namespace: "databases", spec: own},
		{name: "in another namespace", f: plan.Disruption{"name": "d", "namespace": "default"},
			err: `disrupt d: controller "db" runs in namespace databases, not in default`},
		{name: "of a controller that does not run", f: plan.Disruption{"name": "d", "controller": "web"},
			err: `controller "web" has not run yet`},
		{name: "of what it selects", f: plan.Disruption{"name": "d", "selector": map[string]any{"a": "b"}},
			namespace: "default", spec: map[string]any{"selector": map[string]any{"a": "b"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			object, namespace, err := d.disruptionOf(t.Context(), test.f)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if namespace != test.namespace || text != test.err {
				t.Fatalf("namespace %q, %v", namespace, err)
			}
			if err != nil {
				return
			}
			// The numbers of an object are those of JSON.
			want := &unstructured.Unstructured{Object: map[string]any{"spec": test.spec}}
			if test.spec["count"] != nil {
				want.Object["spec"].(map[string]any)["count"] = object.Object["spec"].(map[string]any)["count"]
			}
			if diff := cmp.Diff(want.Object["spec"], object.Object["spec"]); diff != "" || object.GetName() != "d" ||
				object.GetNamespace() != test.namespace {
				t.Errorf("%s/%s: %s", object.GetNamespace(), object.GetName(), diff)
			}
		})
	}
}

func TestInjected(t *testing.T) {
	condition := func(typ, reason string, status metav1.ConditionStatus) chaos.DisruptionStatus {
		return chaos.DisruptionStatus{Conditions: []metav1.Condition{
			{Type: typ, Reason: reason, Status: status, Message: "because"},
		}}
	}
	for _, test := range []struct {
		name   string
		status chaos.DisruptionStatus
		action plan.Action
		note   string
		done   bool
		err    string
	}{
		{name: "nothing yet"},
		{name: "injected", status: chaos.DisruptionStatus{Phase: chaos.Injected}, done: true},
		{name: "in part", status: chaos.DisruptionStatus{Phase: chaos.PartiallyInjected}},
		{name: "in part, which is enough", status: chaos.DisruptionStatus{Phase: chaos.PartiallyInjected},
			action: plan.Action{Disrupting: plan.Disrupting{AcceptPartial: true}}, done: true},
		{name: "refused", status: condition(chaos.ConditionAccepted, "Invalid", metav1.ConditionFalse), done: true,
			err: "because"},
		{name: "no targets yet", status: condition(chaos.ConditionTargetsFound, "Waiting", metav1.ConditionFalse)},
		{name: "no targets", status: condition(chaos.ConditionTargetsFound, "NoneMatches", metav1.ConditionFalse),
			done: true, err: "because (acceptNoTargets: true allows that)"},
		{name: "no targets, which is enough", action: plan.Action{Disrupting: plan.Disrupting{AcceptNoTargets: true}},
			done: true, status: condition(chaos.ConditionTargetsFound, "Waiting", metav1.ConditionFalse),
			note: "without targets: because"},
		{name: "failed", done: true, err: "failed: no such disk", status: chaos.DisruptionStatus{
			Message: "no such disk", Injections: []chaos.Injection{{State: chaos.InjectionFailed}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			note, done, err := injected(&chaos.Disruption{Status: test.status}, &test.action)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if note != test.note || done != test.done || text != test.err {
				t.Errorf("%q, %t, %v", note, done, err)
			}
		})
	}
}

// shown are the states of an object, one after the other; nil: it does not exist. After the last one nothing changes.
type shown[T any] []*T

func (s shown[T]) follow(ctx context.Context, _ plan.ResourceKey, see func(*T) (bool, error)) error {
	for _, o := range s {
		if done, err := see(o); done || err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// processes are those of controllers, by their names.
type processes map[string][]cluster.Process

func (p processes) Status(_ context.Context, controller string) ([]cluster.Process, error) {
	return p[controller], nil
}

// calls notes how objects are written.
type calls struct{ told []string }

func (c *calls) Apply(_ context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	c.told = append(c.told, "apply "+u.GetName())
	return u, nil
}

func (c *calls) Delete(_ context.Context, key plan.ResourceKey, _ objects.DeleteOptions) error {
	c.told = append(c.told, "delete "+key.String())
	return nil
}

// Get returns an object whose fields are not looked at.
func (c *calls) Get(context.Context, plan.ResourceKey) (*unstructured.Unstructured, error) {
	return new(unstructured.Unstructured), nil
}

func inPhase(phase chaos.Phase, message string) *chaos.Disruption {
	return &chaos.Disruption{Status: chaos.DisruptionStatus{Phase: phase, Message: message}}
}

func TestDisruptionsTool(t *testing.T) {
	stuck := inPhase(chaos.Injected, "no answer from the node")
	stuck.Status.IsStuckOnRemoval = true
	for _, test := range []struct {
		name       string
		begin, end shown[chaos.Disruption]
		beginErr   string
		ended      bool
		endErr     string
	}{
		{name: "begins and ends", begin: shown[chaos.Disruption]{inPhase("New", ""), inPhase(chaos.Injected, "")},
			end: shown[chaos.Disruption]{inPhase(chaos.Injected, ""), nil}, ended: true},
		{name: "does not begin", begin: shown[chaos.Disruption]{inPhase("New", "waits")},
			beginErr: "disrupt d: context deadline exceeded; it is New waits", end: shown[chaos.Disruption]{nil},
			ended: true},
		{name: "is deleted", begin: shown[chaos.Disruption]{inPhase("New", ""), nil},
			beginErr: "disrupt d: another client has deleted it", end: shown[chaos.Disruption]{nil}, ended: true},
		{name: "does not end", begin: shown[chaos.Disruption]{inPhase(chaos.Injected, "")},
			end: shown[chaos.Disruption]{stuck}, ended: true,
			endErr: "end disruption d: no answer from the node"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				to := new(calls)
				show := test.begin
				d := disruptionsOn(to, &show)
				text := func(err error) string {
					if err == nil {
						return ""
					}
					return err.Error()
				}
				if ended, err := d.End(t.Context(), "d"); ended || err != nil {
					t.Errorf("ended %t before it began (%v)", ended, err)
				}
				_, err := d.Begin(t.Context(), &plan.Action{Type: plan.Disrupt, Disrupting: plan.Disrupting{
					Disruption: map[string]any{"name": "d", "selector": map[string]any{"a": "b"}},
				}})
				if text(err) != test.beginErr {
					t.Errorf("begin: %v", err)
				}
				show = test.end
				ended, err := d.End(t.Context(), "d")
				if ended != test.ended || text(err) != test.endErr {
					t.Errorf("end: %t, %v", ended, err)
				}
				want := []string{"apply d", "delete disruption.chaos.trommel.dev/default/d"}
				if !slices.Equal(to.told, want) {
					t.Errorf("%q, want %q", to.told, want)
				}
			})
		})
	}
}

// disruptionsOn is a tool for one cluster, whose disruptions are shown as show is at the time.
func disruptionsOn(to ownObjects, show *shown[chaos.Disruption]) *disruptions {
	return &disruptions{
		in: func(string) followedCluster[chaos.Disruption] {
			return followedCluster[chaos.Disruption]{to, func(ctx context.Context, key plan.ResourceKey,
				see func(*chaos.Disruption) (bool, error)) error {
				return show.follow(ctx, key, see)
			}}
		},
		clusterOf: new(plan.Suite).DisruptedCluster, step: time.Minute,
	}
}

// expecting counts those who expect that containers are killed.
type expecting struct{ now, ever int }

func (e *expecting) ExpectKills() (done func()) {
	e.now++
	e.ever++
	return func() { e.now-- }
}

// maybeGone are calls of a cluster whose objects other clients may have deleted.
type maybeGone struct {
	*calls
	gone bool
}

func (d *maybeGone) Get(ctx context.Context, key plan.ResourceKey) (*unstructured.Unstructured, error) {
	if d.gone {
		return nil, nil
	}
	return d.calls.Get(ctx, key)
}

// While a disruption that ends containers lasts, they are expected to end.
func TestDisruptionsThatKill(t *testing.T) {
	for _, test := range []struct {
		kind string
		gone bool // before it is ended
		want int
	}{{"containerFailure", false, 1}, {"memoryPressure", true, 1}, {"network", false, 0}} {
		t.Run(test.kind, func(t *testing.T) {
			to, expected := &maybeGone{calls: new(calls)}, new(expecting)
			show := shown[chaos.Disruption]{inPhase(chaos.Injected, "")}
			d := disruptionsOn(to, &show)
			d.expecter = expected
			_, err := d.Begin(t.Context(), &plan.Action{Type: plan.Disrupt, Disrupting: plan.Disrupting{
				Disruption: map[string]any{
					"name": "d", "selector": map[string]any{"a": "b"}, test.kind: map[string]any{},
				},
			}})
			if err != nil || expected.now != test.want || expected.ever != test.want {
				t.Errorf("begun: %+v, %v", expected, err)
			}
			to.gone = test.gone
			show = shown[chaos.Disruption]{nil}
			if _, err := d.End(t.Context(), "d"); err != nil || expected.now != 0 {
				t.Errorf("ended: %+v, %v", expected, err)
			}
		})
	}
}
