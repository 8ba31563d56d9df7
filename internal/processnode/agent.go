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

	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
)

// agent answers processes with hooks in their standard library what the cluster's names and addresses are on this
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
	a := &agent{node: n, listener: listener}
	n.tasks.Go(a.serve)
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
		answer, err := n.names.resolve(ctx, p, words[2])
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
func (n names) resolve(ctx context.Context, p *pod, name string) (string, error) {
	name = strings.ToLower(name)
	absolute := strings.HasSuffix(name, ".")
	name = strings.TrimSuffix(name, ".")
	if !absolute && name == p.hostname() {
		return p.address.IP.String(), nil
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
