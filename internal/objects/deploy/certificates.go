package deploy

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trommel-dev/trommel/internal/pki"
)

// Names of cert-manager's objects and annotations.
const (
	certManagerGroup     = "cert-manager.io"
	injectFromAnnotation = "cert-manager.io/inject-ca-from"
	injectFromSecret     = "cert-manager.io/inject-ca-from-secret"
)

// Issuer issues certificates instead of cert-manager, all signed by its own CA. Manifests that have the same
// Certificate get the same Secret, as long as its Secret is asked for of one Issuer. The zero value has no CA yet.
// It is safe for concurrent use.
type Issuer struct {
	mu     sync.Mutex
	ca     *pki.Authority
	issued map[string]issued // Secrets, by namespace/name of their Certificate
}

type issued struct {
	spec   any // of the Certificate
	secret *unstructured.Unstructured
}

// secretFor returns the Secret of a Certificate.
func (i *Issuer) secretFor(u *unstructured.Unstructured, now time.Time) (*unstructured.Unstructured, error) {
	if old, ok := i.issued[name(u)]; ok && reflect.DeepEqual(old.spec, u.Object["spec"]) {
		return old.secret.DeepCopy(), nil
	}
	secret, err := secretFor(u, i.ca, now)
	if err != nil {
		return nil, err
	}
	if i.issued == nil {
		i.issued = map[string]issued{}
	}
	i.issued[name(u)] = issued{u.Object["spec"], secret.DeepCopy()}
	return secret, nil
}

// Certificates does cert-manager's work on the manifests: it replaces each Certificate by the Secret that it names,
// with a key and a certificate signed by this run's own CA, whichever Issuer the Certificate names. Objects with one of
// cert-manager's CA injection annotations get the CA as their caBundle. The Certificates and Issuers themselves are
// left out, unless the manifests define their types. Now is the time of the processes that will use the certificates.
// The manifests are not changed. All mistakes are reported.
func (i *Issuer) Certificates(
	manifests []*unstructured.Unstructured, now time.Time,
) ([]*unstructured.Unstructured, error) {
	if !slices.ContainsFunc(manifests, isCertManagers) {
		// Annotations alone mean nothing: they often remain in projects that create their certificates themselves.
		return manifests, nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ca == nil {
		ca, err := pki.New("trommel: in place of cert-manager")
		if err != nil {
			return nil, err
		}
		i.ca = ca
	}
	defined := slices.ContainsFunc(manifests, func(u *unstructured.Unstructured) bool {
		return u.GetKind() == "CustomResourceDefinition" && u.GetName() == "certificates."+certManagerGroup
	})
	var all []*unstructured.Unstructured
	var errs []error
	known := map[string]bool{}   // Certificates, by namespace/name
	secrets := map[string]bool{} // the Secrets made from them
	given := map[string]string{} // the ca.crt of the manifests' own Secrets, base64
	for _, u := range manifests {
		switch {
		case isCertManagers(u):
			if u.GetKind() == "Certificate" {
				secret, err := i.secretFor(u, now)
				if err != nil {
					errs = append(errs, fmt.Errorf("%s %s: %w", u.GetKind(), name(u), err))
					continue
				}
				known[name(u)], secrets[name(secret)] = true, true
				all = append(all, secret)
			}
			if defined {
				all = append(all, u)
			}
		default:
			if u.GetKind() == "Secret" {
				given[name(u)], _, _ = unstructured.NestedString(u.Object, "data", "ca.crt")
			}
			all = append(all, u)
		}
	}
	for k, u := range all {
		caBundle := ""
		if !takesBundle(u) {
			continue
		}
		if from := u.GetAnnotations()[injectFromAnnotation]; from != "" {
			if !known[from] {
				errs = append(errs,
					fmt.Errorf("%s %s: %s: no Certificate %s in the manifests (Certificates there: %s)",
						u.GetKind(), u.GetName(), injectFromAnnotation, from, list(sortedNames(known))))
				continue
			}
			caBundle = bundle(i.ca)
		} else if from := u.GetAnnotations()[injectFromSecret]; from != "" {
			switch {
			case secrets[from]:
				caBundle = bundle(i.ca)
			case given[from] != "":
				caBundle = given[from]
			default:
				errs = append(errs, fmt.Errorf("%s %s: %s: no Secret %s with a ca.crt in the manifests",
					u.GetKind(), u.GetName(), injectFromSecret, from))
				continue
			}
		}
		if caBundle != "" {
			all[k] = inject(u, caBundle)
		}
	}
	return all, errors.Join(errs...)
}

// Issues reports whether any manifests had objects of cert-manager.
func (i *Issuer) Issues() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ca != nil
}

// Injects reports whether an object with these annotations gets the CA as its caBundle: they name a Certificate of the
// manifests or its Secret.
func (i *Issuer) Injects(annotations map[string]string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if from := annotations[injectFromAnnotation]; from != "" {
		_, ok := i.issued[from]
		return ok
	}
	from := annotations[injectFromSecret]
	for _, known := range i.issued {
		if from != "" && name(known.secret) == from {
			return true
		}
	}
	return false
}

// Inject returns a copy of an object of the cluster that has the CA as its caBundle, if its annotations ask for that.
// It returns nil if there is nothing to change.
func (i *Issuer) Inject(u *unstructured.Unstructured) *unstructured.Unstructured {
	if !i.Injects(u.GetAnnotations()) {
		return nil
	}
	injected := inject(u, bundle(i.ca))
	if reflect.DeepEqual(injected.Object, u.Object) {
		return nil
	}
	return injected
}

func isCertManagers(u *unstructured.Unstructured) bool {
	group, _, _ := strings.Cut(u.GetAPIVersion(), "/")
	return group == certManagerGroup || group == "acme."+certManagerGroup
}

func sortedNames(set map[string]bool) []string {
	var names []string
	for n := range set {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// inject returns a copy of the object with the bundle in all its caBundle fields.
func inject(u *unstructured.Unstructured, bundle string) *unstructured.Unstructured {
	u = u.DeepCopy()
	switch u.GetKind() {
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		hooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
		for _, h := range hooks {
			if hook, ok := h.(map[string]any); ok {
				_ = unstructured.SetNestedField(hook, bundle, "clientConfig", "caBundle")
			}
		}
		_ = unstructured.SetNestedSlice(u.Object, hooks, "webhooks")
	case "CustomResourceDefinition":
		if _, ok, _ := unstructured.NestedMap(u.Object, "spec", "conversion", "webhook", "clientConfig"); ok {
			_ = unstructured.SetNestedField(u.Object, bundle, "spec", "conversion", "webhook", "clientConfig",
				"caBundle")
		}
	case "APIService":
		_ = unstructured.SetNestedField(u.Object, bundle, "spec", "caBundle")
		unstructured.RemoveNestedField(u.Object, "spec", "insecureSkipTLSVerify")
	}
	return u
}

// takesBundle reports whether there is a caBundle to set. A definition may lack a conversion webhook, and its
// annotation then means nothing.
func takesBundle(u *unstructured.Unstructured) bool {
	annotations := u.GetAnnotations()
	return annotations[injectFromAnnotation]+annotations[injectFromSecret] != "" &&
		!reflect.DeepEqual(inject(u, "?").Object, u.Object)
}

// bundle returns the CA as a caBundle, in base64.
func bundle(ca *pki.Authority) string { return base64.StdEncoding.EncodeToString(ca.PEM()) }

// secretFor creates the Secret that cert-manager would create for a Certificate.
func secretFor(u *unstructured.Unstructured, ca *pki.Authority, now time.Time) (*unstructured.Unstructured, error) {
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(u.Object, append([]string{"spec"}, path...)...)
		return s
	}
	texts := func(path ...string) []string {
		l, _, _ := unstructured.NestedStringSlice(u.Object, append([]string{"spec"}, path...)...)
		return l
	}
	if text("secretName") == "" {
		return nil, errors.New("spec.secretName is missing")
	}
	lasts := 90 * 24 * time.Hour
	if d := text("duration"); d != "" {
		var err error
		if lasts, err = time.ParseDuration(d); err != nil {
			return nil, fmt.Errorf("spec.duration: %w", err)
		}
	}
	t := x509.Certificate{
		NotAfter: now.Add(lasts),
		Subject:  pkix.Name{CommonName: text("commonName"), Organization: texts("subject", "organizations")},
		DNSNames: texts("dnsNames"), EmailAddresses: texts("emailAddresses"),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, ip := range texts("ipAddresses") {
		parsed := net.ParseIP(ip)
		if parsed == nil {
			return nil, fmt.Errorf("spec.ipAddresses: invalid IP address %q", ip)
		}
		t.IPAddresses = append(t.IPAddresses, parsed)
	}
	for _, uri := range texts("uris") {
		parsed, err := url.Parse(uri)
		if err != nil {
			return nil, fmt.Errorf("spec.uris: %w", err)
		}
		t.URIs = append(t.URIs, parsed)
	}
	if isCA, _, _ := unstructured.NestedBool(u.Object, "spec", "isCA"); isCA {
		t.IsCA, t.BasicConstraintsValid = true, true
		t.KeyUsage |= x509.KeyUsageCertSign
	}
	key, err := pki.NewKey(text("privateKey", "algorithm"))
	if err != nil {
		return nil, fmt.Errorf("spec.privateKey.algorithm: %w", err)
	}
	keyPEM, err := pki.EncodeKey(key, text("privateKey", "encoding") == "PKCS8")
	if err != nil {
		return nil, err
	}
	cert, err := ca.Sign(t, key.Public())
	if err != nil {
		return nil, err
	}
	encode := base64.StdEncoding.EncodeToString
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
		"data": map[string]any{
			"tls.crt": encode(cert),
			"tls.key": encode(keyPEM),
			"ca.crt":  bundle(ca),
		},
	}}
	secret.SetName(text("secretName"))
	secret.SetNamespace(u.GetNamespace())
	labels, _, _ := unstructured.NestedStringMap(u.Object, "spec", "secretTemplate", "labels")
	secret.SetLabels(labels)
	annotations, _, _ := unstructured.NestedStringMap(u.Object, "spec", "secretTemplate", "annotations")
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["cert-manager.io/certificate-name"] = u.GetName()
	secret.SetAnnotations(annotations)
	return secret, nil
}
