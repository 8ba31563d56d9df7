package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group with its version.
var GroupVersion = schema.GroupVersion{Group: "chaos.trommel.dev", Version: "v1alpha1"}

// AddToScheme adds the types of the group to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Disruption{}, &DisruptionList{}, &DisruptionCron{}, &DisruptionCronList{},
		&DisruptionRollout{}, &DisruptionRolloutList{}, &RemoteCluster{}, &RemoteClusterList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
