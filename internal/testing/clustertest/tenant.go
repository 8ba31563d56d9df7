package clustertest

import (
	"context"
	"errors"
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
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/cluster"
)

// tenants are the executables of testdata/controllers/tenant, by the folder testdata and the build's tags.
var tenants sync.Map // of func() (string, error)

func tenantBinary(testdata string, tags ...string) (string, error) {
	build, _ := tenants.LoadOrStore(fmt.Sprint(testdata, tags), sync.OnceValues(func() (string, error) {
		built, err := instrumentation.Build(context.Background(), instrumentation.BuildConfig{
			Dir:        filepath.Join(testdata, "controllers", "tenant"),
			Tags:       tags,
			AnyProgram: len(tags) > 0,
			Progress:   func(line string) { fmt.Fprintln(os.Stderr, line) },
		})
		if err != nil {
			return "", err
		}
		return built.Binary, nil
	}))
	return build.(func() (string, error))()
}

// WithoutClientGo makes a tenant's program one that does not use client-go; it cannot ask an API server.
func (p Pods) WithoutClientGo(t testing.TB) func(*corev1.Pod) {
	t.Helper()
	binary, err := tenantBinary(p.Testdata, "plain")
	if err != nil {
		t.Fatal(err)
	}
	return func(p *corev1.Pod) { p.Annotations[cluster.AnnotationBinaryPrefix+"main"] = binary }
}

// Tenant is a pod whose program has hooks and reports what it finds in its pod.
type Tenant struct{ Namespace, Name, IP string }

// StartTenant creates a tenant and waits until it is ready.
func (p Pods) StartTenant(t testing.TB, ns, name string, with ...func(*corev1.Pod)) *Tenant {
	t.Helper()
	binary, err := tenantBinary(p.Testdata)
	if err != nil {
		t.Fatal(err)
	}
	p.Create(t, ns, ShellPod(name, "", append([]func(*corev1.Pod){func(p *corev1.Pod) {
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
	pod := p.Await(t, ns, name, "ready", IsReady)
	return &Tenant{ns, name, pod.Status.PodIP}
}

// Ask returns the program's answer.
func (p *Tenant) Ask(ctx context.Context, question, subject string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+p.IP+":8080/"+question+"?of="+url.QueryEscape(subject), nil)
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
		err = errors.New(strings.TrimSpace(string(text)))
	}
	return string(text), err
}

// Expect checks answers. An expected answer that begins with "error: " must be part of an error.
func (p *Tenant) Expect(t testing.TB, question, subject, want string) {
	t.Helper()
	got, err := p.Ask(t.Context(), question, subject)
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

// AccountDir is the path in a pod of its service account's files.
const AccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"
