// Package providertest has the tests that every provider must pass.
package providertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/nodes/provider"
)

// Fixture is a provider with a group of its own, which tests may change.
type Fixture struct {
	Provider provider.Provider
	// Group has a desired capacity of 2, at most 3, and two instances that are in service, or will be soon.
	Group string
	// Other is another group, with an instance in service.
	Other string
	// Unknown is the identity of an instance that never existed.
	Unknown string
	// Throttle throttles all calls, or lets them through again.
	Throttle func(t *testing.T, on bool)
	// LoseAnswer makes the provider carry the next Detach, Remove, Attach or Terminate out, and lose the answer.
	LoseAnswer func(t *testing.T)
	// Renew changes the template of the group's instances.
	Renew func(t *testing.T)
}

// Test runs the tests, each with a fixture of its own.
func Test(t *testing.T, fixture func(t *testing.T) *Fixture) {
	for name, test := range map[string]func(*testing.T, *Fixture){
		"describes its groups": describes, "detaches once": detaches, "removes once": removes,
		"attaches once": attaches, "attaches only what can be attached": refusesToAttach, "terminates once": terminates,
		"terminates members of groups": terminatesMembers, "tells that it is throttled": throttled,
		"calls whose answer was lost can be repeated": lostAnswers, "tells what is out of date": outOfDate,
		"ends with the context": endsWithContext,
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture(t)
			f.inService(t, 2)
			test(t, f)
		})
	}
}

// eventually waits until the condition is true.
func eventually(t *testing.T, condition func() error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); ; <-tick.C {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func (f *Fixture) group(t *testing.T, name string) *provider.Group {
	t.Helper()
	g, err := f.Provider.Group(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// inService waits until the group has n instances, all in service, and returns their identities.
func (f *Fixture) inService(t *testing.T, n int) []string {
	t.Helper()
	var ids []string
	eventually(t, func() error {
		g := f.group(t, f.Group)
		ids = nil
		for _, i := range g.Instances {
			if i.State == provider.InService {
				ids = append(ids, i.ProviderID)
			}
		}
		if len(ids) != n || len(g.Instances) != n {
			return fmt.Errorf("the group must have %d instances in service: %+v", n, g.Instances)
		}
		return nil
	})
	slices.Sort(ids)
	return ids
}

// instance returns an instance; nil: it does not exist.
func (f *Fixture) instance(t *testing.T, id string) *provider.Instance {
	t.Helper()
	list, err := f.Provider.Instances(t.Context(), id)
	if err != nil || len(list) > 1 {
		t.Fatalf("Instances(%s): %+v, %v", id, list, err)
	}
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

func (f *Fixture) capacity(t *testing.T, want int) {
	t.Helper()
	if is := f.group(t, f.Group).DesiredCapacity; is != want {
		t.Errorf("the desired capacity is %d, want %d", is, want)
	}
}

// in reports whether the instance is in the group.
func (f *Fixture) in(t *testing.T, id string) bool {
	t.Helper()
	return slices.ContainsFunc(f.group(t, f.Group).Instances, func(i provider.Instance) bool {
		return i.ProviderID == id
	})
}

func check(t *testing.T, what string, err, want error) {
	t.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
	if call := (*provider.Error)(nil); want != nil && (!errors.As(err, &call) || call.Call == "" || call.Object == "") {
		t.Errorf("%s: the error does not say which call failed: %#v", what, err)
	}
}

// detached detaches an instance and waits until it is detached.
func (f *Fixture) detached(t *testing.T) string {
	t.Helper()
	id := f.inService(t, 2)[0]
	check(t, "Detach", f.Provider.Detach(t.Context(), f.Group, id), nil)
	f.running(t, id)
	return id
}

func (f *Fixture) running(t *testing.T, id string) {
	t.Helper()
	eventually(t, func() error {
		i := f.instance(t, id)
		if i == nil || i.State != provider.Running || f.in(t, id) {
			return fmt.Errorf("%s is not detached: %+v", id, i)
		}
		return nil
	})
}

func describes(t *testing.T, f *Fixture) {
	if f.Provider.Name() == "" {
		t.Error("the provider has no name")
	}
	g := f.group(t, f.Group)
	if g.Name != f.Group || g.DesiredCapacity != 2 || g.MaxSize != 3 || g.MinSize != 0 {
		t.Errorf("the group is %+v", g)
	}
	for _, i := range g.Instances {
		if i.Group != f.Group || i.OutOfDate {
			t.Errorf("an instance is %+v", i)
		}
	}
	_, err := f.Provider.Group(t.Context(), "no-such-group")
	check(t, "Group of an unknown group", err, provider.ErrNotFound)
	if i := f.instance(t, f.Unknown); i != nil {
		t.Errorf("an unknown instance is %+v", i)
	}
	ids := []string{g.Instances[0].ProviderID, f.Unknown, g.Instances[1].ProviderID, g.Instances[0].ProviderID}
	if list, err := f.Provider.Instances(t.Context(), ids...); err != nil || len(list) != 2 {
		t.Errorf("Instances of two, of which one is named twice, and an unknown one: %+v, %v", list, err)
	}
	if list, err := f.Provider.Instances(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("Instances of none: %+v, %v", list, err)
	}
	list, err := f.Provider.Instances(t.Context(), "", "no/identity", "other:///z/i-1")
	if err != nil || len(list) != 0 {
		t.Errorf("Instances of another provider: %+v, %v", list, err)
	}
}

func detaches(t *testing.T, f *Fixture) {
	id := f.detached(t)
	f.capacity(t, 2)
	check(t, "Detach again", f.Provider.Detach(t.Context(), f.Group, id), nil)
	if ids := f.inService(t, 2); slices.Contains(ids, id) { // its replacement has started, and only that
		t.Errorf("%s is in the group", id)
	}
	f.running(t, id)
	check(t, "Detach an unknown instance", f.Provider.Detach(t.Context(), f.Group, f.Unknown), nil)
	err := f.Provider.Detach(t.Context(), "no-such-group", id)
	check(t, "Detach from an unknown group", err, provider.ErrNotFound)
	check(t, "Detach from another group", f.Provider.Detach(t.Context(), f.Other, f.inService(t, 2)[0]), nil)
	f.inService(t, 2)
}

func removes(t *testing.T, f *Fixture) {
	ids := f.inService(t, 2)
	for range 2 {
		check(t, "Remove", f.Provider.Remove(t.Context(), f.Group, ids[0]), nil)
		f.running(t, ids[0])
		f.capacity(t, 1)
	}
	if left := f.inService(t, 1); left[0] != ids[1] { // nothing was started in its place
		t.Errorf("%s is in the group, want %s", left[0], ids[1])
	}
	check(t, "Remove an unknown instance", f.Provider.Remove(t.Context(), f.Group, f.Unknown), nil)
	check(t, "Remove no identity", f.Provider.Remove(t.Context(), f.Group, "no/identity"), nil)
	check(t, "Remove from another group", f.Provider.Remove(t.Context(), f.Other, ids[1]), nil)
	err := f.Provider.Remove(t.Context(), "no-such-group", ids[1])
	check(t, "Remove from an unknown group", err, provider.ErrNotFound)
	f.capacity(t, 1)
	f.inService(t, 1)
	// And back.
	check(t, "Attach", f.Provider.Attach(t.Context(), f.Group, ids[0]), nil)
	f.capacity(t, 2)
	f.inService(t, 2)
	// What is detached already has been replaced: nothing becomes smaller.
	check(t, "Detach", f.Provider.Detach(t.Context(), f.Group, ids[0]), nil)
	f.running(t, ids[0])
	check(t, "Remove what is detached", f.Provider.Remove(t.Context(), f.Group, ids[0]), nil)
	f.capacity(t, 2)
	f.inService(t, 2)
}

func attaches(t *testing.T, f *Fixture) {
	id := f.detached(t)
	f.inService(t, 2)
	for range 2 {
		check(t, "Attach", f.Provider.Attach(t.Context(), f.Group, id), nil)
		f.capacity(t, 3)
		if ids := f.inService(t, 3); !slices.Contains(ids, id) {
			t.Fatalf("%s is not in the group", id)
		}
	}
	check(t, "Attach to an unknown group", f.Provider.Attach(t.Context(), "no-such-group", id), provider.ErrNotFound)
	// And out again.
	check(t, "Detach", f.Provider.Detach(t.Context(), f.Group, id), nil)
	f.running(t, id)
	f.capacity(t, 3)
	check(t, "Attach to a full group", f.Provider.Attach(t.Context(), f.Group, id), provider.ErrConflict)
	f.capacity(t, 3)
	f.running(t, id)
}

func refusesToAttach(t *testing.T, f *Fixture) {
	check(t, "Attach an unknown instance", f.Provider.Attach(t.Context(), f.Group, f.Unknown), provider.ErrNotFound)
	check(t, "Attach no identity", f.Provider.Attach(t.Context(), f.Group, "no/identity"), provider.ErrNotFound)
	other := f.group(t, f.Other).Instances[0].ProviderID
	check(t, "Attach another group's instance", f.Provider.Attach(t.Context(), f.Group, other), provider.ErrConflict)
	f.capacity(t, 2)
	f.inService(t, 2)
}

func (f *Fixture) gone(t *testing.T, id string) {
	t.Helper()
	eventually(t, func() error {
		if i := f.instance(t, id); i != nil {
			return fmt.Errorf("%s exists: %+v", id, i)
		}
		return nil
	})
}

func terminates(t *testing.T, f *Fixture) {
	id := f.detached(t)
	for range 2 {
		check(t, "Terminate", f.Provider.Terminate(t.Context(), id), nil)
	}
	if i := f.instance(t, id); i != nil && i.State != provider.Terminating {
		t.Errorf("a terminated instance is %+v", i)
	}
	err := f.Provider.Attach(t.Context(), f.Group, id)
	if !errors.Is(err, provider.ErrConflict) && !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("Attach a terminated instance: %v", err)
	}
	f.gone(t, id)
	check(t, "Terminate what has ended", f.Provider.Terminate(t.Context(), id), nil)
	check(t, "Detach what has ended", f.Provider.Detach(t.Context(), f.Group, id), nil)
	check(t, "Attach what has ended", f.Provider.Attach(t.Context(), f.Group, id), provider.ErrNotFound)
	check(t, "Terminate an unknown instance", f.Provider.Terminate(t.Context(), f.Unknown), nil)
	check(t, "Terminate no identity", f.Provider.Terminate(t.Context(), "no/identity"), nil)
	f.capacity(t, 2)
	f.inService(t, 2)
}

func terminatesMembers(t *testing.T, f *Fixture) {
	id := f.inService(t, 2)[0]
	check(t, "Terminate", f.Provider.Terminate(t.Context(), id), nil)
	f.gone(t, id)
	f.capacity(t, 2)
	if ids := f.inService(t, 2); slices.Contains(ids, id) {
		t.Errorf("%s is in the group", id)
	}
}

// calls are all calls of the provider.
func (f *Fixture) calls(ctx context.Context, id string) map[string]error {
	_, group := f.Provider.Group(ctx, f.Group)
	_, instances := f.Provider.Instances(ctx, id)
	return map[string]error{
		"Group": group, "Instances": instances, "Detach": f.Provider.Detach(ctx, f.Group, id),
		"Remove": f.Provider.Remove(ctx, f.Group, id), "Attach": f.Provider.Attach(ctx, f.Group, id),
		"Terminate": f.Provider.Terminate(ctx, id),
	}
}

func throttled(t *testing.T, f *Fixture) {
	id := f.inService(t, 2)[0]
	f.Throttle(t, true)
	for call, err := range f.calls(t.Context(), id) {
		check(t, call, err, provider.ErrThrottled)
	}
	f.Throttle(t, false)
	f.capacity(t, 2)
	if ids := f.inService(t, 2); !slices.Contains(ids, id) {
		t.Errorf("a throttled call has changed something")
	}
}

func lostAnswers(t *testing.T, f *Fixture) {
	id := f.inService(t, 2)[0]
	for _, step := range []struct {
		call string
		do   func() error
		done func()
	}{
		{
			"Detach", func() error { return f.Provider.Detach(t.Context(), f.Group, id) },
			func() { f.running(t, id); f.inService(t, 2) },
		},
		{
			"Attach", func() error { return f.Provider.Attach(t.Context(), f.Group, id) },
			func() { f.inService(t, 3); f.capacity(t, 3) },
		},
		{
			"Remove", func() error { return f.Provider.Remove(t.Context(), f.Group, id) },
			func() { f.running(t, id); f.inService(t, 2); f.capacity(t, 2) },
		},
		{"Terminate", func() error { return f.Provider.Terminate(t.Context(), id) }, func() { f.gone(t, id) }},
	} {
		f.LoseAnswer(t)
		err := step.do()
		if err == nil {
			t.Fatalf("%s: no error, although the answer was lost", step.call)
		}
		for _, kind := range []error{
			provider.ErrThrottled, provider.ErrNoCapacity, provider.ErrNotFound, provider.ErrConflict,
		} {
			if errors.Is(err, kind) {
				t.Errorf("%s: %v must not be %v: nobody knows", step.call, err, kind)
			}
		}
		check(t, step.call+" again", step.do(), nil)
		step.done()
	}
}

func outOfDate(t *testing.T, f *Fixture) {
	old := f.inService(t, 2)
	f.Renew(t)
	for _, i := range f.group(t, f.Group).Instances {
		if !i.OutOfDate {
			t.Errorf("%s must be out of date", i.ProviderID)
		}
	}
	check(t, "Detach", f.Provider.Detach(t.Context(), f.Group, old[0]), nil)
	f.running(t, old[0])
	f.inService(t, 2)
	for _, i := range f.group(t, f.Group).Instances {
		if i.OutOfDate != slices.Contains(old, i.ProviderID) {
			t.Errorf("out of date: %+v; before were %v", i, old)
		}
	}
}

func endsWithContext(t *testing.T, f *Fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for call, err := range f.calls(ctx, f.inService(t, 2)[0]) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v", call, err)
		}
	}
}
