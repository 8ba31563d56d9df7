package deploy

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Names of cert-manager's objects and annotations.
const (
	certManagerGroup     = "cert-manager.io"
	injectFromAnnotation = "cert-manager.io/inject-ca-from"
	injectFromSecret     = "cert-manager.io/inject-ca-from-secret"
)

// Certificates does cert-manager's work on the manifests: it replaces each Certificate by the Secret that it names,
// with a key and a certificate signed by this run's own CA, whichever Issuer the Certificate names. Objects with one of
// cert-manager's CA injection annotations get the CA as their caBundle. The Certificates and Issuers themselves are
// left out, unless the manifests define their types. The manifests are not changed. All mistakes are reported.
func Certificates(manifests []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if !slices.ContainsFunc(manifests, isCertManagers) {
		// Annotations alone mean nothing: they often remain in projects that create their certificates themselves.
		return manifests, nil
	}
	ca, err := newCertAuthority()
	if err != nil {
		return nil, err
	}
	defined := slices.ContainsFunc(manifests, func(u *unstructured.Unstructured) bool {
		return u.GetKind() == "CustomResourceDefinition" && u.GetName() == "certificates."+certManagerGroup
	})
	var all []*unstructured.Unstructured
	var errs []error
	issued := map[string]bool{}  // Certificates, by namespace/name
	secrets := map[string]bool{} // the Secrets made from them
	given := map[string]string{} // the ca.crt of the manifests' own Secrets, base64
	for _, u := range manifests {
		switch {
		case isCertManagers(u):
			if u.GetKind() == "Certificate" {
				secret, err := ca.secret(u)
				if err != nil {
					errs = append(errs, fmt.Errorf("%s %s: %w", u.GetKind(), name(u), err))
					continue
				}
				issued[name(u)], secrets[name(secret)] = true, true
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
	for i, u := range all {
		bundle := ""
		if from := u.GetAnnotations()[injectFromAnnotation]; from != "" {
			if !issued[from] {
				errs = append(errs,
					fmt.Errorf("%s %s: %s: no Certificate %s in the manifests (Certificates there: %s)",
						u.GetKind(), u.GetName(), injectFromAnnotation, from, list(sortedNames(issued))))
				continue
			}
			bundle = ca.bundle()
		} else if from := u.GetAnnotations()[injectFromSecret]; from != "" {
			switch {
			case secrets[from]:
				bundle = ca.bundle()
			case given[from] != "":
				bundle = given[from]
			default:
				errs = append(errs, fmt.Errorf("%s %s: %s: no Secret %s with a ca.crt in the manifests",
					u.GetKind(), u.GetName(), injectFromSecret, from))
				continue
			}
		}
		if bundle != "" {
			all[i] = inject(u, bundle)
		}
	}
	return all, errors.Join(errs...)
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

// certAuthority issues the certificates of one run.
type certAuthority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

func newCertAuthority() (*certAuthority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t, err := certTemplate(365 * 24 * time.Hour)
	if err != nil {
		return nil, err
	}
	t.Subject = pkix.Name{CommonName: "trommel: in place of cert-manager"}
	t.IsCA, t.BasicConstraintsValid = true, true
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &certAuthority{cert: cert, key: key,
		pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// bundle returns the CA as a caBundle, in base64.
func (a *certAuthority) bundle() string { return base64.StdEncoding.EncodeToString(a.pem) }

func certTemplate(lasts time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(lasts)}, nil
}

// secret creates the Secret that cert-manager would create for a Certificate.
func (a *certAuthority) secret(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
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
	t, err := certTemplate(lasts)
	if err != nil {
		return nil, err
	}
	t.Subject = pkix.Name{CommonName: text("commonName"), Organization: texts("subject", "organizations")}
	t.DNSNames, t.EmailAddresses = texts("dnsNames"), texts("emailAddresses")
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
	t.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if isCA, _, _ := unstructured.NestedBool(u.Object, "spec", "isCA"); isCA {
		t.IsCA, t.BasicConstraintsValid = true, true
		t.KeyUsage |= x509.KeyUsageCertSign
	}
	key, keyPEM, err := certKey(text("privateKey", "algorithm"), text("privateKey", "encoding"))
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	encode := base64.StdEncoding.EncodeToString
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
		"data": map[string]any{
			"tls.crt": encode(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
			"tls.key": encode(keyPEM),
			"ca.crt":  a.bundle(),
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

// certKey creates a private key according to spec.privateKey; the defaults are fast to generate.
func certKey(algorithm, encoding string) (crypto.Signer, []byte, error) {
	var key crypto.Signer
	var err error
	switch algorithm {
	case "", "ECDSA":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "RSA":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case "Ed25519":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		return nil, nil, fmt.Errorf("spec.privateKey.algorithm: unknown %q (known: RSA, ECDSA, Ed25519)", algorithm)
	}
	if err != nil {
		return nil, nil, err
	}
	block := &pem.Block{Type: "PRIVATE KEY"}
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		if encoding != "PKCS8" {
			block.Type = "EC PRIVATE KEY"
			block.Bytes, err = x509.MarshalECPrivateKey(k)
		}
	case *rsa.PrivateKey:
		if encoding != "PKCS8" {
			block.Type, block.Bytes = "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(k)
		}
	}
	if block.Bytes == nil && err == nil {
		block.Bytes, err = x509.MarshalPKCS8PrivateKey(key)
	}
	return key, pem.EncodeToMemory(block), err
}
