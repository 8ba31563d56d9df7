package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/record"
)

// fleet is the controllers under test. It waits for them to start.
type fleet struct {
	mu      sync.Mutex
	members []member
	ready   time.Duration // in which each has to start
	alive   time.Duration // for which each has to run
	node    interface {
		Status(ctx context.Context, controller string) ([]cluster.Process, error)
	}
	sessions interface {
		WaitConnected(ctx context.Context, identity string, after, n int) error
		Connections(ctx context.Context, identity string) (total, live int, err error)
	}
	tail func(p cluster.Process) string                                               // of the process's log
	list func(ctx context.Context, kind string) ([]*unstructured.Unstructured, error) // in all namespaces
}

// member is a controller under test.
type member struct {
	name         string
	instrumented bool
	replicas     int // how many processes it has
}

// membersOf lists the controllers under test. The binaries are in the order of the controllers.
func membersOf(controllers []record.Controller, binaries []builds.Binary) (all []member) {
	for i, c := range controllers {
		all = append(all, member{c.Name, binaries[i].Manifest != nil, max(c.Replicas, 1)})
	}
	return all
}

// all returns the members as they are now.
func (f *fleet) all() []member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members
}

// become replaces the members, when another build of the controllers is installed.
func (f *fleet) become(members []member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members = members
}

// await waits until each controller runs, has connected if it is instrumented, and keeps running.
func (f *fleet) await(ctx context.Context) error {
	for _, m := range f.all() {
		if err := f.awaitStart(ctx, m.name, 0); err != nil {
			return err
		}
	}
	return f.awaitAlive(ctx)
}

// awaitAlive waits until every controller has run for the time alive; it returns an error if one keeps exiting. The
// hook connects before main runs, so a session alone does not show that the controller works. Nor does a process that
// was started the time alive ago: on a busy machine it may not have come as far as its session.
func (f *fleet) awaitAlive(ctx context.Context) error {
	ctx, cancel := clock.WithTimeout(ctx, f.ready)
	defer cancel()
	for _, m := range f.all() {
		began := map[time.Time]time.Time{} // by a process's start: when it was first seen to run with a session
		for {
			processes, err := f.node.Status(ctx, m.name)
			if err != nil {
				return fmt.Errorf("status of controller %q: %w", m.name, err)
			}
			if err := f.exitsAtOnce(m.name, processes); err != nil {
				return err
			}
			if err := f.note(ctx, m, processes, began); err != nil {
				return err
			}
			if slices.ContainsFunc(processes, func(p cluster.Process) bool {
				at, ok := began[p.Started]
				return ok && p.Running() && clock.Since(ctx, at) >= f.alive
			}) {
				break
			}
			if clock.Sleep(ctx, 50*time.Millisecond) != nil {
				return f.notConnected(ctx, m)
			}
		}
	}
	return nil
}

// note notes when the controller's processes began to work, as far as they do.
func (f *fleet) note(ctx context.Context, m member, processes []cluster.Process, began map[time.Time]time.Time) error {
	if m.instrumented {
		_, live, err := f.sessions.Connections(ctx, m.name)
		if err != nil {
			return fmt.Errorf("sessions of controller %q: %w", m.name, err)
		}
		if live == 0 {
			return nil
		}
	}
	for _, p := range processes {
		if _, known := began[p.Started]; known || !p.Running() {
			continue
		}
		at := p.Started
		if m.instrumented {
			at = clock.Now(ctx)
		}
		began[p.Started] = at
	}
	return nil
}

// mostEnds is how often a controller may end before that is an error: by itself, with exit code 0, as some do when they
// have made their certificates; or with an error, if another controller is under test, which may have yet to make what
// this one lacks.
const mostEnds = 4

// exitsAtOnce returns an error if the controller has ended too often. One early failure may be due to a cluster that is
// not fully ready.
func (f *fleet) exitsAtOnce(name string, processes []cluster.Process) error {
	exits := slices.DeleteFunc(slices.Clone(processes),
		func(p cluster.Process) bool { return p.Running() || p.Planned })
	failed := slices.ContainsFunc(exits, func(p cluster.Process) bool { return p.ExitCode != 0 })
	if len(exits) < 2 || (!failed || len(f.all()) > 1) && len(exits) <= mostEnds {
		return nil
	}
	p := exits[len(exits)-1]
	return fmt.Errorf("controller %q exits at once (exit code %d, %d starts); the end of its log:\n%s",
		name, p.ExitCode, len(processes), f.end(p))
}

// end is the end of a process's log, and why the process exited, as far as this machine is to blame.
func (f *fleet) end(p cluster.Process) string {
	if p.MetMachine == "" {
		return f.tail(p)
	}
	return f.tail(p) + "\n(" + p.MetMachine + ")"
}

// awaitStart waits until the controller runs and, if instrumented, each of its processes has a session that is not
// among the first `after` ones. If the controller keeps exiting instead, the error contains the end of its log. It does
// not wait for one that is not in the fleet.
func (f *fleet) awaitStart(ctx context.Context, name string, after int) error {
	members := f.all()
	at := slices.IndexFunc(members, func(m member) bool { return m.name == name })
	if at < 0 {
		return nil
	}
	m := members[at]
	ctx, cancel := clock.WithTimeout(ctx, f.ready)
	defer cancel()
	connected := make(chan error, 1)
	if m.instrumented {
		go func() { connected <- f.sessions.WaitConnected(ctx, name, after, m.replicas) }()
	}
	tick := clock.NewTicker(ctx, 100*time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-connected:
			if err == nil {
				return nil
			}
			return f.notConnected(ctx, m)
		case <-tick.C:
		case <-ctx.Done():
			return f.notConnected(ctx, m)
		}
		processes, err := f.node.Status(ctx, name)
		if err != nil {
			continue // until the deadline
		}
		if !m.instrumented && slices.ContainsFunc(processes, cluster.Process.Running) {
			return nil
		}
		if err := f.exitsAtOnce(name, processes); err != nil {
			return err
		}
	}
}

// notConnected says how far a controller has come that should have connected by now.
func (f *fleet) notConnected(ctx context.Context, m member) error {
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	processes, err := f.node.Status(ctx, m.name)
	if err != nil || len(processes) == 0 {
		return fmt.Errorf("controller %q did not start within %s (timeouts.ready); its Deployment's pods:\n%s",
			m.name, f.ready, f.describePods(ctx, m.name))
	}
	if started := podsIn(processes); started < m.replicas {
		return fmt.Errorf("controller %q: %d of %d processes have started within %s (timeouts.ready); its "+
			"Deployment's pods:\n%s", m.name, started, m.replicas, f.ready, f.describePods(ctx, m.name))
	}
	p := processes[len(processes)-1]
	state := "runs but did not connect"
	if !p.Running() {
		state = fmt.Sprintf("exited with code %d", p.ExitCode)
	}
	return fmt.Errorf("controller %q %s within %s (timeouts.ready); the end of its log:\n%s",
		m.name, state, f.ready, f.end(p))
}

// podsIn counts the pods of processes.
func podsIn(processes []cluster.Process) int {
	pods := map[string]bool{}
	for _, p := range processes {
		pods[p.Namespace+"/"+p.Pod] = true
	}
	return len(pods)
}

// podsOf lists a controller's pods.
func (f *fleet) podsOf(ctx context.Context, name string) ([]*unstructured.Unstructured, error) {
	all, err := f.list(ctx, "pod")
	return slices.DeleteFunc(all, func(p *unstructured.Unstructured) bool {
		return p.GetAnnotations()[cluster.AnnotationController] != name
	}), err
}

// describePods lists a controller's pods with their status, for a controller that did not start.
func (f *fleet) describePods(ctx context.Context, name string) string {
	ctx, cancel := clock.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	pods, err := f.podsOf(ctx, name)
	if err != nil {
		return err.Error()
	}
	var lines []string
	for _, p := range pods {
		phase, _, _ := unstructured.NestedString(p.Object, "status", "phase")
		message, _, _ := unstructured.NestedString(p.Object, "status", "message")
		lines = append(lines, fmt.Sprintf("  %s/%s: %s %s", p.GetNamespace(), p.GetName(), phase,
			cmp.Or(message, whyWaiting(p))))
	}
	if len(lines) == 0 {
		lines = append(lines, "  none"+cmp.Or(f.whyNoPods(ctx, name),
			" (does its service account exist? was the pod rejected at admission?)"))
	}
	return strings.Join(lines, "\n")
}

// whyWaiting says why a pod is on no node, or what its first container that waits is waiting for; empty: unknown.
func whyWaiting(pod *unstructured.Unstructured) string {
	var p corev1.Pod
	if runtime.DefaultUnstructuredConverter.FromUnstructured(pod.Object, &p) != nil {
		return ""
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil {
			return strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		}
	}
	return ""
}

// whyNoPods says why the pods of a controller could not be created; empty: unknown.
func (f *fleet) whyNoPods(ctx context.Context, name string) string {
	sets, err := f.list(ctx, "replicaset")
	if err != nil {
		return ""
	}
	for _, u := range sets {
		var set appsv1.ReplicaSet
		if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &set) != nil ||
			set.Spec.Template.Annotations[cluster.AnnotationController] != name {
			continue
		}
		for _, c := range set.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
				return ": " + c.Message
			}
		}
	}
	return ""
}
