package processnode

import (
	"context"
	"log/slog"
	"runtime"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/processnode/address"
)

// registration is the node's object and its lease.
type registration struct {
	name   string
	client kubernetes.Interface
	log    *slog.Logger
	ctx    context.Context // ends when the node closes
}

func (r *registration) register(ctx context.Context) error {
	_, err := r.client.CoreV1().Nodes().Create(ctx, r.object(), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var old *corev1.Node
		if old, err = r.client.CoreV1().Nodes().Get(ctx, r.name, metav1.GetOptions{}); err != nil {
			return err
		}
		node := r.object()
		node.ResourceVersion = old.ResourceVersion
		_, err = r.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	}
	return err
}

func (r *registration) object() *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("1k"),
		corev1.ResourceMemory:           resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("10k"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: r.name,
			Labels: map[string]string{
				cluster.LabelProcessNode: "true",
				corev1.LabelHostname:     r.name,
				corev1.LabelOSStable:     runtime.GOOS,
				corev1.LabelArchStable:   runtime.GOARCH,
			},
		},
		Spec: corev1.NodeSpec{
			Taints: []corev1.Taint{{Key: cluster.TaintProcessNode, Effect: corev1.TaintEffectNoSchedule}},
		},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: address.HostIP},
				{Type: corev1.NodeHostName, Address: r.name},
			},
			Conditions: []corev1.NodeCondition{readyCondition(metav1.NewTime(clock.Now(r.ctx)))},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: "trommel", OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
				ContainerRuntimeVersion: "process://1",
			},
		},
	}
}

func readyCondition(now metav1.Time) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		Message:           "pods run as local processes",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
}

// A kubelet's lease is valid for 40 s, and renewed every 10 s. This node ends with its cluster, so its absence
// need not be noticed soon, and each renewal costs an idle cluster whose clock moves ahead some time.
const (
	leaseSeconds      = 3600
	heartbeatInterval = 15 * time.Minute
	heartbeatRetry    = 10 * time.Second // after a failure
)

// heartbeat renews the node's lease until the node closes.
func (r *registration) heartbeat() {
	for {
		wait := heartbeatInterval
		if err := r.renewLease(); err != nil && r.ctx.Err() == nil {
			r.log.Warn("renew node lease", "node", r.name, "error", err)
			wait = heartbeatRetry
		}
		if clock.Sleep(r.ctx, wait) != nil {
			return
		}
	}
}

func (r *registration) renewLease() error {
	ctx, cancel := clock.WithTimeout(r.ctx, heartbeatRetry)
	defer cancel()
	leases := r.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	seconds, now := int32(leaseSeconds), metav1.NewMicroTime(clock.Now(r.ctx))
	lease, err := leases.Get(ctx, r.name, metav1.GetOptions{})
	switch {
	case err == nil:
		lease.Spec.RenewTime = &now
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	case apierrors.IsNotFound(err):
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: r.name},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &r.name, LeaseDurationSeconds: &seconds, RenewTime: &now,
			},
		}, metav1.CreateOptions{})
	}
	return err
}
