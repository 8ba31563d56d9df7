package run

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/passthrough"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// access gives the controllers the kubeconfigs of other clusters. Each leads through a proxy of its own, so that a plan
// can disturb the connection. It implements actions.Connections.
type access struct {
	dir     string // of the kubeconfigs
	proxies map[connection]*passthrough.Proxy

	mu        sync.Mutex
	disturbed map[connection]bool
}

// connection is that between a controller and another cluster than its own.
type connection struct{ controller, cluster string }

// file is the path of the connection's kubeconfig. No name of a cluster has a dot.
func (a *access) file(c connection) string { return filepath.Join(a.dir, c.controller+"."+c.cluster) }

// newAccess writes the kubeconfigs of the suite's controllers; the teardown deletes them.
func newAccess(at *site, suite *plan.Suite, later later) (*access, error) {
	a := &access{proxies: map[connection]*passthrough.Proxy{}, disturbed: map[connection]bool{}}
	if at.members == nil {
		return a, nil
	}
	var err error
	// Not below /tmp, which in a pod is another one.
	if a.dir, err = os.MkdirTemp(at.cluster.(*cluster.Group).Dir(), "kubeconfigs-"); err != nil {
		return nil, fmt.Errorf("write kubeconfigs for the controllers: %w", err)
	}
	later(func(context.Context) error {
		for _, proxy := range a.proxies {
			proxy.Close()
		}
		return os.RemoveAll(a.dir)
	})
	for _, c := range suite.Controllers {
		for name := range c.Kubeconfigs {
			if err := a.connect(at, connection{c.Name, name}); err != nil {
				return nil, err
			}
		}
	}
	return a, nil
}

// connect starts the proxy of a connection and writes its kubeconfig.
func (a *access) connect(at *site, c connection) error {
	config, err := at.cluster.RESTConfig(plan.ServerIn(c.cluster, "apiserver-1"))
	if err != nil {
		return err
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return fmt.Errorf("address of API server of %s: %w", c.cluster, err)
	}
	proxy, err := passthrough.New(at.clock, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", server.Host)
	})
	if err != nil {
		return fmt.Errorf("connect %q to %s: %w", c.controller, c.cluster, err)
	}
	a.proxies[c] = proxy
	config = rest.CopyConfig(config)
	config.Host = (&url.URL{Scheme: server.Scheme, Host: proxy.Addr()}).String()
	return cluster.WriteKubeconfig(a.file(c), c.cluster, config)
}

// addresses returns the addresses of the proxies with the clusters to which they lead.
func (a *access) addresses() map[string]string {
	all := map[string]string{}
	for c, proxy := range a.proxies {
		all[proxy.Addr()] = c.cluster
	}
	return all
}

// Disturb makes all data of a connection late, or holds it.
func (a *access) Disturb(_ context.Context, controller, cluster string, delay time.Duration) error {
	c := connection{controller, cluster}
	proxy := a.proxies[c]
	if proxy == nil {
		return fmt.Errorf("the controller %q has no kubeconfig of the cluster %s", controller, cluster)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.disturbed[c] = true
	proxy.Shape(func() passthrough.Shape { return passthrough.Shape{Delay: delay, Hang: delay == 0} })
	return nil
}

// Restore lets all data of a connection pass.
func (a *access) Restore(_ context.Context, controller, cluster string) (disturbed bool, err error) {
	c := connection{controller, cluster}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.disturbed[c] {
		return false, nil
	}
	delete(a.disturbed, c)
	a.proxies[c].Shape(nil)
	return true, nil
}

// give returns the controller with the variables of its kubeconfigs, and the Secrets that hold them.
func (a *access) give(c plan.Controller) (plan.Controller, []*unstructured.Unstructured, error) {
	if len(c.Kubeconfigs) == 0 {
		return c, nil, nil
	}
	env := map[string]string{}
	c.Args = slices.Clone(c.Args)
	var replace []string
	var secrets []*unstructured.Unstructured
	for name, k := range c.Kubeconfigs {
		variable, file := plan.KubeconfigVariable(name), a.file(connection{c.Name, name})
		env[variable] = file
		replace = append(replace, "$("+variable+")", file)
		if k.Secret == "" {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return c, nil, err
		}
		namespace, secret, _ := strings.Cut(k.Secret, "/")
		labels := map[string]any{}
		for key, value := range k.Labels {
			labels[key] = value
		}
		u, err := objects.FromMap(map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
			"metadata":   map[string]any{"namespace": namespace, "name": secret, "labels": labels},
			"stringData": map[string]any{k.Key: string(data)},
		})
		if err != nil {
			return c, nil, err
		}
		secrets = append(secrets, u)
	}
	// Other variables may refer to these, whatever their order.
	r := strings.NewReplacer(replace...)
	for variable, value := range c.Env {
		env[variable] = r.Replace(value)
	}
	for i := range c.Args {
		c.Args[i] = r.Replace(c.Args[i])
	}
	c.Env = env
	return c, secrets, nil
}
