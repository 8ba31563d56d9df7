// Package certificate gives a webhook of the controllers its certificate, without cert-manager. It makes a certificate
// authority, issues the certificate for the names in the webhook's configuration, keeps it in a Secret for all
// replicas, and writes the authority into the configuration. The authority's key is not kept. Before the certificate
// expires, a new authority issues another one; the configuration trusts both. Without a configuration, nothing is done.
package certificate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/internal/pki"
)

const (
	// validity is how long a certificate is valid, and renewal how long before its end there is another one.
	validity = 365 * 24 * time.Hour
	renewal  = 120 * 24 * time.Hour
	// period is how often the Secret and the configuration are read, and after how long what failed is tried again.
	period, again = 10 * time.Second, time.Second
)

// Certificate is the certificate of a webhook. All replicas of the controllers have one. It may be used concurrently.
type Certificate struct {
	env                   *controller.Env
	log                   logr.Logger
	secret, configuration string

	mu      sync.Mutex
	current *tls.Certificate // nil: none yet, or none is needed
	why     error            // that there is none; nil: there is, or none is needed
	logged  string           // the last error
}

// New returns the certificate of a webhook. secret names a Secret in the controllers' namespace, which need not have
// data, and configuration a ValidatingWebhookConfiguration. It has to be started.
func New(env *controller.Env, log logr.Logger, secret, configuration string) *Certificate {
	return &Certificate{
		env: env, log: log.WithName("certificate"), secret: secret, configuration: configuration,
		why: errors.New("not read yet"),
	}
}

// Options make a server use the certificate.
func (c *Certificate) Options() []func(*tls.Config) {
	return []func(*tls.Config){func(t *tls.Config) {
		t.MinVersion = tls.VersionTLS12
		t.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.current == nil {
				return nil, fmt.Errorf("there is no certificate: %w", c.why)
			}
			return c.current, nil
		}
	}}
}

// Ready is a health check: it fails while the webhook has a configuration, but no certificate.
func (c *Certificate) Ready(*http.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why
}

// NeedLeaderElection is part of manager.LeaderElectionRunnable: all replicas serve the webhook.
func (c *Certificate) NeedLeaderElection() bool { return false }

// Start is part of manager.Runnable.
func (c *Certificate) Start(ctx context.Context) error {
	for {
		wait := period
		if !c.update(ctx) {
			wait = again
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// update makes the certificate, the Secret and the configuration agree. It reports whether they do.
func (c *Certificate) update(life context.Context) bool {
	ctx, cancel := context.WithTimeout(life, period)
	defer cancel()
	pair, err := c.ensure(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.current, c.why, c.logged = pair, nil, ""
	case apierrors.IsConflict(err) || life.Err() != nil: // another replica was faster, or this one ends
	default:
		if c.logged != err.Error() {
			c.logged = err.Error()
			c.log.Error(err, "cannot give the webhook its certificate")
		}
		if c.current == nil {
			c.why = err
		}
	}
	return err == nil
}

// ensure returns the certificate in the Secret, and makes one if there is none. It returns nil without a configuration.
func (c *Certificate) ensure(ctx context.Context) (*tls.Certificate, error) {
	hooks := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := c.env.Reader.Get(ctx, client.ObjectKey{Name: c.configuration}, hooks)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := namesOf(hooks)
	if err != nil {
		return nil, fmt.Errorf("ValidatingWebhookConfiguration %s: %w", hooks.Name, err)
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: c.env.Config.Namespace, Name: c.secret}
	if err := c.env.Reader.Get(ctx, key, secret); err != nil {
		return nil, err
	}
	now := time.Now() // that of API servers
	pair, err := parse(secret.Data, names, now)
	if err != nil {
		if secret.Data, err = issue(secret.Data[authority], names, now); err != nil {
			return nil, err
		}
		// The Secret is as it was read, or this is a conflict.
		if err := c.env.Client.Update(ctx, secret); err != nil {
			return nil, err
		}
		if pair, err = parse(secret.Data, names, now); err != nil {
			return nil, err
		}
	}
	// The API servers trust a certificate before it is served.
	return pair, c.trust(ctx, hooks, secret.Data[authority])
}

// trust writes the authorities into the configuration.
func (c *Certificate) trust(
	ctx context.Context, hooks *admissionregistrationv1.ValidatingWebhookConfiguration, bundle []byte,
) error {
	before, differs := hooks.DeepCopy(), false
	for i := range hooks.Webhooks {
		if to := &hooks.Webhooks[i].ClientConfig; !bytes.Equal(to.CABundle, bundle) {
			to.CABundle, differs = bundle, true
		}
	}
	if !differs {
		return nil
	}
	return c.env.Client.Patch(ctx, hooks, client.StrategicMergeFrom(before))
}

// namesOf are the names by which API servers call the webhooks.
func namesOf(hooks *admissionregistrationv1.ValidatingWebhookConfiguration) ([]string, error) {
	var names []string
	for _, hook := range hooks.Webhooks {
		service := hook.ClientConfig.Service
		if service == nil {
			return nil, fmt.Errorf("webhook %s: has no service", hook.Name)
		}
		names = append(names, service.Name+"."+service.Namespace+".svc")
	}
	if len(names) == 0 {
		return nil, errors.New("has no webhooks")
	}
	return names, nil
}

// Keys of the Secret.
const authority, certificate, privateKey = "ca.crt", corev1.TLSCertKey, corev1.TLSPrivateKeyKey

// parse returns the certificate that a Secret has. It returns an error if the Secret needs another one.
func parse(data map[string][]byte, names []string, now time.Time) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(data[certificate], data[privateKey])
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(data[authority])
	for _, name := range names {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{
			DNSName: name, Roots: roots, CurrentTime: now.Add(renewal),
		}); err != nil {
			return nil, err
		}
	}
	return &pair, nil
}

// issue returns the data of a Secret with a new certificate of a new authority. The authority before it stays trusted,
// because replicas may still serve its certificate.
func issue(before []byte, names []string, now time.Time) (map[string][]byte, error) {
	ca, err := pki.New("trommel-chaos: webhooks")
	if err != nil {
		return nil, err
	}
	pair, err := ca.Issue(x509.Certificate{
		DNSNames: names, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, NotAfter: now.Add(validity),
	})
	if err != nil {
		return nil, err
	}
	bundle := bytes.Clone(ca.PEM())
	if last, _ := pem.Decode(before); last != nil {
		if c, err := x509.ParseCertificate(last.Bytes); err == nil && c.IsCA {
			bundle = append(bundle, pem.EncodeToMemory(last)...)
		}
	}
	return map[string][]byte{authority: bundle, certificate: pair.Cert, privateKey: pair.Key}, nil
}
