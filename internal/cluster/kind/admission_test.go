package kind

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trommel-dev/trommel/internal/cluster"
)

// A controller's containers find a place on a small node: they request nothing, also where a limit would be a request.
func TestWhatAControllerRequests(t *testing.T) {
	b := newBench(t)
	a := &admission{gate: b.gate, processes: b.processes}
	pod := &corev1.Pod{}
	pod.Annotations = map[string]string{cluster.AnnotationController: "op"}
	limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	c := &corev1.Container{Name: "main", Resources: corev1.ResourceRequirements{
		Limits: limits, Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi")},
	}}
	if err := a.change(pod, c, programIn{name: "made"}, "/bin/op", false); err != nil {
		t.Fatal(err)
	}
	requests := c.Resources.Requests
	if len(requests) != 2 || !requests.Cpu().IsZero() || !requests.Memory().IsZero() {
		t.Errorf("requests %v", requests)
	}
	if !c.Resources.Limits.Cpu().Equal(limits[corev1.ResourceCPU]) {
		t.Errorf("limits %v", c.Resources.Limits)
	}
	if c.Image != "made" || !slices.Equal(c.Command, []string{launcherPath, "--", programPath}) {
		t.Errorf("image %s, command %q", c.Image, c.Command)
	}
}

func TestArgumentsOfAProgram(t *testing.T) {
	onto := programIn{entrypoint: []string{"/operator", "run"}, cmd: []string{"--all"}}
	for _, test := range []struct {
		name          string
		image         programIn
		command, args []string
		want          []string
	}{
		{"alone", programIn{}, nil, []string{"--a"}, []string{"op", "--a"}},
		{"alone, with a command", programIn{}, []string{"/x", "go"}, []string{"--a"}, []string{"/x", "go", "--a"}},
		{"the image's", onto, nil, nil, []string{"/operator", "run", "--all"}},
		{"with arguments", onto, nil, []string{"--a"}, []string{"/operator", "run", "--a"}},
		{"with a command", onto, []string{"/x"}, nil, []string{"/x"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := test.image.argv(&corev1.Container{Command: test.command, Args: test.args}, "op")
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A user who creates a pod cannot have a file put into it that is not a program.
func TestOnlyExecutablesAreGiven(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(secret, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{secret, script, t.TempDir(), "/nowhere"} {
		for _, base := range []string{"", "registry.example/any:1"} {
			a := &admission{dir: t.TempDir()}
			_, err := a.putImage(t.Context(), source{binary: file, base: base})
			if err == nil || !strings.Contains(err.Error(), "must be an executable for Linux") {
				t.Errorf("%s onto %q: %v", file, base, err)
			}
		}
	}
}
