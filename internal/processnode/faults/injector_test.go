package faults_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// injectorArgs are the arguments of an injector.
func injectorArgs(ns string, v victim, journal, ready, kind, spec string) []string {
	return []string{
		"inject", kind, "--spec", spec, "--disruption", ns + "/test", "--disruption-uid", ns, "--target-namespace", ns,
		"--target-pod", v.name, "--target-uid", string(v.uid), "--target-node", shared.Processes().NodeName(),
		"--duration", "1m", "--journal", journal, "--ready-file", ready,
	}
}

// TestChaosPod runs an injector as the controllers do.
func TestChaosPod(t *testing.T) {
	ns := pods.Namespace(t)
	allowAll(t, ns)
	target := newVictim(t, ns, "target")
	journal := t.TempDir()
	ready := filepath.Join(t.TempDir(), "ready")
	start := time.Now()
	pods.Create(t, ns, clustertest.ShellPod("injector", "", func(p *corev1.Pod) {
		p.Annotations[fault.AnnotationInjector] = "true"
		p.Finalizers = []string{"chaos.trommel.dev/test"}
		p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		c := &p.Spec.Containers[0]
		c.Command = append([]string{os.Args[0]}, injectorArgs(ns, target, journal, ready, "apiFault",
			`{"verbs":["delete"],"status":500}`)...)
		c.Command = append(c.Command, "--state-file", inject.DefaultStateFile)
		c.Env = []corev1.EnvVar{{Name: envInjector, Value: "1"}}
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
			Exec: &corev1.ExecAction{Command: []string{"test", "-e", ready}},
		}}
	}))
	pods.Await(t, ns, "injector", "ready", clustertest.IsReady)
	t.Logf("ready %v after its creation", time.Since(start))
	if entries, _ := filepath.Glob(filepath.Join(journal, "*.json")); len(entries) != 1 {
		t.Errorf("journal: %v", entries)
	}
	if err := target.client.CoreV1().ConfigMaps(ns).Delete(t.Context(), "x", metav1.DeleteOptions{}); err == nil ||
		!strings.Contains(err.Error(), "injected") {
		t.Errorf("delete = %v", err)
	}
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), "injector", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s := inject.Reported(pods.AwaitPhase(t, ns, "injector", corev1.PodSucceeded))
	if s.State != v1alpha1.InjectionRemoved || !s.At.After(start) {
		t.Errorf("it told %+v", s)
	}
	if left, _ := os.ReadDir(journal); len(left) > 0 {
		t.Errorf("journal: %v", left)
	}
	if _, err := os.Stat(ready); err == nil {
		t.Error("the readiness file is left")
	}
	if list, err := shared.Processes().Faults(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("faults: %+v, %v", list, err)
	}
	if _, err := client.CoreV1().Pods(ns).Patch(t.Context(), "injector", "application/merge-patch+json",
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}

// runInjector starts an injector outside of a pod.
func runInjector(t *testing.T, socket string, args []string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), envInjector+"=1", fault.EnvSocket+"="+socket)
	if testing.Verbose() {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// TestKilledInjector kills injectors at random moments: one clean-up afterwards leaves nothing.
func TestKilledInjector(t *testing.T) {
	ns := pods.Namespace(t)
	socket := socketOf(t, ns)
	allowAll(t, ns)
	target := newVictim(t, ns, "target")
	journal, ready := t.TempDir(), filepath.Join(t.TempDir(), "ready")
	kinds := []struct{ kind, spec string }{{"apiFault", `{"status":500}`}}
	inEffect, before := 0, 0
	for n := range 50 {
		k := kinds[n%len(kinds)]
		cmd := runInjector(t, socket, injectorArgs(ns, target, journal, ready, k.kind, k.spec))
		if n%5 == 0 {
			// Its very beginning is quick; also kill what is in effect.
			for {
				if _, err := os.Stat(ready); err == nil {
					break
				}
				time.Sleep(time.Millisecond)
			}
		} else {
			time.Sleep(time.Duration(rand.Int64N(int64(150 * time.Millisecond))))
		}
		if n%2 == 0 {
			// Also while it cleans.
			_ = cmd.Process.Signal(syscall.SIGTERM)
			time.Sleep(time.Duration(rand.Int64N(int64(2 * time.Millisecond))))
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if list, _ := shared.Processes().Faults(t.Context()); len(list) > 0 {
			inEffect++
		} else {
			before++
		}
		if n%3 == 0 {
			// The next one with the same target sweeps.
			_ = os.Remove(ready)
			continue
		}
		clean := runInjector(t, "", []string{"clean", "--journal", journal}) // knows nothing but the journal
		if err := clean.Wait(); err != nil {
			t.Fatalf("clean: %v", err)
		}
		if list, err := shared.Processes().Faults(t.Context()); err != nil || len(list) > 0 {
			t.Fatalf("faults: %+v, %v", list, err)
		}
		if left, _ := os.ReadDir(journal); len(left) > 0 {
			t.Fatalf("journal: %v", left)
		}
		if _, err := target.client.CoreV1().ConfigMaps(ns).List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(ready)
	}
	t.Logf("killed with the fault in effect: %d, without: %d", inEffect, before)
	if inEffect < 5 || before < 5 {
		t.Error("the moments are not random enough")
	}
}

// TestInjectorEndsByItself waits for no signal.
func TestInjectorEndsByItself(t *testing.T) {
	ns := pods.Namespace(t)
	socket := socketOf(t, ns)
	target := newVictim(t, ns, "target")
	journal, ready := t.TempDir(), filepath.Join(t.TempDir(), "ready")
	args := injectorArgs(ns, target, journal, ready, "apiFault", `{"status":500}`)
	args[slices.Index(args, "--duration")+1] = "100ms"
	start := time.Now()
	if err := runInjector(t, socket, args).Wait(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d < 2100*time.Millisecond || d > 10*time.Second {
		t.Errorf("it ended after %v", d)
	}
	if left, _ := os.ReadDir(journal); len(left) > 0 {
		t.Errorf("journal: %v", left)
	}
}
