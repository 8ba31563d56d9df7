// Package checks makes the HTTP requests of health checks and of pre-termination checks. An endpoint belongs to whoever
// wrote the request, so only nodes and pods are asked unless more is allowed, and an answer is believed in little:
// redirections are not followed, of the body only the first 64
// KiB are read, each request has a limit of time, proxies are not used, and of what was answered a message says no more
// than the status code.
package checks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

const maxBody = 64 << 10

// Validate returns all that is wrong with the checks of a request.
func (c Client) Validate(spec *nodes.CycleNodeRequestSpec) error {
	var errs []error
	health := func(at string, check *nodes.HealthCheck) {
		err := c.possible(check.Endpoint)
		_, err2 := regexp.Compile(check.RegexMatch)
		_, err3 := tlsConfig(check.TLSConfig, c.Getenv)
		for _, err := range []error{err, err2, err3} {
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", at, err))
			}
		}
	}
	for i := range spec.HealthChecks {
		health(fmt.Sprintf("healthChecks[%d]", i), &spec.HealthChecks[i])
	}
	for i := range spec.PreTerminationChecks {
		check, at := &spec.PreTerminationChecks[i], fmt.Sprintf("preTerminationChecks[%d]", i)
		err := c.possible(check.Endpoint)
		_, err2 := tlsConfig(check.TLSConfig, c.Getenv)
		for _, err := range []error{err, err2} {
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", at, err))
			}
		}
		health(at+".healthCheck", &check.HealthCheck)
	}
	return errors.Join(errs...)
}

func tlsConfig(c nodes.TLSConfig, getenv func(string) string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.RootCA != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(getenv(c.RootCA))) {
			return nil, fmt.Errorf("environment variable %s has no certificate", c.RootCA)
		}
	}
	if c.Certificate != "" {
		pair, err := tls.X509KeyPair([]byte(getenv(c.Certificate)), []byte(getenv(c.Key)))
		if err != nil {
			return nil, fmt.Errorf("environment variables %s and %s: %w", c.Certificate, c.Key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Client makes requests.
type Client struct {
	Getenv  func(string) string
	Timeout time.Duration // of one request
	// Allowed are URLs that may be asked, with all below them, beside nodes and pods; Any: all.
	Allowed []string
	// IsPod reports whether a pod has an IP address; nil: none has.
	IsPod func(ctx context.Context, address string) (bool, error)
}

// Health makes a health check of the node with this address; nil: it has passed.
func (c Client) Health(ctx context.Context, check *nodes.HealthCheck, address string) error {
	match, err := regexp.Compile(check.RegexMatch)
	if err != nil {
		return err
	}
	return c.do(ctx, http.MethodGet, check.Endpoint, address, check.TLSConfig, check.ValidStatusCodes, match)
}

// Trigger makes the POST request of a pre-termination check; nil: it was answered as expected.
func (c Client) Trigger(ctx context.Context, check *nodes.PreTerminationCheck, address string) error {
	return c.do(ctx, http.MethodPost, check.Endpoint, address, check.TLSConfig, check.ValidStatusCodes, nil)
}

func (c Client) do(
	ctx context.Context, method, template, address string, config nodes.TLSConfig, codes []int32, match *regexp.Regexp,
) error {
	endpoint, err := c.allowed(ctx, template, address)
	if err != nil {
		return err
	}
	tlsClient, err := tlsConfig(config, c.Getenv)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, endpoint, nil)
	if err != nil {
		return err
	}
	client := &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: tlsClient, DisableKeepAlives: true, MaxResponseHeaderBytes: maxBody,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return fmt.Errorf("%s %s: read the body: %w", method, endpoint, err)
	}
	if len(codes) == 0 {
		codes = []int32{http.StatusOK}
	}
	if !slices.Contains(codes, int32(resp.StatusCode)) {
		return fmt.Errorf("%s %s: status %d, expected %s", method, endpoint, resp.StatusCode,
			strings.Trim(fmt.Sprint(codes), "[]"))
	}
	if match != nil && !match.Match(body) {
		return fmt.Errorf("%s %s: the body does not match %q", method, endpoint, match)
	}
	return nil
}
