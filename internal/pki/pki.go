// Package pki issues certificates that are trusted on this machine only, by a certificate authority whose key is never
// written to disk.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// Authority is a certificate authority.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// Pair is a certificate and its private key, both PEM.
type Pair struct{ Cert, Key []byte }

// Validity is how long certificates are valid unless they say otherwise. It is longer than any run, even if its clock
// moves ahead by months.
const Validity = 10 * 365 * 24 * time.Hour

// New creates an authority. name is its common name, for people.
func New(name string) (*Authority, error) {
	key, err := NewKey("")
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	a := &Authority{key: key}
	if a.pem, err = a.sign(t, t, key.Public()); err != nil {
		return nil, err
	}
	block, _ := pem.Decode(a.pem)
	a.cert, err = x509.ParseCertificate(block.Bytes)
	return a, err
}

// PEM returns the authority's own certificate.
func (a *Authority) PEM() []byte { return a.pem }

// Issue issues a certificate for a new key. See Sign for the template.
func (a *Authority) Issue(template x509.Certificate) (Pair, error) {
	key, err := NewKey("")
	if err != nil {
		return Pair{}, err
	}
	cert, err := a.Sign(template, key.Public())
	if err != nil {
		return Pair{}, err
	}
	encoded, err := EncodeKey(key, false)
	return Pair{Cert: cert, Key: encoded}, err
}

// Sign issues a certificate, PEM, for a key. Defaults of the template: a random serial number, valid for Validity, and
// a key for digital signatures.
func (a *Authority) Sign(template x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	if template.KeyUsage == 0 {
		template.KeyUsage = x509.KeyUsageDigitalSignature
	}
	return a.sign(&template, a.cert, public)
}

func (a *Authority) sign(t, parent *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	now := time.Now()
	// Clocks may be set back while certificates are in use.
	t.NotBefore = now.Add(-24 * time.Hour)
	if t.NotAfter.IsZero() {
		t.NotAfter = now.Add(Validity)
	}
	var serial [15]byte
	_, _ = rand.Read(serial[:]) // never fails
	t.SerialNumber = new(big.Int).SetBytes(serial[:])
	der, err := x509.CreateCertificate(rand.Reader, t, parent, public, a.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// NewKey creates a private key: ECDSA (the default, and fast), RSA or Ed25519.
func NewKey(algorithm string) (crypto.Signer, error) {
	switch algorithm {
	case "", "ECDSA":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "RSA":
		return rsa.GenerateKey(rand.Reader, 2048)
	case "Ed25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return nil, fmt.Errorf("unknown %q (known: RSA, ECDSA, Ed25519)", algorithm)
}

// EncodeKey returns a private key as PEM: in the form of its algorithm if there is one, or as PKCS 8.
func EncodeKey(key crypto.Signer, pkcs8 bool) ([]byte, error) {
	block := &pem.Block{Type: "PRIVATE KEY"}
	var err error
	if !pkcs8 {
		switch k := key.(type) {
		case *ecdsa.PrivateKey:
			block.Type = "EC PRIVATE KEY"
			block.Bytes, err = x509.MarshalECPrivateKey(k)
		case *rsa.PrivateKey:
			block.Type, block.Bytes = "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(k)
		}
	}
	if block.Bytes == nil && err == nil {
		block.Bytes, err = x509.MarshalPKCS8PrivateKey(key)
	}
	return pem.EncodeToMemory(block), err
}
