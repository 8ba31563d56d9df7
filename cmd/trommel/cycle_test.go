package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/cycle"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/objects"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/config"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/controller/manager"
	"github.com/trommel-dev/trommel/nodes/provider"
	"github.com/trommel-dev/trommel/nodes/simulated"
	"github.com/trommel-dev/trommel/plan"
)

// cyclingAccount is the service account of the controllers of node cycling.
const cyclingAccount = "system:serviceaccount:trommel-nodes:node-cycling-controllers"

// testCycle replaces the nodes of a simulated group by the CLI. The controllers run in this process, with the rights of
// their service account and under the admission policies that the kustomization installs.
func testCycle(t *testing.T, trommel, name string) {
	ctx := t.Context()
	to := adminOf(t, name)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, name, to); err != nil {
		t.Fatal(err)
	}
	run := func(ctx context.Context, args ...string) (code int, stdout, stderr string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		var out, errs bytes.Buffer
		code = execute(ctx, append([]string{"cycle", "--kubeconfig", kubeconfig, "-n", "default"}, args...),
			output.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		return code, out.String(), errs.String()
	}
	expect := func(ctx context.Context, want int, text string, args ...string) {
		t.Helper()
		code, out, errs := run(ctx, args...)
		if code != want || !strings.Contains(out+errs, text) {
			t.Errorf("cycle %v: exit code %d, want %d and %q\n%s%s", args, code, want, text, out, errs)
		}
	}

	c, err := objects.New(to)
	if err != nil {
		t.Fatal(err)
	}
	apply := func(text string) {
		t.Helper()
		applyText(ctx, t, c, text)
	}
	expect(ctx, exit.Usage, "say which nodes belong to workers by their labels: -l pool=workers", "workers")
	for _, file := range []string{
		config.RequestDefinition, config.StatusDefinition, config.GroupDefinition, config.CallDefinition,
		"rbac/namespace.yaml", "rbac/controllers.yaml", "rbac/simulated.yaml", "admission/policy.yaml",
	} {
		data, err := fs.ReadFile(config.Files, file)
		if err != nil {
			t.Fatal(err)
		}
		apply(string(data))
	}
	group := func(more string) string {
		return "apiVersion: nodes.trommel.dev/v1alpha1\nkind: SimulatedNodeGroup\nmetadata: {name: workers}\n" +
			"spec: {desiredCapacity: 2" + more + "}\n"
	}
	apply(group(""))
	t.Cleanup(func() { // the nodes go with the group
		if err := c.Delete(context.WithoutCancel(ctx), cycle.GroupKey("workers"), objects.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	expect(ctx, exit.Usage, "no node has the labels simulated.nodes.trommel.dev/group in (workers)", "workers")
	startCycling(t, to)
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := objects.FollowOne(bounded, c, cycle.GroupKey("workers"), func(g *nodes.SimulatedNodeGroup) (bool, error) {
		return g != nil && g.Status.Ready == 2, nil
	}); err != nil {
		t.Fatal(err)
	}

	limits := func(protected string) {
		t.Helper()
		apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: node-cycling-limits, namespace: trommel-nodes}\n" +
			"data: {controllers: '" + cyclingAccount + "', namespaces: 'default', maxConcurrency: '2', " +
			"protectedGroups: '" + protected + "', checkEndpoints: ''}\n")
	}
	// An API server takes policies and their parameters over some time after they are written.
	eventually := func(want int, text string, args ...string) {
		t.Helper()
		var code int
		var out, errs string
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if code, out, errs = run(ctx, args...); code == want && strings.Contains(out+errs, text) {
				return
			}
		}
		t.Errorf("cycle %v: exit code %d, want %d and %q\n%s%s", args, code, want, text, out, errs)
	}
	limits("a,workers")
	eventually(exit.Usage, "these node groups are protected: a,workers", "workers", "--dry-run")
	limits("")
	eventually(exit.Pass, "2 nodes would be replaced: workers-0001, workers-0002", "workers", "--dry-run")
	eventually(exit.Usage, "cycleSettings.concurrency must be 1 to 2", "workers", "--dry-run", "--concurrency", "0")
	expect(ctx, exit.Pass, "generateName: workers-", "workers", "--dry-run", "-o", "yaml")

	expect(ctx, exit.Pass, "force: true", "workers", "--dry-run", "-o", "yaml", "--force", "--delete-emptydir-data")
	expect(ctx, exit.NoGroup, "there is no simulated node group nobody", "nobody")
	expect(ctx, exit.NoGroup, "the provider knows no node group nobody", "nobody",
		"-l", "simulated.nodes.trommel.dev/group=workers", "--name", "nobody")

	if code, out, errs := run(ctx, "workers", "--name", "roll"); code != exit.Pass ||
		!strings.Contains(out+errs, "2 of 2 nodes replaced") || strings.Contains(out+errs, "waiting: 2 nodes cycled") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	expect(ctx, exit.Usage, "already exists", "workers", "--name", "roll")
	expect(ctx, exit.Bug, "the request missing has failed", "workers", "--name", "missing", "--node", "workers-0003",
		"--node", "none")

	testRestored(t, run, c)

	// New nodes do not become Ready from here on.
	apply(group(", faults: [{name: never, type: NeverReady}]"))
	begun := func(r *nodes.CycleNodeRequest) (bool, error) { return r != nil && r.Status.Phase != "", nil }
	thought := make(chan error, 1)
	go func() {
		err := objects.FollowOne(bounded, c, cycle.RequestKey("default", "rash"), begun)
		thought <- errors.Join(err, c.Delete(bounded, cycle.RequestKey("default", "rash"), objects.DeleteOptions{}))
	}()
	code, out, errs := run(ctx, "workers", "--name", "rash")
	if err := <-thought; err != nil {
		t.Error(err)
	}
	if code != exit.Inconclusive || strings.Count(errs, "the request rash was deleted") != 1 ||
		strings.Contains(errs, "the request was deleted: ") {
		t.Errorf("deleted: exit code %d\n%s%s", code, out, errs)
	}

	// Interrupted, it goes on.
	interrupted, interrupt := context.WithCancel(ctx)
	seen := make(chan error, 1)
	go func() {
		seen <- objects.FollowOne(bounded, c, cycle.RequestKey("default", "stuck"), begun)
		interrupt()
	}()
	expect(interrupted, exit.Inconclusive, "kubectl delete cnr -n default stuck ends it", "workers", "--name", "stuck")
	if err := <-seen; err != nil {
		t.Error(err)
	}
	testCycleInterrupted(t, trommel, kubeconfig, c)
}

// testRestored resumes a request that fails, and then removes the node by which another one has enlarged the group.
func testRestored(
	t *testing.T, run func(context.Context, ...string) (int, string, string), c *objects.Client,
) {
	t.Helper()
	expect := func(want int, text string, args ...string) {
		t.Helper()
		code, out, errs := run(t.Context(), args...)
		if code != want || !strings.Contains(out+errs, text) {
			t.Errorf("cycle %v: exit code %d, want %d and %q\n%s%s", args, code, want, text, out, errs)
		}
	}
	expect(exit.Usage, "the request roll was successful: nothing is left", "--resume", "roll")
	expect(exit.Usage, "there is no request unmade in namespace default", "--resume", "unmade")
	expect(exit.Pass, "nothing to remove", "workers", "--restore", "--name", "nothing")

	// A pod that stays keeps its node from being drained, and the request fails. It is not made again.
	nodesNow := func() (names []string) {
		t.Helper()
		list, err := c.List(t.Context(), plan.ResourceKey{Type: "node", Name: "workers-*"})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list {
			names = append(names, n.GetName())
		}
		slices.Sort(names)
		return names
	}
	before := nodesNow()
	keep := func(text string) {
		t.Helper()
		list, err := objects.Decode([]byte(text), "pod.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if err := objects.Retry(t.Context(), func(ctx context.Context) error {
			_, err := c.Apply(ctx, list[0])
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	pod := func(finalizers string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: keeps\n  namespace: default\n" +
			"  finalizers: [" + finalizers + "]\n  ownerReferences:\n" +
			"  - {apiVersion: v1, kind: ConfigMap, name: kube-root-ca.crt, uid: x, controller: true}\n" +
			"spec: {nodeName: " + before[0] + ", containers: [{name: c, image: x}], terminationGracePeriodSeconds: 0}\n"
	}
	keep(pod("trommel.dev/test"))
	expect(exit.Bug, "1 more than when the request began: a request with restore (trommel cycle workers --restore)",
		"workers", "--name", "fails", "--cycling-timeout", "1s")
	keep(pod(""))
	added := slices.DeleteFunc(nodesNow(), func(name string) bool { return slices.Contains(before, name) })
	const asMany = "of which as many would be removed as the groups have more than before: "
	expect(exit.Pass, asMany+strings.Join(added, ", "), "workers", "--restore", "--dry-run")
	expect(exit.Pass, "nodeNames:\n  - "+before[0]+"\n  - "+before[1], "--resume", "fails", "--dry-run", "-o", "yaml")
	if code, out, errs := run(t.Context(), "workers", "--restore"); code != exit.Pass ||
		!strings.Contains(out, "1 nodes were removed") || !strings.Contains(errs, "1 of 1 nodes removed") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	if after := nodesNow(); !slices.Equal(after, before) {
		t.Errorf("the nodes are %v, want %v", after, before)
	}
	expect(exit.Pass, "2 nodes were replaced", "--resume", "fails", "--name", "resumed")
}

// adminOf returns the access of a cluster's administrator.
func adminOf(t *testing.T, name string) *rest.Config {
	t.Helper()
	c, err := embedded.Attach(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	config, err := c.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return config
}

// startCycling runs the controllers of node cycling as their service account, until the test ends.
func startCycling(t *testing.T, to *rest.Config) {
	t.Helper()
	to = rest.CopyConfig(to)
	to.Impersonate = rest.ImpersonationConfig{
		UserName: cyclingAccount,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:trommel-nodes", "system:authenticated"},
	}
	mgr, err := manager.New(to, manager.Options{
		Provider: func(mgr ctrl.Manager) (provider.Provider, error) {
			c, err := client.NewWithWatch(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme()})
			return simulated.New(c), err
		},
		Add:    func(mgr ctrl.Manager) error { return simulated.Add(mgr, simulated.Options{}) },
		Limits: controller.Limits{Poll: 100 * time.Millisecond},
		Logger: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// applyText applies the objects of a YAML text.
func applyText(ctx context.Context, t *testing.T, c *objects.Client, text string) {
	t.Helper()
	list, err := objects.Decode([]byte(text), "test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range list {
		if err := objects.Retry(ctx, func(ctx context.Context) error {
			_, err := c.Apply(ctx, u)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}
