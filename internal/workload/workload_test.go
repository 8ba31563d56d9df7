package workload_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/judge"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/internal/workload"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

func suite(t *testing.T, w plan.Workload) *plan.Suite {
	t.Helper()
	file, err := filepath.Abs("testdata/trommel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return &plan.Suite{File: file, Workloads: map[string]plan.Workload{"w": w}}
}

func TestSteps(t *testing.T) {
	c := startCluster(t)
	kubeconfig, err := c.Kubeconfig("")
	if err != nil {
		t.Fatal(err)
	}
	o := client(t, c, "")
	wait := func(key plan.ResourceKey, condition string, timeout time.Duration) plan.Step {
		return plan.Step{Wait: &plan.WaitStep{ResourceKey: key, Condition: condition, Timeout: timeout}}
	}
	sh := func(script string, timeout time.Duration) plan.Step {
		return plan.Step{Name: "script", Exec: &plan.ExecStep{Command: []string{"sh", "-c", script}, Timeout: timeout}}
	}
	const short = 300 * time.Millisecond
	for _, test := range []struct {
		name   string
		steps  func(ns string) []plan.Step
		title  string // of the finding
		detail []string
		// awaited is the harm and the object of a step that lacks it, or sees what should be gone; empty: not checked.
		awaited string
		err     string
		log     []string
	}{
		{
			name: "all kinds of steps",
			steps: func(ns string) []plan.Step {
				cm := key(t, "configmap/"+ns+"/a")
				return []plan.Step{
					{Apply: &plan.ApplyStep{Objects: []map[string]any{configMap(ns, "a", "1"),
						configMap(ns, "b", "1")}}},
					wait(cm, `object.data.value == "1"`, 0),
					{Patch: &plan.PatchStep{ResourceKey: cm,
						Patch: map[string]any{"data": map[string]any{"value": "2"}}}},
					wait(cm, `object.data.value == "2"`, 0),
					{Patch: &plan.PatchStep{ResourceKey: cm, PatchType: "json",
						Patch: []any{map[string]any{"op": "replace", "path": "/data/value", "value": "3"}}}},
					wait(cm, `object.data.value == "3"`, 0),
					{Patch: &plan.PatchStep{ResourceKey: cm, PatchType: "strategic",
						Patch: map[string]any{"data": map[string]any{"value": nil, "other": "4"}}}},
					wait(cm, `!has(object.data.value) && object.data.other == "4"`, 0),
					{Sleep: time.Millisecond},
					{Delete: &plan.DeleteStep{ResourceKey: cm}},
					{Wait: &plan.WaitStep{ResourceKey: cm, Absent: true}},
					{Delete: &plan.DeleteStep{ResourceKey: cm, IgnoreNotFound: true}},
					sh(`test -s "$KUBECONFIG" && test -f widget.yaml && echo fine`, 0),
				}
			},
			log: []string{"$ sh -c test -s", "fine\n"},
		},
		{
			name: "a definition, an object of it and its status",
			steps: func(string) []plan.Step {
				widget := key(t, "widget/default/first")
				return []plan.Step{
					{Apply: &plan.ApplyStep{File: "widget.yaml"}},
					{Patch: &plan.PatchStep{ResourceKey: widget, Subresource: "status",
						Patch: map[string]any{"status": map[string]any{"phase": "Ready"}}}},
					{Wait: &plan.WaitStep{ResourceKey: widget, Phase: "Ready"}},
				}
			},
		},
		{
			name: "an object that the schema refuses",
			steps: func(string) []plan.Step {
				return []plan.Step{
					{Apply: &plan.ApplyStep{File: "widget.yaml"}},
					{Name: "too big", Apply: &plan.ApplyStep{Objects: []map[string]any{{
						"apiVersion": "workload.trommel.dev/v1", "kind": "Widget",
						"metadata": map[string]any{"name": "big"}, "spec": map[string]any{"size": 11},
					}}}},
				}
			},
			title: `step 2 "too big": apply widget big: Widget.workload.trommel.dev "big" is invalid: spec.size: ` +
				`Invalid value: 11: spec.size in body should be less than or equal to 10`,
		},
		{
			name: "a condition that does not come true",
			steps: func(ns string) []plan.Step {
				return []plan.Step{
					{Apply: &plan.ApplyStep{Objects: []map[string]any{configMap(ns, "a", "1")}}},
					wait(key(t, "configmap/"+ns+"/a"), `object.data.value == "2"`, short),
				}
			},
			title:  `step 2: wait until configmap/NS/a has object.data.value == "2": not within 300ms`,
			detail: []string{"last state:", `    value: "1"`},
		},
		{
			name: "a condition on a field that is missing",
			steps: func(ns string) []plan.Step {
				return []plan.Step{
					{Apply: &plan.ApplyStep{Objects: []map[string]any{configMap(ns, "a", "1")}}},
					{Name: "ready", Wait: &plan.WaitStep{ResourceKey: key(t, "configmap/"+ns+"/a"),
						Condition: "object.status.ready", Timeout: short}},
				}
			},
			title:  `step 2 "ready": wait until configmap/NS/a has object.status.ready: not within 300ms`,
			detail: []string{"the condition could not be evaluated: no such key: status", "last state:"},
		},
		{
			name: "an object that does not come",
			steps: func(ns string) []plan.Step {
				return []plan.Step{wait(key(t, "configmap/"+ns+"/a"), "true", short)}
			},
			title:   "step 1: wait until configmap/NS/a has true: not within 300ms",
			detail:  []string{"no such object existed while the step waited"},
			awaited: "missing configmap/NS/a",
		},
		{
			name: "an object that others complain of",
			steps: func(ns string) []plan.Step {
				return []plan.Step{
					{Apply: &plan.ApplyStep{Objects: []map[string]any{brokenReplicaSet(ns)}}},
					wait(key(t, "event/"+ns+"/*"), `object.reason == "FailedCreate"`, 30*time.Second),
					wait(key(t, "replicaset/"+ns+"/a"), "has(object.status.readyReplicas)", short),
				}
			},
			title: "step 3: wait until replicaset/NS/a has has(object.status.readyReplicas): not within 300ms",
			detail: []string{
				"events:\n  Warning FailedCreate of replicaset/NS/a", `serviceaccount "none" not found`,
				"last state:\n  status:", "name: a",
			},
			awaited: "replicaset.apps/NS/a",
		},
		{
			name: "an object that does not go",
			steps: func(ns string) []plan.Step {
				return []plan.Step{
					{Apply: &plan.ApplyStep{Objects: []map[string]any{configMap(ns, "a1", "1"),
						configMap(ns, "a2", "1"), configMap(ns, "b", "1")}}},
					{Wait: &plan.WaitStep{ResourceKey: key(t, "configmap/"+ns+"/a*"), Absent: true, Timeout: short}},
				}
			},
			title:   "step 2: wait until configmap/NS/a* is gone: not within 300ms",
			detail:  []string{"name: a1", "name: a2"},
			awaited: "left behind configmap/NS/a1",
		},
		{
			name: "deletion of an object that does not exist",
			steps: func(ns string) []plan.Step {
				return []plan.Step{{Delete: &plan.DeleteStep{ResourceKey: key(t, "configmap/"+ns+"/a")}}}
			},
			title:   `step 1: delete configmap/NS/a: configmaps "a" not found`,
			awaited: "missing configmap/NS/a",
		},
		{
			name:   "a command that fails",
			steps:  func(string) []plan.Step { return []plan.Step{sh("echo one; echo two >&2; exit 3", 0)} },
			title:  `step 1 "script": run sh -c "echo one; echo two >&2; exit 3": exit code 3`,
			detail: []string{"one\ntwo"},
		},
		{
			name:   "a command that takes too long, with its children",
			steps:  func(string) []plan.Step { return []plan.Step{sh("echo begun; sleep 60 & wait", short)} },
			title:  `step 1 "script": run sh -c "echo begun; sleep 60 & wait": not within 300ms`,
			detail: []string{"begun"},
		},
		{
			name: "a command that leaves children behind",
			// Else the step would last until the child closes its output.
			steps: func(string) []plan.Step { return []plan.Step{sh("sleep 60 & echo done", 5*time.Second)} },
		},
		{
			name: "a command that does not exist",
			steps: func(string) []plan.Step {
				return []plan.Step{{Exec: &plan.ExecStep{Command: []string{"no-such-command"}}}}
			},
			err: `step 1: exec: "no-such-command": executable file not found in $PATH`,
		},
		{
			name: "a type that is not served",
			steps: func(ns string) []plan.Step {
				return []plan.Step{{Patch: &plan.PatchStep{ResourceKey: key(t, "configmapp/"+ns+"/a"),
					Patch: map[string]any{}}}}
			},
			err: `step 1: the cluster serves no type "configmapp"; did you mean "configmap"?`,
		},
		{
			name: "no object of a type that is not served",
			steps: func(ns string) []plan.Step {
				return []plan.Step{{Wait: &plan.WaitStep{ResourceKey: key(t, "thing.none.example.com/"+ns+"/a"),
					Absent: true, Timeout: short}}}
			},
		},
		{
			name: "an object of a type that is not served",
			steps: func(ns string) []plan.Step {
				return []plan.Step{{Wait: &plan.WaitStep{ResourceKey: key(t, "thing.none.example.com/"+ns+"/a"),
					Condition: "has(object.spec)", Timeout: short}}}
			},
			title:  "step 1: wait until thing.none.example.com/NS/a has has(object.spec): not within 300ms",
			detail: []string{`the cluster serves no type "thing.none.example.com"`},
		},
		{
			name: "a subresource that is not served",
			steps: func(ns string) []plan.Step {
				return []plan.Step{
					{Apply: &plan.ApplyStep{Objects: []map[string]any{configMap(ns, "a", "1")}}},
					{Patch: &plan.PatchStep{ResourceKey: key(t, "configmap/"+ns+"/a"), Subresource: "status",
						Patch: map[string]any{}}},
				}
			},
			title: "step 2: patch configmap/NS/a (status): the server could not find the requested resource",
		},
		{
			name: "mistakes that show before the first step",
			steps: func(string) []plan.Step {
				return []plan.Step{
					{Exec: &plan.ExecStep{Command: []string{"sh", "-c", "echo must not run"}}},
					{Apply: &plan.ApplyStep{File: "missing.yaml"}},
					{Name: "syntax", Wait: &plan.WaitStep{Condition: "object."}},
					{},
					{Delete: &plan.DeleteStep{ResourceKey: key(t, "pod/default/*")}},
				}
			},
			err: "step 2: stat DIR/missing.yaml: no such file or directory\n" +
				"step 3 \"syntax\": condition: Syntax error: no viable alternative at input '.'\n" +
				"step 4: the step does nothing (known: apply, delete, patch, wait, sleep, advanceTime, exec, " +
				"upgrade)\n" +
				"step 5: delete: pod/default/* does not name one object",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			ns := namespace(t, o)
			var log bytes.Buffer
			s := suite(t, plan.Workload{Steps: test.steps(ns)})
			start := time.Now()
			failed, err := workload.Run(testContext(t),
				workload.Config{Suite: s, Objects: o, Kubeconfig: kubeconfig, Log: &log})
			if took := time.Since(start); took > 40*time.Second {
				t.Errorf("took %s", took)
			}
			replace := strings.NewReplacer("NS", ns, "DIR", filepath.Dir(s.File))
			message := ""
			if err != nil {
				message = err.Error()
			}
			if want := replace.Replace(test.err); message != want {
				t.Fatalf("error\n%s\nwant\n%s", message, want)
			}
			var title, detail string
			if failed != nil {
				found := strings.TrimPrefix(string(failed.Harm)+" "+failed.Awaited, " ")
				if want := replace.Replace(test.awaited); want != "" && found != want {
					t.Errorf("awaited %q, want %q", found, want)
				}
				title, detail = failed.Title, failed.Detail
				if judge.Step(failed).Judge != record.JudgeWorkload || failed.Time.IsZero() {
					t.Errorf("failed %+v", failed)
				}
			}
			if want := replace.Replace(test.title); title != want {
				t.Errorf("finding\n%s\nwant\n%s", title, want)
			}
			for _, want := range test.detail {
				want = replace.Replace(want)
				if !strings.Contains(detail, want) {
					t.Errorf("detail\n%s\nlacks\n%s", detail, want)
				}
			}
			for _, want := range test.log {
				if !strings.Contains(log.String(), want) {
					t.Errorf("log %q lacks %q", log.String(), want)
				}
			}
			if strings.Contains(log.String(), "must not run") {
				t.Error("a step ran")
			}
		})
	}
}

// Regression: a step that deletes what the plan has deleted, and is yet to create again, was a bug of the operator.
func TestStepMissesWhatThePlanRenews(t *testing.T) {
	cluster := startCluster(t)
	o := client(t, cluster, "")
	missing := key(t, "configmap/default/renewed")
	for _, renews := range []bool{true, false} {
		want := record.SeverityBug
		if renews {
			want = record.SeverityInconclusive
		}
		for _, step := range []plan.Step{
			{Delete: &plan.DeleteStep{ResourceKey: missing}},
			{Patch: &plan.PatchStep{ResourceKey: missing, Patch: map[string]any{"data": nil}}},
		} {
			s := &plan.Suite{Workloads: map[string]plan.Workload{"w": {Steps: []plan.Step{step}}}}
			failed, err := workload.Run(testContext(t), workload.Config{
				Suite: s, Workload: "w", Objects: o,
				Renewing: func(_ context.Context, key plan.ResourceKey) bool { return renews && key == missing },
			})
			if err != nil || failed == nil || judge.Step(failed).Severity != want {
				t.Errorf("renews: %t: %+v, %v", renews, failed, err)
			}
		}
	}
}

func TestExternalCommand(t *testing.T) {
	c := startCluster(t)
	for _, test := range []struct {
		name     string
		workload plan.Workload
		title    string
	}{
		{"succeeds", plan.Workload{Command: []string{"sh", "-c", "exit 0"}}, ""},
		{"fails", plan.Workload{Command: []string{"sh", "-c", "exit 7"}}, `command: run sh -c "exit 7": exit code 7`},
		{"hangs", plan.Workload{Command: []string{"sleep", "60"}, Timeout: 100 * time.Millisecond},
			"command: run sleep 60: not within 100ms"},
	} {
		t.Run(test.name, func(t *testing.T) {
			failed, err := workload.Run(testContext(t),
				workload.Config{Suite: suite(t, test.workload), Workload: "w", Objects: client(t, c, "")})
			if err != nil {
				t.Fatal(err)
			}
			title := ""
			if failed != nil {
				title = failed.Title
			}
			if title != test.title {
				t.Errorf("got %q, want %q", title, test.title)
			}
		})
	}
}

func TestUnknownWorkload(t *testing.T) {
	_, err := workload.Run(t.Context(), workload.Config{Suite: suite(t, plan.Workload{}), Workload: "x"})
	if want := `the suite has no workload "x" (it has: w)`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestEndOfContextIsNoFinding(t *testing.T) {
	c := startCluster(t)
	o := client(t, c, "")
	stopped := errors.New("the run was stopped")
	for name, step := range map[string]plan.Step{
		"wait":  {Wait: &plan.WaitStep{ResourceKey: key(t, "configmap/default/none"), Condition: "true"}},
		"sleep": {Sleep: time.Minute},
		"exec":  {Exec: &plan.ExecStep{Command: []string{"sleep", "60"}}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			timer := time.AfterFunc(200*time.Millisecond, func() { cancel(stopped) })
			defer timer.Stop()
			failed, err := workload.Run(ctx,
				workload.Config{Suite: suite(t, plan.Workload{Steps: []plan.Step{step}}), Objects: o})
			if !errors.Is(err, stopped) || failed != nil {
				t.Errorf("got %v, %v", failed, err)
			}
		})
	}
}

func TestStepsOutliveTheirAPIServer(t *testing.T) {
	c := startCluster(t)
	o := client(t, c, "apiserver-1")
	ns := namespace(t, o)
	cm := key(t, "configmap/"+ns+"/a")
	kill := func() {
		t.Helper()
		if err := c.KillAPIServer(testContext(t), "apiserver-1"); err != nil {
			t.Fatal(err)
		}
	}
	run := func(steps ...plan.Step) {
		t.Helper()
		failed, err := workload.Run(testContext(t),
			workload.Config{Suite: suite(t, plan.Workload{Steps: steps}), Objects: o})
		if err != nil || failed != nil {
			t.Fatalf("got %v, %v", failed, err)
		}
	}
	restart := func() chan error {
		done := make(chan error, 1)
		go func() {
			time.Sleep(300 * time.Millisecond)
			done <- c.StartAPIServer(testContext(t), "apiserver-1")
		}()
		return done
	}

	// It is away when the steps begin.
	kill()
	done := restart()
	run(
		plan.Step{Apply: &plan.ApplyStep{Objects: []map[string]any{configMap(ns, "a", "1")}}},
		plan.Step{Wait: &plan.WaitStep{ResourceKey: cm, Condition: `object.data.value == "1"`}},
	)
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	// It dies during a wait; what is waited for happens through another one meanwhile.
	other := client(t, c, "apiserver-2")
	written := make(chan error, 1)
	go func() {
		time.Sleep(200 * time.Millisecond)
		err := c.KillAPIServer(testContext(t), "apiserver-1")
		if err == nil {
			_, err = other.Patch(testContext(t), cm, "", map[string]any{"data": map[string]any{"value": "2"}}, "")
		}
		if err == nil {
			err = c.StartAPIServer(testContext(t), "apiserver-1")
		}
		written <- err
	}()
	run(plan.Step{Wait: &plan.WaitStep{ResourceKey: cm, Condition: `object.data.value == "2"`}})
	if err := <-written; err != nil {
		t.Fatal(err)
	}

	// It stays away: the finding says so.
	kill()
	failed, err := workload.Run(testContext(t),
		workload.Config{Objects: o, Suite: suite(t, plan.Workload{Steps: []plan.Step{
			{Wait: &plan.WaitStep{ResourceKey: cm, Condition: "false", Timeout: 3 * time.Second}},
		}})})
	if err != nil || failed == nil || !strings.Contains(failed.Detail, "connection refused") {
		t.Errorf("got %+v, %v", failed, err)
	}
	if err := c.StartAPIServer(testContext(t), "apiserver-1"); err != nil {
		t.Fatal(err)
	}
}

func TestReadAndResolve(t *testing.T) {
	c := startCluster(t)
	o := client(t, c, "")
	ctx := testContext(t)
	for _, test := range []struct {
		key  plan.ResourceKey
		want string // of the resource
		err  string
	}{
		{plan.ResourceKey{Type: "pod"}, "pods", ""},
		{plan.ResourceKey{Type: "pods"}, "pods", ""},
		{plan.ResourceKey{Type: "event"}, "events", ""},
		{plan.ResourceKey{Type: "event", Group: "events.k8s.io"}, "events.events.k8s.io", ""},
		{plan.ResourceKey{Type: "statefulset"}, "statefulsets.apps", ""},
		{plan.ResourceKey{Type: "lease", Group: "coordination.k8s.io"}, "leases.coordination.k8s.io", ""},
		{plan.ResourceKey{Type: "lease", Group: "coordination"}, "",
			`the cluster serves no type "lease.coordination"; did you mean "lease.coordination.k8s.io"?`},
		{plan.ResourceKey{Type: "databaze"}, "",
			`the cluster serves no type "databaze"; is its CustomResourceDefinition among the suite's manifests?`},
	} {
		typ, err := o.Resolve(ctx, test.key)
		switch {
		case test.err != "":
			if err == nil || err.Error() != test.err {
				t.Errorf("%s: got %v, want %s", test.key, err, test.err)
			}
		case err != nil:
			t.Errorf("%s: %v", test.key, err)
		case typ.Resource.GroupResource().String() != test.want:
			t.Errorf("%s: got %s, want %s", test.key, typ.Resource.GroupResource(), test.want)
		}
	}

	ns := namespace(t, o)
	apply(t, o, configMap(ns, "b", "1"))
	apply(t, o, configMap(ns, "a", "1"))
	list, err := o.List(ctx, plan.ResourceKey{Type: "configmap", Namespace: ns, Name: "?*"})
	if err != nil || len(list) != 0 {
		t.Errorf("got %v, %v: a question mark is not a pattern", list, err)
	}
	list, err = o.List(ctx, plan.ResourceKey{Type: "configmap", Namespace: "*", Name: "*"})
	if err != nil || len(list) < 3 {
		t.Errorf("got %d, %v", len(list), err)
	}
	if _, err := o.Get(ctx, key(t, "configmap/"+ns+"/*")); err == nil {
		t.Error("a pattern names no single object")
	}
	if got, err := o.Get(ctx, key(t, "configmap/"+ns+"/a")); err != nil || got.GetName() != "a" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := manifests.Read(filepath.Join("testdata", "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// brokenReplicaSet can have no pods: it names a service account that does not exist.
func brokenReplicaSet(ns string) map[string]any {
	labels := map[string]any{"app": "a"}
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": map[string]any{"namespace": ns, "name": "a"},
		"spec": map[string]any{"selector": map[string]any{"matchLabels": labels}, "template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec": map[string]any{"serviceAccountName": "none",
				"containers": []any{map[string]any{"name": "a", "image": "a"}}},
		}},
	}
}
