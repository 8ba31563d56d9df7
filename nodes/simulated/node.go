package simulated

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trommel-dev/trommel/chaos/inject/fault"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

// newNode returns an instance's Node. It is not Ready: that is KWOK's to write, when the Node has its annotation.
func newNode(
	g *nodes.SimulatedNodeGroup, i *nodes.SimulatedInstance, connected bool, now metav1.Time,
) *corev1.Node {
	t := &g.Spec.Template
	labels := map[string]string{}
	maps.Copy(labels, t.Labels)
	maps.Copy(labels, map[string]string{
		corev1.LabelHostname: i.NodeName, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		"type": "kwok", LabelGroup: g.Name,
	})
	if i.Version != "" {
		labels[LabelVersion] = i.Version
	}
	var annotations map[string]string
	if connected {
		annotations = map[string]string{fault.AnnotationSimulated: kwok}
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1k"), corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourcePods: resource.MustParse("10k"), corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
	}
	maps.Copy(capacity, t.Capacity)
	address := t.Address
	if address == "" {
		address = addressOf(i.ProviderID)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: i.NodeName, Labels: labels, Annotations: annotations,
			// Nothing of a group is left when it has been deleted.
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(g,
				nodes.GroupVersion.WithKind("SimulatedNodeGroup"))},
		},
		Spec: corev1.NodeSpec{ProviderID: i.ProviderID, Taints: t.Taints},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity, Phase: corev1.NodePending,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: i.NodeName},
			},
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady",
				Message: "the simulated instance is starting", LastHeartbeatTime: now, LastTransitionTime: now,
			}},
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "kwok", OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
}

// kwok is the value of KWOK's annotation on Nodes that it manages.
const kwok = "fake"

// addressOf is an address of 198.18.0.0/15, which is reserved for benchmarks of networks. Two instances may get the
// same.
func addressOf(providerID string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(providerID))
	n := 1 + h.Sum32()%(1<<17-2)
	return fmt.Sprintf("198.%d.%d.%d", 18+n>>16, n>>8&255, n&255)
}

// register creates an instance's Node.
func (c *cloud) register(
	ctx context.Context, g *nodes.SimulatedNodeGroup, i *nodes.SimulatedInstance, ready bool,
) error {
	node := newNode(g, i, ready, metav1.NewTime(c.now()))
	err := c.Create(ctx, node)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	var is corev1.Node
	if err := c.reader.Get(ctx, client.ObjectKeyFromObject(node), &is); err != nil {
		return err
	}
	if !metav1.IsControlledBy(&is, g) || is.Spec.ProviderID != i.ProviderID {
		return fmt.Errorf("the Node %s exists and is not that of %s: it is not touched", is.Name, i.ProviderID)
	}
	if ready {
		return c.connect(ctx, i)
	}
	return nil
}

// connect lets KWOK manage a Node. A Node that another client has deleted stays deleted.
func (c *cloud) connect(ctx context.Context, i *nodes.SimulatedInstance) error {
	node, err := c.node(ctx, i)
	if node == nil || err != nil {
		return err
	}
	before := node.DeepCopy()
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, fault.AnnotationSimulated, kwok)
	return client.IgnoreNotFound(c.Patch(ctx, node,
		client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// node reads an instance's Node; nil if there is none.
func (c *cloud) node(ctx context.Context, i *nodes.SimulatedInstance) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := c.reader.Get(ctx, client.ObjectKey{Name: i.NodeName}, node)
	if apierrors.IsNotFound(err) || err == nil && node.Spec.ProviderID != i.ProviderID {
		return nil, nil
	}
	return node, err
}

func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
