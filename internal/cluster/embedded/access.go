package embedded

import (
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/clock/kube"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/pki"
)

func (c *Cluster) writeServerKeys() error {
	server, err := issueServer(c.ca)
	if err != nil {
		return err
	}
	private, public, err := newSigningKey()
	if err != nil {
		return err
	}
	// Nobody has its key: nothing may speak for others here.
	proxies, err := pki.New("trommel front proxy")
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"ca.crt":             c.ca.PEM(),
		"front-proxy-ca.crt": proxies.PEM(),
		"server.crt":         server.Cert,
		"server.key":         server.Key,
		"sa.key":             private,
		"sa.pub":             public,
	} {
		if err := c.dir.Write(name, content); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) kubeconfigFile(user string) string { return c.dir.File(user + ".kubeconfig") }

// writeKubeconfigs writes a kubeconfig for each infrastructure component, and one for cluster-admin access through each
// API server.
func (c *Cluster) writeKubeconfigs() error {
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "kwok"} {
		user, err := issueClient(c.ca, "system:"+name, "system:masters")
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

func (c *Cluster) writeKubeconfig(path, addr string, user pki.Pair) error {
	return cluster.WriteKubeconfig(path, "trommel-"+c.config.Name, c.restConfig(addr, user))
}

// restConfig is for use within this process: it does not limit the rate of requests, and repeats them by the clock of
// their context.
func (c *Cluster) restConfig(addr string, user pki.Pair) *rest.Config {
	config := &rest.Config{
		Host:            "https://" + addr,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.PEM(), CertData: user.Cert, KeyData: user.Key},
		QPS:             -1,
		UserAgent:       "trommel",
	}
	config.Wrap(kube.Retries)
	return config
}
