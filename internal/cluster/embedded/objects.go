package embedded

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/embedded/snapshot"
)

const (
	podCIDR      = "10.128.0.0/16"
	storageClass = "standard"
	provisioner  = "trommel.dev/volume"
)

// createObjects creates the nodes and the storage class, and waits until pods can be created in namespace default.
func (c *Cluster) createObjects(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.access.restConfig(c.infra.Addr(), c.apis[0].admin))
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	// A busy machine may be too slow for a handshake, so each is tried until the start's time is over.
	try := func(what string, f func(context.Context) error) {
		group.Go(func() error {
			err := cluster.Poll(ctx, pollInterval, func(ctx context.Context) error {
				if err := f(ctx); !apierrors.IsAlreadyExists(err) {
					return err
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			return nil
		})
	}
	try("create storage class", func(ctx context.Context) error {
		_, err := client.StorageV1().StorageClasses().Create(ctx, newStorageClass(), metav1.CreateOptions{})
		return err
	})
	for i := range c.config.Nodes {
		name := fmt.Sprintf("node-%d", i+1)
		try("create node "+name, func(ctx context.Context) error {
			node := newNode(name, nodeIP(i), metav1.NewTime(c.clock.Now()))
			_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
			return err
		})
	}
	try("wait for the default service account", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return group.Wait()
}

func newStorageClass() *storagev1.StorageClass {
	reclaim, binding, expand := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingImmediate, true
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name:        storageClass,
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner:          provisioner,
		ReclaimPolicy:        &reclaim,
		VolumeBindingMode:    &binding,
		AllowVolumeExpansion: &expand,
	}
}

// nodeIP returns the address of the i-th simulated node, from 0. Nothing listens there; see network.
func nodeIP(i int) string { return fmt.Sprintf("10.127.%d.%d", (i+1)/256, (i+1)%256) }

// newNode returns a node that is ready from the start, which is now.
func newNode(name, ip string, now metav1.Time) *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("1k"),
		corev1.ResourceMemory:           resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("10k"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{snapshot.SimulatedAnnotation: snapshot.SimulatedValue},
			Labels: map[string]string{
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   "linux",
				corev1.LabelArchStable: "amd64",
				"type":                 "kwok",
			},
		},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity,
			Phase:       corev1.NodeRunning,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: ip},
				{Type: corev1.NodeHostName, Address: name},
			},
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
				Message:           "simulated by KWOK",
				LastHeartbeatTime: now, LastTransitionTime: now,
			}},
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "kwok", OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
}
