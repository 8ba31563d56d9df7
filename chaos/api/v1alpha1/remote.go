package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// RemoteCluster is another cluster, a child of this one, in which disruptions with spec.remoteCluster are carried out.
// The controllers of disruptions run there already, best with --mode=child, or those of this cluster install them;
// those of this cluster, with --mode=parent, create the disruptions there and read their status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=rc,categories=chaos
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name=Reachable,type=string,JSONPath=`.status.conditions[?(@.type=='Reachable')].status`
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=`.status.currentVersion`
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
//
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="the name must not have more than 63 characters"
type RemoteCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RemoteClusterSpec `json:"spec"`
	// +optional
	Status RemoteClusterStatus `json:"status,omitempty"`
}

// RemoteClusterList is a list of RemoteClusters.
//
// +kubebuilder:object:root=true
type RemoteClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RemoteCluster `json:"items"`
}

// AnnotationForceRemoval with the value "true" removes a RemoteCluster that objects still use, or a disruption with
// remoteCluster even if it is unknown whether the other cluster still carries it out.
const AnnotationForceRemoval = "chaos.trommel.dev/force-removal"

// Annotations of an object with remoteCluster that name who created it, or last changed its spec. The admission policy
// of the parent's manifests sees to it that they are true.
const (
	// AnnotationUser is the user's name.
	AnnotationUser = "chaos.trommel.dev/user"
	// AnnotationGroups are the user's groups, one a line.
	AnnotationGroups = "chaos.trommel.dev/groups"
)

// RemoteClusterSpec says how the other cluster is reached, and whether the controllers there are installed from here.
//
// +kubebuilder:validation:XValidation:rule="!has(self.install) || !self.install || self.__namespace__ == oldSelf.__namespace__",message="namespace cannot be changed while install is true: the controllers would stay where they are"
type RemoteClusterSpec struct {
	// Namespace of the controllers of disruptions in the other cluster.
	// +kubebuilder:default=trommel-chaos
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// KubeConfig is the access to the other cluster.
	KubeConfig KubeConfig `json:"kubeConfig"`
	// Install has the controllers of this cluster install those of the other one, upgrade them to their own version,
	// and uninstall them when the RemoteCluster is deleted. An installation that was made by other means is never
	// touched.
	// +optional
	Install bool `json:"install,omitempty"`
	// ConfigOverride are values of the Helm chart trommel-chaos for the other cluster, over those of the ConfigMap
	// disruption-child-values. They have an effect if install is true.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	ConfigOverride *runtime.RawExtension `json:"configOverride,omitempty"`
}

// KubeConfig is where a kubeconfig is.
//
// +kubebuilder:validation:XValidation:rule="!has(self.key) || !has(self.secretRef.key)",message="key and secretRef.key are the same: give one of them"
type KubeConfig struct {
	// SecretRef names a Secret in the namespace of this cluster's controllers.
	SecretRef SecretKey `json:"secretRef"`
	// Key is another place for secretRef.key: that of Chaos Mesh's RFC 44.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Key string `json:"key,omitempty"`
}

// SecretKey names a key of a Secret.
type SecretKey struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key of the Secret whose value is the kubeconfig; default: kubeconfig. The kubeconfig must have all credentials in
	// it: neither files nor programs that yield them are used.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Key string `json:"key,omitempty"`
}

// RemoteClusterStatus is written by the controller.
type RemoteClusterStatus struct {
	// ObservedGeneration is the generation of the spec that the conditions are about. With install, it is the one that
	// has been installed, or could not be.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// CurrentVersion is that of the controllers in the other cluster: the tag or digest of their image.
	// +optional
	CurrentVersion string `json:"currentVersion,omitempty"`
	// ClusterID identifies the other cluster: the UID of its namespace kube-system.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`
	// Message says in a sentence why the cluster is not ready, what has not been installed there as the spec wants it,
	// or what keeps the RemoteCluster from being removed.
	// +optional
	Message string `json:"message,omitempty"`
	// Conditions: Reachable, Installed, Ready, Removable.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions of a RemoteCluster. A deleted one has ConditionRemovable, too, which is false while objects use it.
const (
	// ConditionReachable is whether the cluster's API server answers.
	ConditionReachable = "Reachable"
	// ConditionInstalled is whether the controllers of disruptions are installed there.
	ConditionInstalled = "Installed"
	// ConditionReady is whether all of their pods are ready. Disruptions begin only then.
	ConditionReady = "Ready"
)

// RemoteTarget is where a disruption is carried out.
type RemoteTarget struct {
	// Cluster is the name of a RemoteCluster.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Cluster string `json:"cluster"`
	// Namespace there; it is not created.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
}

// RemoteStatus is about the disruption in the other cluster.
type RemoteStatus struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	// Name of the disruption there.
	Name string `json:"name"`
	// UID of the disruption there.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// Events of the disruption there, newest first.
	// +kubebuilder:validation:MaxItems=20
	// +optional
	// +listType=atomic
	Events []RemoteEvent `json:"events,omitempty"`
}

// RemoteEvent is an event of a disruption in another cluster.
type RemoteEvent struct {
	// Time at which it happened last.
	Time metav1.Time `json:"time"`
	// Type is Normal or Warning.
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Count is how often it happened.
	// +optional
	Count int32 `json:"count,omitempty"`
}
