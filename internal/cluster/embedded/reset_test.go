package embedded_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	"github.com/trommel-dev/trommel/plan"
)

// resetBefore are a user's objects, created before the snapshot is taken.
const resetBefore = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: default}, data: {a: "1"}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: kept}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: kept, finalizers: [example.com/never]}
data: {a: "1"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: one}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {ports: [{port: 80}], selector: {app: web}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: keepers.example.com}
spec:
  group: example.com
  names: {kind: Keeper, plural: keepers, singular: keeper, listKind: KeeperList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
{apiVersion: example.com/v1, kind: Keeper, metadata: {name: one, namespace: default}, spec: {a: 1}}
`

// resetNew are objects that a plan may create.
const resetNew = `
{apiVersion: v1, kind: Namespace, metadata: {name: new}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: stuck, namespace: new, finalizers: [example.com/never]}}
---
apiVersion: v1
kind: Service
metadata: {name: open, namespace: default}
spec: {type: NodePort, ports: [{port: 80, nodePort: 30080}], selector: {app: set}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set, namespace: default}
spec:
  replicas: 2
  serviceName: set
  selector: {matchLabels: {app: set}}
  template:
    metadata: {labels: {app: set}, finalizers: [example.com/never]}
    spec: {containers: [{name: main, image: one}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: local, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: local}}
  template:
    metadata: {labels: {app: local}, annotations: {trommel.dev/controller: local}}
    spec:
      nodeSelector: {trommel.dev/process-node: "true"}
      tolerations: [{operator: Exists}]
      containers: [{name: main, image: none, command: [sleep, "1000"]}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.new.example.com}
spec:
  group: new.example.com
  names: {kind: Thing, plural: things, singular: thing, listKind: ThingList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: new.example.com/v1
kind: Thing
metadata: {name: one, namespace: default, finalizers: [example.com/never]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: new}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: leader, namespace: default}
spec: {holderIdentity: somebody}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: nobody}
webhooks:
- name: nobody.example.com
  rules: [{apiGroups: ["new.example.com"], apiVersions: [v1], operations: ["*"], resources: [things]}]
  clientConfig: {service: {name: nobody, namespace: default}}
  admissionReviewVersions: [v1]
  sideEffects: None
`

// A cluster on which a plan has changed everything is restored by a reset, and can be used again.
func TestReset(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	ctx := t.Context()
	c := clustertest.Start(t, embedded.Config{APIServers: 2, Nodes: 2})
	r := &resetRig{TB: t, cluster: c}
	r.apply(resetBefore)
	r.await("deployment.apps/default/web",
		func(u *unstructured.Unstructured) bool { return number(u, "status", "readyReplicas") == 2 })
	r.awaitEndpoints("web", 2)
	snapshot, err := c.TakeSnapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := r.objects()
	for round := range 3 {
		r.change()
		if round == 1 {
			if err := c.KillAPIServer(ctx, "apiserver-2"); err != nil {
				t.Fatal(err)
			}
		}
		if round == 2 {
			// The state after a run that was killed.
			if snapshot, err = embedded.Reread(snapshot, filepath.Join(t.TempDir(), "snapshot")); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := c.Reset(ctx, snapshot); err != nil {
			t.Fatal(err)
		}
		t.Logf("round %d: reset in %s", round, time.Since(began).Round(time.Millisecond))
		r.same(want)
		r.awaitEndpoints("web", 2)
		if running, err := c.Running(ctx); err != nil || !running["apiserver-2"] {
			t.Errorf("running %v, %v", running, err)
		}
		if all, err := c.Processes().Status(ctx, "local"); err != nil || len(all) != 0 {
			t.Errorf("processes %+v, %v", all, err)
		}
		// And no difference appears later.
		time.Sleep(1500 * time.Millisecond)
		r.same(want)
	}
	t.Run("whose availability never rests", r.resetsRestlessAPIServices)
}

// Regression: of an aggregated API that answered no more, the API servers wrote its availability over what a reset had
// restored, each in words of its own. The reset was not complete after a minute, in every run.
func (r *resetRig) resetsRestlessAPIServices(t *testing.T) {
	const name = "apiservice//v1.nobody.example.com"
	r.apply(`
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.nobody.example.com}
spec:
  group: nobody.example.com
  version: v1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: nobody, namespace: default}
`)
	r.await(name, func(u *unstructured.Unstructured) bool {
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		return len(conditions) > 0
	})
	snapshot, err := r.cluster.TakeSnapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.patch(name, map[string]any{"spec": map[string]any{"versionPriority": 7}})
	client, k, done := r.client(), key(r, name), make(chan struct{})
	writes := 0
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			status := map[string]any{"conditions": []any{map[string]any{"type": "Available", "status": "False",
				"reason": "Restless", "message": fmt.Sprintf("try %d", writes)}}}
			if _, err := client.Patch(ctx, k, "merge", map[string]any{"status": status}, "status"); err == nil {
				writes++
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond): // another client's pace
			}
		}
	}()
	err = r.cluster.Reset(t.Context(), snapshot)
	cancel()
	<-done
	if err != nil || writes == 0 {
		t.Fatalf("%v, after %d writes", err, writes)
	}
	u, err := client.Get(t.Context(), k)
	if err != nil || number(u, "spec", "versionPriority") != 100 {
		t.Errorf("%v, %v", u, err)
	}
}

// BenchmarkReset resets a cluster of three API servers with 200 changed objects: 60 are new, 60 have new contents, 40
// are deleted, and there is a new Deployment of 37 pods with its ReplicaSet and its Service.
func BenchmarkReset(b *testing.B) {
	if testing.Short() {
		b.Skip("starts a control plane")
	}
	r := &resetRig{TB: b, cluster: clustertest.Start(b, embedded.Config{})}
	var maps []string
	for i := range 100 {
		maps = append(maps, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: old-%d, namespace: "+
			"default}, data: {a: one}}", i))
	}
	r.apply(strings.Join(maps, "\n---\n"))
	snapshot, err := r.cluster.TakeSnapshot(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	want := r.objects()
	for b.Loop() {
		b.StopTimer()
		var changes []string
		for i := range 60 {
			changes = append(changes,
				fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: old-%d, namespace: default}, data: "+
					"{a: two}}", i),
				fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: new-%d, namespace: default}, data: "+
					"{a: one}}", i))
		}
		changes = append(changes, resetPods)
		r.apply(strings.Join(changes, "\n---\n"))
		for i := range 40 {
			r.delete(fmt.Sprintf("configmap/default/old-%d", 60+i))
		}
		r.await("deployment.apps/default/many",
			func(u *unstructured.Unstructured) bool { return number(u, "status", "readyReplicas") == 37 })
		b.StartTimer()
		if err := r.cluster.Reset(b.Context(), snapshot); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		r.same(want)
		b.StartTimer()
	}
}

const resetPods = `
apiVersion: v1
kind: Service
metadata: {name: many, namespace: default}
spec: {ports: [{port: 80}], selector: {app: many}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: many, namespace: default}
spec:
  replicas: 37
  selector: {matchLabels: {app: many}}
  template:
    metadata: {labels: {app: many}}
    spec: {containers: [{name: main, image: one}]}
`

type resetRig struct {
	testing.TB
	cluster interface {
		cluster.Cluster
		cluster.Resettable
	}
}

func (r *resetRig) client() *objects.Client {
	r.Helper()
	config, err := r.cluster.RESTConfig("")
	if err != nil {
		r.Fatal(err)
	}
	client, err := objects.New(config)
	if err != nil {
		r.Fatal(err)
	}
	return client
}

func (r *resetRig) apply(manifests string) {
	r.Helper()
	list, err := objects.Decode([]byte(manifests), "test")
	if err != nil {
		r.Fatal(err)
	}
	client := r.client()
	for _, u := range list {
		clustertest.Eventually(r, func(ctx context.Context) error {
			_, err := client.Apply(ctx, u)
			return err
		})
	}
}

func key(r *resetRig, text string) plan.ResourceKey {
	r.Helper()
	k, err := plan.ParseResourceKey(text)
	if err != nil {
		r.Fatal(err)
	}
	return k
}

func (r *resetRig) await(text string, done func(*unstructured.Unstructured) bool) {
	r.Helper()
	client, k := r.client(), key(r, text)
	clustertest.Eventually(r, func(ctx context.Context) error {
		u, err := client.Get(ctx, k)
		if err == nil && !done(u) {
			err = fmt.Errorf("%s: %v", text, u.Object["status"])
		}
		return err
	})
}

// awaitEndpoints waits until so many endpoints of a Service are ready. Regression: after a reset its EndpointSlices
// were never updated again.
func (r *resetRig) awaitEndpoints(service string, want int) {
	r.Helper()
	client, slices := r.client(), key(r, "endpointslice/default/*")
	clustertest.Eventually(r, func(ctx context.Context) error {
		all, err := client.List(ctx, slices)
		if err != nil {
			return err
		}
		ready := 0
		for _, u := range all {
			if u.GetLabels()["kubernetes.io/service-name"] != service {
				continue
			}
			endpoints, _, _ := unstructured.NestedSlice(u.Object, "endpoints")
			for _, e := range endpoints {
				if is, _, _ := unstructured.NestedBool(e.(map[string]any), "conditions", "ready"); is {
					ready++
				}
			}
		}
		if ready != want {
			return fmt.Errorf("%d ready endpoints of %s, want %d", ready, service, want)
		}
		return nil
	})
}

func number(u *unstructured.Unstructured, path ...string) int64 {
	n, _, _ := unstructured.NestedInt64(u.Object, path...)
	return n
}

func (r *resetRig) patch(text string, patch map[string]any) {
	r.Helper()
	if _, err := r.client().Patch(r.Context(), key(r, text), "merge", patch, ""); err != nil {
		r.Fatal(err)
	}
}

func (r *resetRig) delete(text string) {
	r.Helper()
	if err := r.client().Delete(r.Context(), key(r, text), objects.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
}

// change changes a cluster in ways that a plan may.
func (r *resetRig) change() {
	r.Helper()
	r.apply(resetNew)
	r.await("statefulset.apps/default/set",
		func(u *unstructured.Unstructured) bool { return number(u, "status", "readyReplicas") == 2 })
	r.await("deployment.apps/default/local",
		func(u *unstructured.Unstructured) bool { return number(u, "status", "readyReplicas") == 1 })
	r.patch("configmap/default/settings", map[string]any{"data": map[string]any{"a": "2"}})
	r.patch("deployment.apps/default/web",
		map[string]any{"spec": map[string]any{"replicas": 3, "template": map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{"changed": "true"}}}}})
	r.await("deployment.apps/default/web",
		func(u *unstructured.Unstructured) bool { return number(u, "status", "updatedReplicas") == 3 })
	r.awaitEndpoints("web", 3)
	r.patch("node//node-1", map[string]any{"metadata": map[string]any{"labels": map[string]any{"zone": "a"}}})
	r.delete("node//node-2")
	r.patch("clusterrole//view", map[string]any{"rules": nil})
	r.delete("namespace//kept") // never completes: the namespace contains an object with a finalizer
	r.delete("customresourcedefinition//keepers.example.com")
	r.delete("statefulset.apps/default/set")
	r.delete("persistentvolumeclaim/default/data-set-0")
}

func (r *resetRig) objects() map[string]string {
	r.Helper()
	all, err := embedded.Objects(r.Context(), r.cluster.(*embedded.Cluster))
	if err != nil {
		r.Fatal(err)
	}
	return all
}

func (r *resetRig) same(want map[string]string) {
	r.Helper()
	got := r.objects()
	// EndpointSlices of Services have other names after a reset.
	maps.DeleteFunc(got, func(k, _ string) bool { return strings.Contains(k, "/endpointslices/default/web-") })
	var differ []string
	for k, v := range want {
		if strings.Contains(k, "/endpointslices/default/web-") {
			continue
		}
		if w, ok := got[k]; !ok {
			differ = append(differ, k+" is gone")
		} else if v != w {
			differ = append(differ, k+" is changed")
		}
	}
	for k := range maps.Keys(got) {
		if _, ok := want[k]; !ok {
			differ = append(differ, k+" is new")
		}
	}
	slices.Sort(differ)
	if len(differ) > 0 {
		r.Errorf("not as before:\n%s", strings.Join(differ, "\n"))
	}
}

const resetDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.example.com}
spec:
  group: example.com
  names: {kind: K%[1]s, plural: %[1]s, singular: %[1]s, listKind: K%[1]sList}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
{apiVersion: example.com/v1, kind: K%[1]s, metadata: {name: one, namespace: default}, spec: {a: 1}}
`

// What deletes the objects of a definition or a namespace has seen a deletion that a reset takes back, and goes on. A
// reset is complete only when it has stopped.
func TestResetWhileDefinitionsAreDeleted(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	r := &resetRig{TB: t, cluster: clustertest.Start(t, embedded.Config{APIServers: 2})}
	const definitions = 12
	var all []string
	for i := range definitions {
		all = append(all, fmt.Sprintf(resetDefinition, fmt.Sprintf("keepers%d", i)))
	}
	for _, manifest := range all {
		r.apply(manifest)
	}
	r.apply("{apiVersion: v1, kind: Namespace, metadata: {name: kept}}")
	r.apply("{apiVersion: example.com/v1, kind: Kkeepers0, metadata: {name: two, namespace: kept}}")
	snapshot, err := r.cluster.TakeSnapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := r.objects()
	for round := range 5 {
		r.delete("namespace//kept")
		for i := range definitions {
			r.delete(fmt.Sprintf("customresourcedefinition//keepers%d.example.com", i))
		}
		time.Sleep(time.Duration(round) * 20 * time.Millisecond) // they have come further each time
		began := time.Now()
		if err := r.cluster.Reset(t.Context(), snapshot); err != nil {
			t.Fatal(err)
		}
		t.Logf("round %d: reset in %s", round, time.Since(began).Round(time.Millisecond))
		time.Sleep(1500 * time.Millisecond) // nothing happens any more: there is no event to wait for
		r.same(want)
	}
}
