package embedded

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/pki"
)

// issueServer issues a certificate for all names of an API server.
func issueServer(ca *pki.Authority) (pki.Pair, error) {
	return ca.Issue(x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.ParseIP(serviceIP)},
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc" + cluster.Domain},
	})
}

// issueClient issues a certificate for a user in groups.
func issueClient(ca *pki.Authority, user string, groups ...string) (pki.Pair, error) {
	return ca.Issue(x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// newSigningKey creates the key pair that signs service account tokens.
func newSigningKey() (private, public []byte, err error) {
	key, err := pki.NewKey("")
	if err != nil {
		return nil, nil, err
	}
	if private, err = pki.EncodeKey(key, false); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, nil, err
	}
	return private, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}
