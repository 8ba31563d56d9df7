package faults_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/chaos/inject/processnode"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// socketOf returns the node's socket for injectors.
func socketOf(t *testing.T, ns string) string {
	t.Helper()
	pods.Create(t, ns, clustertest.ShellPod("chaos", "echo socket=$TROMMEL_FAULTS.", func(p *corev1.Pod) {
		p.Annotations[fault.AnnotationInjector] = "true"
	}))
	pods.AwaitPhase(t, ns, "chaos", corev1.PodSucceeded)
	socket := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(pods.Output(t, ns, "chaos")), "socket="), ".")
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("socket %q: %v, %v", socket, info, err)
	}
	return socket
}

// victim is a pod, and access to the API on its way.
type victim struct {
	uid    types.UID
	name   string
	config *rest.Config
	client *kubernetes.Clientset
}

// newVictim creates a pod whose service account may do everything.
func newVictim(t *testing.T, ns, name string) victim {
	t.Helper()
	pods.Create(t, ns, clustertest.ShellPod(name, "echo kubeconfig=$KUBECONFIG.; exec sleep 1000"))
	pod := pods.Await(t, ns, name, "ready", clustertest.IsReady)
	text := pods.AwaitOutput(t, ns, name, ".\n")
	config, err := clientcmd.BuildConfigFromFlags("",
		strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(text), "kubeconfig="), "."))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return victim{pod.UID, name, config, kubernetes.NewForConfigOrDie(config)}
}

func allowAll(t *testing.T, ns string) {
	t.Helper()
	binding, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "default"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = client.RbacV1().ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{})
	})
}

// newInjection makes the injection of a fault.
func newInjection(t *testing.T, socket, ns string, v victim, kind, spec string) inject.Injection {
	t.Helper()
	i, err := processnode.New(socket).New(inject.Request{
		Kind: v1alpha1.Kind(kind), Spec: json.RawMessage(spec), Disruption: ns + "/test", DisruptionUID: types.UID(ns),
		Target: inject.Target{Namespace: ns, Pod: v.name, UID: v.uid, Node: shared.Processes().NodeName()},
		EndsAt: time.Now().Add(time.Hour),
	}, &inject.Notes{})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// begin injects a fault and returns what removes it.
func begin(t *testing.T, socket, ns string, v victim, kind, spec string) (end func()) {
	t.Helper()
	i := newInjection(t, socket, ns, v, kind, spec)
	start := time.Now()
	if err := i.Inject(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s in effect after %v", kind, time.Since(start))
	// A fault resets open connections. The next request must not meet one whose reset has not arrived yet.
	if v.client != nil {
		utilnet.CloseIdleConnectionsFor(v.client.CoreV1().RESTClient().(*rest.RESTClient).Client.Transport)
	}
	end = sync.OnceFunc(func() {
		start := time.Now()
		if err := i.Clean(context.Background()); err != nil {
			t.Error(err)
		}
		t.Logf("%s removed after %v", kind, time.Since(start))
	})
	t.Cleanup(end)
	return end
}

func TestAPIFault(t *testing.T) {
	ns := pods.Namespace(t)
	socket := socketOf(t, ns)
	allowAll(t, ns)
	target, control := newVictim(t, ns, "target"), newVictim(t, ns, "control")
	ctx := t.Context()
	configMap := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	mapsOf := func(v victim) func(name string) error {
		return func(name string) error {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			_, err := v.client.CoreV1().ConfigMaps(ns).Create(ctx, configMap(name), metav1.CreateOptions{})
			return err
		}
	}
	at, beside := mapsOf(target), mapsOf(control)
	exists := func(name string) bool {
		_, err := client.CoreV1().ConfigMaps(ns).Get(ctx, name, metav1.GetOptions{})
		return err == nil
	}

	t.Run("status", func(t *testing.T) {
		end := begin(t, socket, ns, target, "apiFault",
			`{"verbs":["create"],"resources":["configmaps"],"names":["refused"],"status":503}`)
		err := at("refused")
		var status *apierrors.StatusError
		if !errors.As(err, &status) || status.ErrStatus.Reason != metav1.StatusReasonServiceUnavailable ||
			!strings.Contains(err.Error(), ns+"/test") {
			t.Errorf("create = %v", err)
		}
		if exists("refused") {
			t.Error("the request was carried out")
		}
		if err := at("other-name"); err != nil {
			t.Errorf("another name: %v", err)
		}
		if err := beside("refused"); err != nil {
			t.Errorf("beside the target: %v", err)
		}
		_, err = target.client.CoreV1().ConfigMaps(ns).Get(ctx, "refused", metav1.GetOptions{})
		if err != nil {
			t.Errorf("another verb: %v", err)
		}
		end()
		if err := at("after-status"); err != nil {
			t.Errorf("after the end: %v", err)
		}
	})
	t.Run("retry after", func(t *testing.T) {
		begin(t, socket, ns, target, "apiFault",
			`{"verbs":["get"],"resources":["configmaps"],"status":429,"retryAfter":"1500ms"}`)
		// The client itself tries again.
		resp := get(t, target.config, "/api/v1/namespaces/"+ns+"/configmaps/refused")
		if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "2" || resp.ProtoMajor != 2 {
			t.Errorf("answer: %v %v %v", resp.Proto, resp.StatusCode, resp.Header)
		}
		if resp := get(t, control.config, "/api/v1/namespaces/"+ns+"/configmaps/refused"); resp.StatusCode != 200 {
			t.Errorf("beside the target: %v", resp.Status)
		}
	})
	t.Run("delay", func(t *testing.T) {
		end := begin(t, socket, ns, target, "apiFault", `{"verbs":["create"],"delay":"300ms"}`)
		took := func(f func(string) error, name string) time.Duration {
			start := time.Now()
			if err := f(name); err != nil {
				t.Error(err)
			}
			return time.Since(start)
		}
		if d := took(at, "delay-at"); d < 300*time.Millisecond {
			t.Errorf("target: %v", d)
		}
		if d := took(beside, "delay-beside"); d > 250*time.Millisecond {
			t.Errorf("beside the target: %v", d)
		}
		end()
		if d := took(at, "delay-after"); d > 250*time.Millisecond {
			t.Errorf("after the end: %v", d)
		}
	})
	t.Run("hang", func(t *testing.T) {
		end := begin(t, socket, ns, target, "apiFault", `{"verbs":["create"],"names":["hangs"],"hang":true}`)
		failed := make(chan error, 1)
		go func() { failed <- at("hangs") }()
		if err := at("does-not-hang"); err != nil {
			t.Error(err)
		}
		select {
		case err := <-failed:
			t.Fatalf("it does not hang: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		end()
		if err := <-failed; err == nil || exists("hangs") {
			t.Errorf("a request that hung = %v; carried out: %v", err, exists("hangs"))
		}
	})
	t.Run("lost", func(t *testing.T) {
		end := begin(t, socket, ns, target, "apiFault", `{"verbs":["create"],"resources":["configmaps"],"lost":true}`)
		err := at("lost")
		if err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			t.Errorf("create = %v", err)
		}
		if !exists("lost") {
			t.Error("the request was not carried out")
		}
		end()
	})
	t.Run("watches", func(t *testing.T) {
		open := func(v victim) watch.Interface {
			w, err := v.client.CoreV1().ConfigMaps(ns).Watch(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(w.Stop)
			return w
		}
		// await returns when the event comes, or false when the watch ends.
		await := func(w watch.Interface, name string) bool {
			for e := range w.ResultChan() {
				if o, ok := e.Object.(*corev1.ConfigMap); ok && o.Name == name {
					return true
				}
			}
			return false
		}
		before, beside := open(target), open(control)
		end := begin(t, socket, ns, target, "apiFault", `{"verbs":["update"],"hang":true}`)
		if await(before, "never") {
			t.Error("impossible")
		}
		during := open(target)
		if err := at("event-1"); err != nil || !await(during, "event-1") {
			t.Errorf("no event at a watch through the proxy: %v", err)
		}
		end()
		for e := range during.ResultChan() {
			if e.Type == watch.Error {
				t.Errorf("the watch ended with %+v", e.Object)
			}
		}
		if err := at("event-2"); err != nil || !await(beside, "event-2") {
			t.Errorf("the watch beside the target: %v", err)
		}
	})
	t.Run("percentage", func(t *testing.T) {
		begin(t, socket, ns, target, "apiFault", `{"verbs":["get"],"status":500,"percentage":30}`)
		failed := 0
		for range 200 {
			_, err := target.client.CoreV1().ConfigMaps(ns).Get(ctx, "refused", metav1.GetOptions{})
			if err != nil {
				failed++
			}
		}
		if failed < 30 || failed > 95 {
			t.Errorf("%d of 200 failed", failed)
		}
	})
	t.Run("no request fails at the end", func(t *testing.T) {
		end := begin(t, socket, ns, target, "apiFault", `{"verbs":["get"],"delay":"20ms"}`)
		stop := make(chan struct{})
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					_, err := target.client.CoreV1().ConfigMaps(ns).Get(ctx, "refused", metav1.GetOptions{})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		time.Sleep(100 * time.Millisecond) // so that some requests wait
		end()
		if err := at("while-they-read"); err != nil {
			t.Error(err)
		}
		close(stop)
		readers.Wait()
	})
	t.Run("idempotent", func(t *testing.T) {
		i := newInjection(t, socket, ns, target, "apiFault", `{"verbs":["update"],"hang":true}`)
		for range 2 {
			if err := i.Inject(ctx); err != nil {
				t.Error(err)
			}
		}
		if list, err := shared.Processes().Faults(ctx); err != nil || len(list) != 1 || list[0].Pod != "target" {
			t.Errorf("Faults = %+v, %v", list, err)
		}
		for range 2 {
			if err := i.Clean(ctx); err != nil {
				t.Error(err)
			}
		}
		if list, err := shared.Processes().Faults(ctx); err != nil || len(list) != 0 {
			t.Errorf("Faults = %+v, %v", list, err)
		}
	})
	t.Run("ended by the run", func(t *testing.T) {
		begin(t, socket, ns, target, "apiFault", `{"verbs":["create"],"status":500}`)
		if err := shared.Processes().EndFaults(ctx); err != nil {
			t.Fatal(err)
		}
		if err := at("ended"); err != nil {
			t.Error(err)
		}
	})
	t.Run("unsupported", func(t *testing.T) {
		i := newInjection(t, socket, ns, target, "diskFailure", `{"paths":["/a"]}`)
		for _, err := range []error{i.Check(ctx), i.Inject(ctx)} {
			if !errors.Is(err, inject.ErrUnsupported) || !strings.Contains(err.Error(), "no hooks for faults") {
				t.Errorf("got %v", err)
			}
		}
	})
}

// get makes a request as a program without client-go's retries does.
func get(t *testing.T, config *rest.Config, path string) *http.Response {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Get(config.Host + path)
	if err != nil {
		// The fault's beginning has ended the connection, and the request began before the client knew.
		resp, err = c.Get(config.Host + path)
	}
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}
