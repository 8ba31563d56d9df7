package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// CycleNodeStatus drains, deletes and terminates one node. Only the controller of requests makes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=cyclenodestatuses,shortName=cns,categories=node-cycling
// +kubebuilder:printcolumn:name=Node,type=string,JSONPath=`.spec.node.name`
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name=Provider ID,type=string,JSONPath=`.spec.node.providerId`,priority=1
// +kubebuilder:printcolumn:name=Method,type=string,JSONPath=`.spec.cycleSettings.method`,priority=1
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type CycleNodeStatus struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec is immutable"
	Spec CycleNodeStatusSpec `json:"spec"`
	// Status is written by the controller.
	// +optional
	Status CycleNodeStatusStatus `json:"status,omitempty"`
}

// CycleNodeStatusList is a list of CycleNodeStatuses.
//
// +kubebuilder:object:root=true
type CycleNodeStatusList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CycleNodeStatus `json:"items"`
}

// CycleNodeStatusSpec says which node is cycled, and how.
type CycleNodeStatusSpec struct {
	// Request is the name of the CycleNodeRequest.
	Request string `json:"request"`
	// RequestUID is its UID.
	RequestUID types.UID `json:"requestUID"`
	// Node is the node, which is detached from its group.
	Node NodeRef `json:"node"`
	// CycleSettings are the request's.
	CycleSettings CycleSettings `json:"cycleSettings"`
	// Restore is set if nothing comes in the node's place: nothing is evicted for which no other node is known to have
	// room.
	// +optional
	Restore bool `json:"restore,omitempty"`
}

// StatusPhase is the phase of a CycleNodeStatus.
type StatusPhase string

// The phases of a CycleNodeStatus. A new one has none.
const (
	StatusPending                StatusPhase = "Pending"
	StatusWaitingPods            StatusPhase = "WaitingPods"
	StatusRemovingLabelsFromPods StatusPhase = "RemovingLabelsFromPods"
	StatusDrainingPods           StatusPhase = "DrainingPods"
	StatusDeletingNode           StatusPhase = "DeletingNode"
	StatusTerminatingNode        StatusPhase = "TerminatingNode"
	StatusSuccessful             StatusPhase = "Successful"
	StatusFailed                 StatusPhase = "Failed"
)

// CycleNodeStatusStatus is how far the node has come.
type CycleNodeStatusStatus struct {
	// Phase is empty for a new CycleNodeStatus.
	// +optional
	// +kubebuilder:validation:Enum=Pending;WaitingPods;RemovingLabelsFromPods;DrainingPods;DeletingNode;TerminatingNode;Successful;Failed
	Phase StatusPhase `json:"phase,omitempty"`
	// PhaseStarted is when the phase began.
	// +optional
	PhaseStarted *metav1.MicroTime `json:"phaseStarted,omitempty"`
	// Message says in a sentence what is waited for, or why it failed.
	// +optional
	Message string `json:"message,omitempty"`
	// CurrentNode is the node as it was found.
	// +optional
	CurrentNode *NodeRef `json:"currentNode,omitempty"`
	// StartedTimestamp is when work on the node began.
	// +optional
	StartedTimestamp *metav1.MicroTime `json:"startedTimestamp,omitempty"`
	// FinishedAt is when it was Successful or Failed.
	// +optional
	FinishedAt *metav1.MicroTime `json:"finishedAt,omitempty"`
}
