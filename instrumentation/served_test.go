package instrumentation_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/semver"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/instrumentation"
)

// testServed compares what a control plane serves with a golden file: resources with their verbs, admission plugins and
// controllers. Packages that are left out of the build may not change it. The file was made before any were left out,
// for the default version.
func testServed(t *testing.T, version, binary string, config *rest.Config) {
	t.Helper()
	if version != instrumentation.KubernetesVersion {
		return
	}
	_, lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, l := range lists {
		for _, r := range l.APIResources {
			verbs := slices.Sorted(slices.Values(r.Verbs))
			lines = append(lines, fmt.Sprintf("resource %s %s %s", l.GroupVersion, r.Name, strings.Join(verbs, ",")))
		}
	}
	lines = append(lines, fromHelp(t, binary, "kube-apiserver", "admission plugin ",
		`--enable-admission-plugins strings.*?Comma-delimited list of admission plugins: ([^.]*)\.`)...)
	lines = append(lines, fromHelp(t, binary, "kube-apiserver", "default admission plugin ",
		`--enable-admission-plugins strings.*?default enabled ones \(([^)]*)\)`)...)
	lines = append(lines, fromHelp(t, binary, "kube-controller-manager", "controller ", `All controllers: ([^\n]*)`)...)
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"

	golden := filepath.Join("testdata", "served", semver.MajorMinor(version)+".golden")
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", golden, diff)
	}
}

// fromHelp returns the items of a list in a component's help, each with a prefix.
func fromHelp(t *testing.T, binary, component, prefix, pattern string) (lines []string) {
	t.Helper()
	help, err := exec.Command(binary, component, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)` + pattern).FindSubmatch(help)
	if found == nil {
		t.Fatalf("the help of %s has no %s", component, pattern)
	}
	for _, name := range strings.Split(string(found[1]), ",") {
		lines = append(lines, prefix+strings.TrimSpace(name))
	}
	return lines
}

// testLeftOut checks that no package came back that a control plane does not need. Each is 20 to 130 packages with what
// only it needs, and every user compiles them.
func testLeftOut(t *testing.T, binary string) {
	t.Helper()
	text, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	// The table of functions names them by their packages.
	if !bytes.Contains(text, []byte("k8s.io/kubernetes/pkg/controller/podgc.")) {
		t.Fatal("the executable does not name its functions")
	}
	for _, pkg := range []string{
		"k8s.io/client-go/kubernetes/fake", "k8s.io/client-go/testing", "k8s.io/kubernetes/pkg/kubelet/cm",
		"k8s.io/kubernetes/pkg/kubelet/eviction", "github.com/google/cadvisor/manager",
		"github.com/opencontainers/cgroups", "sigs.k8s.io/kustomize/api/krusty", "sigs.k8s.io/kwok/pkg/kwok/server",
		"k8s.io/cri-api/pkg/apis/runtime/v1",
	} {
		if bytes.Contains(text, []byte(pkg+".")) {
			t.Errorf("the control plane has package %s: see standIns in package points", pkg)
		}
	}
}
