// Package simulated is a cloud that exists only in Kubernetes: its groups of instances are SimulatedNodeGroups, its
// instances are Nodes of KWOK, and its calls are ProviderCalls, which its client, Provider, makes.
//
// It promises the following, also if it is killed at any moment, and if a second one runs:
//   - A call is carried out exactly once. The change of the group and the answer are one write; the answer is then
//     copied into the call. Calls of a group are carried out one after the other, in the order of their creation.
//   - An instance is recorded before its Node is created, and its record is removed after its Node was deleted. A Node
//     that another client has deleted is not created again.
//   - Faults are counted in the same write as what they have changed.
//
// Nodes belong to their groups, and go with them.
package simulated

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trommel-dev/trommel/internal/clock/kube"
	"github.com/trommel-dev/trommel/internal/controllers"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

const (
	// LabelGroup of a Node is the name of the group that has started its instance.
	LabelGroup = "simulated.nodes.trommel.dev/group"
	// LabelVersion of a Node is the version of its instance's template.
	LabelVersion = "simulated.nodes.trommel.dev/version"
	// AnnotationAttached of a group is the UID of the call that has changed its desired capacity last.
	AnnotationAttached = "simulated.nodes.trommel.dev/attached"
	// AnnotationBefore of a group is its desired capacity before that call.
	AnnotationBefore = "simulated.nodes.trommel.dev/capacity-before"
)

const providerIDPrefix = "simulated:///"

// ProviderID is the identity of a group's instance.
func ProviderID(group, instance string) string { return providerIDPrefix + group + "/" + instance }

// GroupOf returns the group that has started an instance; empty: the text identifies no simulated instance.
func GroupOf(providerID string) string {
	rest, ok := strings.CutPrefix(providerID, providerIDPrefix)
	group, instance, both := strings.Cut(rest, "/")
	if !ok || !both || instance == "" || strings.Contains(instance, "/") {
		return ""
	}
	return group
}

// templateHash identifies a template.
func templateHash(t *nodes.SimulatedTemplate) string {
	data, err := json.Marshal(t)
	if err != nil {
		panic(err) // a struct of texts and quantities
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// Options of the cloud. The zero value works.
type Options struct {
	// Clock is that of a run, or of a test; default: the machine's.
	Clock clock.PassiveClock
	// NewQueue makes the queue of its controller; nil: the usual one.
	NewQueue kube.NewQueue
	// KeepCalls is how long calls are kept after their answer; default: 1 hour.
	KeepCalls time.Duration
	// Retry is the time after which a group that got no instances tries again; default: 1 second.
	Retry time.Duration
}

type cloud struct {
	client.Client
	reader  client.Reader // reads from the API server
	options Options
}

// Add adds the cloud to a manager, whose scheme must have the types of nodes/api/v1alpha1.
func Add(mgr ctrl.Manager, o Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	o.KeepCalls, o.Retry = cmp.Or(o.KeepCalls, time.Hour), cmp.Or(o.Retry, time.Second)
	c := &cloud{Client: mgr.GetClient(), reader: mgr.GetAPIReader(), options: o}
	toGroup := func(name func(client.Object) string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			if name := name(o); name != "" {
				return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: name}}}
			}
			return nil
		})
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("simulated-nodegroups").For(&nodes.SimulatedNodeGroup{}).
		Watches(&nodes.ProviderCall{}, toGroup(func(o client.Object) string {
			return o.(*nodes.ProviderCall).Spec.NodeGroupName
		})).
		Watches(&corev1.Node{}, toGroup(func(o client.Object) string { return o.GetLabels()[LabelGroup] })).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, NewQueue: o.NewQueue}).
		Complete(c)
	if err != nil {
		return fmt.Errorf("simulated cloud: %w", err)
	}
	return nil
}

// Reconcile carries calls out, and gives the group the instances that it should have.
func (c *cloud) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	result, err := c.reconcile(ctx, req.Name)
	if onlyConflicts(err) {
		return ctrl.Result{RequeueAfter: 10 * time.Millisecond}, nil
	}
	return result, err
}

// onlyConflicts reports whether an error is a conflict, or several. Of joined errors, apierrors.IsConflict sees only
// the first: an error that is forbidden beside a conflict would be tried again at once, for ever, and never be
// reported.
func onlyConflicts(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !onlyConflicts(err) })
	}
	return apierrors.IsConflict(err)
}

func (c *cloud) reconcile(ctx context.Context, name string) (ctrl.Result, error) {
	// Read before the group: an instance's record is older than its Node.
	var list corev1.NodeList
	if err := c.List(ctx, &list, client.MatchingLabels{LabelGroup: name}); err != nil {
		return ctrl.Result{}, err
	}
	g := &group{SimulatedNodeGroup: &nodes.SimulatedNodeGroup{}, nodes: list.Items, retry: c.options.Retry}
	err := c.reader.Get(ctx, client.ObjectKey{Name: name}, g.SimulatedNodeGroup)
	if apierrors.IsNotFound(err) || err == nil && g.DeletionTimestamp != nil {
		return c.answerWithoutGroup(ctx, name)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	prune, err := c.calls(ctx, g)
	if err != nil {
		return ctrl.Result{}, err
	}
	g.now = c.now()
	before := g.Status.DeepCopy()
	next, ended := g.advance()
	for _, id := range ended {
		if err := c.end(ctx, g, id); err != nil {
			return ctrl.Result{}, err
		}
	}
	problems := c.nodes(ctx, g, before)
	for i := range list.Items {
		node := &list.Items[i]
		if metav1.IsControlledBy(node, g) && g.instance(node.Spec.ProviderID) == nil && node.DeletionTimestamp == nil {
			problems = errors.Join(problems, controllers.Delete(ctx, c, node))
		}
	}
	g.count()
	if !equality.Semantic.DeepEqual(before, &g.Status) {
		// Its event brings us back at once, for what the new status asks for.
		if err := c.Status().Update(ctx, g.SimulatedNodeGroup); err != nil {
			return ctrl.Result{}, err
		}
	}
	if problems != nil {
		return ctrl.Result{}, problems
	}
	if next.IsZero() || !prune.IsZero() && prune.Before(next) {
		next = prune
	}
	return c.at(next), nil
}

// at asks for another reconcile at a time; zero: none.
func (c *cloud) at(next time.Time) ctrl.Result {
	if next.IsZero() {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: max(next.Sub(c.options.Clock.Now()), time.Millisecond)}
}

// now is the time with the precision that the API server keeps.
func (c *cloud) now() time.Time { return c.options.Clock.Now().Truncate(time.Microsecond) }

// count counts the instances for people.
func (g *group) count() {
	g.Status.InService, g.Status.Ready, g.Status.Detached = 0, 0, 0
	for n := range g.Status.Instances {
		i := &g.Status.Instances[n]
		switch {
		case i.Detached:
			g.Status.Detached++
		case i.State == nodes.InstanceInService:
			g.Status.InService++
			if slices.ContainsFunc(g.nodes, func(n corev1.Node) bool {
				return n.Spec.ProviderID == i.ProviderID && ready(&n)
			}) {
				g.Status.Ready++
			}
		}
	}
}

// nodes creates the Nodes of instances that are in service, and lets KWOK make them Ready. It does only what the status
// says that is already written: before.
func (c *cloud) nodes(ctx context.Context, g *group, before *nodes.SimulatedNodeGroupStatus) error {
	var errs []error
	for n := range g.Status.Instances {
		i := &g.Status.Instances[n]
		written := slices.ContainsFunc(before.Instances, func(b nodes.SimulatedInstance) bool {
			return b.ProviderID == i.ProviderID && b.State == i.State
		})
		if !written || i.State == nodes.InstanceStarting || i.State == nodes.InstanceTerminating ||
			g.held(i, nodes.FaultNoNode) {
			continue
		}
		delay := g.Spec.Delays.Ready.Duration()
		never := g.held(i, nodes.FaultNeverReady)
		switch {
		case !i.Registered:
			at := g.at()
			connected := delay == 0 && !never
			if err := c.register(ctx, g.SimulatedNodeGroup, i, connected); err != nil {
				errs = append(errs, err)
				continue
			}
			i.Registered, i.RegisteredAt, i.Connected = true, &at, connected
		case !i.Connected && !never && !g.now.Before(i.RegisteredAt.Add(delay)):
			if err := c.connect(ctx, i); err != nil {
				errs = append(errs, err)
				continue
			}
			i.Connected = true
		}
	}
	return errors.Join(errs...)
}

// end removes an instance: first its Node, then its record.
func (c *cloud) end(ctx context.Context, g *group, providerID string) error {
	i := g.instance(providerID)
	node, err := c.node(ctx, i)
	if err != nil {
		return err
	}
	if node != nil && node.DeletionTimestamp == nil {
		if err := controllers.Delete(ctx, c, node); err != nil {
			return err
		}
	}
	g.Status.Instances = slices.DeleteFunc(g.Status.Instances, func(i nodes.SimulatedInstance) bool {
		return i.ProviderID == providerID
	})
	return nil
}

// calls carries the group's calls out and deletes old ones. It returns when the next one is to be deleted.
func (c *cloud) calls(ctx context.Context, g *group) (prune time.Time, err error) {
	reader := client.Reader(c.Client)
	half := g.halfDone()
	if half != "" {
		reader = c.reader // the cache may not know the call yet
	}
	pending, prune, err := c.pending(ctx, reader, g.Name)
	if err != nil {
		return prune, err
	}
	if half != "" {
		first := slices.IndexFunc(pending, func(call nodes.ProviderCall) bool { return call.UID == half })
		if first < 0 {
			// Another client has deleted the call. The group is larger or smaller by one, and starts or ends an
			// instance.
			g.Status.Attached = half
			return prune, c.Status().Update(ctx, g.SimulatedNodeGroup)
		}
		pending[0], pending[first] = pending[first], pending[0]
	}
	for i := range pending {
		if err := c.call(ctx, g, &pending[i]); err != nil {
			return prune, err
		}
	}
	return prune, nil
}

// pending lists the calls of a group that have no answer, and deletes those that have had theirs for long.
func (c *cloud) pending(
	ctx context.Context, reader client.Reader, group string,
) ([]nodes.ProviderCall, time.Time, error) {
	var list nodes.ProviderCallList
	if err := reader.List(ctx, &list); err != nil {
		return nil, time.Time{}, err
	}
	var calls []nodes.ProviderCall
	var prune time.Time
	for _, call := range list.Items {
		if call.Spec.NodeGroupName != group || call.DeletionTimestamp != nil {
			continue
		}
		if call.Status.Result == "" {
			calls = append(calls, call)
			continue
		}
		if call.Status.AnsweredAt == nil {
			continue
		}
		at := call.Status.AnsweredAt.Add(c.options.KeepCalls)
		if c.options.Clock.Now().Before(at) {
			if prune.IsZero() || at.Before(prune) {
				prune = at
			}
			continue
		}
		if err := controllers.Delete(ctx, c, &call); err != nil {
			return nil, prune, err
		}
	}
	// A call that has no answer has not been written since it was created, so this is the order of creation.
	slices.SortFunc(calls, func(a, b nodes.ProviderCall) int {
		return cmp.Or(cmp.Compare(version(&a), version(&b)), cmp.Compare(a.Name, b.Name))
	})
	return calls, prune, nil
}

func version(o client.Object) uint64 {
	n, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return n
}

// call carries one call out, unless that has been done.
func (c *cloud) call(ctx context.Context, g *group, listed *nodes.ProviderCall) error {
	// Read after the group: another cloud writes the group before the answer. So either this sees the answer, or the
	// group's record of it was read, or the group's version is outdated and cannot be written.
	call := &nodes.ProviderCall{}
	err := c.reader.Get(ctx, client.ObjectKeyFromObject(listed), call)
	if apierrors.IsNotFound(err) || err == nil && (call.UID != listed.UID || call.Status.Result != "") {
		return nil
	}
	if err != nil {
		return err
	}
	if last := g.Status.LastCall; last != nil && last.UID == call.UID {
		return c.answer(ctx, call, last.Answer)
	}
	if foreign(g, call) {
		return c.answer(ctx, call, refuse(nodes.CallNotFound, "the group was created after the call"))
	}
	g.now = c.now()
	answer, more := g.carryOut(call)
	g.count()
	at := g.at()
	answer.AnsweredAt = &at
	g.Status.LastCall = &nodes.CarriedOutCall{UID: call.UID, Answer: answer}
	if more != 0 {
		// The spec is written first, marked with the call: after a crash in between it is not changed again.
		status := g.Status.DeepCopy()
		metav1.SetMetaDataAnnotation(&g.ObjectMeta, AnnotationBefore, strconv.FormatInt(g.Spec.DesiredCapacity, 10))
		g.Spec.DesiredCapacity += more
		metav1.SetMetaDataAnnotation(&g.ObjectMeta, AnnotationAttached, string(call.UID))
		if err := c.Update(ctx, g.SimulatedNodeGroup); err != nil {
			return err
		}
		g.Status = *status
	}
	if err := c.Status().Update(ctx, g.SimulatedNodeGroup); err != nil {
		return err
	}
	return c.answer(ctx, call, answer)
}

// foreign reports whether a call was made to another group, which had the same name.
func foreign(g *group, call *nodes.ProviderCall) bool {
	owner := metav1.GetControllerOf(call)
	return owner != nil && owner.UID != g.UID
}

func (c *cloud) answer(ctx context.Context, call *nodes.ProviderCall, answer nodes.ProviderCallStatus) error {
	if answer.AnsweredAt == nil {
		at := metav1.NewMicroTime(c.now())
		answer.AnsweredAt = &at
	}
	call.Status = answer
	return client.IgnoreNotFound(c.Status().Update(ctx, call))
}

// answerWithoutGroup answers the calls of a group that does not exist.
func (c *cloud) answerWithoutGroup(ctx context.Context, group string) (ctrl.Result, error) {
	pending, prune, err := c.pending(ctx, c.Client, group)
	if err != nil {
		return ctrl.Result{}, err
	}
	for i := range pending {
		answer := refuse(nodes.CallNotFound, "there is no group %s", group)
		if pending[i].Spec.Call == nodes.CallTerminate {
			answer = nodes.ProviderCallStatus{Result: nodes.CallDone} // nor is there an instance of it
		}
		if err := c.answer(ctx, &pending[i], answer); err != nil {
			return ctrl.Result{}, err
		}
	}
	return c.at(prune), nil
}
