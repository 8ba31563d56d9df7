package kube

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func config() Config {
	return Config{
		Name: "trommel-a", Namespace: "tests", Image: "registry.example/trommel:1", Server: "https://10.0.0.5:7443",
		Token: "secret.digest", Workers: 200, Labels: map[string]string{QueueLabel: "batch"}, Suspend: true,
	}
}

// What is printed is plain: one namespace, no rights beyond it, nothing of the server's.
func TestYAML(t *testing.T) {
	list, err := Objects(config())
	if err != nil {
		t.Fatal(err)
	}
	data, err := YAML(list)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, text := range strings.Split(string(data), "---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, u.GetKind())
		if u.GetNamespace() != "tests" || u.GetName() != "trommel-a" || u.GetAPIVersion() == "" {
			t.Errorf("%v", u.Object)
		}
		if mount, found, _ := unstructured.NestedBool(u.Object, "spec", "template", "spec",
			"automountServiceAccountToken"); u.GetKind() == "Job" && (!found || mount) {
			t.Error("pods have a token for the cluster")
		}
	}
	want := []string{"ServiceAccount", "Role", "RoleBinding", "Secret", "NetworkPolicy", "Job"}
	if !slices.Equal(kinds, want) {
		t.Errorf("%q, want %q", kinds, want)
	}
	for _, line := range []string{
		"completionMode: Indexed", "backoffLimitPerIndex: 5", "parallelism: 200", "suspend: true",
		"ttlSecondsAfterFinished: 3600", QueueLabel + ": batch", "cidr: 10.0.0.5/32", "port: 7443", "memory: 2Gi",
		"memory: 4Gi", "type: DisruptionTarget", "readOnlyRootFilesystem: true",
	} {
		if !strings.Contains(string(data), line) {
			t.Errorf("no %q", line)
		}
	}
	for _, line := range []string{"\nstatus:", "creationTimestamp", "null"} {
		if strings.Contains(string(data), line) {
			t.Errorf("%q in\n%s", line, data)
		}
	}
	for _, line := range []string{"--files", "nodeSelector", "imagePullSecrets"} {
		if strings.Contains(string(data), line) {
			t.Errorf("%q without an image that was pushed", line)
		}
	}
	if strings.Count(string(data), "secret.digest") != 1 {
		t.Error("the token is not in the Secret, or also elsewhere")
	}
}

func TestMistakes(t *testing.T) {
	for _, tt := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Image = "" }, "an image"},
		{func(c *Config) { c.Server = "http://a:1" }, "must be https://HOST:PORT"},
		{func(c *Config) { c.Server = "https://a" }, "must be https://HOST:PORT"},
		{func(c *Config) { c.CPU = "many" }, `CPU "many"`},
		{func(c *Config) { c.Memory = "much" }, `memory "much"`},
	} {
		c := config()
		tt.change(&c)
		if _, err := Objects(c); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
	if got := Name("Test_2026.01"); got != "trommel-test-2026-01" {
		t.Error(got)
	}
	for address, want := range map[string]string{
		"10.0.0.5:7443": "https://10.0.0.5:7443", "[::1]:1": "https://[::1]:1", "campaign:1": "https://campaign:1",
		":7443": "", "0.0.0.0:7443": "", "a": "",
	} {
		if got, err := Server(address); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %s, %v", address, got, err)
		}
	}
}

// The pods of an image that was pushed find what they need in it, and run on nodes that it is for.
func TestImageThatWasPushed(t *testing.T) {
	c := config()
	c.Files, c.Arch, c.PullSecret = "/trommel-files", "arm64", "registry"
	job, err := c.job()
	if err != nil {
		t.Fatal(err)
	}
	pod := job.Spec.Template.Spec
	if args := pod.Containers[0].Args; !slices.Equal(args[len(args)-2:], []string{"--files", "/trommel-files"}) {
		t.Errorf("%q", args)
	}
	if pod.NodeSelector["kubernetes.io/arch"] != "arm64" || pod.NodeSelector["kubernetes.io/os"] != "linux" ||
		pod.ImagePullSecrets[0].Name != "registry" {
		t.Errorf("%v %v", pod.NodeSelector, pod.ImagePullSecrets)
	}
}

// With a name, the pods may ask for its address.
func TestNetworkPolicyOfName(t *testing.T) {
	c := config()
	c.Server = "https://campaign.tests.svc:7443"
	p, err := c.networkPolicy()
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Spec.Egress) != 2 || p.Spec.Egress[1].Ports[0].Port.IntValue() != 53 || len(p.Spec.Ingress) != 0 {
		t.Errorf("%+v", p.Spec)
	}
}
