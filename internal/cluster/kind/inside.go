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
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
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

// endpoint is where a Service leads to: a port of a pod, or of an address that is not a pod's.
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

// forward connects to a port of a pod, by the kubelet, as kubectl port-forward does. Nothing listens here for that.
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
	dialer := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, to)
	type result struct {
		conn *forwarded
		err  error
	}
	done := make(chan result, 1)
	go func() {
		conn, err := forwardedBy(dialer, e.port)
		done <- result{conn, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, fmt.Errorf("port %d of pod %s/%s: %w", e.port, namespace, e.pod, r.err)
		}
		return r.conn, nil
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				_ = r.conn.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// portForwardProtocol is that of client-go's tools/portforward, which would need a listener here.
const portForwardProtocol = "portforward.k8s.io"

// forwardedBy asks for two streams: one for the data of a port, and one for what goes wrong.
func forwardedBy(dialer httpstream.Dialer, port int32) (*forwarded, error) {
	whole, _, err := dialer.Dial(portForwardProtocol)
	if err != nil {
		return nil, err
	}
	f := &forwarded{whole: whole}
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	if f.trouble, err = whole.CreateStream(headers); err == nil {
		err = f.trouble.Close() // nothing is written to it
	}
	if err == nil {
		headers.Set(corev1.StreamType, corev1.StreamTypeData)
		f.Stream, err = whole.CreateStream(headers)
	}
	if err != nil {
		return nil, errors.Join(err, whole.Close())
	}
	return f, nil
}

// forwarded is a connection to a port of a pod. It has no deadlines: close it to end what waits for it.
type forwarded struct {
	httpstream.Stream
	trouble httpstream.Stream
	whole   httpstream.Connection
}

// Read says why there is no connection, such as that nothing listens at the port.
func (f *forwarded) Read(p []byte) (int, error) {
	n, err := f.Stream.Read(p)
	if n == 0 && errors.Is(err, io.EOF) {
		if text, _ := io.ReadAll(f.trouble); len(text) > 0 {
			return 0, errors.New(string(text))
		}
	}
	return n, err
}

func (f *forwarded) Close() error { return f.whole.Close() }

func (*forwarded) LocalAddr() net.Addr              { return &net.UnixAddr{Net: "unix"} }
func (*forwarded) RemoteAddr() net.Addr             { return &net.UnixAddr{Net: "unix"} }
func (*forwarded) SetDeadline(time.Time) error      { return nil }
func (*forwarded) SetReadDeadline(time.Time) error  { return nil }
func (*forwarded) SetWriteDeadline(time.Time) error { return nil }
