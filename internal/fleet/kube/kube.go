// Package kube describes the workers of a campaign as objects of Kubernetes, and creates them: an Indexed Job, and what
// it needs. They are plain objects of one namespace, for any tool that applies manifests.
package kube

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// Config says what runs. Name, Namespace, Image, Server, Token and Workers are required.
type Config struct {
	Name      string // of the objects
	Namespace string
	Image     string // with trommel, of the same build as the campaign's, as its entry point
	Server    string // https://HOST:PORT, as pods reach the campaign
	Token     string
	Workers   int // pods, each with a cluster
	// Files is the image's directory with what workers need, each file by its digest; empty: none. Arch is the image's
	// architecture, if it has only one. PullSecret is the name of the secret with which nodes pull it; empty: none.
	Files, Arch, PullSecret string
	// Suspend creates the Job suspended, for whoever admits it, such as Kueue; Labels are those of the Job.
	Suspend bool
	Labels  map[string]string
	TTL     time.Duration // how long the Job is kept when it has ended; default: an hour
	// CPU and Memory are what a pod asks for; default: what a cluster and a controller need.
	CPU, Memory string
}

// What a cluster needs with a small controller. A pod may have more memory than it asks for, up to twice as much.
const (
	defaultCPU    = "1"
	defaultMemory = "2Gi"
	disk          = "4Gi" // of a control plane, what it stores, and a record
)

// backoffPerIndex is how often a pod is made again that has failed for a reason of its own.
const backoffPerIndex = 5

// exitRefused is the exit code of a worker for which there is no use in trying again: its token or its build is wrong.
const exitRefused = 6

const (
	nameLabel  = "app.kubernetes.io/instance"
	container  = "worker"
	tokenDir   = "/etc/trommel"
	tokenKey   = "token"
	workDir    = "/work"
	nonRootUID = 65532
)

// QueueLabel is the label by which Kueue finds the queue of a Job.
const QueueLabel = "kueue.x-k8s.io/queue-name"

// Objects returns the objects, each after those that it needs.
func Objects(c Config) ([]runtime.Object, error) {
	job, err := c.job()
	if err != nil {
		return nil, err
	}
	policy, err := c.networkPolicy()
	if err != nil {
		return nil, err
	}
	meta := c.meta()
	return []runtime.Object{
		&corev1.ServiceAccount{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
			ObjectMeta: meta, AutomountServiceAccountToken: new(bool),
		},
		&rbacv1.Role{
			TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"}, ObjectMeta: meta,
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: all},
				{APIGroups: []string{""}, Resources: []string{"pods", "pods/log"}, Verbs: read},
				{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: all},
				{APIGroups: []string{networkingv1.GroupName}, Resources: []string{"networkpolicies"}, Verbs: all},
			},
		},
		&rbacv1.RoleBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"},
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: c.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: c.Name, Namespace: c.Namespace}},
		},
		&corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta,
			StringData: map[string]string{tokenKey: c.Token},
		},
		policy,
		job,
	}, nil
}

var (
	read = []string{"get", "list", "watch"}
	all  = []string{"get", "list", "watch", "create", "update", "patch", "delete"}
)

func (c *Config) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace, Labels: c.own()}
}

// own are the labels of all objects.
func (c *Config) own() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "trommel", nameLabel: c.Name}
}

// networkPolicy lets pods reach only the campaign, and lets nothing reach the pods.
func (c *Config) networkPolicy() (*networkingv1.NetworkPolicy, error) {
	at, err := url.Parse(c.Server)
	if err != nil || at.Scheme != "https" || at.Port() == "" {
		return nil, fmt.Errorf("the campaign's address must be https://HOST:PORT, not %q", c.Server)
	}
	number, err := strconv.Atoi(at.Port())
	if err != nil {
		return nil, err
	}
	port := func(protocol corev1.Protocol, number int) networkingv1.NetworkPolicyPort {
		n := intstr.FromInt(number)
		return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &n}
	}
	campaign := networkingv1.NetworkPolicyEgressRule{
		Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolTCP, number)},
	}
	egress := []networkingv1.NetworkPolicyEgressRule{campaign}
	if ip, err := netip.ParseAddr(at.Hostname()); err == nil {
		egress[0].To = []networkingv1.NetworkPolicyPeer{{
			IPBlock: &networkingv1.IPBlock{CIDR: netip.PrefixFrom(ip, ip.BitLen()).String()},
		}}
	} else { // a name: its address may change, and must be asked for
		egress = append(egress, networkingv1.NetworkPolicyEgressRule{
			Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolUDP, 53), port(corev1.ProtocolTCP, 53)},
		})
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"},
		ObjectMeta: c.meta(),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: c.own()},
			PolicyTypes: []networkingv1.PolicyType{
				networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress,
			},
			Egress: egress,
		},
	}, nil
}

func (c *Config) job() (*batchv1.Job, error) {
	if c.Name == "" || c.Namespace == "" || c.Image == "" || c.Token == "" || c.Workers < 1 {
		return nil, errors.New("a name, a namespace, an image, a token and at least one worker are needed")
	}
	cpu, err := resource.ParseQuantity(cmp.Or(c.CPU, defaultCPU))
	if err != nil {
		return nil, fmt.Errorf("CPU %q: %w", c.CPU, err)
	}
	memory, err := resource.ParseQuantity(cmp.Or(c.Memory, defaultMemory))
	if err != nil {
		return nil, fmt.Errorf("memory %q: %w", c.Memory, err)
	}
	limit := memory.DeepCopy()
	limit.Add(memory)
	ttl := c.TTL
	if ttl == 0 {
		ttl = time.Hour
	}
	meta := c.meta()
	maps.Copy(meta.Labels, c.Labels)
	return &batchv1.Job{
		TypeMeta: metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"}, ObjectMeta: meta,
		Spec: batchv1.JobSpec{
			CompletionMode: ptr(batchv1.IndexedCompletion),
			Completions:    ptr(int32(c.Workers)), Parallelism: ptr(int32(c.Workers)), //nolint:gosec // it is small
			BackoffLimitPerIndex:    ptr(int32(backoffPerIndex)),
			TTLSecondsAfterFinished: ptr(int32(ttl.Seconds())),
			Suspend:                 &c.Suspend,
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
				{ // a pod that was preempted or evicted is made again, however often
					Action: batchv1.PodFailurePolicyActionIgnore,
					OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{
						Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
					}},
				},
				{
					Action: batchv1.PodFailurePolicyActionFailJob,
					OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
						ContainerName: ptr(container), Operator: batchv1.PodFailurePolicyOnExitCodesOpIn,
						Values: []int32{exitRefused},
					},
				},
			}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: c.own()},
				Spec:       c.pod(cpu, memory, limit),
			},
		},
	}, nil
}

// pod has no rights on the cluster, and none on the node.
func (c *Config) pod(cpu, memory, limit resource.Quantity) corev1.PodSpec {
	args := []string{"worker", "--server", c.Server, "--token-file", tokenDir + "/" + tokenKey,
		"--name", "$(POD_NAME)", "--dir", workDir + "/run", "--cache", workDir + "/cache"}
	if c.Files != "" {
		args = append(args, "--files", c.Files)
	}
	spec := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(bool),
		EnableServiceLinks:            new(bool),
		TerminationGracePeriodSeconds: ptr(int64(30)), // to give the run back
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr(true), RunAsUser: ptr(int64(nonRootUID)), RunAsGroup: ptr(int64(nonRootUID)),
			FSGroup:        ptr(int64(nonRootUID)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: container, Image: c.Image,
			Args: args,
			Env: []corev1.EnvVar{
				{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
					FieldPath: "metadata.name"}}},
				{Name: "HOME", Value: workDir},
				{Name: "TMPDIR", Value: workDir},
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{
					corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory,
					corev1.ResourceEphemeralStorage: resource.MustParse(disk),
				},
				Limits: corev1.ResourceList{corev1.ResourceMemory: limit},
			},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(bool), ReadOnlyRootFilesystem: ptr(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "token", MountPath: tokenDir, ReadOnly: true}, {Name: "work", MountPath: workDir},
			},
		}},
		Volumes: []corev1.Volume{
			{Name: "token", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
				SecretName: c.Name, DefaultMode: ptr(int32(0o440)),
			}}},
			{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
	}
	if c.Arch != "" {
		spec.NodeSelector = map[string]string{corev1.LabelOSStable: "linux", corev1.LabelArchStable: c.Arch}
	}
	if c.PullSecret != "" {
		spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: c.PullSecret}}
	}
	return spec
}

func ptr[T any](v T) *T { return &v }

// Unstructured returns objects as they are applied: without a status, and without what is empty.
func Unstructured(list []runtime.Object) ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	for _, o := range list {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return nil, err
		}
		u := &unstructured.Unstructured{Object: content}
		unstructured.RemoveNestedField(content, "status")
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
		unstructured.RemoveNestedField(content, "spec", "template", "metadata", "creationTimestamp")
		found = append(found, u)
	}
	return found, nil
}

// YAML writes objects as one stream.
func YAML(list []runtime.Object) ([]byte, error) {
	clean, err := Unstructured(list)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for i, u := range clean {
		if i > 0 {
			out.WriteString("---\n")
		}
		data, err := yaml.Marshal(u.Object)
		if err != nil {
			return nil, err
		}
		out.Write(data)
	}
	return out.Bytes(), nil
}

// Name is the name of the objects of a campaign in a directory of this name.
func Name(dir string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(dir))
	return strings.TrimRight("trommel-"+name[:min(len(name), 40)], "-") // pods of a Job have longer names
}

// Server is the URL of a campaign that listens at host:port.
func Server(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		return "", fmt.Errorf("pods cannot reach %q: say with --advertise what they reach the campaign at", address)
	}
	return "https://" + net.JoinHostPort(host, port), nil
}
