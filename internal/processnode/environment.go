package processnode

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/trommel-dev/trommel/internal/processnode/address"
	"github.com/trommel-dev/trommel/internal/processnode/faults"
)

// Environment variables with a process's service account.
const (
	// envServiceAccountDir is read by the hook's InClusterConfig.
	envServiceAccountDir = "TROMMEL_SERVICEACCOUNT_DIR"
	// envKubeconfig is the path of a kubeconfig file for the same access. For a process without hooks KUBECONFIG
	// contains it too, unless the container sets that variable. A process with hooks finds its service account at the
	// usual path; with KUBECONFIG set it would assume that it runs outside of a pod.
	envKubeconfig = "TROMMEL_KUBECONFIG"
)

// environment is a container's environment, in order of definition.
type environment struct {
	names  []string
	values map[string]string
	own    map[string]bool // defined by the container
}

func (e *environment) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environment) setOwn(name, value string) {
	e.set(name, value)
	e.own[name] = true
}

func (e *environment) lookup(name string) (string, bool) {
	v, ok := e.values[name]
	return v, ok
}

// environment builds the container's environment: a few of this machine's variables, those that Kubernetes defines, and
// the container's own.
func (c *container) environment(ctx context.Context, home string) (*environment, error) {
	e := &environment{values: map[string]string{}, own: map[string]bool{}}
	for _, name := range []string{"PATH", "LANG", "TZ"} {
		if v, ok := os.LookupEnv(name); ok {
			e.set(name, v)
		}
	}
	e.set("HOME", home)
	e.set("HOSTNAME", c.pod.hostname())
	if c.program.hooked {
		e.set(envPodHostname, c.pod.hostname())
		if c.pod.address.Own() {
			e.set(envPodIP, c.pod.address.IP.String())
			e.set(envPodLoopback, c.pod.address.Loopback.String())
			e.set(envPodID, string(c.pod.uid))
			e.set(envPodAgent, c.pod.node.agentSocket())
		}
	} else {
		e.set("TMPDIR", home)
	}
	host, port, err := net.SplitHostPort(c.pod.faults.APIServer())
	if err != nil {
		return nil, err
	}
	e.set("KUBERNETES_SERVICE_HOST", host)
	e.set("KUBERNETES_SERVICE_PORT", port)
	e.set("KUBERNETES_SERVICE_PORT_HTTPS", port)
	if dir, kubeconfig, ok := c.pod.volumes.Account(); ok {
		e.set(envServiceAccountDir, dir)
		e.set(envKubeconfig, kubeconfig)
		if !c.program.hooked {
			e.set("KUBECONFIG", kubeconfig)
		}
	}
	if c.pod.isInjector() {
		e.set(faults.SocketVariable, c.pod.node.faultSocket())
	}
	for _, from := range c.spec.EnvFrom {
		if err := c.pod.envFrom(ctx, e, from); err != nil {
			return nil, err
		}
	}
	for _, v := range c.spec.Env {
		if v.ValueFrom == nil {
			e.setOwn(v.Name, expand(v.Value, e.lookup))
			continue
		}
		value, ok, err := c.valueFrom(ctx, v.ValueFrom)
		if err != nil {
			return nil, fmt.Errorf("env %s: %w", v.Name, err)
		}
		if ok {
			e.setOwn(v.Name, value)
		}
	}
	return e, nil
}

func (p *pod) envFrom(ctx context.Context, e *environment, from corev1.EnvFromSource) error {
	var data map[string]string
	switch {
	case from.ConfigMapRef != nil:
		cm, err := p.objects().ConfigMap(ctx, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		if err != nil {
			return fmt.Errorf("envFrom: %w", err)
		}
		if cm != nil {
			data = cm.Data
		}
	case from.SecretRef != nil:
		secret, err := p.objects().Secret(ctx, from.SecretRef.Name, from.SecretRef.Optional)
		if err != nil {
			return fmt.Errorf("envFrom: %w", err)
		}
		data = map[string]string{}
		if secret != nil {
			for k, v := range secret.Data {
				data[k] = string(v)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		e.setOwn(from.Prefix+name, data[name])
	}
	return nil
}

// valueFrom returns false for a missing optional value.
func (c *container) valueFrom(ctx context.Context, from *corev1.EnvVarSource) (string, bool, error) {
	p := c.pod
	switch {
	case from.FieldRef != nil:
		v, err := p.field(from.FieldRef.FieldPath)
		return v, err == nil, err
	case from.ResourceFieldRef != nil:
		v, err := c.resource(from.ResourceFieldRef)
		return v, err == nil, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		cm, err := p.objects().ConfigMap(ctx, ref.Name, ref.Optional)
		if err != nil || cm == nil {
			return "", false, err
		}
		v, ok := cm.Data[ref.Key]
		if !ok && !isTrue(ref.Optional) {
			return "", false, fmt.Errorf("config map %s/%s has no key %q", p.namespace, ref.Name, ref.Key)
		}
		return v, ok, nil
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		secret, err := p.objects().Secret(ctx, ref.Name, ref.Optional)
		if err != nil || secret == nil {
			return "", false, err
		}
		v, ok := secret.Data[ref.Key]
		if !ok && !isTrue(ref.Optional) {
			return "", false, fmt.Errorf("secret %s/%s has no key %q", p.namespace, ref.Name, ref.Key)
		}
		return string(v), ok, nil
	}
	return "", false, fmt.Errorf("source is not supported on the process node")
}

func isTrue(b *bool) bool { return b != nil && *b }

func (p *pod) annotations() map[string]string {
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	return p.object.Annotations
}

// isInjector reports whether the pod begins and ends faults of other pods.
func (p *pod) isInjector() bool { return faults.IsInjector(p.annotations()) }

// field resolves a downward API field path.
func (p *pod) field(path string) (string, error) {
	p.node.mu.Lock()
	o := p.object
	p.node.mu.Unlock()
	if kind, key, ok := strings.Cut(strings.TrimSuffix(path, "']"), "['"); ok && strings.HasSuffix(path, "']") {
		switch kind {
		case "metadata.labels":
			return o.Labels[key], nil
		case "metadata.annotations":
			return o.Annotations[key], nil
		}
	}
	switch path {
	case "metadata.name":
		return o.Name, nil
	case "metadata.namespace":
		return o.Namespace, nil
	case "metadata.uid":
		return string(o.UID), nil
	case "metadata.labels":
		return formatMap(o.Labels), nil
	case "metadata.annotations":
		return formatMap(o.Annotations), nil
	case "spec.nodeName":
		return o.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return o.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return address.HostIP, nil
	case "status.podIP", "status.podIPs":
		return p.address.IP.String(), nil
	}
	return "", fmt.Errorf("field path %q is not supported", path)
}

func formatMap(m map[string]string) string {
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%s=%q", k, m[k]))
	}
	return strings.Join(lines, "\n")
}

// resource resolves a limit or request of a container; if it is not set, it uses the node's allocatable amount.
func (c *container) resource(ref *corev1.ResourceFieldSelector) (string, error) {
	spec := c.spec
	if ref.ContainerName != "" {
		all := slices.Concat(c.pod.init, c.pod.containers)
		i := slices.IndexFunc(all, func(o *container) bool { return o.spec.Name == ref.ContainerName })
		if i < 0 {
			return "", fmt.Errorf("no container %q", ref.ContainerName)
		}
		spec = all[i].spec
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	list := spec.Resources.Limits
	if kind == "requests" {
		list = spec.Resources.Requests
	}
	quantity, ok := list[corev1.ResourceName(name)]
	if !ok {
		quantity = c.pod.node.registration.object().Status.Allocatable[corev1.ResourceName(name)]
	}
	divisor := ref.Divisor.MilliValue()
	if divisor == 0 {
		divisor = 1000
	}
	// Rounded up, as a kubelet does.
	return fmt.Sprint((quantity.MilliValue() + divisor - 1) / divisor), nil
}

// expand replaces $(NAME) by a variable's value; $$ stands for $, and undefined names stay as they are.
func expand(s string, lookup func(string) (string, bool)) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i+1 == len(s) {
			b.WriteString(s)
			return b.String()
		}
		b.WriteString(s[:i])
		s = s[i:]
		switch {
		case s[1] == '$':
			b.WriteByte('$')
			s = s[2:]
			continue
		case s[1] == '(':
			if end := strings.IndexByte(s, ')'); end > 0 {
				if v, ok := lookup(s[2:end]); ok {
					b.WriteString(v)
				} else {
					b.WriteString(s[:end+1])
				}
				s = s[end+1:]
				continue
			}
		}
		b.WriteByte('$')
		s = s[1:]
	}
}
