package trommeltest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/plan/build"
	"github.com/trommel-dev/trommel/trommeltest"
)

// The examples have no output: they are bodies of tests.
var (
	t  *testing.T
	tb testing.TB
	m  *testing.M
)

func ExampleSuite() {
	suite := trommeltest.Suite(t, "trommel.yaml")
	suite.RunFile(t, "plans/crash.yaml")
	suite.Run(t, build.RestartAfterWrite("crash-after-secret", "my-operator", build.Created("secret/default/*")))
}

func ExampleHarness_Orders() {
	suite := trommeltest.Suite(t, "trommel.yaml")
	suite.Orders(t, "create", 20)
}

func ExampleNew() {
	suite := trommeltest.New(t, &plan.Suite{
		Controllers: []plan.Controller{trommeltest.Controller("my-operator", "example.com/my-operator/cmd")},
		Manifests:   []plan.Manifest{{Path: "config/crd"}},
		Workloads: map[string]plan.Workload{
			"create": {Steps: []plan.Step{{Apply: &plan.ApplyStep{File: "config/samples/cache.yaml"}}}},
		},
		Invariants: []plan.Invariant{{
			Name: "one-password-per-cache", On: &plan.ResourceKey{Type: "secret", Namespace: "*", Name: "*"},
			Never: `event == "updated" && object.data.password != oldObject.data.password`,
		}},
	})
	suite.Run(t, build.RestartAfterWrite("crash", "my-operator", build.Created("secret/default/*")))
}

// What a test with envtest becomes.
func ExampleFromEnvtest() {
	suite := trommeltest.New(t, trommeltest.FromEnvtest(
		trommeltest.Controller("my-operator", "example.com/my-operator/cmd"), "../config/crd/bases"))
	suite.Workload("create", func(ctx context.Context, c trommeltest.Client) error {
		caches := c.Dynamic.Resource(schema.GroupVersionResource{
			Group: "example.com", Version: "v1", Resource: "caches"}).Namespace("default")
		_, err := caches.Create(ctx, cache(), metav1.CreateOptions{})
		return err
	})
	suite.Run(t, build.RestartAfterWrite("crash", "my-operator", build.Created("secret/default/*")))
}

func ExampleHarness_Run() {
	suite := trommeltest.Suite(t, "trommel.yaml")
	suite.Run(t, build.Plan("delete-while-down").Workload("create").Then(
		build.KillController("my-operator").When(
			build.Created("secret/default/*").At(plan.AfterControllerWrite, "my-operator")),
		build.Delete("secret/default/cache").When(build.AtOnce()),
		build.StartController("my-operator").When(build.AtOnce()),
	))
}

func ExampleExpect() {
	suite := trommeltest.Suite(t, "trommel.yaml")
	r := suite.RunFile(t, "plans/crash.yaml", trommeltest.Expect(trommeltest.Bug, "one-password-per-cache"))
	fmt.Println(r.Finding("one-password-per-cache").Detail)
	// When the bug is mended, this test fails, and its Expect goes.
}

func ExampleResult_History() {
	suite := trommeltest.Suite(t, "trommel.yaml", trommeltest.History("secret/default/*"))
	r := suite.RunFile(t, "plans/crash.yaml")
	for _, state := range r.History("secret/default/*") {
		fmt.Println(state.Event, state.Name, state.Writers)
	}
}

// A workload with client-go's dynamic client. It waits as long as its context allows.
func ExampleHarness_Workload() {
	suite := trommeltest.Suite(t, "trommel.yaml")
	suite.Workload("create", func(ctx context.Context, c trommeltest.Client) error {
		caches := c.Dynamic.Resource(schema.GroupVersionResource{
			Group: "example.com", Version: "v1", Resource: "caches"}).Namespace("default")
		if _, err := caches.Create(ctx, cache(), metav1.CreateOptions{}); err != nil {
			return err
		}
		return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			u, err := caches.Get(ctx, "cache", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			phase, _, err := unstructured.NestedString(u.Object, "status", "phase")
			return phase == "Ready", err
		})
	})
	suite.Run(t, build.RestartAfterWrite("crash", "my-operator", build.Created("secret/default/*")).Workload("create"))
}

// A workload with client-go's typed clients. With controller-runtime's client it is the same: see the test in
// examples/go-test.
func ExampleWorkloadWith() {
	suite := trommeltest.Suite(t, "trommel.yaml")
	connect := func(config *rest.Config) (kubernetes.Interface, error) { return kubernetes.NewForConfig(config) }
	trommeltest.WorkloadWith(suite, "clean up", connect, func(ctx context.Context, c kubernetes.Interface) error {
		return c.CoreV1().Secrets("default").Delete(ctx, "cache", metav1.DeleteOptions{})
	})
	suite.RunFile(tb, "plans/crash.yaml")
}

func ExampleMain() {
	TestMain := func(m *testing.M) { trommeltest.Main(m) } // of the package
	TestMain(m)
}

func cache() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Cache", "metadata": map[string]any{"name": "cache"},
	}}
}
