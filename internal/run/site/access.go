package site

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
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/passthrough"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/plan"
)

// Access gives the controllers the kubeconfigs of other clusters. Each leads through an HTTP proxy of its own, so that
// a plan can disturb the connection. It implements actions.Connections.
type Access struct {
	at    *Site
	dir   string // of the kubeconfigs
	links map[Connection]*link
}

// link is a controller's way to another cluster.
type link struct {
	proxy *passthrough.Proxy

	mu        sync.Mutex
	server    string // host:port
	disturbed bool
}

// Connection is that between a controller and another cluster than its own.
type Connection struct{ Controller, Cluster string }

// file is the path of the connection's kubeconfig. No name of a cluster has a dot.
func (a *Access) file(c Connection) string { return filepath.Join(a.dir, c.Controller+"."+c.Cluster) }

// NewAccess writes the kubeconfigs of the suite's controllers; the teardown deletes them.
func NewAccess(at *Site, suite *plan.Suite, later func(undo func(context.Context) error)) (*Access, error) {
	a := &Access{at: at, links: map[Connection]*link{}}
	if at.Members == nil {
		return a, nil
	}
	var err error
	// Not below /tmp, which in a pod is another one.
	if a.dir, err = os.MkdirTemp(at.Cluster.(*cluster.Group).Dir(), "kubeconfigs-"); err != nil {
		return nil, fmt.Errorf("write kubeconfigs for the controllers: %w", err)
	}
	later(func(context.Context) error {
		for _, l := range a.links {
			l.proxy.Close()
		}
		return os.RemoveAll(a.dir)
	})
	for _, c := range suite.Controllers {
		for name := range c.Kubeconfigs {
			if err := a.connect(Connection{c.Name, name}); err != nil {
				return nil, err
			}
		}
	}
	return a, nil
}

// address returns the URL of an API server.
func (s *Site) address(apiServer string) (*url.URL, error) {
	config, err := s.Cluster.RESTConfig(apiServer)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("address of API server %s: %w", apiServer, err)
	}
	return u, nil
}

// connect starts the proxy of a connection and writes its kubeconfig.
func (a *Access) connect(c Connection) error {
	server := plan.ServerIn(c.Cluster, "apiserver-1")
	config, err := a.at.Cluster.RESTConfig(server)
	if err != nil {
		return err
	}
	u, err := a.at.address(server)
	if err != nil {
		return err
	}
	l := &link{server: u.Host}
	if l.proxy, err = passthrough.NewTunnel(a.at.Clock, l.dial); err != nil {
		return fmt.Errorf("connect %q to %s: %w", c.Controller, c.Cluster, err)
	}
	a.links[c] = l
	if config.ServerName == "" {
		config.ServerName = u.Hostname()
	}
	u.Host = remoteHost(c.Cluster)
	config.Host = u.String()
	kubeconfig := cluster.Kubeconfig(c.Cluster, config)
	kubeconfig.Clusters[c.Cluster].ProxyURL = "http://" + l.proxy.Addr()
	return clientcmd.WriteToFile(*kubeconfig, a.file(c))
}

// remoteHost is the address, host:port, by which controllers know another cluster. It is the same in each run, because
// some controllers derive names of objects from it, as the agents of Open Cluster Management from that of their hub. It
// cannot be looked up: the way to it is the kubeconfig's HTTP proxy.
func remoteHost(cluster string) string { return cluster + ".trommel.internal:6443" }

func (l *link) dial(ctx context.Context) (net.Conn, error) {
	l.mu.Lock()
	server := l.server
	l.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, "tcp", server)
}

// Addresses returns the addresses at which the controllers reach other clusters, with the clusters' names.
func (a *Access) Addresses() map[string]string {
	all := map[string]string{}
	for c := range a.links {
		all[remoteHost(c.Cluster)] = c.Cluster
	}
	return all
}

func (a *Access) link(c Connection) (*link, error) {
	if l := a.links[c]; l != nil {
		return l, nil
	}
	return nil, fmt.Errorf("the controller %q has no kubeconfig of the cluster %s", c.Controller, c.Cluster)
}

// Route directs new connections to another API server of the cluster.
func (a *Access) Route(c Connection, apiServer string) error {
	l, err := a.link(c)
	if err != nil {
		return err
	}
	u, err := a.at.address(apiServer)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server = u.Host
	return nil
}

// Cut closes the open connections.
func (a *Access) Cut(c Connection) error {
	l, err := a.link(c)
	if err != nil {
		return err
	}
	l.proxy.Cut()
	return nil
}

// Disturb makes all data of a connection late, or holds it.
func (a *Access) Disturb(_ context.Context, controller, cluster string, delay time.Duration) error {
	l, err := a.link(Connection{controller, cluster})
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.disturbed = true
	l.mu.Unlock()
	l.proxy.Shape(func() passthrough.Shape { return passthrough.Shape{Delay: delay, Hang: delay == 0} })
	return nil
}

// Restore lets all data of a connection pass.
func (a *Access) Restore(_ context.Context, controller, cluster string) (disturbed bool, err error) {
	l, err := a.link(Connection{controller, cluster})
	if err != nil {
		return false, err
	}
	l.mu.Lock()
	disturbed, l.disturbed = l.disturbed, false
	l.mu.Unlock()
	if disturbed {
		l.proxy.Shape(nil)
	}
	return disturbed, nil
}

// Give returns the controller with the variables of its kubeconfigs, and the Secrets that hold them.
func (a *Access) Give(c plan.Controller) (plan.Controller, []*unstructured.Unstructured, error) {
	if len(c.Kubeconfigs) == 0 {
		return c, nil, nil
	}
	env := map[string]string{}
	c.Args = slices.Clone(c.Args)
	var replace []string
	var secrets []*unstructured.Unstructured
	for name, k := range c.Kubeconfigs {
		variable, file := plan.KubeconfigVariable(name), a.file(Connection{c.Name, name})
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
