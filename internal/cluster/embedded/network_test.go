package embedded_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/pki"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// Environment variables of a server in a pod.
const (
	envWebAddress = "TROMMEL_TEST_WEB_ADDRESS"
	envWebCert    = "TROMMEL_TEST_WEB_CERT"
	envWebKey     = "TROMMEL_TEST_WEB_KEY"
)

// serveWeb serves an admission webhook, an aggregated API and a page.
func serveWeb() {
	fmt.Println("the server begins")
	pair, err := tls.X509KeyPair([]byte(os.Getenv(envWebCert)), []byte(os.Getenv(envWebKey)))
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter,
		_ *http.Request) {
		fmt.Fprintf(w, "hello from %s", os.Getenv("HOSTNAME"))
	})
	mux.HandleFunc("/validate", func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		review.Response = &admissionv1.AdmissionResponse{
			UID:    review.Request.UID,
			Result: &metav1.Status{Message: "the webhook on " + os.Getenv("HOSTNAME") + " says no"},
		}
		_ = json.NewEncoder(w).Encode(review)
	})
	mux.HandleFunc("/apis/things.trommel.dev/v1", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(
			w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"things.trommel.dev/v1","resources":[
			{"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["list"]}]}`)
	})
	server := &http.Server{Addr: os.Getenv(envWebAddress), Handler: mux,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
	panic(server.ListenAndServeTLS("", ""))
}

// web is a pod with a server, and its Service.
type web struct {
	namespace string
	port      int
	ca        []byte
}

func startWeb(t *testing.T, client kubernetes.Interface, ns string) *web {
	t.Helper()
	w := &web{namespace: ns, port: freePort(t)}
	ca, err := pki.New("test")
	if err != nil {
		t.Fatal(err)
	}
	w.ca = ca.PEM()
	pair, err := ca.Issue(x509.Certificate{DNSNames: []string{"web." + ns + ".svc"}})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"},
			Ports:    []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromString("https")}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := newPod("web-0")
	pod.Labels = map[string]string{"app": "web"}
	pod.Annotations = map[string]string{cluster.AnnotationBinaryPrefix + "main": self}
	pod.Spec.NodeSelector = map[string]string{cluster.LabelProcessNode: "true"}
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	c := &pod.Spec.Containers[0]
	c.Ports = []corev1.ContainerPort{{Name: "https", ContainerPort: int32(w.port)}}
	c.Env = []corev1.EnvVar{
		{Name: envHelper, Value: "web"}, {Name: envWebAddress, Value: fmt.Sprintf("0.0.0.0:%d", w.port)},
		{Name: envWebCert, Value: string(pair.Cert)}, {Name: envWebKey, Value: string(pair.Key)},
	}
	c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Scheme: corev1.URISchemeHTTPS, Path: "/hello", Port: intstr.FromString("https")},
	}}
	if _, err := client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		p, err := client.CoreV1().Pods(ns).Get(ctx, "web-0", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("not ready: %+v", p.Status)
	})
	return w
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// webhook makes the API servers call the webhook of the client configuration for every ConfigMap in the namespace.
func webhook(t *testing.T, client kubernetes.Interface, ns string, config admissionregistrationv1.WebhookClientConfig) {
	t.Helper()
	none, timeout := admissionregistrationv1.SideEffectClassNone, int32(5)
	hooks := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "configmaps.test.trommel.dev", ClientConfig: config, SideEffects: &none, TimeoutSeconds: &timeout,
			AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: ns},
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
					Resources: []string{"configmaps"}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hooks.Delete(context.Background(), ns, metav1.DeleteOptions{}) })
}

// createRefused creates ConfigMaps until one is refused: an API server sees a new webhook a moment later.
func createRefused(t *testing.T, client kubernetes.Interface, ns string) (refusal error) {
	t.Helper()
	clustertest.Eventually(t, func(ctx context.Context) error {
		_, refusal = client.CoreV1().ConfigMaps(ns).
			Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}, metav1.CreateOptions{})
		if refusal == nil {
			return fmt.Errorf("it was created")
		}
		return nil
	})
	return refusal
}

// Every API server can call a webhook in a process pod through its Service.
func TestNetworkWebhook(t *testing.T) {
	client := clientFor(t, shared, "")
	ns := clustertest.Namespace(t, client)
	w := startWeb(t, client, ns)
	path := "/validate"
	webhook(t, client, ns, admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{Namespace: ns, Name: "web", Path: &path}, CABundle: w.ca,
	})
	for _, server := range shared.APIServers() {
		err := createRefused(t, clientFor(t, shared, server), ns)
		if want := "the webhook on web-0 says no"; !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", server, err, want)
		}
	}
}

// Connections that cannot work are refused at once, and the API error contains the requested address and the reason.
func TestNetworkRefuses(t *testing.T) {
	client := clientFor(t, shared, "")
	service := func(spec corev1.ServiceSpec) func(t *testing.T, ns string) (admissionregistrationv1.WebhookClientConfig,
		string) {
		return func(t *testing.T, ns string) (admissionregistrationv1.WebhookClientConfig, string) {
			s, err := client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: spec,
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Namespace: ns, Name: "web"},
			}, s.Spec.ClusterIP
		}
	}
	url := func(url string) func(t *testing.T, ns string) (admissionregistrationv1.WebhookClientConfig, string) {
		return func(*testing.T, string) (admissionregistrationv1.WebhookClientConfig, string) {
			return admissionregistrationv1.WebhookClientConfig{URL: &url}, ""
		}
	}
	for _, tt := range []struct {
		name   string
		config func(t *testing.T, ns string) (admissionregistrationv1.WebhookClientConfig, string)
		want   string // with NS and IP replaced
	}{
		{"Service without pods",
			service(corev1.ServiceSpec{Selector: map[string]string{"app": "web"},
				Ports: []corev1.ServicePort{{Port: 443}}}),
			"connect to IP:443: the Service NS/web selects no pod that is a process"},
		{"another port",
			service(corev1.ServiceSpec{Selector: map[string]string{"app": "web"},
				Ports: []corev1.ServicePort{{Port: 8443}}}),
			`no service port 443 found for service "web"`}, // the API server's own error
		{"Service without selector", service(corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}),
			"connect to IP:443: the Service NS/web has no selector and no ready endpoints"},
		{"foreign name",
			service(corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "webhooks.example.com"}),
			"connect to webhooks.example.com:443: no node of this cluster has this name, and nothing leaves the " +
				"machine"},
		{"URL", url("https://192.0.2.7/validate"),
			"connect to 192.0.2.7:443: no Service, node or pod of this cluster has this address, and nothing leaves " +
				"the machine"},
		{"URL with a name", url("https://webhooks.example.com:8443/"),
			"connect to webhooks.example.com:8443: no node of this cluster has this name, and nothing leaves the " +
				"machine"},
		{
			"URL of a Service that is not there", url("https://web.nowhere.svc/"),
			"connect to web.nowhere.svc:443: there is no Service nowhere/web",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ns := clustertest.Namespace(t, client)
			config, ip := tt.config(t, ns)
			webhook(t, client, ns, config)
			start := time.Now()
			err := createRefused(t, client, ns)
			want := strings.NewReplacer("NS", ns, "IP", ip).Replace(tt.want)
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got %v\nwant %s", err, want)
			}
			if took := time.Since(start); took > 4*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// Endpoints contain the loopback addresses of process pods, and the proxies of pods and Services connect to them.
func TestNetworkProxies(t *testing.T) {
	client := clientFor(t, shared, "")
	ns := clustertest.Namespace(t, client)
	startWeb(t, client, ns)
	for _, resource := range []struct{ kind, name string }{{"pods", "https:web-0:"}, {"services", "https:web:443"}} {
		clustertest.Eventually(t, func(ctx context.Context) error {
			got, err := client.CoreV1().RESTClient().Get().Namespace(ns).Resource(resource.kind).Name(resource.name).
				SubResource("proxy").Suffix("hello").DoRaw(ctx)
			if err == nil && string(got) != "hello from web-0" {
				err = fmt.Errorf("got %q", got)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", resource.kind, err)
			}
			return nil
		})
	}
	simulated := newPod("simulated")
	simulated.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}}
	if _, err := client.CoreV1().Pods(ns).Create(t.Context(), simulated, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := awaitRunningPod(t, client, ns, "simulated")
	text, err := client.CoreV1().RESTClient().Get().Namespace(ns).Resource("pods").Name("simulated").
		SubResource("proxy").DoRaw(t.Context())
	if want := fmt.Sprintf("connect to %s:80: the pod %s/simulated on %s is simulated: no process listens",
		pod.Status.PodIP, ns, pod.Spec.NodeName); err == nil ||
		!strings.Contains(string(text), want) {
		t.Errorf("got %v: %s\nwant %s", err, text, want)
	}
}

func TestNetworkAggregatedAPI(t *testing.T) {
	client := clientFor(t, shared, "")
	ns := clustertest.Namespace(t, client)
	w := startWeb(t, client, ns)
	config, err := shared.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	services := dynamic.NewForConfigOrDie(config).
		Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	const name = "v1.things.trommel.dev"
	_, err = services.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": "things.trommel.dev", "version": "v1", "groupPriorityMinimum": int64(1000),
			"versionPriority": int64(15),
			"service":         map[string]any{"namespace": ns, "name": "web"}, "caBundle": w.ca,
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = services.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	for _, server := range shared.APIServers() {
		clustertest.Eventually(t, func(context.Context) error {
			list, err := clientFor(t, shared, server).Discovery().
				ServerResourcesForGroupVersion("things.trommel.dev/v1")
			if err == nil && (len(list.APIResources) != 1 || list.APIResources[0].Kind != "Thing") {
				err = fmt.Errorf("it serves %v", list.APIResources)
			}
			return err
		})
	}
}

// Connections to the addresses and names of the cluster.
func TestNetworkDialInside(t *testing.T) {
	client := clientFor(t, shared, "")
	ns := clustertest.Namespace(t, client)
	w := startWeb(t, client, ns)
	service := func(name string, spec corev1.ServiceSpec) {
		if _, err := client.CoreV1().Services(ns).
			Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec},
				metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	selector, port := map[string]string{"app": "web"}, int32(w.port)
	service("headless", corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: selector})
	service("number", corev1.ServiceSpec{Selector: selector,
		Ports: []corev1.ServicePort{{Port: 8443, TargetPort: intstr.FromInt32(port)}}})
	service("same", corev1.ServiceSpec{Selector: selector, Ports: []corev1.ServicePort{{Port: port}}})
	service("unnamed", corev1.ServiceSpec{Selector: selector,
		Ports: []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromString("metrics")}}})
	service("by-hand", corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}})
	service("foreign", corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}})
	pod, err := client.CoreV1().Pods(ns).Get(t.Context(), "web-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, address := range map[string]string{"by-hand": pod.Status.PodIP, "foreign": "192.0.2.9"} {
		portName := map[string]string{"by-hand": "https"}[name]
		_, err := client.DiscoveryV1().EndpointSlices(ns).Create(t.Context(), &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
			Ports: []discoveryv1.EndpointPort{{Name: &portName, Port: &port}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	number := fmt.Sprint(w.port)
	// want: an error, with NS replaced; empty: the server in the pod
	for _, tt := range []struct{ address, want string }{
		{"web.NS.svc:443", ""},
		{"web.NS.svc.cluster.local:443", ""},
		{"web.NS.svc.cluster.local.:443", ""},
		{"headless.NS.svc:" + number, ""},
		{"number.NS.svc:8443", ""},
		{"same.NS.svc:" + number, ""},
		{"by-hand.NS.svc:443", ""},
		{pod.Status.PodIP + ":" + number, ""},
		{
			"unnamed.NS.svc:443",
			`the Service NS/unnamed targets a port named "metrics", which the pod NS/web-0 does not have`,
		},
		{"web.NS.svc:8443", "the Service NS/web has no port 8443 (it has 443)"},
		{
			"foreign.NS.svc:443", "the endpoints of the Service NS/foreign (192.0.2.9) are not process pods, and " +
				"nothing leaves the machine",
		},
		{"nobody.headless.NS.svc:443", "the Service NS/headless has no pod of this name among the process pods"},
		{"10.96.0.1:80", "the Service default/kubernetes has no port 80 (it has 443)"},
		{"node-2:80", "on the node node-2 only its kubelet listens (port 10250)"},
		{"nonsense", "want host:port"},
	} {
		address, want := strings.ReplaceAll(tt.address, "NS", ns), strings.ReplaceAll(tt.want, "NS", ns)
		conn, err := shared.DialInside(t.Context(), address)
		if want != "" {
			if want = "connect to " + address + ": " + want; err == nil || err.Error() != want {
				t.Errorf("got %v\nwant %s", err, want)
			}
		} else if err != nil {
			t.Errorf("%s: %v", address, err)
		} else if err := tls.Client(conn, &tls.Config{RootCAs: pool(w.ca), ServerName: "web." + ns + ".svc"}).
			HandshakeContext(t.Context()); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		if conn != nil {
			conn.Close()
		}
	}
	for _, address := range []string{"kubernetes.default.svc:443", "10.96.0.1:443"} {
		conn, err := shared.DialInside(t.Context(), address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		conn.Close()
	}
}

func pool(pem []byte) *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(pem)
	return p
}

// Exec in simulated pods succeeds; process pods have logs.
func TestNetworkKubelet(t *testing.T) {
	client := clientFor(t, shared, "")
	ns := clustertest.Namespace(t, client)
	for _, name := range []string{"simulated", "told"} {
		if _, err := client.CoreV1().Pods(ns).Create(t.Context(), newPod(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitRunningPod(t, client, ns, name)
	}
	startWeb(t, client, ns)

	logs := func(pod string) (string, error) {
		text, err := client.CoreV1().Pods(ns).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(t.Context())
		return string(text), err
	}
	if text, err := logs("simulated"); err != nil || text != "" {
		t.Errorf("log of a simulated pod: %q, %v", text, err)
	}
	if text, err := logs("web-0"); err != nil || !strings.HasPrefix(text, "the server begins\n") {
		t.Errorf("log of a process pod: %q, %v", text, err)
	}
	for _, websocket := range []bool{false, true} {
		out, err := execIn(t, ns, "simulated", websocket, "cat", "/etc/passwd")
		if err != nil || out != "" {
			t.Errorf("exec in a simulated pod (WebSocket %t): %q, %v", websocket, out, err)
		}
	}
	if text, err := logs("told"); err != nil || text != "one\ntwo\n" {
		t.Errorf("configured log: %q, %v", text, err)
	}
	out, err := execIn(t, ns, "told", false, "pg_isready", "-q")
	var exit utilexec.ExitError
	if !errors.As(err, &exit) || exit.ExitStatus() != 2 || out != "no response" {
		t.Errorf("configured answer: %q, %v", out, err)
	}
	if _, err := execIn(t, ns, "web-0", false, "true"); err == nil ||
		!strings.Contains(err.Error(), "web-0 is a local process") {
		t.Errorf("exec in a process pod: %v", err)
	}
	// The node's proxy subresource, and a name that only the host's DNS could resolve.
	if text, err := client.CoreV1().RESTClient().Get().Resource("nodes").Name("node-1").SubResource("proxy").
		Suffix("healthz").DoRaw(t.Context()); err != nil || string(text) != "ok" {
		t.Errorf("proxy of a node: %q, %v", text, err)
	}
	text, err := client.CoreV1().RESTClient().Get().Resource("nodes").Name("node-1:8080").SubResource("proxy").
		DoRaw(t.Context())
	if want := "connect to 10.127.0.1:8080: on the node node-1 only its kubelet listens (port 10250)"; err == nil ||
		!strings.Contains(string(text), want) {
		t.Errorf("proxy of a node's other port: got %v: %s\nwant %s", err, text, want)
	}
}

func execIn(t *testing.T, ns, pod string, websocket bool, command ...string) (string, error) {
	t.Helper()
	config, err := shared.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	request := client.CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Container: "main", Stdout: true, Stderr: true},
			scheme.ParameterCodec)
	var executor remotecommand.Executor
	if websocket {
		executor, err = remotecommand.NewWebSocketExecutor(config, http.MethodGet, request.URL().String())
	} else {
		executor, err = remotecommand.NewSPDYExecutor(config, http.MethodPost, request.URL())
	}
	if err != nil {
		t.Fatal(err)
	}
	// Two buffers, because the streams are copied concurrently.
	var out, errors bytes.Buffer
	err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &errors})
	return out.String() + errors.String(), err
}

// No process of a cluster sends a packet outside loopback, whatever is requested of its API servers.
func TestNothingLeavesTheMachine(t *testing.T) {
	clustertest.Isolate(t, "^TestNetwork")
}
