package processnode

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
)

// agent tells processes with hooks in their standard library what the cluster's names and addresses are on this
// machine. A process connects, sends one line and receives one: "UID resolve NAME" or "UID dial NETWORK HOST:PORT",
// with the UID of its pod.
type agent struct {
	node     *Node
	listener net.Listener
}

// agentTimeout limits the time for a reply.
const agentTimeout = 10 * time.Second

func (n *Node) agentSocket() string { return filepath.Join(n.config.Dir, "agent.sock") }

func (n *Node) startAgent() error {
	_ = os.Remove(n.agentSocket())
	listener, err := net.Listen("unix", n.agentSocket())
	if err != nil {
		return fmt.Errorf("listen for pods: %w", err)
	}
	n.agent = &agent{node: n, listener: listener}
	n.tasks.Go(n.agent.serve)
	return nil
}

func (a *agent) serve() {
	stop := context.AfterFunc(a.node.ctx, func() { _ = a.listener.Close() })
	defer stop()
	for {
		conn, err := a.listener.Accept()
		if err != nil {
			return // closed
		}
		a.node.tasks.Go(func() {
			defer conn.Close()
			ctx, cancel := clock.WithTimeout(a.node.ctx, agentTimeout)
			defer cancel()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			line, err := bufio.NewReader(conn).ReadString('\n')
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte(a.answer(ctx, strings.Fields(line)) + "\n"))
		})
	}
}

func (a *agent) answer(ctx context.Context, words []string) string {
	if len(words) < 3 {
		return "host"
	}
	n := a.node
	n.mu.Lock()
	p := n.pods[types.UID(words[0])]
	n.mu.Unlock()
	if p == nil {
		return "host"
	}
	switch {
	case words[1] == "resolve":
		if answer, ok := p.faults.Resolve(ctx, words[2]); ok {
			return answer
		}
		answer, err := n.resolve(ctx, p, words[2])
		if err != nil {
			n.log.Warn("resolve a name for a pod", "namespace", p.namespace, "pod", p.name, "name", words[2],
				"error", err)
			return "host"
		}
		return answer
	case words[1] == "dial" && len(words) == 4:
		to, err := n.route(ctx, p, words[3])
		if err == nil {
			to, err = p.faults.Dial(words[2], words[3], to)
		}
		switch {
		case err != nil:
			n.log.Info("refuse a pod's connection", "namespace", p.namespace, "pod", p.name, "to", words[3],
				"reason", err)
			return "refuse " + strings.Join(strings.Fields(err.Error()), " ")
		case to == words[3]:
			return "direct"
		}
		host, port, err := net.SplitHostPort(to)
		if err != nil {
			return "direct"
		}
		return "to " + host + " " + port
	}
	return "host"
}

// resolve returns what a name means inside a pod: addresses, "none" if the cluster has no such name, or "host" and the
// name that must be looked up on the machine.
func (n *Node) resolve(ctx context.Context, p *pod, name string) (string, error) {
	name = strings.ToLower(name)
	absolute := strings.HasSuffix(name, ".")
	name = strings.TrimSuffix(name, ".")
	if !absolute && name == p.hostname() {
		return p.address.ip.String(), nil
	}
	inCluster, ours := strings.CutSuffix(name, cluster.Domain)
	if ours {
		inCluster, ours = strings.CutSuffix(inCluster, ".svc")
		if !ours {
			return "none", nil
		}
	} else if inCluster, ours = strings.CutSuffix(name, ".svc"); !ours {
		inCluster = name
	}
	parts := strings.Split(inCluster, ".")
	if ours {
		// These names exist only in the cluster.
		answer, err := n.lookup(ctx, parts)
		if answer == "" {
			answer = "none"
		}
		return answer, err
	}
	if absolute || len(parts) > 3 {
		return "host", nil
	}
	// The pod's search domains, in their order.
	for _, candidate := range [][]string{append(slices.Clone(parts), p.namespace), parts} {
		answer, err := n.lookup(ctx, candidate)
		if err != nil || answer != "" {
			return answer, err
		}
	}
	return "host", nil
}

// lookup finds service, namespace or host, service, namespace. It returns an empty answer if there is no such name.
func (n *Node) lookup(ctx context.Context, parts []string) (string, error) {
	host := ""
	if len(parts) == 3 {
		host, parts = parts[0], parts[1:]
	}
	if len(parts) != 2 || slices.Contains(parts, "") || strings.ContainsAny(strings.Join(parts, ""), "_/*") {
		return "", nil
	}
	service, err := n.client.CoreV1().Services(parts[1]).Get(ctx, parts[0], metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", err
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		if host != "" {
			return "", nil
		}
		return "host " + service.Spec.ExternalName, nil
	case service.Spec.ClusterIP != corev1.ClusterIPNone:
		if host != "" {
			return "", nil
		}
		return service.Spec.ClusterIP, nil
	}
	ips, err := n.headless(ctx, service, host)
	return strings.Join(ips, " "), err
}

// headless lists the addresses of the pods of a headless Service, or only that of the pod with the given host name.
func (n *Node) headless(ctx context.Context, service *corev1.Service, host string) ([]string, error) {
	var ips []string
	if len(service.Spec.Selector) == 0 {
		slices, err := n.client.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx,
			metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name})
		if err != nil {
			return nil, err
		}
		for _, s := range slices.Items {
			for _, e := range s.Endpoints {
				if e.Conditions.Ready != nil && !*e.Conditions.Ready ||
					host != "" && (e.Hostname == nil || *e.Hostname != host) {
					continue
				}
				ips = append(ips, e.Addresses...)
			}
		}
		return ips, nil
	}
	pods, err := n.client.CoreV1().Pods(service.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: labels.SelectorFromSet(service.Spec.Selector).String()})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		switch {
		case pod.Status.PodIP == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		case !service.Spec.PublishNotReadyAddresses &&
			(pod.DeletionTimestamp != nil || !conditionTrue(pod, corev1.PodReady)):
		case host != "" && (pod.Spec.Hostname != host || pod.Spec.Subdomain != service.Name):
		default:
			ips = append(ips, pod.Status.PodIP)
		}
	}
	slices.Sort(ips)
	return ips, nil
}

// route returns what an address in a pod is on this machine: the same address, if it is not one of the cluster. An
// error says why nothing listens there.
func (n *Node) route(ctx context.Context, p *pod, to string) (string, error) {
	at, err := netip.ParseAddrPort(to)
	if err != nil {
		return to, nil
	}
	ip := at.Addr().Unmap()
	if n.config.Route == nil || !n.config.ServiceCIDR.Contains(ip) && !n.config.PodCIDR.Contains(ip) {
		return to, nil
	}
	address, apiServer, err := n.config.Route(ctx, netip.AddrPortFrom(ip, at.Port()).String())
	if apiServer {
		return p.faults.APIServer(), nil
	}
	return address, err
}

// hostname is the pod's host name.
func (p *pod) hostname() string {
	if p.spec.Hostname != "" {
		return p.spec.Hostname
	}
	if len(p.name) > 63 {
		return strings.TrimRight(p.name[:63], "-.")
	}
	return p.name
}
