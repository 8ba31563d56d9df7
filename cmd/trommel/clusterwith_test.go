package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/controllers"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

// TestClusterWith: what docs/disruptions.md shows works on a cluster that runs the controllers.
func TestClusterWith(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	t.Parallel()
	trommel, name := buildTrommel(t), fmt.Sprintf("with-%d", os.Getpid())
	out, err := exec.Command(trommel, "cluster", "up", "--with", "disruptions,cyclin", "--name", name).CombinedOutput()
	if err == nil || !strings.Contains(string(out),
		`--with: unknown controllers "cyclin" (known: disruptions, cycling)`) {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = exec.Command(trommel, "cluster", "up", "--with", "disruptions,cycling", "--name", name,
		"--api-servers", "1", "--nodes", "1").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "it runs:      the controllers of disruptions and of cycling") {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command(trommel, "cluster", "down", "--name", name).CombinedOutput(); err != nil {
			t.Errorf("trommel cluster down: %v\n%s", err, out)
		}
	})
	to := adminOf(t, name)
	scheme, err := controllers.Scheme(func(s *runtime.Scheme) error {
		return errors.Join(chaos.AddToScheme(s), nodes.AddToScheme(s))
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(to, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	untyped, err := objects.New(to)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../docs/disruptions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(docs), "\n## On a cluster to explore\n")
	_, section, _ = strings.Cut(section, "```yaml\n")
	section, _, _ = strings.Cut(section, "```")
	applyText(t.Context(), t, untyped, section)
	d := &chaos.Disruption{}
	d.Namespace, d.Name = "default", "slow"
	clustertest.Eventually(t, func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(d), d)
		if err == nil && d.Status.Phase != chaos.Injected {
			err = fmt.Errorf("%+v", d.Status)
		}
		return err
	})
	if err := c.Delete(t.Context(), d); err != nil {
		t.Error(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		var pods corev1.PodList
		err := c.List(ctx, &pods, client.InNamespace("trommel-chaos"))
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d chaos pods", len(pods.Items))
		}
		return err
	})
	applyText(t.Context(), t, untyped, "apiVersion: nodes.trommel.dev/v1alpha1\n"+
		"kind: SimulatedNodeGroup\nmetadata: {name: workers}\n"+
		"spec: {desiredCapacity: 1}\n")
	group := &nodes.SimulatedNodeGroup{}
	clustertest.Eventually(t, func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKey{Name: "workers"}, group)
		if err == nil && group.Status.Ready != 1 {
			err = fmt.Errorf("%+v", group.Status)
		}
		return err
	})
	attached, err := embedded.Attach(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := attached.Entry().Kubeconfigs["apiserver-1"]
	cycle := exec.Command(trommel, "cycle", "workers", "--kubeconfig", kubeconfig)
	if out, err := cycle.CombinedOutput(); err != nil || !strings.Contains(string(out), "1 of 1 nodes replaced") {
		t.Errorf("%v\n%s", err, out)
	}
}
