package simulated

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/provider"
)

// Name of the provider.
const Name = "simulated"

// Provider is the cloud's client. Calls that change something are ProviderCalls, whose answers it waits for by watching
// them. If it is killed while it waits, a call is carried out all the same, as a request to a real provider would be.
type Provider struct{ client client.WithWatch }

var _ provider.Provider = (*Provider)(nil)

// New makes the provider. The client must read from the API server, not from a cache, and know the types of
// nodes/api/v1alpha1.
func New(c client.WithWatch) *Provider { return &Provider{c} }

// For makes a provider for a manager's controllers. It has a client of its own, which reads no cache.
func For(mgr ctrl.Manager) (provider.Provider, error) {
	c, err := client.NewWithWatch(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, err
	}
	return New(c), nil
}

// Name implements provider.Provider.
func (p *Provider) Name() string { return Name }

// Group implements provider.Provider.
func (p *Provider) Group(ctx context.Context, name string) (*provider.Group, error) {
	g, err := p.group(ctx, "Group", name)
	if err != nil {
		return nil, err
	}
	if err := describe(g, "Group", name, ""); err != nil {
		return nil, err
	}
	described := &provider.Group{
		Name: g.Name, DesiredCapacity: int(capacity(g)), MinSize: int(g.Spec.MinSize),
		MaxSize: int(g.Spec.MaxSize),
	}
	for _, i := range instances(g) {
		if i.Group != "" {
			described.Instances = append(described.Instances, i)
		}
	}
	return described, nil
}

// capacity is the desired capacity that goes with the status: a call that has changed the one and not yet the other has
// not taken effect.
func capacity(g *nodes.SimulatedNodeGroup) int64 {
	if (&group{SimulatedNodeGroup: g}).halfDone() != "" {
		if before, err := strconv.ParseInt(g.Annotations[AnnotationBefore], 10, 64); err == nil {
			return before
		}
	}
	return g.Spec.DesiredCapacity
}

// instances returns all instances that a group has started.
func instances(g *nodes.SimulatedNodeGroup) []provider.Instance {
	current := templateHash(&g.Spec.Template)
	var list []provider.Instance
	for _, i := range g.Status.Instances {
		instance := provider.Instance{
			ProviderID: i.ProviderID, Group: g.Name, State: provider.State(i.State),
			OutOfDate: i.TemplateHash != current,
		}
		if i.Detached {
			instance.Group = ""
		}
		list = append(list, instance)
	}
	return list
}

func (p *Provider) group(ctx context.Context, call, name string) (*nodes.SimulatedNodeGroup, error) {
	g := &nodes.SimulatedNodeGroup{}
	switch err := p.client.Get(ctx, client.ObjectKey{Name: name}, g); {
	case apierrors.IsNotFound(err) || err == nil && g.DeletionTimestamp != nil:
		return nil, &provider.Error{Call: call, Object: name, Kind: provider.ErrNotFound}
	case err != nil:
		return nil, &provider.Error{Call: call, Object: name, Err: err}
	}
	return g, nil
}

// describe is the error of a fault that concerns reading.
func describe(g *nodes.SimulatedNodeGroup, call, object, providerID string) error {
	for _, f := range g.Spec.Faults {
		if !slices.Contains(f.Calls, nodes.CallDescribe) || f.ProviderID != "" && f.ProviderID != providerID {
			continue
		}
		err := &provider.Error{Call: call, Object: object, Err: fmt.Errorf("fault %s", f.Name)}
		if f.Type == nodes.FaultThrottled {
			err.Kind, err.RetryAfter = provider.ErrThrottled, f.RetryAfter.Duration()
		}
		return err
	}
	return nil
}

// Instances implements provider.Provider.
func (p *Provider) Instances(ctx context.Context, providerIDs ...string) ([]provider.Instance, error) {
	const call = "Instances"
	byGroup := map[string][]string{}
	for _, id := range providerIDs {
		if group := GroupOf(id); group != "" && !slices.Contains(byGroup[group], id) {
			byGroup[group] = append(byGroup[group], id)
		}
	}
	var list []provider.Instance
	for name, ids := range byGroup {
		g, err := p.group(ctx, call, name)
		if errors.Is(err, provider.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if err := describe(g, call, id, id); err != nil {
				return nil, err
			}
		}
		for _, i := range instances(g) {
			if slices.Contains(ids, i.ProviderID) {
				list = append(list, i)
			}
		}
	}
	return list, nil
}

// Detach implements provider.Provider.
func (p *Provider) Detach(ctx context.Context, group, providerID string) error {
	return p.call(ctx, nodes.CallDetach, group, providerID)
}

// Remove implements provider.Provider.
func (p *Provider) Remove(ctx context.Context, group, providerID string) error {
	return p.call(ctx, nodes.CallRemove, group, providerID)
}

// Attach implements provider.Provider. An instance can be attached only to the group that has started it.
func (p *Provider) Attach(ctx context.Context, group, providerID string) error {
	return p.call(ctx, nodes.CallAttach, group, providerID)
}

// Terminate implements provider.Provider.
func (p *Provider) Terminate(ctx context.Context, providerID string) error {
	group := GroupOf(providerID)
	if group == "" {
		return nil // there is no such instance
	}
	err := p.call(ctx, nodes.CallTerminate, group, providerID)
	if errors.Is(err, provider.ErrNotFound) {
		return nil
	}
	return err
}

// call makes a ProviderCall and waits for its answer.
func (p *Provider) call(ctx context.Context, call nodes.Call, group, providerID string) error {
	failed := func(err error) error {
		return &provider.Error{Call: string(call), Object: providerID, Err: err}
	}
	g, err := p.group(ctx, string(call), group)
	if err != nil {
		return err
	}
	c := &nodes.ProviderCall{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: strings.ToLower(string(call)) + "-" + group + "-",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(g,
				nodes.GroupVersion.WithKind("SimulatedNodeGroup"))},
		},
		Spec: nodes.ProviderCallSpec{Call: call, NodeGroupName: group, ProviderID: providerID},
	}
	if err := p.client.Create(ctx, c); err != nil {
		return failed(err)
	}
	answer, err := p.await(ctx, c)
	if err != nil {
		return failed(fmt.Errorf("ProviderCall %s: no answer: %w", c.Name, err))
	}
	if answer.Result == nodes.CallDone {
		return nil
	}
	kinds := map[nodes.CallResult]error{
		nodes.CallThrottled: provider.ErrThrottled, nodes.CallNotFound: provider.ErrNotFound,
		nodes.CallConflict: provider.ErrConflict,
	}
	return &provider.Error{
		Call: string(call), Object: providerID, Kind: kinds[answer.Result], RetryAfter: answer.RetryAfter.Duration(),
		Err: fmt.Errorf("ProviderCall %s: %s", c.Name, answer.Message),
	}
}

// errDeleted ends the waiting for an answer that will not come.
var errDeleted = errors.New("another client has deleted it")

// await waits until the call was answered.
func (p *Provider) await(ctx context.Context, c *nodes.ProviderCall) (*nodes.ProviderCallStatus, error) {
	by := func(o metav1.ListOptions) *client.ListOptions {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", c.Name).String()
		return &client.ListOptions{Raw: &o}
	}
	watches := &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return p.client.Watch(ctx, &nodes.ProviderCallList{}, by(o))
		},
	}
	for {
		event, err := watchtools.Until(ctx, c.ResourceVersion, watches, func(e watch.Event) (bool, error) {
			if e.Type == watch.Deleted {
				return false, errDeleted
			}
			call, ok := e.Object.(*nodes.ProviderCall)
			return ok && call.Status.Result != "", nil
		})
		switch {
		case err == nil:
			return &event.Object.(*nodes.ProviderCall).Status, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, errDeleted):
			return nil, err
		}
		// The API server does not remember the version any more, or its answers cannot be read. Begin again from now.
		now := &nodes.ProviderCall{}
		if err := p.client.Get(ctx, client.ObjectKeyFromObject(c), now); err != nil {
			return nil, err
		}
		if now.UID != c.UID {
			return nil, errDeleted
		}
		if now.Status.Result != "" {
			return &now.Status, nil
		}
		c = now
	}
}
