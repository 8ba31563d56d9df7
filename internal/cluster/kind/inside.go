package kind

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// DialInside connects to an address of the cluster. Nothing here is in its network, so a Service is reached through the
// API server and the kubelet, at one of its ready pods. Other names and addresses are those of this machine.
func (c *Cluster) DialInside(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	labels := strings.Split(host, ".")
	if len(labels) < 3 || labels[2] != "svc" {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	client, err := c.client("")
	if err != nil {
		return nil, err
	}
	e, err := endpointOf(ctx, client, labels[1], labels[0], port)
	switch {
	case err != nil:
		return nil, err
	case e.pod == "": // the API servers, whose addresses are the node's
		return (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(e.address, strconv.Itoa(int(e.port))))
	}
	return c.forward(ctx, client, labels[1], e)
}

// endpoint is where a Service leads to: a port of a pod, or of an address that is no pod's.
type endpoint struct {
	pod, address string
	port         int32
}

// endpointOf is the first ready endpoint of a Service's port.
func endpointOf(
	ctx context.Context, client kubernetes.Interface, namespace, name, port string,
) (e endpoint, err error) {
	service, err := client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return e, err
	}
	at := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool {
		return strconv.Itoa(int(p.Port)) == port
	})
	if at < 0 {
		return e, fmt.Errorf("service %s/%s has no port %s", namespace, name, port)
	}
	all, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
	if err != nil {
		return e, err
	}
	pods := 0
	for i := range all.Items {
		pods += len(all.Items[i].Endpoints)
		for _, p := range all.Items[i].Ports {
			if p.Port == nil || p.Name != nil && *p.Name != service.Spec.Ports[at].Name {
				continue
			}
			for _, to := range all.Items[i].Endpoints {
				if to.Conditions.Ready != nil && !*to.Conditions.Ready || len(to.Addresses) == 0 {
					continue
				}
				e = endpoint{address: to.Addresses[0], port: *p.Port}
				if to.TargetRef != nil && to.TargetRef.Kind == "Pod" {
					e.pod = to.TargetRef.Name
				}
				return e, nil
			}
		}
	}
	if pods == 0 {
		return e, fmt.Errorf("service %s/%s selects no pod", namespace, name)
	}
	return e, fmt.Errorf("service %s/%s has no ready pod", namespace, name)
}

// forward connects to a port of a pod. What is forwarded ends with the connection.
func (c *Cluster) forward(
	ctx context.Context, client kubernetes.Interface, namespace string, e endpoint,
) (net.Conn, error) {
	config, err := c.RESTConfig("")
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	to := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(e.pod).
		SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, to)
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", e.port)},
		stop, ready, io.Discard, io.Discard)
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- f.ForwardPorts() }()
	fail := func(err error) (net.Conn, error) {
		close(stop)
		return nil, fmt.Errorf("port %d of pod %s/%s: %w", e.port, namespace, e.pod, err)
	}
	select {
	case <-ready:
	case err := <-ended:
		if err == nil {
			err = errors.New("it is not forwarded")
		}
		return fail(err)
	case <-ctx.Done():
		return fail(context.Cause(ctx))
	}
	ports, err := f.GetPorts()
	if err != nil {
		return fail(err)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", ports[0].Local))
	if err != nil {
		return fail(err)
	}
	return &forwarded{Conn: conn, stop: stop}, nil
}

// forwarded is a connection whose end ends the forwarding, too.
type forwarded struct {
	net.Conn
	stop chan struct{}
}

// Close must be called once.
func (f *forwarded) Close() error {
	defer close(f.stop)
	return f.Conn.Close()
}
