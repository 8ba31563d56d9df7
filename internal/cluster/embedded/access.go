package embedded

import (
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/clock/kube"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/pki"
	"github.com/trommel-dev/trommel/internal/privatedir"
)

// access is the cluster's certificates, and the files with which its components and users connect to API servers.
type access struct {
	cluster string // its name
	dir     *privatedir.Dir
	ca      *pki.Authority // set by create
}

// create creates the keys and writes those of the API servers.
func (a *access) create() (err error) {
	if a.ca, err = pki.New("trommel " + a.cluster); err != nil {
		return err
	}
	return a.writeServerKeys()
}

func (a *access) writeServerKeys() error {
	server, err := issueServer(a.ca)
	if err != nil {
		return err
	}
	private, public, err := newSigningKey()
	if err != nil {
		return err
	}
	// Its key is not kept, so that no proxy can act for other users.
	proxies, err := pki.New("trommel front proxy")
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"ca.crt":             a.ca.PEM(),
		"front-proxy-ca.crt": proxies.PEM(),
		"server.crt":         server.Cert,
		"server.key":         server.Key,
		"sa.key":             private,
		"sa.pub":             public,
	} {
		if err := a.dir.Write(name, content); err != nil {
			return err
		}
	}
	return nil
}

// kubeconfigFile is the path of a user's kubeconfig.
func (a *access) kubeconfigFile(user string) string { return a.dir.File(user + ".kubeconfig") }

// writeKubeconfigs writes a kubeconfig for each infrastructure component, which connects to infra, and one for
// cluster-admin access through each API server.
func (a *access) writeKubeconfigs(infra string, apis []*apiServer) error {
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "kwok"} {
		user, err := issueClient(a.ca, "system:"+name, "system:masters")
		if err != nil {
			return err
		}
		if err := a.writeKubeconfig(a.kubeconfigFile(name), infra, user); err != nil {
			return err
		}
	}
	for _, server := range apis {
		server.kubeconfig = a.kubeconfigFile(server.name)
		if err := a.writeKubeconfig(server.kubeconfig, server.port.addr(), server.admin); err != nil {
			return err
		}
	}
	return nil
}

func (a *access) writeKubeconfig(path, addr string, user pki.Pair) error {
	return cluster.WriteKubeconfig(path, "trommel-"+a.cluster, a.restConfig(addr, user))
}

// restConfig is for use within this process: it does not limit the rate of requests, and repeats them by the clock of
// their context.
func (a *access) restConfig(addr string, user pki.Pair) *rest.Config {
	config := &rest.Config{
		Host:            "https://" + addr,
		TLSClientConfig: rest.TLSClientConfig{CAData: a.ca.PEM(), CertData: user.Cert, KeyData: user.Key},
		QPS:             -1,
		UserAgent:       "trommel",
	}
	config.Wrap(kube.Retries)
	return config
}
