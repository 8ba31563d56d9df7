package embedded

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync/atomic"

	"k8s.io/client-go/kubernetes"

	"github.com/trommel-dev/trommel/internal/cluster/egress"
	"github.com/trommel-dev/trommel/internal/cluster/kubelet"
	"github.com/trommel-dev/trommel/internal/processnode"
)

// network is the API servers' access to the cluster's network, and the simulated kubelets.
type network struct {
	*egress.Network
	kubelet *kubelet.Kubelet
	proxies []*egress.Proxy

	processes atomic.Pointer[processnode.Node] // nil until it has started
}

const (
	egressConfigFile = "egress.yaml"
	egressSocket     = "egress.sock"
)

// newNetwork writes the egress selector configuration and serves its sockets. API servers use the socket "cluster" for
// Services, pods and nodes, and the other one for webhooks given by URL.
func (c *Cluster) newNetwork() (*network, error) {
	n := &network{}
	client, err := kubernetes.NewForConfig(c.access.restConfig(c.infra.Addr(), c.apis[0].admin))
	if err != nil {
		return nil, err
	}
	n.Network = egress.New(egress.Config{
		Client: client,
		Pods: func() []processnode.PodInfo {
			if p := n.processes.Load(); p != nil {
				return p.Pods()
			}
			return nil
		},
		Ingress: func(address string) (string, error) {
			if p := n.processes.Load(); p != nil {
				return p.Ingress(address)
			}
			return address, nil
		},
		StandIn:   c.config.Pods.StandIn,
		APIServer: serviceIP, DialAPIServer: c.dialAnyAPIServer,
		DialKubelet: func(ctx context.Context, _ string) (net.Conn, error) { return n.kubelet.Dial(ctx) },
	})
	if err := n.serve(c); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *network) serve(c *Cluster) error {
	pair, err := issueServer(c.access.ca)
	if err != nil {
		return err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return err
	}
	n.kubelet, err = kubelet.Listen(c.dir.File("kubelet.sock"), kubelet.Config{
		TLS: certificate, Answers: c.config.Pods.Answers, Logger: c.config.Logger,
		Process: func(namespace, pod, container string) (io.ReadCloser, bool, error) {
			if p := n.processes.Load(); p != nil {
				return p.Log(namespace, pod, container)
			}
			return nil, false, nil
		},
	})
	if err != nil {
		return err
	}
	config := "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n"
	for _, s := range []struct {
		name, socket string
		dial         func(context.Context, string) (net.Conn, error)
	}{
		{"cluster", egressSocket, n.Dial},
		{"controlplane", "egress-url.sock", egress.OrLoopback(n.Dial)},
	} {
		socket := c.dir.File(s.socket)
		p, err := egress.Listen(c.clock, socket, s.dial, c.config.Logger)
		if err != nil {
			return err
		}
		n.proxies = append(n.proxies, p)
		config += fmt.Sprintf("- name: %s\n  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: "+
			"%q}}}\n", s.name, socket)
	}
	return c.dir.Write(egressConfigFile, []byte(config))
}

func (n *network) close() {
	for _, p := range n.proxies {
		p.Close()
	}
	if n.kubelet != nil {
		n.kubelet.Close()
	}
}
