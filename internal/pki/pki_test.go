package pki

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"strings"
	"testing"
	"time"
)

// parse parses a PEM certificate.
func parse(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" || len(rest) > 0 {
		t.Fatalf("%s", text)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestIssue(t *testing.T) {
	ours, err := New("trommel test")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := New("trommel test") // another one with the same name
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		Subject: pkix.Name{CommonName: "web", Organization: []string{"group"}}, DNSNames: []string{"web.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	pair, err := ours.Issue(template)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(pair.Cert, pair.Key); err != nil {
		t.Errorf("certificate and key: %v", err)
	}
	cert := parse(t, pair.Cert)
	if cert.Subject.CommonName != "web" || cert.IsCA || cert.KeyUsage != x509.KeyUsageDigitalSignature {
		t.Errorf("subject %v, CA %v, key usage %v", cert.Subject, cert.IsCA, cert.KeyUsage)
	}
	now := time.Now()
	if now.Sub(cert.NotBefore) < 59*time.Minute || cert.NotAfter.Sub(now) < Validity-time.Minute {
		t.Errorf("valid from %v to %v", cert.NotBefore, cert.NotAfter)
	}
	for _, tt := range []struct {
		by    *Authority
		name  string
		valid bool
	}{
		{ours, "web.default.svc", true}, {ours, "127.0.0.1", true}, {ours, "other.default.svc", false},
		{theirs, "web.default.svc", false},
	} {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(tt.by.PEM())
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: tt.name}); (err == nil) != tt.valid {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	again, err := ours.Issue(template)
	if err != nil {
		t.Fatal(err)
	}
	if parse(t, again.Cert).SerialNumber.Cmp(cert.SerialNumber) == 0 || string(again.Key) == string(pair.Key) {
		t.Error("two certificates have the same number or key")
	}
	if ca := parse(t, ours.PEM()); !ca.IsCA || ca.Subject.CommonName != "trommel test" {
		t.Errorf("the authority's own: %v, CA %v", ca.Subject, ca.IsCA)
	}
}

func TestKeys(t *testing.T) {
	a, err := New("test")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		algorithm string
		pkcs8     bool
		want      string
	}{
		{"", false, "EC PRIVATE KEY"}, {"ECDSA", true, "PRIVATE KEY"}, {"RSA", false, "RSA PRIVATE KEY"},
		{"RSA", true, "PRIVATE KEY"}, {"Ed25519", false, "PRIVATE KEY"},
	} {
		key, err := NewKey(tt.algorithm)
		if err != nil {
			t.Fatal(err)
		}
		text, err := EncodeKey(key, tt.pkcs8)
		if block, _ := pem.Decode(text); err != nil || block == nil || block.Type != tt.want {
			t.Errorf("%+v: %v, %s", tt, err, text)
		}
		ends := time.Now().Add(time.Minute).Truncate(time.Second)
		cert, err := a.Sign(x509.Certificate{NotAfter: ends}, key.Public())
		if err != nil {
			t.Fatal(err)
		}
		if got := parse(t, cert).NotAfter; !got.Equal(ends) {
			t.Errorf("%+v: valid until %v, want %v", tt, got, ends)
		}
		if _, err := tls.X509KeyPair(cert, text); err != nil {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	if _, err := NewKey("DSA"); err == nil || !strings.Contains(err.Error(), "known: RSA") {
		t.Errorf("got %v", err)
	}
}
