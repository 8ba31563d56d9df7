package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group with its version.
var GroupVersion = schema.GroupVersion{Group: "nodes.trommel.dev", Version: "v1alpha1"}

// AddToScheme adds the types of the group to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &CycleNodeRequest{}, &CycleNodeRequestList{}, &CycleNodeStatus{},
		&CycleNodeStatusList{}, &SimulatedNodeGroup{}, &SimulatedNodeGroupList{}, &ProviderCall{}, &ProviderCallList{},
		&NodeGroup{}, &NodeGroupList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
