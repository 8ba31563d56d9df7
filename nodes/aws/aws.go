// Package aws cycles nodes of Amazon EC2 Auto Scaling groups. It was tested against a server that answers as the
// documented Query APIs do, and never against AWS itself.
//
// Instances are identified as Nodes identify them: aws:///ZONE/i-ID. The answers of AWS may be some seconds old; they
// may even contradict each other. The controllers look again.
package aws

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/trommel-dev/trommel/nodes/provider"
)

// Name of the provider.
const Name = "aws"

// Provider asks Auto Scaling and EC2.
type Provider struct {
	groups    *autoscaling.Client
	instances *ec2.Client
	// Tag is the key of a tag that an instance has, with the name of its group, from before it is taken out of it until
	// it is in it again; empty: none. So it can be found without the cluster.
	Tag string
}

var _ provider.Provider = (*Provider)(nil)

// New makes the provider. The configuration must have a region and credentials.
func New(c aws.Config) *Provider {
	c = c.Copy()
	// Who calls decides whether and when to repeat a call.
	c.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
	return &Provider{groups: autoscaling.NewFromConfig(c), instances: ec2.NewFromConfig(c)}
}

// Name implements provider.Provider.
func (p *Provider) Name() string { return Name }

var providerID = regexp.MustCompile(`^aws:///([a-z0-9-]+)/(i-[0-9a-f]+)$`)

// instanceID returns the ID of an instance; empty: the text identifies none.
func instanceID(id string) string {
	if m := providerID.FindStringSubmatch(id); m != nil {
		return m[2]
	}
	return ""
}

// failed makes a typed error of an API's error.
func failed(call, object string, err error) error {
	if err == nil {
		return nil
	}
	e := &provider.Error{Call: call, Object: object, Err: err}
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) && response.Response != nil {
		if seconds, err := strconv.Atoi(response.Response.Header.Get("Retry-After")); err == nil && seconds > 0 {
			e.RetryAfter = time.Duration(seconds) * time.Second
		}
	}
	code := errorCode(err)
	switch _, throttled := retry.DefaultThrottleErrorCodes[code]; {
	case throttled:
		e.Kind = provider.ErrThrottled
	case slices.Contains(noCapacity, code):
		e.Kind = provider.ErrNoCapacity
	case code == codeUnknownInstance || code == "InvalidInstanceID.Malformed":
		e.Kind = provider.ErrNotFound
	case code == "IncorrectInstanceState" || code == "OperationNotPermitted" || code == "UnsupportedOperation":
		e.Kind = provider.ErrConflict
	}
	// ResourceContention and ScalingActivityInProgress are over soon: they have no kind.
	return e
}

const (
	codeValidation      = "ValidationError"
	codeUnknownInstance = "InvalidInstanceID.NotFound"
)

var noCapacity = []string{
	"InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
	"InsufficientFreeAddressesInSubnet", "InstanceLimitExceeded", "VcpuLimitExceeded",
	"MaxSpotInstanceCountExceeded",
}

func errorCode(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// Group implements provider.Provider. A group whose desired capacity does not count instances, because they have
// weights, is an error.
func (p *Provider) Group(ctx context.Context, name string) (*provider.Group, error) {
	const call = "Group"
	g, err := p.describe(ctx, call, name)
	if err != nil {
		return nil, err
	}
	if unit := aws.ToString(g.DesiredCapacityType); unit != "" && unit != "units" {
		return nil, conflict(call, name, "its capacity is measured in %s: it must be a number of instances", unit)
	}
	current, err := p.current(ctx, g)
	if err != nil {
		return nil, failed(call, name, err)
	}
	described := &provider.Group{
		Name: name, DesiredCapacity: int(aws.ToInt32(g.DesiredCapacity)), MinSize: int(aws.ToInt32(g.MinSize)),
		MaxSize: int(aws.ToInt32(g.MaxSize)),
	}
	for _, i := range g.Instances {
		if weight := aws.ToString(i.WeightedCapacity); weight != "" && weight != "1" {
			return nil, conflict(call, name, "its instances have weights: its capacity must be a number of instances")
		}
		state, ok := stateOf(string(i.LifecycleState))
		if !ok {
			continue
		}
		described.Instances = append(described.Instances, provider.Instance{
			ProviderID: fmt.Sprintf("aws:///%s/%s", aws.ToString(i.AvailabilityZone), aws.ToString(i.InstanceId)),
			Group:      name, State: state, OutOfDate: !current.has(&i),
		})
	}
	return described, nil
}

func conflict(call, object, format string, args ...any) error {
	return &provider.Error{Call: call, Object: object, Kind: provider.ErrConflict, Err: fmt.Errorf(format, args...)}
}

// describe reads a group.
func (p *Provider) describe(ctx context.Context, call, name string) (*asgtypes.AutoScalingGroup, error) {
	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(p.groups, &autoscaling.DescribeAutoScalingGroupsInput{
		AutoScalingGroupNames: []string{name},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, failed(call, name, err)
		}
		for i := range page.AutoScalingGroups {
			if g := &page.AutoScalingGroups[i]; aws.ToString(g.AutoScalingGroupName) == name {
				return g, nil
			}
		}
	}
	return nil, &provider.Error{Call: call, Object: name, Kind: provider.ErrNotFound}
}

// stateOf maps the lifecycle states of Auto Scaling; false: the instance is not in the group any more, or not yet. An
// instance on standby is in the group, but does not serve: it counts as starting.
func stateOf(lifecycle string) (provider.State, bool) {
	state, _, _ := strings.Cut(lifecycle, ":")
	switch state {
	case "InService":
		return provider.InService, true
	case "Terminating":
		return provider.Terminating, true
	case "Detaching":
		return provider.Detaching, true
	case "Terminated", "Detached", "Warmed":
		return "", false
	}
	return provider.Starting, true // Pending, Quarantined, EnteringStandby, Standby, and what may come
}

// templates are what a group starts its instances from now.
type templates struct {
	configuration string // of a group without launch templates
	main          template
	byType        map[string]template // overrides
}

type template struct{ id, version string }

// has reports whether an instance was started from the group's template. Nothing is known of attached instances: they
// are out of date.
func (t *templates) has(i *asgtypes.Instance) bool {
	if t.configuration != "" {
		return aws.ToString(i.LaunchConfigurationName) == t.configuration
	}
	if i.LaunchTemplate == nil {
		return false
	}
	want, ok := t.byType[aws.ToString(i.InstanceType)]
	if !ok {
		want = t.main
	}
	return want == template{aws.ToString(i.LaunchTemplate.LaunchTemplateId), aws.ToString(i.LaunchTemplate.Version)}
}

// current reads what the group starts instances from. Names of versions are replaced by their numbers.
func (p *Provider) current(ctx context.Context, g *asgtypes.AutoScalingGroup) (*templates, error) {
	t := &templates{configuration: aws.ToString(g.LaunchConfigurationName), byType: map[string]template{}}
	main := g.LaunchTemplate
	if m := g.MixedInstancesPolicy; m != nil && m.LaunchTemplate != nil {
		main = m.LaunchTemplate.LaunchTemplateSpecification
		for _, o := range m.LaunchTemplate.Overrides {
			if o.LaunchTemplateSpecification == nil || o.InstanceType == nil {
				continue
			}
			resolved, err := p.resolve(ctx, o.LaunchTemplateSpecification)
			if err != nil {
				return nil, err
			}
			t.byType[*o.InstanceType] = resolved
		}
	}
	if main == nil {
		return t, nil
	}
	var err error
	t.main, err = p.resolve(ctx, main)
	return t, err
}

func (p *Provider) resolve(ctx context.Context, s *asgtypes.LaunchTemplateSpecification) (template, error) {
	t := template{aws.ToString(s.LaunchTemplateId), aws.ToString(s.Version)}
	if _, err := strconv.Atoi(t.version); err == nil && t.id != "" {
		return t, nil
	}
	input := &ec2.DescribeLaunchTemplatesInput{}
	if t.id != "" {
		input.LaunchTemplateIds = []string{t.id}
	} else {
		input.LaunchTemplateNames = []string{aws.ToString(s.LaunchTemplateName)}
	}
	found, err := p.instances.DescribeLaunchTemplates(ctx, input)
	if err != nil {
		return t, err
	}
	if len(found.LaunchTemplates) != 1 {
		return t, fmt.Errorf("%d launch templates %s%s", len(found.LaunchTemplates), t.id,
			aws.ToString(s.LaunchTemplateName))
	}
	f := found.LaunchTemplates[0]
	t.id = aws.ToString(f.LaunchTemplateId)
	switch t.version {
	case "$Latest":
		t.version = strconv.FormatInt(aws.ToInt64(f.LatestVersionNumber), 10)
	case "$Default", "":
		t.version = strconv.FormatInt(aws.ToInt64(f.DefaultVersionNumber), 10)
	}
	return t, nil
}

// Most values of a filter, and most instances of DescribeAutoScalingInstances.
const (
	filterValues   = 200
	groupInstances = 50
)

// Instances implements provider.Provider.
func (p *Provider) Instances(ctx context.Context, providerIDs ...string) ([]provider.Instance, error) {
	const call = "Instances"
	asked := map[string]string{} // provider IDs by instance ID
	var ids []string
	for _, text := range providerIDs {
		if id := instanceID(text); id != "" && asked[id] == "" {
			asked[id] = text
			ids = append(ids, id)
		}
	}
	var list []provider.Instance
	at := map[string]int{} // in the list, by instance ID
	for some := range slices.Chunk(ids, filterValues) {
		// A filter, because an unknown ID would be an error.
		pages := ec2.NewDescribeInstancesPaginator(p.instances, &ec2.DescribeInstancesInput{
			Filters: []ec2types.Filter{{Name: aws.String("instance-id"), Values: some}},
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, failed(call, some[0], err)
			}
			for _, r := range page.Reservations {
				for _, i := range r.Instances {
					id := aws.ToString(i.InstanceId)
					if i.State == nil || i.State.Name == ec2types.InstanceStateNameTerminated || asked[id] == "" {
						continue
					}
					at[id] = len(list)
					list = append(list, provider.Instance{ProviderID: asked[id], State: machineState(i.State.Name)})
				}
			}
		}
	}
	var running []string
	for _, id := range ids {
		if n, ok := at[id]; ok && list[n].State != provider.Terminating {
			running = append(running, id)
		}
	}
	members, err := p.members(ctx, running...)
	if err != nil {
		return nil, failed(call, ids[0], err)
	}
	for _, m := range members {
		i := &list[at[aws.ToString(m.InstanceId)]]
		if state, ok := stateOf(aws.ToString(m.LifecycleState)); ok {
			i.Group, i.State = aws.ToString(m.AutoScalingGroupName), state
		}
	}
	return list, nil
}

// machineState maps the states of EC2. A stopped instance may run again.
func machineState(s ec2types.InstanceStateName) provider.State {
	switch s {
	case ec2types.InstanceStateNameRunning:
		return provider.Running
	case ec2types.InstanceStateNameShuttingDown:
		return provider.Terminating
	}
	return provider.Starting
}

// members describes those of the instances that are in a group.
func (p *Provider) members(ctx context.Context, ids ...string) ([]asgtypes.AutoScalingInstanceDetails, error) {
	var list []asgtypes.AutoScalingInstanceDetails
	for some := range slices.Chunk(ids, groupInstances) {
		pages := autoscaling.NewDescribeAutoScalingInstancesPaginator(p.groups,
			&autoscaling.DescribeAutoScalingInstancesInput{InstanceIds: some})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, err
			}
			for _, m := range page.AutoScalingInstances {
				if slices.Contains(some, aws.ToString(m.InstanceId)) {
					list = append(list, m)
				}
			}
		}
	}
	return list, nil
}

// member returns the group of an instance and its state there; empty: it is in none.
func (p *Provider) member(ctx context.Context, id string) (group string, state provider.State, err error) {
	members, err := p.members(ctx, id)
	if err != nil || len(members) == 0 {
		return "", "", err
	}
	state, ok := stateOf(aws.ToString(members[0].LifecycleState))
	if !ok {
		return "", "", nil
	}
	return aws.ToString(members[0].AutoScalingGroupName), state, nil
}

// Detach implements provider.Provider.
func (p *Provider) Detach(ctx context.Context, group, providerID string) error {
	return p.detach(ctx, "Detach", group, providerID, false)
}

// Remove implements provider.Provider.
func (p *Provider) Remove(ctx context.Context, group, providerID string) error {
	return p.detach(ctx, "Remove", group, providerID, true)
}

func (p *Provider) detach(ctx context.Context, call, group, providerID string, smaller bool) error {
	id := instanceID(providerID)
	if id == "" {
		_, err := p.describe(ctx, call, group)
		return err
	}
	if p.Tag != "" {
		_, err := p.instances.CreateTags(ctx, &ec2.CreateTagsInput{
			Resources: []string{id}, Tags: []ec2types.Tag{{Key: &p.Tag, Value: &group}},
		})
		// An instance that does not exist is not an error below.
		if err := failed(call, providerID, err); err != nil && !errors.Is(err, provider.ErrNotFound) {
			return err
		}
	}
	_, err := p.groups.DetachInstances(ctx, &autoscaling.DetachInstancesInput{
		AutoScalingGroupName: &group, InstanceIds: []string{id}, ShouldDecrementDesiredCapacity: &smaller,
	})
	if errorCode(err) != codeValidation {
		return failed(call, providerID, err)
	}
	// The code has many reasons, which only messages for people tell. The current state shows the reason, too.
	g, lookup := p.describe(ctx, call, group)
	if lookup != nil {
		return lookup
	}
	in, state, lookup := p.member(ctx, id)
	switch {
	case lookup != nil:
		return failed(call, providerID, lookup)
	case in != group || state == provider.Detaching || state == provider.Terminating:
		return nil
	case state != provider.InService:
		return conflict(call, providerID, "the instance is %s: %w", state, err)
	case smaller && aws.ToInt32(g.DesiredCapacity) <= aws.ToInt32(g.MinSize):
		return conflict(call, providerID, "the group has its minimal size, %d: %w", aws.ToInt32(g.MinSize), err)
	}
	return failed(call, providerID, err)
}

// Attach implements provider.Provider.
func (p *Provider) Attach(ctx context.Context, group, providerID string) error {
	if err := p.attach(ctx, group, providerID); err != nil || p.Tag == "" {
		return err
	}
	_, err := p.instances.DeleteTags(ctx, &ec2.DeleteTagsInput{
		Resources: []string{instanceID(providerID)}, Tags: []ec2types.Tag{{Key: &p.Tag}},
	})
	return failed("Attach", providerID, err)
}

func (p *Provider) attach(ctx context.Context, group, providerID string) error {
	const call = "Attach"
	id := instanceID(providerID)
	if id == "" {
		if _, err := p.describe(ctx, call, group); err != nil {
			return err
		}
		return &provider.Error{Call: call, Object: providerID, Kind: provider.ErrNotFound}
	}
	_, err := p.groups.AttachInstances(ctx, &autoscaling.AttachInstancesInput{
		AutoScalingGroupName: &group, InstanceIds: []string{id},
	})
	if errorCode(err) != codeValidation {
		return failed(call, providerID, err)
	}
	g, lookup := p.describe(ctx, call, group)
	if lookup != nil {
		return lookup
	}
	list, lookup := p.Instances(ctx, providerID)
	if lookup != nil {
		return failed(call, providerID, lookup)
	}
	switch {
	case len(list) == 0:
		return &provider.Error{Call: call, Object: providerID, Kind: provider.ErrNotFound, Err: err}
	case list[0].Group == group && (list[0].State == provider.InService || list[0].State == provider.Starting):
		return nil
	case list[0].Group != "" && list[0].Group != group:
		return conflict(call, providerID, "the instance is in the group %s: %w", list[0].Group, err)
	case list[0].State != provider.Running:
		return conflict(call, providerID, "the instance is %s: %w", list[0].State, err)
	case aws.ToInt32(g.DesiredCapacity) >= aws.ToInt32(g.MaxSize):
		return conflict(call, providerID, "the group has its maximal size, %d: %w", aws.ToInt32(g.MaxSize), err)
	}
	return failed(call, providerID, err)
}

// Terminate implements provider.Provider.
func (p *Provider) Terminate(ctx context.Context, providerID string) error {
	id := instanceID(providerID)
	if id == "" {
		return nil
	}
	_, err := p.instances.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
	if err = failed("Terminate", providerID, err); errors.Is(err, provider.ErrNotFound) {
		return nil
	}
	return err
}
