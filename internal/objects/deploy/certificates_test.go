package deploy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	issuer = `
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: selfsigned, namespace: system}
spec: {selfSigned: {}}
`
	certificate = `
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: serving-cert, namespace: system}
spec:
  dnsNames: [webhook.system.svc, webhook.system.svc.cluster.local]
  issuerRef: {kind: Issuer, name: selfsigned}
  secretName: webhook-server-cert
  secretTemplate: {labels: {app: op}}
`
	validating = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: validating, annotations: {cert-manager.io/inject-ca-from: system/serving-cert}}
webhooks:
- {name: a.example.com, clientConfig: {service: {name: webhook, namespace: system}}}
- {name: b.example.com, clientConfig: {service: {name: webhook, namespace: system}}}
`
	definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com, annotations: {cert-manager.io/inject-ca-from-secret: system/webhook-server-cert}}
spec: {conversion: {strategy: Webhook, webhook: {clientConfig: {service: {name: webhook, namespace: system}}}}}
`
)

func TestCertificates(t *testing.T) {
	hook := object(t, validating)
	all, err := new(Issuer).Certificates([]*unstructured.Unstructured{object(t, issuer), hook, object(t, definition),
		object(t, certificate)}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	byKind := map[string]*unstructured.Unstructured{}
	var kinds []string
	for _, u := range all {
		byKind[u.GetKind()] = u
		kinds = append(kinds, u.GetKind())
	}
	if got := strings.Join(kinds, " "); got != "ValidatingWebhookConfiguration CustomResourceDefinition Secret" {
		t.Fatalf("left: %s", got)
	}
	secret := byKind["Secret"]
	if secret.GetName() != "webhook-server-cert" || secret.GetNamespace() != "system" ||
		secret.GetLabels()["app"] != "op" {
		t.Errorf("Secret %s/%s with labels %v", secret.GetNamespace(), secret.GetName(), secret.GetLabels())
	}
	data := func(key string) []byte {
		text, _, _ := unstructured.NestedString(secret.Object, "data", key)
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	pair, err := tls.X509KeyPair(data("tls.crt"), data("tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	hooks, _, _ := unstructured.NestedSlice(byKind["ValidatingWebhookConfiguration"].Object, "webhooks")
	bundles := map[string]bool{base64.StdEncoding.EncodeToString(data("ca.crt")): true}
	for _, h := range hooks {
		bundle, _, _ := unstructured.NestedString(h.(map[string]any), "clientConfig", "caBundle")
		bundles[bundle] = true
	}
	bundle, _, _ := unstructured.NestedString(byKind["CustomResourceDefinition"].Object, "spec", "conversion",
		"webhook", "clientConfig", "caBundle")
	bundles[bundle] = true
	if len(hooks) != 2 || len(bundles) != 1 || bundles[""] {
		t.Errorf("%d webhooks, bundles %v", len(hooks), bundles)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(data("ca.crt"))
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: "webhook.system.svc", Roots: roots}); err != nil {
		t.Error(err)
	}
	if before, _, _ := unstructured.NestedSlice(hook.Object,
		"webhooks"); len(before[0].(map[string]any)["clientConfig"].(map[string]any)) != 1 {
		t.Error("the manifests were changed")
	}
}

// What controllers write while they run gets the same authority as the manifests.
func TestInject(t *testing.T) {
	i := new(Issuer)
	if i.Issues() || i.Inject(object(t, validating)) != nil {
		t.Error("it injects without any Certificate")
	}
	all, err := i.Certificates([]*unstructured.Unstructured{object(t, certificate), object(t, validating),
		object(t, definition)}, time.Now())
	if err != nil || !i.Issues() {
		t.Fatal(err)
	}
	for k, manifest := range []string{validating, definition} {
		got := i.Inject(object(t, manifest))
		if got == nil || !reflect.DeepEqual(got.Object, all[k+1].Object) {
			t.Errorf("%v, want %v", got, all[k+1])
			continue
		}
		if again := i.Inject(got); again != nil {
			t.Errorf("it injects again: %v", again)
		}
	}
	for _, other := range []string{
		strings.ReplaceAll(validating, "system/serving-cert", "system/other"),
		strings.ReplaceAll(definition, "system/webhook-server-cert", "other/webhook-server-cert"), manager,
		// It has no conversion webhook.
		definition[:strings.Index(definition, "spec:")],
	} {
		if got := i.Inject(object(t, other)); got != nil {
			t.Errorf("it injects %v", got)
		}
	}
}

func TestCertificatesOfOthers(t *testing.T) {
	for _, tt := range []struct {
		name      string
		manifests []string
		kinds     string
		err       string
	}{
		{name: "none", manifests: []string{manager}, kinds: "Deployment"},
		{
			name: "with its types", manifests: []string{certificate,
				strings.ReplaceAll(definition, "widgets.example.com", "certificates.cert-manager.io")},
			kinds: "Secret Certificate CustomResourceDefinition",
		},
		{
			name: "annotations alone", manifests: []string{validating,
				strings.ReplaceAll(definition, "system/", "$(CERTIFICATE_NAMESPACE)/")},
			kinds: "ValidatingWebhookConfiguration CustomResourceDefinition",
		},
		{
			name:      "unknown Certificate",
			manifests: []string{validating, strings.ReplaceAll(certificate, "serving-cert", "other")},
			err: "ValidatingWebhookConfiguration validating: cert-manager.io/inject-ca-from: no Certificate " +
				"system/serving-cert in the manifests (Certificates there: system/other)",
		},
		{ // as OpenSearch's operator has it
			name: "a definition without webhook",
			manifests: []string{certificate, "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n" +
				"metadata: {name: w, annotations: {cert-manager.io/inject-ca-from: $(NAMESPACE)/$(NAME)}}\nspec: {}\n"},
			kinds: "Secret CustomResourceDefinition",
		},
		{
			name: "unknown Secret", manifests: []string{definition, issuer},
			err: "CustomResourceDefinition widgets.example.com: cert-manager.io/inject-ca-from-secret: no Secret " +
				"system/webhook-server-cert with a ca.crt in the manifests",
		},
		{
			name:      "invalid Certificate",
			manifests: []string{strings.Replace(certificate, "secretName: webhook-server-cert", "duration: long", 1)},
			err:       "Certificate system/serving-cert: spec.secretName is missing",
		},
		{
			name: "unknown key", manifests: []string{certificate + "  privateKey: {algorithm: DSA}\n"},
			err: `Certificate system/serving-cert: spec.privateKey.algorithm: unknown "DSA" (known: RSA, ECDSA, ` +
				`Ed25519)`,
		},
		{name: "RSA", manifests: []string{certificate + "  privateKey: {algorithm: RSA}\n"}, kinds: "Secret"},
		{name: "PKCS8",
			manifests: []string{certificate + "  privateKey: {algorithm: Ed25519, encoding: PKCS8}\n  isCA: true\n"},
			kinds:     "Secret"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var manifests []*unstructured.Unstructured
			for _, m := range tt.manifests {
				manifests = append(manifests, object(t, m))
			}
			all, err := new(Issuer).Certificates(manifests, time.Now())
			if tt.err != "" {
				if err == nil || err.Error() != tt.err {
					t.Errorf("got %v\nwant %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for _, u := range all {
				kinds = append(kinds, u.GetKind())
			}
			if got := strings.Join(kinds, " "); got != tt.kinds {
				t.Errorf("got %s, want %s", got, tt.kinds)
			}
		})
	}
}
