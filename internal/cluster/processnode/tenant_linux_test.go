package processnode_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// tenantBinary is a program with hooks that reports what it finds in its pod.
var tenantBinary = sync.OnceValues(func() (string, error) {
	built, err := instrumentation.Build(context.Background(), instrumentation.BuildConfig{
		Dir:      filepath.Join("..", "..", "..", "testdata", "controllers", "tenant"),
		Progress: func(line string) { fmt.Fprintln(os.Stderr, line) },
	})
	if err != nil {
		return "", err
	}
	return built.Binary, nil
})

// tenant is a pod that runs the program.
type tenant struct{ namespace, name, ip string }

func startTenant(t *testing.T, ns, name string, with ...func(*corev1.Pod)) *tenant {
	t.Helper()
	binary, err := tenantBinary()
	if err != nil {
		t.Fatal(err)
	}
	create(t, ns, shellPod(name, "", append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "tenant"}
		p.Annotations[cluster.AnnotationBinaryPrefix+"main"] = binary
		c := &p.Spec.Containers[0]
		c.Command = nil
		c.Env = []corev1.EnvVar{{Name: "POD_IP",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
		c.Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}
		c.ReadinessProbe = &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Path: "/host", Port: intstr.FromString("web")},
			},
		}
	}}, with...)...))
	pod := awaitPod(t, ns, name, "ready", isReady)
	return &tenant{ns, name, pod.Status.PodIP}
}

// ask returns the program's answer.
func (p *tenant) ask(ctx context.Context, question, subject string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+p.ip+":8080/"+question+"?of="+url.QueryEscape(subject), nil)
	if err != nil {
		return "", err
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s", strings.TrimSpace(string(text)))
	}
	return string(text), err
}

// expect checks answers. An expected answer that begins with "error: " must be part of an error.
func (p *tenant) expect(t *testing.T, question, subject, want string) {
	t.Helper()
	got, err := p.ask(t.Context(), question, subject)
	part, failing := strings.CutPrefix(want, "error: ")
	switch {
	case failing:
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s %s: got %q, %v, want an error with %q", question, subject, got, err, part)
		}
	case err != nil || got != want:
		t.Errorf("%s %s: got %q, %v, want %q", question, subject, got, err, want)
	}
}

const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

func secretVolume(p *corev1.Pod) {
	no := false
	c := &p.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts,
		corev1.VolumeMount{Name: "certs", MountPath: "/tmp/k8s-webhook-server/serving-certs", ReadOnly: true},
		corev1.VolumeMount{Name: "certs", MountPath: "/etc/trommel-tenant/one/tls.crt", SubPath: "tls.crt"},
		corev1.VolumeMount{Name: "settings", MountPath: "/etc/trommel-tenant/settings"},
		corev1.VolumeMount{Name: "scratch", MountPath: "/scratch"})
	p.Spec.Volumes = append(p.Spec.Volumes,
		corev1.Volume{Name: "certs",
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "certs", Optional: &no}}},
		corev1.Volume{Name: "settings",
			VolumeSource: corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{
						ConfigMap: &corev1.ConfigMapProjection{
							LocalObjectReference: corev1.LocalObjectReference{Name: "settings"},
						},
					},
					{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
						{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}},
				}}}},
		corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
}

// TestPodEnvironment checks what a program with hooks finds in its pod, with two pods side by side.
func TestPodEnvironment(t *testing.T) {
	ns, ctx := namespace(t), t.Context()
	secrets, configMaps := client.CoreV1().Secrets(ns), client.CoreV1().ConfigMaps(ns)
	secret, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "certs"},
		StringData: map[string]string{"tls.crt": "first", "old": "x"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"},
		Data: map[string]string{"a": "1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(os.TempDir(), "trommel-test-outside-"+ns)
	if err := os.WriteFile(outside, []byte("the machine's"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(outside) })
	one, two := startTenant(t, ns, "one", secretVolume), startTenant(t, ns, "two", secretVolume)
	if one.ip == two.ip || !strings.HasPrefix(one.ip, "127.") || one.ip == "127.0.0.1" {
		t.Fatalf("addresses %s and %s", one.ip, two.ip)
	}

	t.Run("files", func(t *testing.T) {
		certs := "/tmp/k8s-webhook-server/serving-certs"
		for _, tt := range [][3]string{
			{"read", accountDir + "/namespace", ns},
			{"list", accountDir, "ca.crt namespace token"},
			{"real", "/var/run/secrets/kubernetes.io", "/run/secrets/kubernetes.io"},
			{
				"list", "/var/run/secrets",
				"kubernetes.io kubernetes.io/serviceaccount kubernetes.io/serviceaccount/ca.crt " +
					"kubernetes.io/serviceaccount/namespace kubernetes.io/serviceaccount/token",
			},
			{"read", certs + "/tls.crt", "first"},
			{"read", certs + "/../serving-certs//tls.crt", "first"},
			{"read", "/etc/trommel-tenant/one/tls.crt", "first"},
			{"list", "/etc/trommel-tenant", "one one/tls.crt settings settings/a settings/labels"},
			{"list", certs, "old tls.crt"},
			{"read", "/etc/trommel-tenant/settings/a", "1"},
			{"read", "/etc/trommel-tenant/settings/labels", `app="tenant"`},
			{
				"read", "/etc/trommel-tenant/settings/none",
				"error: open /etc/trommel-tenant/settings/none: no such file or directory",
			},
			{"use", "/tmp", ""},
			{"use", "/scratch", ""},
			{
				"list", "/tmp", "k8s-webhook-server k8s-webhook-server/serving-certs " +
					"k8s-webhook-server/serving-certs/old k8s-webhook-server/serving-certs/tls.crt",
			},
			{"read", outside, "error: no such file or directory"},
			{"read", "/proc/self/comm", "tenant\n"},
			{"env", "TMPDIR", ""},
			{"env", "POD_IP", one.ip},
			{"host", "", "one"},
		} {
			if tt[0] == "real" {
				// If the machine has no such link, the path is its own real path.
				if real, err := filepath.EvalSymlinks("/var/run"); err != nil || real != "/run" {
					continue
				}
			}
			one.expect(t, tt[0], tt[1], tt[2])
		}
		entries, err := os.ReadDir(os.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Name() == "k8s-webhook-server" || e.Name() == "a" {
				t.Errorf("the pod wrote %s on the machine", e.Name())
			}
		}
		answer, err := one.ask(ctx, "api", "")
		if err != nil || !strings.Contains(answer, "system:serviceaccount:"+ns+":default") {
			t.Errorf("in-cluster configuration: %q, %v", answer, err)
		}
	})

	t.Run("updates", func(t *testing.T) {
		certs := "/tmp/k8s-webhook-server/serving-certs"
		one.expect(t, "watch", certs, "")
		secret.StringData, secret.Data = map[string]string{"tls.crt": "second", "tls.key": "new"}, nil
		if _, err := secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		clustertest.Eventually(t, func(ctx context.Context) error {
			text, err := one.ask(ctx, "read", certs+"/tls.crt")
			if err == nil && text != "second" {
				err = fmt.Errorf("tls.crt is %q", text)
			}
			if err != nil {
				return err
			}
			events, err := one.ask(ctx, "watch", certs)
			if err == nil && !strings.Contains(events, `"`+certs+`/..data"`) {
				err = fmt.Errorf("events %q, want one of %s/..data", events, certs)
			}
			return err
		})
		one.expect(t, "list", certs, "tls.crt tls.key")
		one.expect(t, "read", certs+"/tls.key", "new")
		one.expect(t, "read", "/etc/trommel-tenant/one/tls.crt", "first") // a subPath mount is not updated
		if _, err := client.CoreV1().Pods(ns).
			Patch(ctx, "one", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"more":"x"}}}`),
				metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		clustertest.Eventually(t, func(ctx context.Context) error {
			text, err := one.ask(ctx, "read", "/etc/trommel-tenant/settings/labels")
			if err == nil && text != "app=\"tenant\"\nmore=\"x\"" {
				err = fmt.Errorf("labels are %q", text)
			}
			return err
		})
	})

	t.Run("addresses and names", func(t *testing.T) {
		service := func(name string, spec corev1.ServiceSpec) *corev1.Service {
			t.Helper()
			s, err := client.CoreV1().Services(ns).
				Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec},
					metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		selector := map[string]string{"app": "tenant"}
		web := service("web", corev1.ServiceSpec{Selector: selector,
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("web")}}})
		service("headless", corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: selector})
		nobody := service("nobody", corev1.ServiceSpec{Selector: map[string]string{"app": "nobody"},
			Ports: []corev1.ServicePort{{Port: 443}}})
		service("outside", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"})
		kubernetes, err := client.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		both := one.ip + " " + two.ip
		if two.ip < one.ip {
			both = two.ip + " " + one.ip
		}
		for _, tt := range [][3]string{
			{"resolve", "web", web.Spec.ClusterIP},
			{"resolve", "web." + ns, web.Spec.ClusterIP},
			{"resolve", "web." + ns + ".svc", web.Spec.ClusterIP},
			{"resolve", "WEB." + ns + ".svc.cluster.local.", web.Spec.ClusterIP},
			{"resolve-ip", "web." + ns + ".svc.cluster.local", web.Spec.ClusterIP},
			{"resolve", "headless", both},
			{"resolve", "kubernetes.default", kubernetes.Spec.ClusterIP},
			{"resolve", "web.kube-system.svc", "error: lookup web.kube-system.svc: no such host"},
			{"resolve", "none.cluster.local", "error: lookup none.cluster.local: no such host"},
			{"resolve", "one", one.ip},
			{"dial", "web:80", ""},
			{"dial", one.ip + ":9443", one.ip + ":9443"},
			{"dial", two.ip + ":9443", two.ip + ":9443"},
			{"dial", "localhost:8080", one.ip + ":8080"},
			{"dial", two.ip + ":8081", "error: REFUSED"}, // it listens on the pod's own 127.0.0.1
			{"get", "http://127.0.0.1:8081/host", "one"},
			{"dial", nobody.Spec.ClusterIP + ":443",
				"error: REFUSED dial tcp " + nobody.Spec.ClusterIP + ":443: connect: connection refused (connect to " +
					nobody.Spec.ClusterIP + ":443: the Service " + ns + "/nobody selects no pod that is a process " +
					"(simulated pods do not listen))"},
			{"dial", web.Spec.ClusterIP + ":81", "error: the Service " + ns + "/web has no port 81 (it has 80)"},
			{
				"dial", "10.96.255.254:443",
				"error: REFUSED dial tcp 10.96.255.254:443: connect: connection refused (connect to " +
					"10.96.255.254:443: no Service, node or pod of this cluster has this address, and nothing " +
					"leaves the machine)",
			},
			{
				"dial", "10.128.255.254:443",
				"error: connection refused (connect to 10.128.255.254:443: no Service, node or pod of this cluster " +
					"has this address, and nothing leaves the machine)",
			},
		} {
			if tt[0] == "dial" && tt[2] == "" {
				got, err := one.ask(ctx, tt[0], tt[1])
				if err != nil || got != one.ip+":8080" && got != two.ip+":8080" {
					t.Errorf("dial %s: %q, %v", tt[1], got, err)
				}
				continue
			}
			one.expect(t, tt[0], tt[1], tt[2])
		}
		answer, err := one.ask(ctx, "api", "https://kubernetes.default.svc")
		if err != nil || !strings.Contains(answer, "system:serviceaccount:"+ns+":default") {
			t.Errorf("by the API server's name: %q, %v", answer, err)
		}
		if ip, err := one.ask(ctx, "resolve", "outside"); err != nil || !strings.Contains(ip, "127.0.0.1") &&
			!strings.Contains(ip, "::1") {
			t.Errorf("outside: %q, %v", ip, err)
		}
	})
}

// A new container has an empty /tmp, and the volumes of its pod.
func TestContainerStartsAnew(t *testing.T) {
	ns, ctx := namespace(t), t.Context()
	p := startTenant(t, ns, "anew", controller("anew"), func(p *corev1.Pod) {
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
	})
	for _, dir := range []string{"/tmp", "/scratch"} {
		if _, err := p.ask(ctx, "leave", dir); err != nil {
			t.Fatal(err)
		}
	}
	p.expect(t, "list", "/tmp", "left")
	if err := shared.Processes().Kill(ctx, "anew"); err != nil {
		t.Fatal(err)
	}
	if err := shared.Processes().Start(ctx, "anew"); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		_, err := p.ask(ctx, "host", "")
		return err
	})
	p.expect(t, "list", "/tmp", "")
	p.expect(t, "list", "/scratch", "left")
	if err := client.CoreV1().Pods(ns).Delete(ctx, "anew", metav1.DeleteOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}
