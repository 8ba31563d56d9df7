package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeGroup watches groups of nodes: which instances were started from another template than the provider would use
// now. It only reports them, or makes requests that replace them.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=ng,categories=node-cycling
// +kubebuilder:printcolumn:name=Mode,type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name=Instances,type=integer,JSONPath=`.status.instances`
// +kubebuilder:printcolumn:name=Outdated,type=integer,JSONPath=`.status.outdated`
// +kubebuilder:printcolumn:name=Request,type=string,JSONPath=`.status.request`
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40",message="the name must have at most 40 characters: the names of its requests begin with it"
type NodeGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NodeGroupSpec `json:"spec"`
	// Status is written by the controller.
	// +optional
	Status NodeGroupStatus `json:"status,omitempty"`
}

// NodeGroupList is a list of NodeGroups.
//
// +kubebuilder:object:root=true
type NodeGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeGroup `json:"items"`
}

// NodeGroupMode is what happens when instances are out of date.
//
// +kubebuilder:validation:Enum=Report;Cycle
type NodeGroupMode string

// The modes.
const (
	// ModeReport only says so.
	ModeReport NodeGroupMode = "Report"
	// ModeCycle makes a request that replaces their nodes.
	ModeCycle NodeGroupMode = "Cycle"
)

// NodeGroupSpec says which groups are watched, and what happens to nodes that are out of date.
//
// +kubebuilder:validation:XValidation:rule="self.mode != 'Cycle' || has(self.request.cycleSettings) && has(self.request.cycleSettings.concurrency) || has(self.request.cycleNodeSettings) && has(self.request.cycleNodeSettings.concurrency)",message="mode Cycle needs request.cycleSettings.concurrency: without it, all nodes would be replaced at once"
// +kubebuilder:validation:XValidation:rule="!has(self.request.nodeNames)",message="nodeNames are chosen by the controller"
// +kubebuilder:validation:XValidation:rule="!has(self.request.restore) || !self.request.restore",message="restore is for requests by hand"
type NodeGroupSpec struct {
	// Mode is Report or Cycle.
	// +optional
	// +kubebuilder:default=Report
	Mode NodeGroupMode `json:"mode,omitempty"`
	// Request is the spec of the requests, with the groups and the selector of their nodes. Each is for the nodes that
	// are out of date then.
	Request CycleNodeRequestSpec `json:"request"`
	// MaxFailedRequests is how many failed requests of this NodeGroup there may be before no more are made; delete them
	// to go on. Default: 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	MaxFailedRequests int64 `json:"maxFailedRequests,omitempty"`
}

// NodeGroupStatus is what the controller has seen last.
type NodeGroupStatus struct {
	// Instances is the number of instances of the groups.
	// +optional
	Instances int64 `json:"instances"`
	// Outdated is how many of those that are in service are out of date.
	// +optional
	Outdated int64 `json:"outdated"`
	// OutdatedNodes are their Nodes, at most 100 of them.
	// +optional
	// +listType=set
	OutdatedNodes []string `json:"outdatedNodes,omitempty"`
	// Request is the last request that was made for this NodeGroup.
	// +optional
	Request string `json:"request,omitempty"`
	// Message says in a sentence what is so, or waited for.
	// +optional
	Message string `json:"message,omitempty"`
	// ObservedGeneration is that of the spec.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
