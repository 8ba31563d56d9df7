package simulated_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/provider"
	"github.com/trommel-dev/trommel/nodes/simulated"
)

var errKilled = errors.New("killed")

// killer kills a cloud at one of its writes: from then on, no write of it reaches the API server.
type killer struct {
	at     int  // from 1
	before bool // the write itself is not made either
	dead   chan struct{}

	mu     sync.Mutex
	writes int
	what   string
}

func (k *killer) write(what string, do func() error) error {
	k.mu.Lock()
	k.writes++
	n := k.writes
	k.mu.Unlock()
	switch {
	case n > k.at || n == k.at && k.before:
		k.die(n, what)
		return errKilled
	case n == k.at:
		err := do()
		k.die(n, what)
		return errors.Join(errKilled, err)
	}
	return do()
}

func (k *killer) die(n int, what string) {
	if n == k.at {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.what = what
		close(k.dead)
	}
}

// killedAt is the write at which it has killed the cloud; empty: it has not.
func (k *killer) killedAt() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.what
}

func (k *killer) wrap(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return k.write(fmt.Sprintf("create %T", o), func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return k.write(fmt.Sprintf("update %T", o), func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			return k.write(fmt.Sprintf("patch %T", o), func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return k.write(fmt.Sprintf("delete %T", o), func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			return k.write(fmt.Sprintf("update %s of %T", sub, o), func() error {
				return c.SubResource(sub).Update(ctx, o, opts...)
			})
		},
	})
}

// TestKilledAtEveryWrite kills the cloud before and after each of its writes, and starts another, while a client
// detaches, attaches and terminates instances, with faults that happen once.
func TestKilledAtEveryWrite(t *testing.T) {
	long := os.Getenv("TROMMEL_TEST_LONG") != ""
	for at, killed := 1, true; killed; at++ {
		for _, before := range []bool{true, false} {
			if !long && (at%4 != 1 || before != (at%8 == 1)) {
				continue
			}
			t.Run(fmt.Sprintf("write %d, before=%t", at, before), func(t *testing.T) {
				killed = crash(t, &killer{at: at, before: before, dead: make(chan struct{})})
			})
			if t.Failed() {
				return
			}
		}
	}
}

// crash reports whether the cloud has written so often that it was killed.
func crash(t *testing.T, k *killer) bool {
	began := time.Now()
	stop, err := newCloud(simulated.Options{}, k.wrap)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() })
	var restarted sync.WaitGroup
	over := make(chan struct{})
	restarted.Go(func() {
		select {
		case <-k.dead:
		case <-over:
			return
		}
		_ = stop()
		if stop, err = newCloud(simulated.Options{}, nil); err != nil {
			t.Error(err)
		}
	})
	// The cleanup waits, too, so that a scenario that fails ends.
	finish := sync.OnceFunc(func() { close(over); restarted.Wait() })
	t.Cleanup(finish)
	scenario(t)
	finish()
	t.Logf("killed at %q; over after %v", k.killedAt(), time.Since(began))
	return k.killedAt() != ""
}

// scenario is what a client does with a group of two, whatever happens to the cloud.
func scenario(t *testing.T) {
	g := newGroup(t, 2, func(s *nodes.SimulatedNodeGroupSpec) {
		s.Faults = []nodes.SimulatedFault{
			{Name: "busy", Type: nodes.FaultThrottled, Calls: []nodes.Call{nodes.CallDetach}, Times: 1},
			{Name: "lost", Type: nodes.FaultAnswerLost, Calls: []nodes.Call{nodes.CallAttach}, Times: 1},
		}
	})
	await(t, g, "ready", allReady)
	ctx, p := t.Context(), simulated.New(direct)
	first, second := simulated.ProviderID(g.Name, "i-0001"), simulated.ProviderID(g.Name, "i-0002")
	if err := p.Detach(ctx, g.Name, first); !errors.Is(err, provider.ErrThrottled) {
		t.Fatalf("Detach: %v, want throttled", err)
	}
	if err := p.Detach(ctx, g.Name, first); err != nil {
		t.Fatal(err)
	}
	await(t, g, "detached", func(g *nodes.SimulatedNodeGroup) bool { return g.Status.Detached == 1 && allReady(g) })
	if err := p.Attach(ctx, g.Name, first); err == nil || errors.Is(err, provider.ErrConflict) {
		t.Fatalf("Attach: %v, want a lost answer", err)
	}
	if err := p.Attach(ctx, g.Name, first); err != nil {
		t.Fatal(err)
	}
	if err := p.Terminate(ctx, second); err != nil {
		t.Fatal(err)
	}
	await(t, g, "settled", func(g *nodes.SimulatedNodeGroup) bool {
		return allReady(g) && g.Spec.DesiredCapacity == 3 && len(g.Status.Instances) == 3
	})

	// Each fault happened once, and each call did what it should once: otherwise there were more instances.
	if g.Status.Started != 4 {
		t.Errorf("%d instances were started, want 4", g.Status.Started)
	}
	want := []nodes.FaultCount{{Name: "busy", Times: 1}, {Name: "lost", Times: 1}}
	if !slices.Equal(g.Status.Faults, want) {
		t.Errorf("the faults are %v, want %v", g.Status.Faults, want)
	}
	clustertest.Eventually(t, func(context.Context) error {
		var names []string
		for _, n := range nodesOf(t, g) {
			names = append(names, strings.TrimPrefix(n.Name, g.Name+"-"))
		}
		slices.Sort(names)
		if want := []string{"0001", "0003", "0004"}; !slices.Equal(names, want) {
			return fmt.Errorf("the Nodes are %v, want %v", names, want)
		}
		return nil
	})
	var calls nodes.ProviderCallList
	if err := direct.List(ctx, &calls); err != nil {
		t.Fatal(err)
	}
	var results []string
	for _, c := range calls.Items {
		if c.Spec.NodeGroupName == g.Name {
			results = append(results, fmt.Sprintf("%s %s %t", c.Spec.Call, c.Status.Result, c.Status.Changed))
		}
	}
	slices.Sort(results)
	wantCalls := []string{
		"Attach Done false", "Attach Lost true", "Detach Done true", "Detach Throttled false", "Terminate Done true",
	}
	if !slices.Equal(results, wantCalls) {
		t.Errorf("the calls are %q, want %q", results, wantCalls)
	}
}
