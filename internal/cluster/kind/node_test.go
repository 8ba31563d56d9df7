package kind

import (
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/instrumentation"
)

// TestNodeImage: what runs on the node has the versions that it should, and the images that kubeadm wants are there.
func TestNodeImage(t *testing.T) {
	needEngine(t)
	result, err := instrumentation.BuildControlPlane(t.Context(), instrumentation.ControlPlaneConfig{})
	if err != nil {
		t.Fatal(err)
	}
	progress := func(line string) { t.Log(line) }
	name, err := NodeImage(t.Context(), result.Binary, progress)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := NodeImage(t.Context(), result.Binary, func(line string) {
		t.Errorf("the second time: %s", line)
	}); err != nil || again != name {
		t.Errorf("the second time: %s, %v", again, err)
	}
	out, err := engine(t.Context(), nil, "run", "--rm", "--network", "none", "--entrypoint", "sh", name, "-c",
		"kubelet --version; kubeadm version -o short; kubectl version --client=true; kube-proxy --version; "+
			"containerd --version; runc --version; cat /kind/version; "+
			"kubeadm config images list --kubernetes-version $(cat /kind/version); ls /opt/cni/bin/ptp")
	if err != nil {
		t.Fatal(err)
	}
	version := moduleVersion(nodeSource, kubernetesModule)
	for _, want := range []string{
		"Kubernetes " + version + "\n", "Client Version: " + version + "\n", "containerd ", "runc version ",
		"registry.k8s.io/kube-apiserver:" + version + "\n", "registry.k8s.io/pause:" + pauseVersion + "\n",
		"registry.k8s.io/etcd:" + etcdVersion + "\n", "/opt/cni/bin/ptp\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
