package embedded_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

var podTimes = cluster.PodTimes{Ready: 2 * time.Second, End: time.Second, Seed: 7}

// takes is how long a pod takes at least, as docs/suite.md says: up to a quarter more, by seed, namespace and name.
func takes(d time.Duration, ns, name string) time.Duration {
	h := podTimes.Seed
	for _, r := range ns + "/" + name {
		h = (h + int64(r)) * 48271 % 2147483647
	}
	return d + time.Duration(h%(d.Milliseconds()/4+1))*time.Millisecond
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Regression: simulated pods were Ready 20 ms after their creation, and gone as fast. Operators that wrote "creating"
// after they had created a pod overwrote their own "running".
func TestSimulatedPodsTakeTime(t *testing.T) {
	client := clientFor(t, others(t)[0], "")
	ns := clustertest.Namespace(t, client)
	pods := client.CoreV1().Pods(ns)
	names := []string{"a-0", "a-1", "b", "patched"}
	begin := map[string]time.Time{}
	for _, name := range append(names, "failed") {
		begin[name] = time.Now()
		if _, err := pods.Create(t.Context(), newPod(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	awaitUnderWay(t, client, ns, len(begin))
	// What fails meanwhile stays as it is.
	failed := []byte(`{"status": {"phase": "Failed"}}`)
	_, err := pods.Patch(t.Context(), "failed", types.MergePatchType, failed, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	// A pod that is changed all the time becomes ready, too.
	ready := map[string]time.Time{}
	for i := 0; len(ready) < len(names); i++ {
		if time.Since(begin["b"]) > time.Minute {
			t.Fatalf("ready after a minute: %v", ready)
		}
		label := fmt.Appendf(nil, `{"metadata": {"labels": {"n": "%d"}}}`, i)
		_, err := pods.Patch(t.Context(), "patched", types.MergePatchType, label, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		list, err := pods.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Items {
			if _, known := ready[p.Name]; !known && isReady(&p) {
				ready[p.Name] = time.Now()
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	for _, name := range names {
		least, took := takes(podTimes.Ready, ns, name), ready[name].Sub(begin[name])
		t.Logf("%s ready after %s, should be at least %s", name, took, least)
		if took < least && name != "patched" || took < podTimes.Ready {
			t.Errorf("%s was ready after %s, want at least %s", name, took, least)
		}
	}
	time.Sleep(time.Second)
	if pod, err := pods.Get(t.Context(), "failed", metav1.GetOptions{}); err != nil || pod.Status.Phase != "Failed" {
		t.Errorf("a pod that has failed before it was ready is %s (%v)", pod.Status.Phase, err)
	}
	awaitUnderWay(t, client, ns, 0)

	start := time.Now()
	for name, grace := range map[string]*int64{"a-0": nil, "b": new(int64(0))} {
		if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: grace}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pods.Get(t.Context(), "b", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("without a grace period it is not gone at once: %v", err)
	}
	awaitUnderWay(t, client, ns, 1)
	clustertest.Eventually(t, func(ctx context.Context) error {
		_, err := pods.Get(ctx, "a-0", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("a-0 is still there (%v)", err)
	})
	if took, least := time.Since(start), takes(podTimes.End, ns, "a-0"); took < least {
		t.Errorf("gone after %s, want at least %s", took, least)
	}
}

// awaitUnderWay waits until that many pods of a namespace are under way.
func awaitUnderWay(t *testing.T, client kubernetes.Interface, ns string, want int) {
	t.Helper()
	clustertest.Eventually(t, func(ctx context.Context) error {
		under, err := others(t)[0].PodsUnderWay(ctx)
		if err != nil {
			return err
		}
		list, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		n := 0
		for _, p := range list.Items {
			if slices.Contains(under, p.UID) {
				n++
			}
		}
		if err == nil && n != want {
			err = fmt.Errorf("%d pods are under way, want %d", n, want)
		}
		return err
	})
}
