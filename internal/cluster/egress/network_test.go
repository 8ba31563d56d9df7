package egress

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/internal/processnode"
)

// An operator that asks its simulated pods again and again costs one request each time. Each refusal names the pod that
// has the address then.
func TestSimulatedPodIsRefusedAgain(t *testing.T) {
	const ip = "10.244.0.7"
	pod := func(name, ip string) *corev1.Pod {
		return &corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.PodSpec{NodeName: "node-1"}, Status: corev1.PodStatus{PodIP: ip},
		}
	}
	var pods []*corev1.Pod
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		var answer any
		switch r.URL.Path {
		case "/api/v1/services":
			answer = &corev1.ServiceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}}
		case "/api/v1/nodes":
			answer = &corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
		case "/api/v1/pods":
			list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
			for _, p := range pods {
				if "status.podIP="+p.Status.PodIP == r.URL.Query().Get("fieldSelector") {
					list.Items = append(list.Items, *p)
				}
			}
			answer = list
		default:
			i := slices.IndexFunc(pods, func(p *corev1.Pod) bool {
				return r.URL.Path == "/api/v1/namespaces/default/pods/"+p.Name
			})
			if i < 0 {
				w.WriteHeader(http.StatusNotFound)
				answer = &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Code: 404,
					Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound}
			} else {
				answer = pods[i]
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}, QPS: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.RESTClient().(*rest.RESTClient).Client.CloseIdleConnections)
	n := New(Config{Client: client, Pods: func() []processnode.PodInfo { return nil }})
	lists := []string{"/api/v1/services", "/api/v1/nodes", "/api/v1/pods"}
	a, b := "/api/v1/namespaces/default/pods/a", "/api/v1/namespaces/default/pods/b"
	const nobody = "connect to 10.244.0.7:80: no Service, node or pod of this cluster has this address, and nothing " +
		"leaves the machine"
	refused := func(name string) string {
		return "connect to 10.244.0.7:80: the pod default/" + name + " on node-1 is simulated: no process listens"
	}
	for _, tt := range []struct {
		name string
		pods []*corev1.Pod
		want string
		asks []string
	}{
		{"the first time", []*corev1.Pod{pod("a", ip)}, refused("a"), lists},
		{"again", []*corev1.Pod{pod("a", ip)}, refused("a"), []string{a}},
		{"another pod has it", []*corev1.Pod{pod("a", "10.244.0.8"), pod("b", ip)}, refused("b"),
			append([]string{a}, lists...)},
		{"it is gone", nil, nobody, append([]string{b}, lists...)},
		{"and stays gone", nil, nobody, lists},
	} {
		pods, asked = tt.pods, nil
		_, _, err := n.Resolve(context.Background(), ip+":80")
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
		if !slices.Equal(asked, tt.asks) {
			t.Errorf("%s: asked for %q, want %q", tt.name, asked, tt.asks)
		}
	}
}

// Connections to a simulated pod, and to a Service that selects it, go to the process that stands in for it.
func TestStandIn(t *testing.T) {
	simulated := corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-0", Labels: map[string]string{"app": "db"}},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{
			Ports: []corev1.ContainerPort{{Name: "client", ContainerPort: 2181}},
		}}},
		Status: corev1.PodStatus{PodIP: "10.244.0.7", Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		}},
	}
	service := func(namespace, name, ip string, selector map[string]string, port corev1.ServicePort) corev1.Service {
		return corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: corev1.ServiceSpec{
				ClusterIP: ip, ClusterIPs: []string{ip}, Selector: selector, Ports: []corev1.ServicePort{port},
			},
		}
	}
	db := service("default", "db", "10.96.0.7", map[string]string{"app": "db"},
		corev1.ServicePort{Port: 80, TargetPort: intstr.FromString("client")})
	standIn := service("stand-ins", "db", "10.96.0.8", map[string]string{"app": "stand-in"},
		corev1.ServicePort{Port: 2181})
	answers := map[string]any{
		"/api/v1/services": &corev1.ServiceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}, Items: []corev1.Service{db, standIn}},
		"/api/v1/namespaces/default/services/db":   &db,
		"/api/v1/namespaces/stand-ins/services/db": &standIn,
		"/api/v1/nodes": &corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}},
		"/api/v1/pods": &corev1.PodList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{simulated}},
		"/api/v1/namespaces/default/pods": &corev1.PodList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{simulated}},
		"/api/v1/namespaces/default/pods/db-0": &simulated,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answers[r.URL.Path]); err != nil || answers[r.URL.Path] == nil {
			t.Errorf("%s: no answer (%v)", r.URL, err)
		}
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}, QPS: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.RESTClient().(*rest.RESTClient).Client.CloseIdleConnections)
	process := processnode.PodInfo{
		Namespace: "stand-ins", Name: "db", IP: "127.1.0.1", Ready: true, Labels: map[string]string{"app": "stand-in"},
	}
	n := New(Config{
		Client: client, Pods: func() []processnode.PodInfo { return []processnode.PodInfo{process} },
		StandIn: func(namespace, pod string) (types.NamespacedName, bool) {
			return types.NamespacedName{Namespace: "stand-ins", Name: "db"}, namespace == "default" && pod == "db-0"
		},
	})
	for _, tt := range []struct{ name, address, want string }{
		{"the pod", "10.244.0.7:2181", "127.1.0.1:2181"},
		{"the pod again", "10.244.0.7:2181", "127.1.0.1:2181"},
		{"its Service", "10.96.0.7:80", "127.1.0.1:2181"},
		{"another port", "10.244.0.7:80",
			"connect to 10.244.0.7:80: the Service stand-ins/db has no port 80 (it has 2181)"},
	} {
		to, _, err := n.Resolve(context.Background(), tt.address)
		if err != nil {
			to = err.Error()
		}
		if to != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, to, tt.want)
		}
	}
}
