package certificates

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/deploy"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
	"github.com/trommel-dev/trommel/plan"
)

const certificate = `{apiVersion: cert-manager.io/v1, kind: Certificate,
  metadata: {name: serving, namespace: system},
  spec: {dnsNames: [webhook.system.svc], issuerRef: {name: any}, secretName: serving-cert}}`

// early is there before the injector starts, as those of the run's manifests.
const early = `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration,
  metadata: {name: early, annotations: {cert-manager.io/inject-ca-from: system/serving}},
  webhooks: [{name: early.example.com, clientConfig: {service: {name: webhook, namespace: system}},
    sideEffects: None, admissionReviewVersions: [v1]}]}`

// late are written while the injector runs, as by a controller.
const late = `
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration,
  metadata: {name: late, annotations: {cert-manager.io/inject-ca-from: system/serving}},
  webhooks: [
    {name: a.example.com, clientConfig: {service: {name: webhook, namespace: system}},
      sideEffects: None, admissionReviewVersions: [v1]},
    {name: b.example.com, clientConfig: {service: {name: webhook, namespace: system}},
      sideEffects: None, admissionReviewVersions: [v1]}]}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration,
  metadata: {name: other, annotations: {cert-manager.io/inject-ca-from: system/other}},
  webhooks: [{name: other.example.com, clientConfig: {service: {name: webhook, namespace: system}},
    sideEffects: None, admissionReviewVersions: [v1]}]}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
  metadata: {name: widgets.example.com, annotations: {cert-manager.io/inject-ca-from-secret: system/serving-cert}},
  spec: {group: example.com, scope: Namespaced, names: {kind: Widget, plural: widgets},
    conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1],
      clientConfig: {service: {name: webhook, namespace: system}}}},
    versions: [{name: v1, served: true, storage: true,
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}
---
{apiVersion: apiregistration.k8s.io/v1, kind: APIService,
  metadata: {name: v1.metrics.example.com, annotations: {cert-manager.io/inject-ca-from: system/serving}},
  spec: {group: metrics.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 100,
    service: {name: webhook, namespace: system}}}
`

// TestInjector is what a controller relies on that registers its webhooks itself and leaves the caBundle to
// cert-manager.
func TestInjector(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	cluster := clustertest.Start(t, embedded.Config{APIServers: 1, Nodes: -1})
	config, err := cluster.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	client, err := objects.New(config)
	if err != nil {
		t.Fatal(err)
	}
	issuer := new(deploy.Issuer)
	secrets, err := issuer.Certificates(decode(t, certificate), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	authority, _, _ := unstructured.NestedString(secrets[0].Object, "data", "ca.crt")
	write := func(text string) {
		t.Helper()
		for _, u := range decode(t, text) {
			if _, err := client.WithFieldManager("controller").Apply(t.Context(), u); err != nil {
				t.Fatal(err)
			}
		}
	}
	// injected waits until the object has so many caBundles, each of them the authority, and returns the object.
	injected := func(kind, group, name string, want int) (u *unstructured.Unstructured) {
		t.Helper()
		clustertest.Eventually(t, func(ctx context.Context) (err error) {
			u, err = client.Get(ctx, plan.ResourceKey{Type: kind, Group: group, Name: name})
			if err != nil {
				return err
			}
			text, err := json.Marshal(u.Object)
			if got := strings.Count(string(text), authority); got != want {
				return fmt.Errorf("%s %s has the authority %d times, want %d: %s", kind, name, got, want, text)
			}
			return err
		})
		return u
	}
	const admission = "admissionregistration.k8s.io"
	write(early)
	stop, err := (&Injector{Issuer: issuer, Objects: client, Logger: slog.New(slog.DiscardHandler)}).Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	injected("mutatingwebhookconfiguration", admission, "early", 1)
	write(late)
	u := injected("validatingwebhookconfiguration", admission, "late", 2)
	if !slices.ContainsFunc(u.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == FieldManager && m.Operation == metav1.ManagedFieldsOperationUpdate
	}) {
		t.Errorf("it was written by %v", u.GetManagedFields())
	}
	injected("customresourcedefinition", "apiextensions.k8s.io", "widgets.example.com", 1)
	injected("apiservice", "apiregistration.k8s.io", "v1.metrics.example.com", 1)
	injected("validatingwebhookconfiguration", admission, "other", 0)

	// A controller that writes the whole object anew leaves the caBundle out again.
	for _, hook := range u.Object["webhooks"].([]any) {
		unstructured.RemoveNestedField(hook.(map[string]any), "clientConfig", "caBundle")
	}
	if _, err := client.Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	injected("validatingwebhookconfiguration", admission, "late", 2)
	stop()
	u = injected("validatingwebhookconfiguration", admission, "late", 2)
	u.SetLabels(map[string]string{"a": "b"})
	if _, err := client.Update(t.Context(), u); err != nil {
		t.Errorf("it writes after it was stopped: %v", err)
	}
}

func decode(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	all, err := objects.Decode([]byte(text), "test")
	if err != nil {
		t.Fatal(err)
	}
	return all
}
