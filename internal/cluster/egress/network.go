// Package egress is the only path from the API servers into the cluster: to webhooks, aggregated APIs, pods and nodes.
//
// A [Network] maps a cluster's addresses and names to targets: a Service's to a ready pod on the process node, a pod's
// to that pod, a node's to its kubelet. It refuses everything else at once, so that no packet leaves the machine. A
// [Proxy] serves a network to API servers.
package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/processnode"
)

// Config configures a network. All fields without a default are required.
type Config struct {
	// Client reads Services, EndpointSlices, Nodes and simulated pods when they are needed.
	Client kubernetes.Interface
	// Pods lists the pods whose containers are local processes.
	Pods func() []processnode.PodInfo
	// StandIn names the Service whose processes answer for a simulated pod; ok is false if nothing does. Nil: nothing
	// answers for any pod.
	StandIn func(namespace, pod string) (service types.NamespacedName, ok bool)
	// Ingress returns where to connect for an address of such a pod, host:port; default: to that address.
	Ingress func(address string) (string, error)
	// APIServer is the ClusterIP of the Service kubernetes; connections to it use DialAPIServer.
	APIServer     string
	DialAPIServer func(ctx context.Context) (net.Conn, error)
	// DialKubelet connects to the kubelet of a node, which serves TLS.
	DialKubelet func(ctx context.Context, node string) (net.Conn, error)
}

// Network resolves a cluster's addresses. It asks the API server each time, because the result of a webhook call must
// not depend on a stale cache. It is safe for concurrent use.
type Network struct {
	config Config

	mu        sync.Mutex
	services  map[string]objectName // by ClusterIP: where to look first
	simulated map[string]objectName // by IP: the pods that were found last
	next      map[objectName]int    // round robin
}

// objectName is the name of a Service or a pod.
type objectName struct{ namespace, name string }

func (t objectName) String() string { return t.namespace + "/" + t.name }

// New returns a network.
func New(config Config) *Network {
	return &Network{
		config: config, services: map[string]objectName{}, simulated: map[string]objectName{},
		next: map[objectName]int{},
	}
}

// A RefusedError says why an address cannot be reached.
type RefusedError struct {
	Address string // as requested
	Reason  string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("connect to %s: %s", e.Address, e.Reason) }

// Dial connects to an address of the cluster, host:port, where the host is an IP or a name. It returns a *RefusedError
// if nothing can be reached at the address.
func (n *Network) Dial(ctx context.Context, address string) (net.Conn, error) {
	to, err := n.resolve(ctx, address)
	if err != nil {
		return nil, err
	}
	switch {
	case to.apiServer:
		return n.config.DialAPIServer(ctx)
	case to.node != "":
		return n.config.DialKubelet(ctx, to.node)
	}
	through := to.address
	if n.config.Ingress != nil {
		if through, err = n.config.Ingress(to.address); err != nil {
			return nil, fmt.Errorf("connect to %s (%s): %w", address, to.what, err)
		}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", through)
	if err != nil {
		return nil, fmt.Errorf("connect to %s (%s): %w", address, to.what, err)
	}
	return conn, nil
}

// Resolve returns the loopback address, host:port, that a program on this machine must dial for an address of the
// cluster. For the Service kubernetes it returns apiServer instead: any API server may be used. It returns a
// *RefusedError if nothing can be reached at the address, or only a kubelet.
func (n *Network) Resolve(ctx context.Context, address string) (to string, apiServer bool, err error) {
	found, err := n.resolve(ctx, address)
	if err != nil {
		return "", false, err
	}
	if found.node != "" {
		return "", false, &RefusedError{address, "a pod cannot connect to " + found.what}
	}
	return found.address, found.apiServer, nil
}

// target is the target of an address.
type target struct {
	what      string // description for messages
	address   string // host:port on loopback
	node      string // or: the kubelet of this node
	apiServer bool   // or: an API server
}

func (n *Network) resolve(ctx context.Context, address string) (target, error) {
	refuse := func(format string, args ...any) (target, error) {
		return target{}, &RefusedError{address, fmt.Sprintf(format, args...)}
	}
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return refuse("want host:port")
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return refuse("want host:port with a number")
	}
	to, err := n.find(ctx, host, int32(port))
	if refused, ok := err.(*RefusedError); ok { //nolint:errorlint // find returns it as it is
		refused.Address = address
	}
	return to, err
}

func refusal(format string, args ...any) error {
	return &RefusedError{Reason: fmt.Sprintf(format, args...)}
}

func (n *Network) find(ctx context.Context, host string, port int32) (target, error) {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return n.findName(ctx, strings.TrimSuffix(strings.ToLower(host), "."), port)
	}
	if host == n.config.APIServer {
		if port != 443 {
			return target{}, refusal("the Service default/kubernetes has no port %d (it has 443)", port)
		}
		return target{what: "an API server", apiServer: true}, nil
	}
	if pods := n.podsWithIP(ip); len(pods) > 0 {
		if port == defaultKubeletPort {
			// A pod may share its node's address.
			if to, err := n.findNode(ctx, host, port); err != nil || to.node != "" {
				return to, err
			}
		}
		return n.toPod(pods[0], port), nil
	}
	if p, err := n.knownSimulated(ctx, host); err != nil {
		return target{}, err
	} else if p != nil {
		return n.toSimulated(ctx, p, port)
	}
	service, err := n.serviceWithIP(ctx, host)
	if err != nil {
		return target{}, err
	}
	if service != nil {
		return n.toService(ctx, service, port)
	}
	return n.findRest(ctx, host, port)
}

// knownSimulated returns the simulated pod that had the address the last time, if it still has it; otherwise nil. Some
// operators connect to their pods again and again. Without this, each attempt takes lists of all Services, nodes and
// pods. A pod's address is neither a Service's nor a node's as long as the pod has it.
func (n *Network) knownSimulated(ctx context.Context, ip string) (*corev1.Pod, error) {
	n.mu.Lock()
	id, known := n.simulated[ip]
	n.mu.Unlock()
	if !known {
		return nil, nil
	}
	p, err := n.config.Client.CoreV1().Pods(id.namespace).Get(ctx, id.name, metav1.GetOptions{})
	if err == nil && p.Status.PodIP == ip {
		return p, nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("connect to %s: get pod %s: %w", ip, id, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.simulated, ip)
	return nil, nil
}

// toSimulated returns the process that stands in for a simulated pod, at the same port of its Service.
func (n *Network) toSimulated(ctx context.Context, p *corev1.Pod, port int32) (target, error) {
	id, ok := n.standIn(p)
	if !ok {
		return target{}, refusal("the pod %s/%s on %s is simulated: no process listens",
			p.Namespace, p.Name, p.Spec.NodeName)
	}
	s, err := n.config.Client.CoreV1().Services(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return target{}, refusal("the Service %s, which answers for the pod %s/%s, does not exist",
			id, p.Namespace, p.Name)
	}
	if err != nil {
		return target{}, fmt.Errorf("get service %s: %w", id, err)
	}
	to, err := n.toProcesses(ctx, s, port)
	to.what = fmt.Sprintf("%s for the pod %s/%s", to.what, p.Namespace, p.Name)
	return to, err
}

func (n *Network) standIn(p *corev1.Pod) (types.NamespacedName, bool) {
	if n.config.StandIn == nil {
		return types.NamespacedName{}, false
	}
	return n.config.StandIn(p.Namespace, p.Name)
}

// findRest finds nodes; for other addresses the error says why nothing can be reached.
func (n *Network) findRest(ctx context.Context, host string, port int32) (target, error) {
	if to, err := n.findNode(ctx, host, port); err != nil || to.node != "" {
		return to, err
	}
	pods, err := n.config.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "status.podIP=" + host})
	if err != nil {
		return target{}, fmt.Errorf("connect to %s: list pods: %w", host, err)
	}
	if len(pods.Items) > 0 {
		p := &pods.Items[0]
		n.mu.Lock()
		n.simulated[host] = objectName{p.Namespace, p.Name}
		n.mu.Unlock()
		return n.toSimulated(ctx, p, port)
	}
	return target{}, refusal("no Service, node or pod of this cluster has this address, and nothing leaves the machine")
}

// findNode finds the node that has the address; the target is empty if none has.
func (n *Network) findNode(ctx context.Context, host string, port int32) (target, error) {
	nodes, err := n.config.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return target{}, fmt.Errorf("connect to %s: list nodes: %w", host, err)
	}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		for _, a := range node.Status.Addresses {
			if a.Address == host {
				return toNode(node, port)
			}
		}
	}
	return target{}, nil
}

// findName finds the target of a name of the cluster's DNS: a Service's, with or without the cluster's domain, a pod's
// below its headless Service, or a node's.
func (n *Network) findName(ctx context.Context, name string, port int32) (target, error) {
	parts := strings.Split(strings.TrimSuffix(name, cluster.Domain), ".")
	if len(parts) < 3 || parts[len(parts)-1] != "svc" {
		node, err := n.config.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return toNode(node, port)
		}
		if !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) {
			return target{}, fmt.Errorf("connect to %s: get node: %w", name, err)
		}
		return target{}, refusal("no node of this cluster has this name, and nothing leaves the machine")
	}
	id := objectName{parts[len(parts)-2], parts[len(parts)-3]}
	service, err := n.config.Client.CoreV1().Services(id.namespace).Get(ctx, id.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return target{}, refusal("there is no Service %s", id)
	}
	if err != nil {
		return target{}, fmt.Errorf("connect to %s: get service: %w", name, err)
	}
	if service.Spec.ClusterIP == n.config.APIServer {
		return n.find(ctx, n.config.APIServer, port)
	}
	if len(parts) == 3 {
		return n.toService(ctx, service, port)
	}
	for _, p := range n.members(service) {
		if p.Hostname == strings.Join(parts[:len(parts)-3], ".") {
			return n.toPod(p, port), nil
		}
	}
	return target{}, refusal("the Service %s has no pod of this name among the process pods", id)
}

const defaultKubeletPort = 10250

// toNode returns a node's kubelet as the target.
func toNode(node *corev1.Node, port int32) (target, error) {
	kubelet := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	if kubelet == 0 {
		kubelet = defaultKubeletPort
	}
	if port != kubelet {
		return target{}, refusal("on the node %s only its kubelet listens (port %d)", node.Name, kubelet)
	}
	return target{what: "the kubelet of " + node.Name, node: node.Name}, nil
}

func (n *Network) toPod(p processnode.PodInfo, port int32) target {
	return target{
		what:    fmt.Sprintf("pod %s/%s", p.Namespace, p.Name),
		address: net.JoinHostPort(p.IP, strconv.Itoa(int(port))),
	}
}

func (n *Network) podsWithIP(ip netip.Addr) []processnode.PodInfo {
	return slices.DeleteFunc(n.config.Pods(), func(p processnode.PodInfo) bool { return p.IP != ip.String() })
}

// serviceWithIP returns the Service with the ClusterIP, or nil.
func (n *Network) serviceWithIP(ctx context.Context, ip string) (*corev1.Service, error) {
	services := n.config.Client.CoreV1().Services("")
	n.mu.Lock()
	id, known := n.services[ip]
	n.mu.Unlock()
	if known {
		// An API server reads a single object from etcd even if its watch cache is paused.
		s, err := n.config.Client.CoreV1().Services(id.namespace).Get(ctx, id.name, metav1.GetOptions{})
		if err == nil && slices.Contains(s.Spec.ClusterIPs, ip) {
			return s, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("get service %s: %w", id, err)
		}
	}
	list, err := services.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: list services: %w", ip, err)
	}
	var found *corev1.Service
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.services)
	for i := range list.Items {
		s := &list.Items[i]
		for _, own := range s.Spec.ClusterIPs {
			n.services[own] = objectName{s.Namespace, s.Name}
			if own == ip {
				found = s
			}
		}
	}
	return found, nil
}

// toService returns the Service's ready endpoints in turn. If none of them is a process, it returns what stands in for
// a simulated one.
func (n *Network) toService(ctx context.Context, s *corev1.Service, port int32) (target, error) {
	to, err := n.toProcesses(ctx, s, port)
	if refused := (*RefusedError)(nil); !errors.As(err, &refused) || n.config.StandIn == nil ||
		len(s.Spec.Selector) == 0 {
		return to, err
	}
	pods, listErr := n.config.Client.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.SelectorFromSet(s.Spec.Selector).String(),
	})
	if listErr != nil {
		return target{}, fmt.Errorf("list the pods of the Service %s/%s: %w", s.Namespace, s.Name, listErr)
	}
	var ready []*corev1.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		if _, ok := n.standIn(p); ok && p.DeletionTimestamp == nil &&
			(s.Spec.PublishNotReadyAddresses || isReady(p)) {
			ready = append(ready, p)
		}
	}
	if len(ready) == 0 {
		return to, err
	}
	p := ready[n.turn(objectName{s.Namespace, s.Name}, len(ready))]
	return n.toSimulated(ctx, p, targetPort(s, p, port))
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// targetPort returns the port of a pod that belongs to a port of its Service.
func targetPort(s *corev1.Service, p *corev1.Pod, port int32) int32 {
	for _, of := range s.Spec.Ports {
		if of.Port != port || s.Spec.ClusterIP == corev1.ClusterIPNone {
			continue
		}
		for _, c := range p.Spec.Containers {
			for _, own := range c.Ports {
				if own.Name == of.TargetPort.StrVal && own.Name != "" {
					return own.ContainerPort
				}
			}
		}
		return cmp.Or(of.TargetPort.IntVal, port)
	}
	return port
}

// toProcesses returns the ready processes of a Service in turn.
func (n *Network) toProcesses(ctx context.Context, s *corev1.Service, port int32) (target, error) {
	id := objectName{s.Namespace, s.Name}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		return target{}, refusal("the Service %s refers to the external name %s, and nothing leaves the machine", id,
			s.Spec.ExternalName)
	}
	headless := s.Spec.ClusterIP == corev1.ClusterIPNone
	var servicePort *corev1.ServicePort
	var ports []string
	for i, p := range s.Spec.Ports {
		if p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
			continue
		}
		if p.Port == port {
			servicePort = &s.Spec.Ports[i]
		}
		ports = append(ports, strconv.Itoa(int(p.Port)))
	}
	if servicePort == nil && !headless {
		return target{}, refusal("the Service %s has no port %d (it has %s)", id, port, strings.Join(ports, ", "))
	}
	if len(s.Spec.Selector) == 0 {
		return n.toEndpoints(ctx, id, servicePort, port)
	}
	var ready []processnode.PodInfo
	var reasons []string
	for _, p := range n.members(s) {
		switch {
		case p.Terminating:
			reasons = append(reasons, fmt.Sprintf("%s is terminating", p.Name))
		case !p.Ready && !s.Spec.PublishNotReadyAddresses:
			reasons = append(reasons, fmt.Sprintf("%s is not ready", p.Name))
		default:
			ready = append(ready, p)
		}
	}
	what := fmt.Sprintf("the Service %s", id)
	if len(ready) == 0 {
		if len(reasons) == 0 {
			return target{}, refusal("%s selects no pod that is a process (simulated pods do not listen)", what)
		}
		return target{}, refusal("%s has no ready pod (%s)", what, strings.Join(reasons, ", "))
	}
	p := ready[n.turn(id, len(ready))]
	if headless {
		return n.toPod(p, port), nil
	}
	number := servicePort.TargetPort.IntVal
	if name := servicePort.TargetPort.StrVal; name != "" {
		var ok bool
		if number, ok = p.Port(name); !ok {
			return target{}, refusal("%s targets a port named %q, which the pod %s/%s does not have",
				what, name, p.Namespace, p.Name)
		}
	}
	if number == 0 {
		number = servicePort.Port
	}
	to := n.toPod(p, number)
	to.what = what + ", " + to.what
	return to, nil
}

// toEndpoints returns an endpoint of a Service without a selector, from its EndpointSlices.
func (n *Network) toEndpoints(ctx context.Context, id objectName, servicePort *corev1.ServicePort,
	port int32) (target, error) {
	slices, err := n.config.Client.DiscoveryV1().EndpointSlices(id.namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{discoveryv1.LabelServiceName: id.name}.String(),
	})
	if err != nil {
		return target{}, fmt.Errorf("list the endpoints of the Service %s: %w", id, err)
	}
	var found []target
	var foreign []string
	for _, slice := range slices.Items {
		to := port
		for _, p := range slice.Ports {
			if servicePort != nil && p.Port != nil && (p.Name == nil && servicePort.Name == "" ||
				p.Name != nil && *p.Name == servicePort.Name) {
				to = *p.Port
			}
		}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			for _, a := range e.Addresses {
				ip, err := netip.ParseAddr(a)
				if err != nil {
					continue
				}
				if pods := n.podsWithIP(ip); len(pods) > 0 {
					found = append(found, n.toPod(pods[0], to))
				} else {
					foreign = append(foreign, a)
				}
			}
		}
	}
	switch {
	case len(found) > 0:
		t := found[n.turn(id, len(found))]
		t.what = fmt.Sprintf("the Service %s, %s", id, t.what)
		return t, nil
	case len(foreign) > 0:
		return target{}, refusal("the endpoints of the Service %s (%s) are not process pods, and nothing leaves "+
			"the machine",
			id, strings.Join(foreign, ", "))
	}
	return target{}, refusal("the Service %s has no selector and no ready endpoints", id)
}

// turn returns the index of the Service's next endpoint, so that they are used in turn.
func (n *Network) turn(id objectName, of int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next[id]++
	return n.next[id] % of
}

// members returns the process pods that the Service selects, ordered by name.
func (n *Network) members(s *corev1.Service) []processnode.PodInfo {
	if len(s.Spec.Selector) == 0 {
		return nil
	}
	selector := labels.SelectorFromSet(s.Spec.Selector)
	members := slices.DeleteFunc(n.config.Pods(), func(p processnode.PodInfo) bool {
		return p.Namespace != s.Namespace || !selector.Matches(labels.Set(p.Labels))
	})
	slices.SortFunc(members, func(a, b processnode.PodInfo) int { return strings.Compare(a.Name, b.Name) })
	return members
}
