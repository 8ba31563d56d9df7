package run

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/cluster"
)

func objectOf(kind, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name},
	}}
}

// processes are those of each controller.
type processes map[string][]cluster.Process

func (p processes) Status(_ context.Context, controller string) ([]cluster.Process, error) {
	return p[controller], nil
}

// connecting are sessions that connect after a time.
type connecting time.Duration

func (c connecting) WaitConnected(ctx context.Context, _ string, _, _ int) error {
	select {
	case <-time.After(time.Duration(c)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (connecting) Connections(context.Context, string) (total, live int, err error) { return 1, 1, nil }

// lost are sessions that end at once; the process that is started next connects at a time.
type lost time.Time

func (l lost) WaitConnected(context.Context, string, int, int) error { return nil }

func (l lost) Connections(context.Context, string) (total, live int, err error) {
	if time.Now().Before(time.Time(l)) {
		return 1, 0, nil
	}
	return 2, 1, nil
}

// A process that has not come as far as its session has not shown that it works.
func TestFleetOnABusyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		f := &fleet{
			members: []member{{name: "db", instrumented: true, replicas: 1}},
			ready:   10 * time.Second, alive: 2 * time.Second,
			node: processes{"db": {
				{Pod: "db-0", Started: start, Ended: start.Add(1), ExitCode: 3}, {Pod: "db-0", Started: start.Add(2)},
			}},
			sessions: lost(start.Add(5 * time.Second)),
		}
		if err := f.await(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 7*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

func TestFleet(t *testing.T) {
	const never = connecting(time.Hour)
	running := cluster.Process{Pod: "db-0"}
	exited := cluster.Process{Pod: "db-0", Ended: time.Unix(1, 0), ExitCode: 3, MetMachine: "no /etc/x"}
	ended := cluster.Process{Pod: "db-0", Ended: time.Unix(1, 0)}
	pod := objectOf("Pod", "db-0")
	pod.SetAnnotations(map[string]string{cluster.AnnotationController: "db"})
	pod.Object["status"] = map[string]any{"phase": "Pending", "message": "no image"}
	waiting := pod.DeepCopy()
	waiting.SetName("db-1")
	waiting.Object["status"] = map[string]any{"phase": "Pending", "conditions": []any{map[string]any{
		"type": "PodScheduled", "status": "False", "message": "no processor is left"}}}
	unstartable := pod.DeepCopy()
	unstartable.SetName("db-2")
	unstartable.Object["status"] = map[string]any{"phase": "Pending", "containerStatuses": []any{map[string]any{
		"state": map[string]any{"waiting": map[string]any{"reason": "RunContainerError", "message": "no loader"}}}}}
	refused := objectOf("ReplicaSet", "db-1")
	refused.Object["spec"] = map[string]any{"template": map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{cluster.AnnotationController: "db"}}}}
	refused.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "ReplicaFailure", "status": "True", "message": "the webhook said no"}}}
	for _, test := range []struct {
		name         string
		instrumented bool
		replicas     int // 0: 1
		sessions     connecting
		processes    []cluster.Process
		pods, sets   []*unstructured.Unstructured
		others       []member
		took         time.Duration
		err          string
	}{
		{name: "connects, and has run for a while", instrumented: true, sessions: connecting(time.Second),
			processes: []cluster.Process{running}, took: 3 * time.Second},
		{name: "has no hooks", sessions: never, processes: []cluster.Process{running}, took: 2 * time.Second},
		{name: "one early exit", sessions: never, processes: []cluster.Process{exited, running}, took: 2 * time.Second},
		{name: "keeps exiting", instrumented: true, sessions: never, processes: []cluster.Process{exited, exited},
			took: 100 * time.Millisecond,
			err: "controller \"db\" exits at once (exit code 3, 2 starts); the end of its log:\nlog of db-0\n" +
				"(no /etc/x)"},
		{name: "lacks what another one makes", sessions: never, took: 2 * time.Second,
			others:    []member{{name: "maker", replicas: 1}},
			processes: []cluster.Process{exited, exited, exited, running}},
		{name: "keeps exiting beside another one", instrumented: true, sessions: never, took: 100 * time.Millisecond,
			others:    []member{{name: "maker", replicas: 1}},
			processes: []cluster.Process{exited, exited, exited, exited, exited},
			err: "controller \"db\" exits at once (exit code 3, 5 starts); the end of its log:\nlog of db-0\n" +
				"(no /etc/x)"},
		{name: "ends by itself, as with new certificates", sessions: never, took: 2 * time.Second,
			processes: []cluster.Process{ended, ended, ended, running}},
		{name: "keeps ending by itself", instrumented: true, sessions: never, took: 100 * time.Millisecond,
			processes: []cluster.Process{ended, ended, ended, ended, ended},
			err:       "controller \"db\" exits at once (exit code 0, 5 starts); the end of its log:\nlog of db-0"},
		{name: "does not connect", instrumented: true, sessions: never, processes: []cluster.Process{running},
			took: 10 * time.Second, err: "controller \"db\" runs but did not connect within 10s (timeouts.ready); " +
				"the end of its log:\nlog of db-0"},
		{name: "exits and does not start again", instrumented: true, sessions: never, took: 10 * time.Second,
			processes: []cluster.Process{exited},
			err: "controller \"db\" exited with code 3 within 10s (timeouts.ready); the end of its log:\n" +
				"log of db-0\n(no /etc/x)"},
		{name: "does not start", instrumented: true, sessions: never, took: 10 * time.Second,
			pods: []*unstructured.Unstructured{objectOf("Pod", "other"), pod},
			err: "controller \"db\" did not start within 10s (timeouts.ready); its Deployment's pods:\n" +
				"  /db-0: Pending no image"},
		{name: "cannot be started", instrumented: true, sessions: never, took: 10 * time.Second,
			pods: []*unstructured.Unstructured{unstartable},
			err: "controller \"db\" did not start within 10s (timeouts.ready); its Deployment's pods:\n" +
				"  /db-2: Pending RunContainerError: no loader"},
		{name: "one of two is on no node", instrumented: true, sessions: never, took: 10 * time.Second, replicas: 2,
			processes: []cluster.Process{running}, pods: []*unstructured.Unstructured{waiting},
			err: "controller \"db\": 1 of 2 processes have started within 10s (timeouts.ready); its Deployment's " +
				"pods:\n  /db-1: Pending no processor is left"},
		{name: "has no pods", instrumented: true, sessions: never, took: 10 * time.Second,
			err: "controller \"db\" did not start within 10s (timeouts.ready); its Deployment's pods:\n" +
				"  none (does its service account exist? was the pod rejected at admission?)"},
		{name: "its pods are refused", instrumented: true, sessions: never, took: 10 * time.Second,
			sets: []*unstructured.Unstructured{objectOf("ReplicaSet", "other"), refused},
			err: "controller \"db\" did not start within 10s (timeouts.ready); its Deployment's pods:\n" +
				"  none: the webhook said no"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				for i := range test.processes {
					test.processes[i].Started = start
				}
				f := &fleet{
					members: append([]member{
						{name: "db", instrumented: test.instrumented, replicas: max(test.replicas, 1)},
					}, test.others...),
					ready: 10 * time.Second, alive: 2 * time.Second,
					node:     processes{"db": test.processes, "maker": {{Started: start}}},
					sessions: test.sessions,
					tail:     func(p cluster.Process) string { return "log of " + p.Pod },
					list: func(_ context.Context, kind string) ([]*unstructured.Unstructured, error) {
						if kind == "replicaset" {
							return test.sets, nil
						}
						return test.pods, nil
					},
				}
				text := ""
				if err := f.await(t.Context()); err != nil {
					text = err.Error()
				}
				if took := time.Since(start); text != test.err || took != test.took {
					t.Errorf("%q after %s, want %q after %s", text, took, test.err, test.took)
				}
			})
		})
	}
}

// The end of the run ends the wait. A controller that is not under test is not waited for.
func TestFleetIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	cancel(over)
	f := &fleet{
		members: []member{{name: "db", instrumented: true}}, ready: time.Minute, node: processes{},
		sessions: connecting(time.Hour),
	}
	if err := f.awaitStart(ctx, "db", 0); !errors.Is(err, over) {
		t.Error(err)
	}
	if err := f.awaitStart(ctx, "another", 0); err != nil {
		t.Error(err)
	}
}
