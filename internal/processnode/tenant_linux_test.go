package processnode_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

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
	ns, ctx := pods.Namespace(t), t.Context()
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
	one, two := pods.StartTenant(t, ns, "one", secretVolume), pods.StartTenant(t, ns, "two", secretVolume)
	if one.IP == two.IP || !strings.HasPrefix(one.IP, "127.") || one.IP == "127.0.0.1" {
		t.Fatalf("addresses %s and %s", one.IP, two.IP)
	}

	t.Run("files", func(t *testing.T) {
		certs := "/tmp/k8s-webhook-server/serving-certs"
		for _, tt := range [][3]string{
			{"read", clustertest.AccountDir + "/namespace", ns},
			{"list", clustertest.AccountDir, "ca.crt namespace token"},
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
			{"env", "POD_IP", one.IP},
			{"host", "", "one"},
		} {
			if tt[0] == "real" {
				// If the machine has no such link, the path is its own real path.
				if real, err := filepath.EvalSymlinks("/var/run"); err != nil || real != "/run" {
					continue
				}
			}
			one.Expect(t, tt[0], tt[1], tt[2])
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
		answer, err := one.Ask(ctx, "api", "")
		if err != nil || !strings.Contains(answer, "system:serviceaccount:"+ns+":default") {
			t.Errorf("in-cluster configuration: %q, %v", answer, err)
		}
	})

	t.Run("updates", func(t *testing.T) {
		certs := "/tmp/k8s-webhook-server/serving-certs"
		one.Expect(t, "watch", certs, "")
		secret.StringData, secret.Data = map[string]string{"tls.crt": "second", "tls.key": "new"}, nil
		if _, err := secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		clustertest.Eventually(t, func(ctx context.Context) error {
			text, err := one.Ask(ctx, "read", certs+"/tls.crt")
			if err == nil && text != "second" {
				err = fmt.Errorf("tls.crt is %q", text)
			}
			if err != nil {
				return err
			}
			events, err := one.Ask(ctx, "watch", certs)
			if err == nil && !strings.Contains(events, `"`+certs+`/..data"`) {
				err = fmt.Errorf("events %q, want one of %s/..data", events, certs)
			}
			if err != nil {
				return err
			}
			// Like a kubelet, the node removes the keys that are gone after the new ones can be read.
			names, err := one.Ask(ctx, "list", certs)
			if err == nil && names != "tls.crt tls.key" {
				err = fmt.Errorf("files %q", names)
			}
			return err
		})
		one.Expect(t, "read", certs+"/tls.key", "new")
		one.Expect(t, "read", "/etc/trommel-tenant/one/tls.crt", "first") // a subPath mount is not updated
		if _, err := client.CoreV1().Pods(ns).
			Patch(ctx, "one", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"more":"x"}}}`),
				metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		clustertest.Eventually(t, func(ctx context.Context) error {
			text, err := one.Ask(ctx, "read", "/etc/trommel-tenant/settings/labels")
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
		both := one.IP + " " + two.IP
		if two.IP < one.IP {
			both = two.IP + " " + one.IP
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
			{"resolve", "one", one.IP},
			{"dial", "web:80", ""},
			{"dial", one.IP + ":9443", one.IP + ":9443"},
			{"dial", two.IP + ":9443", two.IP + ":9443"},
			{"dial", "localhost:8080", one.IP + ":8080"},
			{"dial", two.IP + ":8081", "error: REFUSED"}, // it listens on the pod's own 127.0.0.1
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
				got, err := one.Ask(ctx, tt[0], tt[1])
				if err != nil || got != one.IP+":8080" && got != two.IP+":8080" {
					t.Errorf("dial %s: %q, %v", tt[1], got, err)
				}
				continue
			}
			one.Expect(t, tt[0], tt[1], tt[2])
		}
		answer, err := one.Ask(ctx, "api", "https://kubernetes.default.svc")
		if err != nil || !strings.Contains(answer, "system:serviceaccount:"+ns+":default") {
			t.Errorf("by the API server's name: %q, %v", answer, err)
		}
		if ip, err := one.Ask(ctx, "resolve", "outside"); err != nil || !strings.Contains(ip, "127.0.0.1") &&
			!strings.Contains(ip, "::1") {
			t.Errorf("outside: %q, %v", ip, err)
		}
	})
}

// A new container has an empty /tmp, and the volumes of its pod.
func TestContainerStartsAnew(t *testing.T) {
	ns, ctx := pods.Namespace(t), t.Context()
	p := pods.StartTenant(t, ns, "anew", clustertest.Controller("anew"), func(p *corev1.Pod) {
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
	})
	for _, dir := range []string{"/tmp", "/scratch"} {
		if _, err := p.Ask(ctx, "leave", dir); err != nil {
			t.Fatal(err)
		}
	}
	p.Expect(t, "list", "/tmp", "left")
	if err := shared.Processes().Kill(ctx, "anew"); err != nil {
		t.Fatal(err)
	}
	if err := shared.Processes().Start(ctx, "anew"); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		_, err := p.Ask(ctx, "host", "")
		return err
	})
	p.Expect(t, "list", "/tmp", "")
	p.Expect(t, "list", "/scratch", "left")
	if err := client.CoreV1().Pods(ns).Delete(ctx, "anew", metav1.DeleteOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// A program finds the files of its image in a copy of its own, which is new with each container. Volumes hide them.
func TestFilesOfTheImage(t *testing.T) {
	ns, ctx, dir := pods.Namespace(t), t.Context(), t.TempDir()
	for name, text := range map[string]string{"crds/a.yaml": "a", "crds/more/b.yaml": "b", "settings": "x"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files := fmt.Sprintf(`{"/trommel-tenant/crds/": %[1]q, "/trommel-tenant/settings": %[2]q,
		"/scratch/settings": %[2]q, "/etc/trommel-tenant/settings": %[2]q}`,
		filepath.Join(dir, "crds"), filepath.Join(dir, "settings"))
	p := pods.StartTenant(t, ns, "image", clustertest.Controller("image"), func(p *corev1.Pod) {
		p.Annotations["files.trommel.dev/main"] = files
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
			{Name: "scratch", MountPath: "/scratch"}, {Name: "scratch", MountPath: "/trommel-tenant/crds/more"},
		}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
	})
	check := func() {
		t.Helper()
		p.Expect(t, "read", "/trommel-tenant/crds/a.yaml", "a")
		p.Expect(t, "read", "/trommel-tenant/settings", "x")
		p.Expect(t, "read", "/etc/trommel-tenant/settings", "x")
		p.Expect(t, "read", "/scratch/settings", "error: no such file or directory")
		p.Expect(t, "read", "/trommel-tenant/crds/more/b.yaml", "error: no such file or directory")
	}
	check()
	p.Expect(t, "write", "/trommel-tenant/crds/a.yaml", "")
	p.Expect(t, "leave", "/trommel-tenant/crds", "")
	if err := shared.Processes().Kill(ctx, "image"); err != nil {
		t.Fatal(err)
	}
	if err := shared.Processes().Start(ctx, "image"); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		_, err := p.Ask(ctx, "host", "")
		return err
	})
	check()
	p.Expect(t, "read", "/trommel-tenant/crds/left", "error: no such file or directory")
	if text, err := os.ReadFile(filepath.Join(dir, "crds", "a.yaml")); err != nil || string(text) != "a" {
		t.Errorf("the user's own file is %q, %v", text, err)
	}
}
