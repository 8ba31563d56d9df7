package aws

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/nodes/provider"
	"github.com/trommel-dev/trommel/nodes/provider/providertest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	providertest.Test(t, func(t *testing.T) *providertest.Fixture {
		c, p := newCloud(t)
		c.add("workers", &asg{desired: 2, max: 3, version: "$Latest"})
		c.add("others", &asg{desired: 1, max: 3, version: "$Latest"})
		set := func(change func()) {
			c.mu.Lock()
			defer c.mu.Unlock()
			change()
		}
		return &providertest.Fixture{
			Provider: p, Group: "workers", Other: "others", Unknown: "aws:///eu-central-1a/i-0fedcba9876543210",
			Throttle:   func(_ *testing.T, on bool) { set(func() { c.throttled = on }) },
			LoseAnswer: func(*testing.T) { set(func() { c.lose = true }) },
			Renew:      func(*testing.T) { set(func() { c.latest++ }) },
		}
	})
}

// settled is a cloud with a group whose instances are in service.
func settled(t *testing.T, g *asg) (*cloud, *Provider, *provider.Group) {
	t.Helper()
	c, p := newCloud(t)
	c.add("workers", g)
	for {
		group, err := p.Group(t.Context(), "workers")
		if err != nil {
			t.Fatal(err)
		}
		starting := 0
		for _, i := range group.Instances {
			if i.State != provider.InService {
				starting++
			}
		}
		if starting == 0 {
			return c, p, group
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	const bad, busy = 400, 503
	for _, tt := range []struct {
		action string
		refusal
		call  string
		kind  error // nil: one without a kind
		after time.Duration
		fine  bool // no error
	}{
		{
			"DescribeAutoScalingGroups", refusal{bad, "Throttling", "Rate exceeded", "3"},
			"Group", provider.ErrThrottled, 3 * time.Second, false,
		},
		{
			"DescribeAutoScalingGroups", refusal{bad, "ThrottlingException", "Rate exceeded", ""},
			"Group", provider.ErrThrottled, 0, false,
		},
		{"DescribeAutoScalingGroups", refusal{403, "AccessDenied", "not authorized", ""}, "Group", nil, 0, false},
		{
			"DescribeLaunchTemplates", refusal{busy, "RequestLimitExceeded", "Request limit exceeded.", ""},
			"Group", provider.ErrThrottled, 0, false,
		},
		{
			"DescribeInstances", refusal{busy, "RequestLimitExceeded", "Request limit exceeded.", ""},
			"Instances", provider.ErrThrottled, 0, false,
		},
		{
			"DescribeInstances", refusal{500, "InternalError", "An internal error has occurred", ""},
			"Instances", nil, 0, false,
		},
		{
			"DescribeAutoScalingInstances", refusal{bad, "Throttling", "Rate exceeded", ""},
			"Instances", provider.ErrThrottled, 0, false,
		},
		{"DetachInstances", refusal{500, "ResourceContention", "a pending update", ""}, "Detach", nil, 0, false},
		{
			"DetachInstances", refusal{bad, "ScalingActivityInProgress", "scaling activities are in progress", ""},
			"Detach", nil, 0, false,
		},
		{
			"DetachInstances", refusal{bad, "ValidationError", "a reason that nobody can see", ""},
			"Detach", nil, 0, false,
		},
		{"DetachInstances", refusal{500, "ResourceContention", "a pending update", ""}, "Remove", nil, 0, false},
		{"AttachInstances", refusal{500, "ResourceContention", "a pending update", ""}, "Attach", nil, 0, false},
		// It is in the group.
		{"AttachInstances", refusal{bad, "ValidationError", "already part", ""}, "Attach", nil, 0, true},
		{
			"TerminateInstances", refusal{bad, "OperationNotPermitted", "disableApiTermination", ""},
			"Terminate", provider.ErrConflict, 0, false,
		},
		{
			"TerminateInstances", refusal{bad, "IncorrectInstanceState", "not in a state", ""},
			"Terminate", provider.ErrConflict, 0, false,
		},
		{"TerminateInstances", refusal{403, "UnauthorizedOperation", "not authorized", ""}, "Terminate", nil, 0, false},
		{
			"TerminateInstances", refusal{bad, "InvalidInstanceID.Malformed", "Invalid id", ""},
			"Terminate", nil, 0, true,
		},
		{
			"TerminateInstances", refusal{busy, "RequestLimitExceeded", "Request limit exceeded.", "7"},
			"Terminate", provider.ErrThrottled, 7 * time.Second, false,
		},
		{
			"TerminateInstances", refusal{bad, "InsufficientInstanceCapacity", "no capacity", ""},
			"Terminate", provider.ErrNoCapacity, 0, false,
		},
	} {
		t.Run(tt.action+" "+tt.code, func(t *testing.T) {
			c, p, g := settled(t, &asg{desired: 1, max: 1, version: "$Default"})
			c.mu.Lock()
			c.refuse[tt.action], c.seen = tt.refusal, nil
			c.mu.Unlock()
			id := g.Instances[0].ProviderID
			err := map[string]func() error{
				"Group":     func() error { _, err := p.Group(t.Context(), "workers"); return err },
				"Instances": func() error { _, err := p.Instances(t.Context(), id); return err },
				"Detach":    func() error { return p.Detach(t.Context(), "workers", id) },
				"Remove":    func() error { return p.Remove(t.Context(), "workers", id) },
				"Attach":    func() error { return p.Attach(t.Context(), "workers", id) },
				"Terminate": func() error { return p.Terminate(t.Context(), id) },
			}[tt.call]()
			c.mu.Lock()
			defer c.mu.Unlock()
			if n := strings.Count(strings.Join(c.seen, " ")+" ", tt.action+" "); n != 1 {
				t.Errorf("%s was called %d times: nothing must be tried again: %v", tt.action, n, c.seen)
			}
			if tt.fine {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var failed *provider.Error
			if !errors.As(err, &failed) {
				t.Fatalf("%v is no error of a provider", err)
			}
			if failed.Kind != tt.kind || failed.RetryAfter != tt.after || failed.Call != tt.call ||
				!strings.Contains(err.Error(), tt.code) {
				t.Errorf("%v (kind %v, retry after %v), want kind %v, %v", err, failed.Kind, failed.RetryAfter, tt.kind,
					tt.after)
			}
		})
	}
}

func TestOutOfDate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		group  asg
		change func(*cloud, *asg)
		want   bool
	}{
		{"the latest version", asg{version: "$Latest"}, func(*cloud, *asg) {}, false},
		{"a later version", asg{version: "$Latest"}, func(c *cloud, _ *asg) { c.latest++ }, true},
		{"another default version", asg{version: "$Default"}, func(*cloud, *asg) {}, true},
		{"no version is the default one", asg{}, func(*cloud, *asg) {}, true},
		{"a number", asg{version: "7"}, func(c *cloud, _ *asg) { c.latest++ }, false},
		{"another number", asg{version: "7"}, func(_ *cloud, g *asg) { g.version = "8" }, true},
		{"mixed instances", asg{version: "$Latest", mixed: true}, func(*cloud, *asg) {}, false},
		{"mixed instances, a later version", asg{version: "$Latest", mixed: true},
			func(c *cloud, _ *asg) { c.latest++ }, true},
		{"a launch configuration", asg{configured: "a"}, func(*cloud, *asg) {}, false},
		{"another launch configuration", asg{configured: "a"}, func(_ *cloud, g *asg) { g.configured = "b" }, true},
		{"a template in place of a launch configuration", asg{configured: "a"},
			func(_ *cloud, g *asg) { g.configured, g.version = "", "7" }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.group.desired, tt.group.max = 1, 1
			c, p, _ := settled(t, &tt.group)
			c.mu.Lock()
			tt.change(c, &tt.group)
			c.mu.Unlock()
			g, err := p.Group(t.Context(), "workers")
			if err != nil || g.Instances[0].OutOfDate != tt.want {
				t.Errorf("%+v, %v; want out of date: %t", g, err, tt.want)
			}
		})
	}
}

func TestGroupsThatDoNotCountInstancesAreRefused(t *testing.T) {
	t.Parallel()
	for _, g := range []*asg{
		{desired: 1, max: 2, version: "7", unit: "vcpu"}, {desired: 1, max: 2, version: "7", weight: "4"},
	} {
		c, p := newCloud(t)
		c.add("workers", g)
		if _, err := p.Group(t.Context(), "workers"); !errors.Is(err, provider.ErrConflict) ||
			!strings.Contains(err.Error(), "must be a number of instances") {
			t.Errorf("%+v: %v", g, err)
		}
	}
	c, p := newCloud(t)
	c.add("workers", &asg{desired: 1, max: 2, version: "7", unit: "units", weight: "1"})
	if _, err := p.Group(t.Context(), "workers"); err != nil {
		t.Error(err)
	}
}

// TestManyInstances asks for more instances than fit into one request.
func TestManyInstances(t *testing.T) {
	t.Parallel()
	_, p, g := settled(t, &asg{desired: 230, max: 300, version: "7"})
	var ids []string
	for _, i := range g.Instances {
		ids = append(ids, i.ProviderID)
	}
	for n := range 100 {
		ids = append(ids, fmt.Sprintf("aws:///eu-central-1a/i-0000000000fffff%02x", n))
	}
	list, err := p.Instances(t.Context(), ids...)
	if err != nil || len(list) != 230 {
		t.Fatalf("%d instances of 230: %v", len(list), err)
	}
	for _, i := range list {
		if i.Group != "workers" || i.State != provider.InService {
			t.Errorf("%+v", i)
		}
	}
}

func TestStates(t *testing.T) {
	t.Parallel()
	for lifecycle, want := range map[string]provider.State{
		"Pending": provider.Starting, "Pending:Wait": provider.Starting, "InService": provider.InService,
		"Standby": provider.Starting, "Detaching": provider.Detaching, "Terminating:Proceed": provider.Terminating,
		"Detached": "", "Terminated": "", "Warmed:Stopped": "",
	} {
		if got, ok := stateOf(lifecycle); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %t; want %q", lifecycle, got, ok, want)
		}
	}
}

// A group of minimal size says so, and keeps its instance.
func TestRemoveFromGroupOfMinimalSize(t *testing.T) {
	_, p, g := settled(t, &asg{desired: 1, min: 1, max: 2, version: "$Default"})
	id := g.Instances[0].ProviderID
	if err := p.Remove(t.Context(), "workers", id); !errors.Is(err, provider.ErrConflict) ||
		!strings.Contains(err.Error(), "the group has its minimal size, 1") {
		t.Errorf("Remove: %v", err)
	}
	if g, err := p.Group(t.Context(), "workers"); err != nil || len(g.Instances) != 1 || g.DesiredCapacity != 1 {
		t.Errorf("the group is %+v, %v", g, err)
	}
}

// An instance has the tag from before it is taken out of its group until it is in it again.
func TestTag(t *testing.T) {
	for _, remove := range []bool{false, true} {
		c, p, g := settled(t, &asg{desired: 1, max: 3, version: "$Default"})
		p.Tag = "nodes.trommel.dev/detached-from"
		id := g.Instances[0].ProviderID
		tag := func() string {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.find(instanceID(id)).tag
		}
		takeOut := p.Detach
		if remove {
			takeOut = p.Remove
		}
		c.mu.Lock()
		c.refuse["CreateTags"] = refusal{403, "UnauthorizedOperation", "not authorized", ""}
		c.mu.Unlock()
		if err := takeOut(t.Context(), "workers", id); err == nil || tag() != "" {
			t.Errorf("without the right to tag: %v, %q", err, tag())
		}
		if i, err := p.Instances(t.Context(), id); err != nil || i[0].State != provider.InService {
			t.Errorf("it was taken out without a tag: %+v, %v", i, err)
		}
		err := takeOut(t.Context(), "workers", id)
		if err != nil || tag() != "nodes.trommel.dev/detached-from=workers" {
			t.Errorf("taken out: %v, %q", err, tag())
		}
		for range 2 * steps { // until it is out
			if _, err := p.Group(t.Context(), "workers"); err != nil {
				t.Fatal(err)
			}
		}
		c.mu.Lock()
		c.refuse["DeleteTags"] = refusal{503, "RequestLimitExceeded", "Request limit exceeded.", ""}
		c.mu.Unlock()
		if err := p.Attach(t.Context(), "workers", id); !errors.Is(err, provider.ErrThrottled) || tag() == "" {
			t.Errorf("attached, and the tag stays: %v, %q", err, tag())
		}
		if err := p.Attach(t.Context(), "workers", id); err != nil || tag() != "" {
			t.Errorf("attached again: %v, %q", err, tag())
		}
		if err := takeOut(t.Context(), "workers", "aws:///eu-central-1a/i-0123456789abcdef0"); err != nil {
			t.Errorf("what does not exist: %v", err)
		}
	}
}
