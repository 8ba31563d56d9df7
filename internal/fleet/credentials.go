package fleet

import (
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/trommel-dev/trommel/internal/atomicfile"
	"github.com/trommel-dev/trommel/internal/pki"
	"github.com/trommel-dev/trommel/record"
)

// Credentials are what workers and a campaign know each other by: a certificate of the campaign's own, and a secret.
// They are kept in the campaign's directory, so that workers find a campaign again that was resumed.
type Credentials struct {
	Secret  string `json:"secret"`
	Cert    []byte `json:"cert"` // PEM
	Key     []byte `json:"key"`
	Address string `json:"address,omitempty"` // where the campaign listened
}

// credentialsFile is only for the user who has started the campaign.
const credentialsFile = "credentials.json"

// loadCredentials reads the credentials in a directory, or makes new ones.
func loadCredentials(dir string) (*Credentials, error) {
	file := filepath.Join(dir, credentialsFile)
	data, err := os.ReadFile(file)
	c := &Credentials{}
	switch {
	case err == nil:
		if err := json.Unmarshal(data, c); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return c, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	authority, err := pki.New("trommel campaign")
	if err != nil {
		return nil, err
	}
	pair, err := authority.Issue(x509.Certificate{
		Subject: pkix.Name{CommonName: "trommel campaign"}, DNSNames: []string{serverName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return nil, err
	}
	c.Secret, c.Cert, c.Key = rand.Text(), pair.Cert, pair.Key
	return c, c.keep(dir)
}

func (c *Credentials) keep(dir string) error {
	if err := os.MkdirAll(dir, record.DirMode); err != nil {
		return err
	}
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, credentialsFile), data, record.FileMode)
}

// serverName is what the certificate is for: it is not known by which addresses workers reach the campaign.
const serverName = "campaign.trommel.dev"

// Token returns the token of the campaign with this Config.Dir, and makes it if the campaign has not begun.
func Token(dir string) (string, error) {
	c, err := loadCredentials(dir)
	if err != nil {
		return "", err
	}
	return c.Token()
}

// Token is what a worker needs: the secret, and the digest of the certificate that the campaign must have.
func (c *Credentials) Token() (string, error) {
	pair, err := tls.X509KeyPair(c.Cert, c.Key)
	if err != nil {
		return "", err
	}
	return c.Secret + "." + digestOf(pair.Certificate[0]), nil
}

// parseToken returns the secret, and the configuration of a client that talks only to who has the certificate.
func parseToken(token string) (secret string, config *tls.Config, err error) {
	secret, digest, ok := strings.Cut(strings.TrimSpace(token), ".")
	if !ok || secret == "" || !validDigest.MatchString(digest) {
		return "", nil, errors.New("this is not the token of a campaign")
	}
	return secret, &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: serverName,
		// The one certificate that counts is known, whoever has signed it.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection is stricter
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || subtle.ConstantTimeCompare(
				[]byte(digestOf(s.PeerCertificates[0].Raw)), []byte(digest)) != 1 {
				return errOtherCampaign
			}
			return nil
		},
	}, nil
}

var errOtherCampaign = errors.New("the server there is not the campaign that the token is for")
