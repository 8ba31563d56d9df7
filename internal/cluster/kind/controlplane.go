package kind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// nodeDir is where the node finds the cluster's own files: the launcher, the gate's address, patches for kubeadm.
const nodeDir = "/kind/trommel"

// Names in nodeDir.
const (
	nodeBin  = nodeDir + "/bin" // has the launcher under the name of the program that it runs
	nodeGate = nodeDir + "/gate.json"
)

// apiServerPath is where the API server is in its image.
const apiServerPath = "/usr/local/bin/kube-apiserver"

// envRemovedAPIs makes an API server serve removed API versions; Trommel's patch of k8s.io/apiserver reads it.
const envRemovedAPIs = "TROMMEL_SERVE_REMOVED_APIS"

// writeNodeFiles writes the files that are mounted at nodeDir.
func (c *Cluster) writeNodeFiles(launcher string) error {
	dir := c.file("node")
	if err := os.MkdirAll(filepath.Join(dir, "patches"), 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, filepath.Base(nodeBin)), 0o755); err != nil {
		return err
	}
	to := filepath.Join(dir, filepath.Base(nodeBin), filepath.Base(apiServerPath))
	if err := copyFile(launcher, to, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "gate.json"), mustJSON(c.gate.config()), 0o600); err != nil {
		return err
	}
	for component, patch := range c.patches() {
		file := filepath.Join(dir, "patches", component+"+json.json")
		if err := os.WriteFile(file, mustJSON(patch), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// patchOperation is one of a JSON patch.
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func add(path string, value any) patchOperation { return patchOperation{"add", path, value} }

// patches are what kubeadm's static pods get beside what kubeadm and kind write.
func (c *Cluster) patches() map[string][]patchOperation {
	const command = "/spec/containers/0/command/"
	arguments := func(list ...string) (all []patchOperation) {
		for _, a := range list {
			all = append(all, add(command+"-", a))
		}
		return all
	}
	kind := corev1.HostPathDirectory
	api := arguments(append(c.gates(), c.config.APIServerArgs...)...)
	api = append(api,
		// Before the command, which begins with argv[0]: the launcher, and the program's path. kubeadm waits for a
		// container whose command begins with kube-apiserver, so the launcher is found by this name (see apiServerEnv).
		add(command+"0", apiServerPath), add(command+"0", "--"), add(command+"0", nodeGate),
		add(command+"0", "--config"), add(command+"0", filepath.Base(apiServerPath)),
		add("/spec/containers/0/env", c.apiServerEnv(apiServerName(0))),
		add("/spec/volumes/-", corev1.Volume{Name: "trommel", VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: nodeDir, Type: &kind},
		}}),
		add("/spec/containers/0/volumeMounts/-", corev1.VolumeMount{
			Name: "trommel", MountPath: nodeDir, ReadOnly: true,
		}),
	)
	manager := c.gates()
	if len(c.config.DisableControllers) > 0 {
		// kubeadm's own value with those that are left out; the last argument applies.
		manager = append(manager, "--controllers=*,bootstrapsigner,tokencleaner,-"+
			strings.Join(c.config.DisableControllers, ",-"))
	}
	return map[string][]patchOperation{
		"kube-apiserver":          api,
		"kube-controller-manager": arguments(append(manager, c.config.ControllerManagerArgs...)...),
		"kube-scheduler":          arguments(append(c.gates(), c.config.SchedulerArgs...)...),
		"etcd":                    arguments("--unsafe-no-fsync=true"),
	}
}

// gates formats the suite's feature gates; none if there are none.
func (c *Cluster) gates() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c.config.FeatureGates)) {
		all = append(all, fmt.Sprintf("%s=%t", name, c.config.FeatureGates[name]))
	}
	if all == nil {
		return nil
	}
	return []string{"--feature-gates=" + strings.Join(all, ",")}
}

// apiServerEnv is the environment of an API server. The coordinator's address and token come from its launcher.
func (c *Cluster) apiServerEnv(name string) []corev1.EnvVar {
	env := []corev1.EnvVar{
		{Name: "TROMMEL_GATE_NAME", Value: string(mustJSON(caller{
			Controller: name, Namespace: "kube-system", Pod: name, Container: "kube-apiserver",
		}))},
		{Name: "TROMMEL_IDENTITY", Value: name},
		{Name: "PATH", Value: nodeBin + ":/usr/local/bin"},
		{Name: "GOGC", Value: "200"},
	}
	if c.config.RemovedAPIs {
		env = append(env, corev1.EnvVar{Name: envRemovedAPIs, Value: "true"})
	}
	return env
}

// podCIDR and serviceCIDR are the networks of pods and Services.
const (
	podCIDR     = "10.244.0.0/16"
	serviceCIDR = "10.96.0.0/16"
)

// registriesDir is where the node finds how to reach registries.
const registriesDir = "/etc/containerd/certs.d"

// kindConfig is kind's configuration of the cluster.
func (c *Cluster) kindConfig() string {
	patch := func(v map[string]any) string { return string(mustJSON(v)) }
	const kubeadm = "kubeadm.k8s.io/v1beta4"
	config := map[string]any{
		"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4",
		"networking": map[string]any{
			"disableDefaultCNI": true, "kubeProxyMode": "none", // the node's image has a network and a proxy
			"podSubnet": podCIDR, "serviceSubnet": serviceCIDR, "ipFamily": "ipv4",
		},
		// As in kind's own images.
		"containerdConfigPatches": []string{
			"[plugins.\"io.containerd.grpc.v1.cri\".registry]\nconfig_path = \"" + registriesDir + "\"\n",
		},
		"nodes": []any{map[string]any{
			"role":   "control-plane",
			"labels": map[string]string{"trommel.dev/process-node": "true"},
			"extraMounts": []any{map[string]any{
				"hostPath": c.file("node"), "containerPath": nodeDir, "readOnly": true,
			}},
		}},
		"kubeadmConfigPatches": []string{
			patch(map[string]any{
				"kind": "InitConfiguration", "apiVersion": kubeadm,
				"patches": map[string]any{"directory": nodeDir + "/patches"},
				// A busy machine takes longer than kubeadm waits by itself; Start has a limit of its own.
				"timeouts": map[string]any{
					"kubernetesAPICall": startTimeout.String(), "kubeletHealthCheck": startTimeout.String(),
					"controlPlaneComponentHealthCheck": startTimeout.String(), "tlsBootstrap": startTimeout.String(),
				},
				// kubeadm would look for images in a registry, and there is none of CoreDNS on the node.
				"skipPhases": []string{"preflight", "addon/kube-proxy", "addon/coredns"},
			}),
			patch(map[string]any{
				"kind": "ClusterConfiguration", "apiVersion": kubeadm,
				"apiServer": map[string]any{"certSANs": []string{"localhost", "127.0.0.1", c.gateway}},
			}),
			patch(map[string]any{
				"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
				"failCgroupV1": false,
				// The kubelet then accepts that it may not set what belongs to the machine.
				"featureGates": map[string]bool{"KubeletInUserNamespace": true},
			}),
		},
	}
	return string(mustJSON(config))
}

// manifestDir is where the kubelet finds static pods.
const manifestDir = "/etc/kubernetes/manifests/"

// addAPIServers adds the other API servers as static pods like kubeadm's.
func (c *Cluster) addAPIServers(ctx context.Context) error {
	if c.config.APIServers == 1 {
		return nil
	}
	first, err := engine(ctx, nil, "exec", c.node, "cat", manifestDir+"kube-apiserver.yaml")
	if err != nil {
		return err
	}
	for i := 1; i < c.config.APIServers; i++ {
		var pod corev1.Pod
		if err := yaml.UnmarshalStrict([]byte(first), &pod); err != nil {
			return fmt.Errorf("kubeadm's manifest of the API server: %w", err)
		}
		if err := c.become(&pod, i); err != nil {
			return err
		}
		data, err := json.Marshal(pod)
		if err != nil {
			return err
		}
		// The kubelet must not see half a file; it passes over names that begin with a dot.
		script := fmt.Sprintf("cat > %[1]s.new && mv %[1]s.new %[1]s%[2]s.yaml", manifestDir, pod.Name)
		in := strings.NewReader(string(data))
		if _, err := engine(ctx, in, "exec", "-i", c.node, "sh", "-c", script); err != nil {
			return err
		}
	}
	return nil
}

// become makes the first API server's pod that of another one, which differs in name and port.
func (c *Cluster) become(pod *corev1.Pod, i int) error {
	if len(pod.Spec.Containers) != 1 {
		return fmt.Errorf("kubeadm's pod of the API server has %d containers instead of one", len(pod.Spec.Containers))
	}
	name, port := apiServerName(i), firstPort+i
	pod.Name = fmt.Sprintf("kube-apiserver-%d", i+1)
	pod.Labels["component"] = pod.Name
	k := &pod.Spec.Containers[0]
	k.Env = c.apiServerEnv(name)
	from, to := fmt.Sprintf("--secure-port=%d", firstPort), fmt.Sprintf("--secure-port=%d", port)
	if j := slices.Index(k.Command, from); j >= 0 {
		k.Command[j] = to
	} else {
		return fmt.Errorf("kubeadm's pod of the API server has no argument %s", from)
	}
	// All have the same IP, so only one can be the endpoint of the Service kubernetes.
	k.Command = append(k.Command, "--endpoint-reconciler-type=none")
	for j := range k.Ports {
		if k.Ports[j].ContainerPort == firstPort {
			k.Ports[j].ContainerPort, k.Ports[j].HostPort = int32(port), int32(port)
		}
	}
	for _, probe := range []*corev1.Probe{k.LivenessProbe, k.ReadinessProbe, k.StartupProbe} {
		if probe != nil && probe.HTTPGet != nil && probe.HTTPGet.Port.IntValue() == firstPort {
			probe.HTTPGet.Port = intstr.FromInt32(int32(port))
		}
	}
	for annotation := range pod.Annotations {
		if strings.HasSuffix(annotation, "advertise-address.endpoint") {
			pod.Annotations[annotation] = c.address + ":" + strconv.Itoa(port)
		}
	}
	return nil
}

func copyFile(from, to string, mode os.FileMode) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(mode), out.Close())
}
