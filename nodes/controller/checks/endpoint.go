package checks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

var nodeIP = regexp.MustCompile(`\{\{\s*\.NodeIP\s*\}\}`)

// someNode is an address that no machine has (RFC 5737), instead of a node's that is not known yet.
const someNode = "192.0.2.1"

// Endpoint fills in a node's address, which may be empty only if the template does not use it.
func Endpoint(template, address string) (string, error) {
	u, err := endpoint(template, address)
	if err != nil {
		return "", err
	}
	return u.String(), nil
}

func endpoint(template, address string) (*url.URL, error) {
	if strings.Contains(address, ":") {
		address = "[" + address + "]" // IPv6
	}
	if address == "" && nodeIP.MatchString(template) {
		return nil, fmt.Errorf("endpoint %q: the node has no internal address", template)
	}
	text := nodeIP.ReplaceAllLiteralString(template, address)
	if strings.Contains(text, "{{") {
		return nil, fmt.Errorf("endpoint %q: {{ .NodeIP }} is the only template", template)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("endpoint %q: %w", template, errors.Unwrap(err))
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, fmt.Errorf("endpoint %q: it must be http://HOST or https://HOST", template)
	case u.User != nil:
		return nil, fmt.Errorf("endpoint %q: it must not have a user name", template)
	case slices.Contains(strings.Split(u.Path, "/"), ".."):
		return nil, fmt.Errorf(`endpoint %q: its path must not have ".."`, template)
	}
	return u, nil
}

// Any in a list of allowed endpoints allows all.
const Any = "*"

// ParseAllowed says what is wrong with a list of allowed endpoints.
func ParseAllowed(allowed []string) error {
	for _, text := range allowed {
		if text == Any {
			continue
		}
		if u, err := endpoint(text, someNode); err != nil {
			return err
		} else if u.RawQuery != "" || u.Fragment != "" {
			return fmt.Errorf("endpoint %q: it must be a scheme, a host and perhaps a path", text)
		}
	}
	return nil
}

// allows reports whether a list of allowed endpoints has the URL, or one above it: of the same scheme, host and port,
// whose path is the beginning of the URL's, up to a slash.
func allows(allowed []string, u *url.URL) bool {
	return slices.ContainsFunc(allowed, func(text string) bool {
		if text == Any {
			return true
		}
		a, err := endpoint(text, someNode)
		if err != nil || a.Scheme != u.Scheme || !strings.EqualFold(a.Hostname(), u.Hostname()) || port(a) != port(u) {
			return false
		}
		above := strings.TrimSuffix(a.Path, "/")
		return u.Path == above || strings.HasPrefix(u.Path, above+"/")
	})
}

func port(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// ofNode reports whether the host of an endpoint is the node's address.
func ofNode(template string) bool {
	u, err := endpoint(template, someNode)
	return err == nil && nodeIP.MatchString(template) && u.Hostname() == someNode
}

// machine reports whether a node or a pod can have the address: none that is the controllers' own machine, or, as those
// of metadata services, only means something on a link.
func machine(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsGlobalUnicast() && a.Zone() == ""
}

// possible says why an endpoint is refused whatever the nodes' and pods' addresses are.
func (c Client) possible(template string) error {
	u, err := endpoint(template, someNode)
	if err != nil {
		return err
	}
	if allows(c.Allowed, u) || ofNode(template) || machine(u.Hostname()) {
		return nil
	}
	return refused(template)
}

func refused(template string) error {
	return fmt.Errorf("endpoint %q: it is neither the node's address nor a pod's, and not allowed by the controllers' "+
		"--check-endpoints", template)
}

// allowed returns the URL of a check at a node. The controllers ask it from inside of the cluster, with what they can
// reach there: by default only the node itself and pods.
func (c Client) allowed(ctx context.Context, template, address string) (string, error) {
	u, err := endpoint(template, address)
	if err != nil {
		return "", err
	}
	if allows(c.Allowed, u) {
		return u.String(), nil
	}
	if !machine(u.Hostname()) {
		return "", refused(template)
	}
	if ofNode(template) {
		return u.String(), nil
	}
	if c.IsPod == nil {
		return "", refused(template)
	}
	is, err := c.IsPod(ctx, u.Hostname())
	if err == nil && !is {
		err = refused(template)
	}
	return u.String(), err
}
