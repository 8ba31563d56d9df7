package embedded

import (
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/cluster"
)

func (c *Cluster) writeServerKeys() error {
	server, err := c.ca.server()
	if err != nil {
		return err
	}
	private, public, err := newSigningKey()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"ca.crt":     c.ca.certPEM,
		"server.crt": server.cert,
		"server.key": server.key,
		"sa.key":     private,
		"sa.pub":     public,
	} {
		if err := c.dir.write(name, content); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) kubeconfigFile(user string) string { return c.dir.file(user + ".kubeconfig") }

// writeKubeconfigs writes a kubeconfig for each infrastructure component, and one for cluster-admin access through each
// API server.
func (c *Cluster) writeKubeconfigs() error {
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "kwok"} {
		user, err := c.ca.client("system:"+name, "system:masters")
		if err != nil {
			return err
		}
		if err := c.writeKubeconfig(c.kubeconfigFile(name), c.infra.Addr(), user); err != nil {
			return err
		}
	}
	for _, a := range c.apis {
		a.kubeconfig = c.kubeconfigFile(a.name)
		if err := c.writeKubeconfig(a.kubeconfig, a.port.addr(), a.admin); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) writeKubeconfig(path, addr string, user keyPair) error {
	return cluster.WriteKubeconfig(path, "trommel-"+c.config.Name, c.restConfig(addr, user))
}

// restConfig is for use within this process: it does not limit the rate of requests.
func (c *Cluster) restConfig(addr string, user keyPair) *rest.Config {
	return &rest.Config{
		Host:            "https://" + addr,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.certPEM, CertData: user.cert, KeyData: user.key},
		QPS:             -1,
		UserAgent:       "trommel",
	}
}
