package embedded_test

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	batchv1beta1 "k8s.io/api/batch/v1beta1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	eventsv1beta1 "k8s.io/api/events/v1beta1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	rbacv1beta1 "k8s.io/api/rbac/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/internal/pki"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// removedObject is an object in a removed API version, with the result of its conversion by package objects.
type removedObject struct {
	old, served *unstructured.Unstructured
}

// removedObjects reads the test objects of package objects whose types Kubernetes 1.36 has.
func removedObjects(t *testing.T) []removedObject {
	t.Helper()
	var all []removedObject
	for _, name := range []string{"rbac", "apps", "networking", "webhooks", "definitions", "others"} {
		file := filepath.Join("..", "..", "objects", "manifests", "testdata", "removed", name+".yaml")
		list, err := manifests.Read(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range list {
			served, _, err := manifests.Served([]*unstructured.Unstructured{u})
			if err != nil {
				t.Fatal(err)
			}
			if len(served) == 1 { // a PodSecurityPolicy has no successor
				all = append(all, removedObject{u, served[0]})
			}
		}
	}
	return all
}

// resourceOf returns a kind's resource according to discovery.
func resourceOf(t *testing.T, d discovery.DiscoveryInterface, kind schema.GroupVersionKind) metav1.APIResource {
	t.Helper()
	list, err := d.ServerResourcesForGroupVersion(kind.GroupVersion().String())
	if err != nil {
		t.Fatalf("discovery of %s: %v", kind, err)
	}
	for _, r := range list.APIResources {
		if r.Kind == kind.Kind && !strings.Contains(r.Name, "/") {
			return r
		}
	}
	t.Fatalf("discovery of %s does not list %s", kind.GroupVersion(), kind.Kind)
	return metav1.APIResource{}
}

func dynamicFor(
	client dynamic.Interface, gv schema.GroupVersion, r metav1.APIResource, namespace string,
) dynamic.ResourceInterface {
	resources := client.Resource(gv.WithResource(r.Name))
	if r.Namespaced {
		return resources.Namespace(namespace)
	}
	return resources
}

// TestRemovedAPIs tests all operations on the objects of each removed version, on a cluster that serves them.
func TestRemovedAPIs(t *testing.T) {
	config, err := others(t)[0].RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	config.WarningHandlerWithContext = rest.NoWarnings{} // every response has a deprecation warning
	all := removedObjects(t)
	finishDeletions(t, config)
	t.Run("discovery", func(t *testing.T) { testRemovedDiscovery(t, config, all) })
	// Deleting a namespace takes more than 5 s, during which the other tests run.
	var deleted []string
	t.Run("defaults of deletion", func(t *testing.T) { deleted = append(deleted, testRemovedDeletion(t, config)) })
	t.Run("namespace", func(t *testing.T) { deleted = append(deleted, testRemovedNamespace(t, config, all)) })
	t.Run("objects", func(t *testing.T) { testRemovedObjects(t, config, all) })
	t.Run("protobuf", func(t *testing.T) { testRemovedProtobuf(t, config) })
	t.Run("definitions", func(t *testing.T) { testRemovedDefinitions(t, config) })
	t.Run("namespaces are gone", func(t *testing.T) {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if len(deleted) != 2 {
			t.Errorf("deleted %v", deleted)
		}
		for _, ns := range deleted {
			awaitNamespaceGone(t, client, ns)
		}
	})
}

// finishDeletions lets Kubernetes go on with deletions of definitions until the test ends. It can miss one for 5
// minutes; internal/cluster/existing, whose reset changes such definitions too, says why.
func finishDeletions(t *testing.T, config *rest.Config) {
	definitions := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	wake := func(ctx context.Context) {
		list, err := definitions.List(ctx, metav1.ListOptions{})
		if err != nil {
			return // the tests tell
		}
		for _, d := range list.Items {
			conditions, _, _ := unstructured.NestedSlice(d.Object, "status", "conditions")
			if d.GetDeletionTimestamp() != nil && slices.ContainsFunc(conditions, func(c any) bool {
				m, _ := c.(map[string]any)
				return m["reason"] == "InstanceDeletionFailed"
			}) {
				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"woken":%q}}}`, d.GetResourceVersion())
				_, _ = definitions.Patch(ctx, d.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { wait.UntilWithContext(ctx, wake, time.Second) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
}

// groupVersions returns all versions that an API server lists, and the preferred version of each group.
func groupVersions(t *testing.T, config *rest.Config, legacy bool) (versions []string, preferred map[string]string) {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	client.UseLegacyDiscovery = legacy // as client-go before 0.26
	groups, err := client.ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	preferred = map[string]string{}
	for _, group := range groups.Groups {
		preferred[group.Name] = group.PreferredVersion.Version
		for _, version := range group.Versions {
			versions = append(versions, version.GroupVersion)
		}
	}
	slices.Sort(versions)
	return versions, preferred
}

// Discovery lists the removed versions; everything else is the same as on a cluster that does not serve them.
func testRemovedDiscovery(t *testing.T, config *rest.Config, all []removedObject) {
	plain, err := shared.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	removed := map[string]bool{ // those without test objects
		"authentication.k8s.io/v1beta1": true, "authorization.k8s.io/v1beta1": true,
		"certificates.k8s.io/v1beta1": true,
		"events.k8s.io/v1beta1":       true, "storage.k8s.io/v1alpha1": true,
	}
	for _, o := range all {
		removed[o.old.GetAPIVersion()] = true
	}
	if client, err := discovery.NewDiscoveryClientForConfig(config); err != nil {
		t.Fatal(err)
	} else if version, err := client.ServerVersion(); err != nil {
		t.Fatal(err)
	} else if version.Minor == "35" {
		// Kubernetes 1.36 has also removed the code of these.
		for _, more := range []string{"autoscaling/v2beta1", "autoscaling/v2beta2", "scheduling.k8s.io/v1alpha1"} {
			removed[more] = true
		}
	}
	for _, legacy := range []bool{false, true} {
		want, wantPreferred := groupVersions(t, plain, legacy)
		for _, version := range want {
			if removed[version] {
				t.Errorf("%s is served without being asked for", version)
			}
		}
		want = append(want, slices.Sorted(maps.Keys(removed))...)
		wantPreferred["extensions"] = "v1beta1"
		slices.Sort(want)
		var got []string
		var gotPreferred map[string]string
		clustertest.Eventually(t, func(context.Context) error {
			got, gotPreferred = groupVersions(t, config, legacy)
			if diff := cmp.Diff(want, got); diff != "" {
				return fmt.Errorf("versions (-want +got)\n%s", diff)
			}
			return nil
		})
		if diff := cmp.Diff(wantPreferred, gotPreferred); diff != "" {
			t.Errorf("preferred versions (-want +got)\n%s", diff)
		}
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		r := resourceOf(t, client, o.old.GroupVersionKind())
		for _, verb := range []string{"create", "delete", "deletecollection", "get", "list", "patch", "update",
			"watch"} {
			if !slices.Contains(r.Verbs, verb) {
				t.Errorf("%s: discovery lists the verbs %v", o.old.GroupVersionKind(), r.Verbs)
				break
			}
		}
	}
	if _, err := client.OpenAPISchema(); err != nil {
		t.Errorf("OpenAPI version 2: %v", err)
	}
	if paths, err := client.OpenAPIV3().Paths(); err != nil || paths["apis/extensions/v1beta1"] == nil {
		t.Errorf("OpenAPI version 3 has no extensions/v1beta1 (%v)", err)
	}
}

// A cluster that is not configured to serve removed versions serves none of them.
func TestRemovedAPIsAreNotServed(t *testing.T) {
	config, err := shared.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, o := range removedObjects(t) {
		gv := o.old.GroupVersionKind().GroupVersion()
		r := resourceOf(t, client, o.served.GroupVersionKind())
		path := "/apis/" + gv.String() + "/" + r.Name
		if seen[path] {
			continue
		}
		seen[path] = true
		if err := client.RESTClient().Get().AbsPath(path).Do(t.Context()).Error(); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// strip removes the fields that differ between two objects created one after the other, and those that controllers
// write.
func strip(u *unstructured.Unstructured) map[string]any {
	u = u.DeepCopy()
	metadata := map[string]any{"name": u.GetName()}
	if labels := u.GetLabels(); len(labels) > 0 {
		metadata["labels"] = labels
	}
	u.Object["metadata"] = metadata
	delete(u.Object, "status")
	switch u.GetKind() {
	case "CustomResourceDefinition":
		// Schemas keep their form: see testRemovedDefinitions.
		unstructured.RemoveNestedField(u.Object, "spec", "preserveUnknownFields")
		versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
		for _, v := range versions {
			delete(v.(map[string]any), "schema")
		}
		_ = unstructured.SetNestedSlice(u.Object, versions, "spec", "versions")
	case "EndpointSlice":
		// Kubernetes preserves a host name, for which v1 has no field, and reads a node's name as one.
		endpoints, _, _ := unstructured.NestedSlice(u.Object, "endpoints")
		for _, e := range endpoints {
			delete(e.(map[string]any), "deprecatedTopology")
			delete(e.(map[string]any), "nodeName")
		}
		_ = unstructured.SetNestedSlice(u.Object, endpoints, "endpoints")
	case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		webhooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
		for _, w := range webhooks {
			if w := w.(map[string]any); w["sideEffects"] == "Unknown" {
				w["sideEffects"] = "None"
			}
		}
		_ = unstructured.SetNestedSlice(u.Object, webhooks, "webhooks")
	}
	return u.Object
}

// expectEvent waits for an event of the object, in the watched version.
func expectEvent(t *testing.T, w watch.Interface, kind watch.EventType, u *unstructured.Unstructured) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatal("the watch ended")
			}
			got, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				t.Fatalf("the watch returned %v", e.Object)
			}
			if got.GetName() != u.GetName() || e.Type != kind {
				continue
			}
			if got.GroupVersionKind() != u.GroupVersionKind() {
				t.Errorf("the watch shows a %s", got.GroupVersionKind())
			}
			return
		case <-timeout:
			t.Fatalf("no event %s", kind)
		}
	}
}

// Objects can be created, read, listed, watched, patched and deleted in the removed version. They are the same objects
// in the served version, with the contents that the conversion of package objects gives them.
func testRemovedObjects(t *testing.T, config *rest.Config, all []removedObject) {
	client := dynamic.NewForConfigOrDie(config)
	found := discovery.NewDiscoveryClientForConfigOrDie(config)
	for _, o := range all {
		gvk := o.old.GroupVersionKind()
		t.Run(fmt.Sprintf("%s %s %s", gvk.GroupVersion(), gvk.Kind, o.old.GetName()), func(t *testing.T) {
			resource := resourceOf(t, found, gvk)
			old := dynamicFor(client, gvk.GroupVersion(), resource, "default")
			servedKind := o.served.GroupVersionKind()
			served := dynamicFor(client, servedKind.GroupVersion(), resourceOf(t, found, servedKind), "default")

			listed, err := old.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("list: %v", err)
			}
			w, err := old.Watch(t.Context(), metav1.ListOptions{ResourceVersion: listed.GetResourceVersion()})
			if err != nil {
				t.Fatalf("watch: %v", err)
			}
			defer w.Stop()
			created, err := old.Create(t.Context(), o.old, metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("create: %v", err)
			}
			if created.GroupVersionKind() != gvk {
				t.Errorf("created a %s", created.GroupVersionKind())
			}
			expectEvent(t, w, watch.Added, o.old)
			if got, err := old.Get(t.Context(), o.old.GetName(), metav1.GetOptions{}); err != nil ||
				got.GetUID() != created.GetUID() || got.GroupVersionKind() != gvk {
				t.Errorf("get: %v, %v", got, err)
			}
			real, err := served.Get(t.Context(), o.old.GetName(), metav1.GetOptions{})
			if err != nil || real.GetUID() != created.GetUID() {
				t.Fatalf("get in the served version: %v, %v", real, err)
			}
			for _, p := range []struct {
				kind types.PatchType
				body string
			}{
				{types.MergePatchType, `{"metadata":{"labels":{"patched":"merge"}}}`},
				{types.JSONPatchType, `[{"op":"add","path":"/metadata/labels/patched","value":"json"}]`},
				{
					types.ApplyPatchType,
					fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"labels":{"patched":"apply"}}}`,
						gvk.GroupVersion(), gvk.Kind, o.old.GetName()),
				},
			} {
				options := metav1.PatchOptions{}
				if p.kind == types.ApplyPatchType {
					options = metav1.PatchOptions{FieldManager: "test", Force: new(true)}
				}
				if _, err := old.Patch(t.Context(), o.old.GetName(), p.kind, []byte(p.body), options); err != nil {
					t.Errorf("%s: %v", p.kind, err)
				}
				expectEvent(t, w, watch.Modified, o.old)
			}
			if got, err := served.Get(t.Context(), o.old.GetName(), metav1.GetOptions{}); err != nil ||
				got.GetLabels()["patched"] != "apply" {
				t.Errorf("after the patches: %v, %v", got, err)
			}
			if err := old.Delete(t.Context(), o.old.GetName(),
				metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
				t.Fatalf("delete: %v", err)
			}
			expectEvent(t, w, watch.Deleted, o.old)

			ours, err := served.Create(t.Context(), o.served, metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("create the converted object: %v", err)
			}
			defer func() {
				_ = served.Delete(context.Background(), ours.GetName(),
					metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
			}()
			if diff := cmp.Diff(strip(real), strip(ours)); diff != "" {
				t.Errorf("conversion by Kubernetes (-) and by package objects (+)\n%s", diff)
			}
		})
	}
}

// Typed clients of these versions use protobuf.
func testRemovedProtobuf(t *testing.T, config *rest.Config) {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf",
		"application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	meta := metav1.ObjectMeta{Name: "typed", Namespace: "default"}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "typed"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	none := int32(0)
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	w, err := client.PolicyV1beta1().PodDisruptionBudgets("default").Watch(ctx, metav1.ListOptions{})
	check("watch PodDisruptionBudgets", err)
	_, err = client.PolicyV1beta1().PodDisruptionBudgets("default").Create(ctx, &policyv1beta1.PodDisruptionBudget{
		ObjectMeta: meta, Spec: policyv1beta1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1))},
	}, metav1.CreateOptions{})
	check("create PodDisruptionBudget", err)
	if err == nil && w != nil {
		if e := <-w.ResultChan(); e.Type != watch.Added ||
			e.Object.(*policyv1beta1.PodDisruptionBudget).Name != "typed" {
			t.Errorf("the watch returned %v", e)
		}
		w.Stop()
	}
	_, err = client.ExtensionsV1beta1().Deployments("default").Create(ctx, &extensionsv1beta1.Deployment{
		ObjectMeta: meta, Spec: extensionsv1beta1.DeploymentSpec{Replicas: &none, Template: template},
	}, metav1.CreateOptions{})
	check("create Deployment of extensions", err)
	// The same type in group apps.
	other := metav1.ObjectMeta{Name: "typed-2", Namespace: "default"}
	deployment, err := client.AppsV1beta1().Deployments("default").Create(ctx, &appsv1beta1.Deployment{
		ObjectMeta: other, Spec: appsv1beta1.DeploymentSpec{Replicas: &none, Template: template},
	}, metav1.CreateOptions{})
	check("create Deployment of apps/v1beta1", err)
	if err == nil && (deployment.Spec.Selector == nil || deployment.Spec.Selector.MatchLabels["app"] != "typed" ||
		*deployment.Spec.RevisionHistoryLimit != 2) {
		t.Errorf("the defaults of apps/v1beta1 are not there: %+v", deployment.Spec)
	}
	clustertest.Eventually(t, func(ctx context.Context) error { // kube-controller-manager also writes to it
		d, err := client.AppsV1beta2().Deployments("default").Get(ctx, "typed-2", metav1.GetOptions{})
		if err != nil {
			return err
		}
		d.Annotations = map[string]string{"updated": "yes"}
		_, err = client.AppsV1beta2().Deployments("default").Update(ctx, d, metav1.UpdateOptions{})
		return err
	})
	for _, name := range []string{"typed", "typed-2"} {
		clustertest.Eventually(t, func(ctx context.Context) error {
			scale := &appsv1beta2.Scale{}
			at := func(r *rest.Request) *rest.Request {
				return r.Namespace("default").Resource("deployments").Name(name).SubResource("scale")
			}
			if err := at(client.AppsV1beta2().RESTClient().Get()).Do(ctx).Into(scale); err != nil {
				return err
			}
			return at(client.AppsV1beta2().RESTClient().Put()).Body(scale).Do(ctx).Into(scale)
		})
	}
	extensionsScale, err := client.ExtensionsV1beta1().Deployments("default").
		GetScale(ctx, "typed", metav1.GetOptions{})
	check("get the scale of extensions/v1beta1", err)
	if err == nil && extensionsScale.APIVersion+extensionsScale.Name == "" {
		t.Error("an empty scale")
	}
	list, err := client.ExtensionsV1beta1().Deployments("default").List(ctx, metav1.ListOptions{})
	check("list Deployments of extensions", err)
	if err == nil && len(list.Items) != 2 {
		t.Errorf("%d Deployments of extensions, want both", len(list.Items))
	}
	_, err = client.BatchV1beta1().CronJobs("default").
		Create(ctx, &batchv1beta1.CronJob{ObjectMeta: meta, Spec: batchv1beta1.CronJobSpec{
			Schedule: "0 3 * * *", JobTemplate: batchv1beta1.JobTemplateSpec{},
		}}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.jobTemplate.spec.template.spec.containers") {
		t.Errorf("what is invalid in both versions: %v", err)
	}
	_, err = client.RbacV1beta1().Roles("default").Create(ctx, &rbacv1beta1.Role{
		ObjectMeta: meta,
		Rules: []rbacv1beta1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
		},
	}, metav1.CreateOptions{})
	check("create Role", err)
	check("delete Role", client.RbacV1beta1().Roles("default").Delete(ctx, "typed", metav1.DeleteOptions{}))
	for _, name := range []string{"typed", "typed-2"} {
		check("delete Deployment", client.AppsV1beta1().Deployments("default").
			Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}))
	}
	access, err := client.AuthorizationV1beta1().SelfSubjectAccessReviews().
		Create(ctx, &authorizationv1beta1.SelfSubjectAccessReview{
			Spec: authorizationv1beta1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1beta1.ResourceAttributes{Verb: "get", Resource: "pods"},
			},
		}, metav1.CreateOptions{})
	check("review access", err)
	if err == nil && !access.Status.Allowed {
		t.Error("an administrator is not allowed to get pods")
	}
	token, err := client.AuthenticationV1beta1().TokenReviews().Create(ctx, &authenticationv1beta1.TokenReview{
		Spec: authenticationv1beta1.TokenReviewSpec{Token: "nobody's"},
	}, metav1.CreateOptions{})
	check("review a token", err)
	if err == nil && token.Status.Authenticated {
		t.Error("an invalid token is accepted")
	}
	_, err = client.EventsV1beta1().Events("default").Create(ctx, &eventsv1beta1.Event{
		ObjectMeta: meta, EventTime: metav1.NewMicroTime(time.Now()), ReportingController: "example.com/test",
		ReportingInstance: "test-1",
		Action:            "Testing", Reason: "Test", Type: "Normal", Note: "a note",
		Regarding: corev1.ObjectReference{Kind: "Namespace", Name: "default", Namespace: "default"},
	}, metav1.CreateOptions{})
	check("create Event", err)
	event, err := client.CoreV1().Events("default").Get(ctx, "typed", metav1.GetOptions{})
	check("get the Event in v1", err)
	if err == nil && event.Message != "a note" {
		t.Errorf("the Event says %q", event.Message)
	}
	key, err := pki.NewKey("")
	check("make a key", err)
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: "typed"}}, key)
	check("make a request", err)
	csr, err := client.CertificatesV1beta1().CertificateSigningRequests().
		Create(ctx, &certificatesv1beta1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "typed"},
			Spec: certificatesv1beta1.CertificateSigningRequestSpec{
				Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			},
		}, metav1.CreateOptions{})
	check("create a CertificateSigningRequest for nobody", err)
	if err == nil {
		csr.Status.Conditions = []certificatesv1beta1.CertificateSigningRequestCondition{
			{Type: "Approved", Reason: "Test"},
		}
		_, err = client.CertificatesV1beta1().CertificateSigningRequests().
			UpdateApproval(ctx, csr, metav1.UpdateOptions{})
		check("approve it", err)
		check("delete it", client.CertificatesV1beta1().CertificateSigningRequests().
			Delete(ctx, "typed", metav1.DeleteOptions{}))
	}
	check("delete PodDisruptionBudget", client.PolicyV1beta1().PodDisruptionBudgets("default").
		Delete(ctx, "typed", metav1.DeleteOptions{}))
}

// A v1beta1 definition needs no schema and prunes unknown fields only if it says so; a v1 definition requires a schema
// and prunes.
func testRemovedDefinitions(t *testing.T, config *rest.Config) {
	client := dynamic.NewForConfigOrDie(config)
	removed := filepath.Join("..", "..", "objects", "manifests", "testdata", "removed")
	list, err := manifests.Read(filepath.Join(removed, "definitions.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1beta1",
		Resource: "customresourcedefinitions"})
	// An API server waits 2 s before it creates the first object of a new type: for all of them at once.
	found := map[string]*unstructured.Unstructured{}
	names := []string{"databases.example.com", "loose.example.com", "anythings.example.com"}
	for _, name := range names {
		i := slices.IndexFunc(list, func(u *unstructured.Unstructured) bool { return u.GetName() == name })
		found[name] = list[i]
		// Objects of the previous test may still be being deleted.
		clustertest.Eventually(t, func(ctx context.Context) error {
			_, err := definitions.Create(ctx, list[i], metav1.CreateOptions{})
			if there, e := definitions.Get(ctx, name, metav1.GetOptions{}); err != nil && e == nil {
				conditions, _, _ := unstructured.NestedSlice(there.Object, "status", "conditions")
				return fmt.Errorf("%w: deleted at %v, finalizers %v, conditions %v", err, there.GetDeletionTimestamp(),
					there.GetFinalizers(), conditions)
			}
			return err
		})
		defer func() { _ = definitions.Delete(context.Background(), name, metav1.DeleteOptions{}) }()
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			d := found[name]
			kind, _, _ := unstructured.NestedString(d.Object, "spec", "names", "kind")
			plural, _, _ := unstructured.NestedString(d.Object, "spec", "names", "plural")
			scope, _, _ := unstructured.NestedString(d.Object, "spec", "scope")
			version := "v1"
			if name == "anythings.example.com" {
				version = "v1alpha1"
			}
			gv := schema.GroupVersion{Group: "example.com", Version: version}
			custom := dynamicFor(client, gv, metav1.APIResource{Name: plural, Namespaced: scope == "Namespaced"},
				"default")
			object := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": gv.String(), "kind": kind, "metadata": map[string]any{"name": "x"},
				"spec": map[string]any{"replicas": int64(1), "unknown": map[string]any{"a": int64(1)}}, "top": "kept",
			}}
			var got *unstructured.Unstructured
			clustertest.Eventually(t, func(ctx context.Context) (err error) {
				got, err = custom.Create(ctx, object, metav1.CreateOptions{})
				return err
			})
			if diff := cmp.Diff(object.Object["spec"], got.Object["spec"]); diff != "" || got.Object["top"] != "kept" {
				t.Errorf("fields that are in no schema: %v\n%s", got.Object["top"], diff)
			}
			wrong := object.DeepCopy()
			wrong.SetName("wrong")
			_ = unstructured.SetNestedField(wrong.Object, "text", "spec", "replicas")
			_, err := custom.Create(t.Context(), wrong, metav1.CreateOptions{})
			if checked := name == "databases.example.com"; apierrors.IsInvalid(err) != checked {
				t.Errorf("a text for replicas: %v", err)
			}
			// An update in the same version.
			patch := `{"spec":{"names":{"shortNames":["xyz"]}}}`
			if _, err := definitions.Patch(t.Context(), name, types.MergePatchType, []byte(patch),
				metav1.PatchOptions{}); err != nil {
				t.Errorf("update: %v", err)
			}
		})
	}
	t.Run("v1 is as strict as ever", func(t *testing.T) {
		served := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
			Resource: "customresourcedefinitions"})
		_, err := served.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": "strict.example.com"},
			"spec": map[string]any{
				"group": "example.com", "scope": "Namespaced", "preserveUnknownFields": true,
				"names": map[string]any{"kind": "Strict", "plural": "strict", "singular": "strict",
					"listKind": "StrictList"},
				"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true}},
			},
		}}, metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "preserveUnknownFields") ||
			!strings.Contains(err.Error(), "openAPIV3Schema") {
			t.Errorf("got %v", err)
		}
	})
}

// The garbage collector works, and a deletion in a removed version orphans the dependents, which was the default then.
// testRemovedDeletion returns the namespace, which is being deleted.
func testRemovedDeletion(t *testing.T, config *rest.Config) string {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ns := clustertest.Namespace(t, client)
	one := int32(1)
	create := func(name string) {
		_, err := client.ExtensionsV1beta1().Deployments(ns).Create(t.Context(), &extensionsv1beta1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: extensionsv1beta1.DeploymentSpec{Replicas: &one, Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		clustertest.Eventually(t, func(ctx context.Context) error {
			d, err := client.AppsV1().Deployments(ns).Get(ctx, name, metav1.GetOptions{})
			if err == nil && d.Status.ReadyReplicas != 1 {
				err = fmt.Errorf("%d pods are ready", d.Status.ReadyReplicas)
			}
			return err
		})
	}
	replicaSets := func(ctx context.Context, name string) []appsv1.ReplicaSet {
		list, err := client.AppsV1().ReplicaSets(ns).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	create("collected")
	if err := client.AppsV1().Deployments(ns).Delete(t.Context(), "collected", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "app=collected"})
		if err == nil && len(pods.Items)+len(replicaSets(ctx, "collected")) > 0 {
			err = fmt.Errorf("there are %d pods", len(pods.Items))
		}
		return err
	})
	create("orphaned")
	if err := client.ExtensionsV1beta1().Deployments(ns).
		Delete(t.Context(), "orphaned", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		if _, err := client.AppsV1().Deployments(ns).
			Get(ctx, "orphaned", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Deployment: %v", err)
		}
		return nil
	})
	if sets := replicaSets(t.Context(), "orphaned"); len(sets) != 1 || len(sets[0].OwnerReferences) != 0 {
		t.Errorf("the ReplicaSets of a Deployment that was deleted in extensions/v1beta1: %v", sets)
	}
	if err := client.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	return ns
}

func awaitNamespaceGone(t *testing.T, client kubernetes.Interface, ns string) {
	t.Helper()
	clustertest.Eventually(t, func(ctx context.Context) error {
		n, err := client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the namespace is %v (%w): %v", n.Status.Phase, err, n.Status.Conditions)
	})
}

// Deleting a namespace deletes everything in it, in whatever version it was created. testRemovedNamespace returns the
// namespace, which is being deleted.
func testRemovedNamespace(t *testing.T, config *rest.Config, all []removedObject) string {
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	client := dynamic.NewForConfigOrDie(config)
	ns := clustertest.Namespace(t, typed)
	made := 0
	for _, o := range all {
		gvk := o.old.GroupVersionKind()
		r := resourceOf(t, typed.Discovery(), gvk)
		if !r.Namespaced {
			continue
		}
		u := o.old.DeepCopy()
		u.SetNamespace(ns)
		if _, err := dynamicFor(client, gvk.GroupVersion(), r, ns).
			Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Errorf("create %s %s: %v", gvk, u.GetName(), err)
		}
		made++
	}
	if made < 15 {
		t.Errorf("only %d objects", made)
	}
	if err := typed.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	return ns
}
