package processnode

import (
	"fmt"
	"io"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// PodInfo is what the cluster's network needs to know about a pod. It is the caller's copy, except for Labels, which
// are read-only.
type PodInfo struct {
	Namespace, Name string
	Labels          map[string]string
	Hostname        string // below a headless Service
	IP              string // as in its status: the loopback address at which its programs listen
	Ready           bool
	Terminating     bool

	spec *corev1.PodSpec
}

// Port returns the number of the container port with that name.
func (p PodInfo) Port(name string) (int32, bool) {
	for _, containers := range [][]corev1.Container{p.spec.Containers, p.spec.InitContainers} {
		for _, c := range containers {
			for _, port := range c.Ports {
				if port.Name == name && (port.Protocol == "" || port.Protocol == corev1.ProtocolTCP) {
					return port.ContainerPort, true
				}
			}
		}
	}
	return 0, false
}

// Pods lists the pods that run here, including changes that the node has not yet written to the API server.
func (n *Node) Pods() []PodInfo {
	n.mu.Lock()
	pods := make([]*pod, 0, len(n.pods))
	for _, p := range n.pods {
		pods = append(pods, p)
	}
	n.mu.Unlock()
	list := make([]PodInfo, 0, len(pods))
	for _, p := range pods {
		status := p.status()
		n.mu.Lock()
		object, terminating := p.object, p.ending.begun
		n.mu.Unlock()
		info := PodInfo{
			Namespace: p.namespace, Name: p.name, Labels: object.Labels, Hostname: p.spec.Hostname, IP: status.PodIP,
			Terminating: terminating, spec: p.spec,
		}
		for _, c := range status.Conditions {
			info.Ready = info.Ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}
		list = append(list, info)
	}
	return list
}

// Log opens the output of a container of a pod on this node, from the container's last start; ok is false if the pod
// does not run here.
func (n *Node) Log(namespace, name, containerName string) (log io.ReadCloser, ok bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		if p.namespace != namespace || p.name != name {
			continue
		}
		for _, c := range slices.Concat(p.init, p.containers) {
			if c.spec.Name != containerName {
				continue
			}
			r := c.current
			if r == nil {
				r = c.last
			}
			if r == nil {
				return nil, true, fmt.Errorf("container %q of pod %s/%s has not started",
					containerName, namespace, name)
			}
			f, err := os.Open(r.record.Log)
			if err != nil {
				return nil, true, err
			}
			if _, err := f.Seek(r.record.LogStart, io.SeekStart); err != nil {
				_ = f.Close()
				return nil, true, err
			}
			return f, true, nil
		}
		return nil, true, fmt.Errorf("pod %s/%s has no container %q", namespace, name, containerName)
	}
	return nil, false, nil
}
