package clustertest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Account is a service account with which controllers under test work: with a token, not impersonated.
type Account struct{ config *rest.Config }

// NewAccount requests a token for a service account. It waits until the API server grants the account the rights that
// are given, since it takes roles over some time after they were written.
func NewAccount(
	ctx context.Context, admin *rest.Config, namespace, name string, rights ...authorizationv1.ResourceAttributes,
) (*Account, error) {
	as := func(config *rest.Config, do func(kubernetes.Interface) error) error {
		c, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		return do(c)
	}
	a := &Account{config: rest.AnonymousClientConfig(admin)}
	if err := as(admin, func(c kubernetes.Interface) error {
		token, err := c.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{},
			metav1.CreateOptions{})
		if err == nil {
			a.config.BearerToken = token.Status.Token
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("service account %s/%s: %w", namespace, name, err)
	}
	return a, as(a.config, func(c kubernetes.Interface) error {
		for _, right := range rights {
			for granted := false; !granted; {
				review, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
					&authorizationv1.SelfSubjectAccessReview{
						Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right},
					}, metav1.CreateOptions{})
				if err != nil {
					return fmt.Errorf("service account %s/%s: %s %s: %w", namespace, name, right.Verb, right.Resource,
						err)
				}
				granted = review.Status.Allowed
			}
		}
		return nil
	})
}

// Config returns a configuration of a client that the test may change. At its end the test fails if the API server has
// forbidden such a client anything.
func (a *Account) Config(t testing.TB) *rest.Config {
	t.Helper()
	config, forbidden := a.Recorded()
	t.Cleanup(func() {
		for _, f := range forbidden.List() {
			t.Errorf("the manifests do not allow %s", f)
		}
	})
	return config
}

// Recorded returns a configuration of a client that the caller may change, and what the API server forbids such a
// client.
func (a *Account) Recorded() (*rest.Config, *Forbidden) {
	config, forbidden := rest.CopyConfig(a.config), &Forbidden{}
	config.Wrap(func(base http.RoundTripper) http.RoundTripper { return &recorder{base, forbidden} })
	return config, forbidden
}

// Forbidden are the requests that an API server has forbidden.
type Forbidden struct {
	mu  sync.Mutex
	all []string
}

// List returns each request with the API server's answer.
func (f *Forbidden) List() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

type recorder struct {
	base      http.RoundTripper
	forbidden *Forbidden
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	resp, err := r.base.RoundTrip(request)
	if err != nil || resp.StatusCode != http.StatusForbidden {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if !r.stands(request) {
		return resp, nil
	}
	r.forbidden.mu.Lock()
	defer r.forbidden.mu.Unlock()
	r.forbidden.all = append(r.forbidden.all, fmt.Sprintf("%s %s: %s", request.Method, request.URL.Path, body))
	return resp, err
}

// stands reports whether the API server, asked again, still forbids a request. A server that starts listens before it
// has read the roles, and until then forbids what they allow.
func (r *recorder) stands(request *http.Request) bool {
	status := func(path string) int {
		again := request.Clone(request.Context())
		again.Body, again.URL.Path = nil, path
		if path != request.URL.Path {
			again.Method, again.URL.RawQuery = http.MethodGet, ""
		}
		resp, err := r.base.RoundTrip(again)
		if err != nil {
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if status("/readyz") != http.StatusOK {
		return false
	}
	// It may have become ready between the two answers. Requests that write are not repeated.
	return request.Method != http.MethodGet || status(request.URL.Path) == http.StatusForbidden
}
