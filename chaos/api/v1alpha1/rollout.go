package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DisruptionRollout creates a disruption each time a workload gets a new version: when its pod template has changed.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=disroll,categories=chaos
// +kubebuilder:printcolumn:name=Target,type=string,JSONPath=`.spec.target.name`
// +kubebuilder:printcolumn:name=Suspend,type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name=Changes,type=integer,JSONPath=`.status.changes`
// +kubebuilder:printcolumn:name=Last,type=string,JSONPath=`.status.lastDisruption`
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type DisruptionRollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec DisruptionRolloutSpec `json:"spec"`
	// +optional
	Status DisruptionRolloutStatus `json:"status,omitempty"`
}

// DisruptionRolloutList is a list of DisruptionRollouts.
//
// +kubebuilder:object:root=true
type DisruptionRolloutList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DisruptionRollout `json:"items"`
}

// DisruptionRolloutSpec says which disruptions are created, and for which workload.
type DisruptionRolloutSpec struct {
	// Target is the workload, in the same namespace.
	Target Workload `json:"target"`
	// Suspend creates no new disruptions.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// Disruption is the spec of the disruptions. While one of them lasts, no other is created.
	Disruption DisruptionSpec `json:"disruption"`
}

// Workload is what makes pods from a template.
type Workload struct {
	// +kubebuilder:validation:Enum=Deployment;StatefulSet;DaemonSet
	Kind string `json:"kind"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// DisruptionRolloutStatus is written by the controller.
type DisruptionRolloutStatus struct {
	// Version identifies the newest version of the target that was seen. The first one is not a change.
	// +optional
	Version string `json:"version,omitempty"`
	// Changes counts the versions since.
	// +optional
	Changes int64 `json:"changes,omitempty"`
	// LastDisruption is the name of the newest disruption that was created.
	// +optional
	LastDisruption string `json:"lastDisruption,omitempty"`
	// Message says why the newest version has no disruption, or that there is no target.
	// +optional
	Message string `json:"message,omitempty"`
}
