package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// CycleNodeRequest asks for the replacement of a group's nodes, some at a time: each is detached from its group, which
// starts another in its place, then drained, deleted and terminated.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cnr,categories=node-cycling
// +kubebuilder:printcolumn:name=Node group name,type=string,JSONPath=`.spec.nodeGroupName`
// +kubebuilder:printcolumn:name=Node selector,type=string,JSONPath=`.spec.selector`
// +kubebuilder:printcolumn:name=Method,type=string,JSONPath=`.spec['cycleSettings','cycleNodeSettings'].method`
// +kubebuilder:printcolumn:name=Concurrency,type=integer,JSONPath=`.spec['cycleSettings','cycleNodeSettings'].concurrency`
// +kubebuilder:printcolumn:name=Status,type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name=Cycled,type=string,JSONPath=`.status.progress`,priority=1
// +kubebuilder:printcolumn:name=Current nodes,type=string,JSONPath=`.status.currentNodeNames`,priority=1
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 52",message="the name must have at most 52 characters: the names of CycleNodeStatuses begin with it"
type CycleNodeRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec is immutable: create another request"
	Spec CycleNodeRequestSpec `json:"spec"`
	// Status is written by the controller.
	// +optional
	Status CycleNodeRequestStatus `json:"status,omitempty"`
}

// CycleNodeRequestList is a list of requests.
//
// +kubebuilder:object:root=true
type CycleNodeRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CycleNodeRequest `json:"items"`
}

// CycleNodeRequestSpec says which nodes are cycled, and how. Cyclops' names of some fields are accepted beside ours:
// see UnmarshalJSON.
//
// +kubebuilder:validation:XValidation:rule="!has(self.cycleNodeSettings) || !has(self.cycleSettings)",message="cycleNodeSettings is another name of cycleSettings: give one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.restore) || !self.restore || !has(self.cycleNodeSettings)",message="restore needs the name cycleSettings instead of cycleNodeSettings"
// +kubebuilder:validation:XValidation:rule="!has(self.restore) || !self.restore || !has(self.cycleSettings) || !has(self.cycleSettings.concurrency) || self.cycleSettings.concurrency == 1",message="restore removes one node at a time"
// +kubebuilder:validation:XValidation:rule="!has(self.restore) || !self.restore || !has(self.cycleSettings) || !has(self.cycleSettings.force) || !self.cycleSettings.force",message="restore and cycleSettings.force exclude each other: pods that nothing makes again have no other place"
type CycleNodeRequestSpec struct {
	// NodeGroupName is the provider's name of the node group.
	// +kubebuilder:validation:MinLength=1
	NodeGroupName string `json:"nodeGroupName"`
	// NodeGroupsList are more groups whose nodes the selector selects. Duplicates are ignored. The concurrency is that
	// of all groups together.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	NodeGroupsList []string `json:"nodeGroupsList,omitempty"`
	// Selector selects the nodes of the groups. It must not be empty.
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="the selector must not be empty: it would select all nodes of the cluster"
	Selector metav1.LabelSelector `json:"selector"`
	// NodeNames are the nodes to be cycled. Without it, all nodes of the groups are.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	NodeNames []string `json:"nodeNames,omitempty"`
	// Restore removes nodes by which failed requests have enlarged the groups, instead of replacing nodes: nodes that
	// were started for such a request and have the annotation nodes.trommel.dev/surplus-above, one at a time, until the
	// groups are as large as before it. Nothing is done to a node with pods for which no other node is known to have
	// room.
	// +optional
	Restore bool `json:"restore,omitempty"`
	// CycleSettings say how a node is cycled.
	// +optional
	CycleSettings CycleSettings `json:"cycleSettings,omitempty"`
	// CycleNodeSettings is another name of cycleSettings, which the documentation of Cyclops uses. Give one of them.
	// +optional
	CycleNodeSettings *CycleSettings `json:"cycleNodeSettings,omitempty"`
	// HealthChecks must pass for each new node before old ones are drained, and for the old ones before the first is
	// cycled.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	HealthChecks []HealthCheck `json:"healthChecks,omitempty"`
	// SkipInitialHealthChecks leaves out the health checks of the old nodes.
	// +optional
	SkipInitialHealthChecks bool `json:"skipInitialHealthChecks,omitempty"`
	// PreTerminationChecks are made for each old node before it is drained.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	PreTerminationChecks []PreTerminationCheck `json:"preTerminationChecks,omitempty"`
	// SkipPreTerminationChecks leaves them out.
	// +optional
	SkipPreTerminationChecks bool `json:"skipPreTerminationChecks,omitempty"`
	// ValidationOptions make the validation of the request more lenient.
	// +optional
	ValidationOptions ValidationOptions `json:"validationOptions,omitempty"`
	// TTLAfterFinished is how long the request is kept after it has ended, Successful or Failed. Then it is deleted.
	// Default: it is kept.
	// +optional
	TTLAfterFinished chaos.Duration `json:"ttlAfterFinished,omitempty"`
}

// ValidationOptions make the validation of a request more lenient.
type ValidationOptions struct {
	// SkipMissingNamedNodes ignores nodeNames that are not in the groups. Otherwise the request fails.
	// +optional
	SkipMissingNamedNodes bool `json:"skipMissingNamedNodes,omitempty"`
}

// Method is what happens to the pods of a node.
//
// +kubebuilder:validation:Enum=Drain;Wait;EvictionRequest
type Method string

// The methods.
const (
	// MethodDrain evicts pods, as kubectl drain does.
	MethodDrain Method = "Drain"
	// MethodWait waits until pods have ended by themselves, and then drains what is left.
	MethodWait Method = "Wait"
	// MethodEvictionRequest asks Kubernetes for the end of pods, by its API EvictionRequest, and waits for it. It is as
	// experimental as this API.
	MethodEvictionRequest Method = "EvictionRequest"
)

// CycleSettings say how a node is cycled.
type CycleSettings struct {
	// Method is Drain, Wait or EvictionRequest. EvictionRequest is experimental: it needs an alpha API of Kubernetes.
	// +optional
	// +kubebuilder:default=Drain
	Method Method `json:"method,omitempty"`
	// Concurrency is the number of nodes that are cycled at a time. Default: all.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Concurrency int64 `json:"concurrency,omitempty"`
	// LabelsToRemove are the keys of labels that are removed from a node's pods before they are drained, so that
	// services send nothing more to them.
	// +optional
	// +kubebuilder:validation:MaxItems=50
	LabelsToRemove []string `json:"labelsToRemove,omitempty"`
	// IgnorePodsLabels are labels with values: pods with one of them are not waited for. Only with the method Wait.
	// +optional
	IgnorePodsLabels map[string][]string `json:"ignorePodsLabels,omitempty"`
	// IgnoreNamespaces are namespaces whose pods are not waited for. Only with the method Wait.
	// +optional
	IgnoreNamespaces []string `json:"ignoreNamespaces,omitempty"`
	// WaitForAnnotation is the key of an annotation: only pods with it, with the value "true", are waited for. Default:
	// all pods are. Only with the method Wait.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	WaitForAnnotation string `json:"waitForAnnotation,omitempty"`
	// Force evicts also pods without a controller, which nothing makes again. Otherwise a node that has such pods is
	// not drained, as with kubectl drain.
	// +optional
	Force bool `json:"force,omitempty"`
	// DeleteEmptyDirData evicts also pods that use emptyDir volumes, whose data is lost. Otherwise a node that has such
	// pods is not drained, as with kubectl drain.
	// +optional
	DeleteEmptyDirData bool `json:"deleteEmptyDirData,omitempty"`
	// CyclingTimeout limits the time for waiting and draining of one node. Default: the controller's, 3h.
	// +optional
	CyclingTimeout chaos.Duration `json:"cyclingTimeout,omitempty"`
}

// HealthCheck is a GET request that must be answered as expected within a time.
//
// +kubebuilder:validation:XValidation:rule="!has(self.tls) || !has(self.tlsConfig)",message="tls is another name of tlsConfig: give one of them"
type HealthCheck struct {
	// Endpoint is a URL, in which {{ .NodeIP }} is the node's internal address. Redirections are not followed.
	// +kubebuilder:validation:Pattern=`^https?://`
	Endpoint string `json:"endpoint"`
	// WaitPeriod is how long the check may fail before the request fails, from when the node was Ready.
	// +optional
	// +kubebuilder:default="5m"
	WaitPeriod chaos.Duration `json:"waitPeriod,omitempty"`
	// ValidStatusCodes are the expected status codes. Default: 200.
	// +optional
	// +kubebuilder:default={200}
	// +kubebuilder:validation:MaxItems=100
	ValidStatusCodes []int32 `json:"validStatusCodes,omitempty"`
	// RegexMatch is a regular expression that must match a part of the body, of which the first 64 KiB are read.
	// +optional
	RegexMatch string `json:"regexMatch,omitempty"`
	// TLSConfig of the client.
	// +optional
	TLSConfig TLSConfig `json:"tlsConfig,omitzero"`
	// TLS is Cyclops' name of tlsConfig. Give one of them.
	// +optional
	TLS *CyclopsTLS `json:"tls,omitempty"`
}

// PreTerminationCheck announces by a POST request that a node is going to be terminated, and waits until the receiver
// agrees.
//
// +kubebuilder:validation:XValidation:rule="has(self.endpoint) || has(self.triggerEndpoint)",message="endpoint is required"
// +kubebuilder:validation:XValidation:rule="!has(self.endpoint) || !has(self.triggerEndpoint)",message="triggerEndpoint is another name of endpoint: give one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.tls) || !has(self.tlsConfig)",message="tls is another name of tlsConfig: give one of them"
type PreTerminationCheck struct {
	// Endpoint is a URL, in which {{ .NodeIP }} is the node's internal address. The request may be sent more than once.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://`
	Endpoint string `json:"endpoint,omitempty"`
	// TriggerEndpoint is Cyclops' name of endpoint. Give one of them.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://`
	TriggerEndpoint string `json:"triggerEndpoint,omitempty"`
	// ValidStatusCodes are the expected status codes of the POST request. Default: 200.
	// +optional
	// +kubebuilder:default={200}
	// +kubebuilder:validation:MaxItems=100
	ValidStatusCodes []int32 `json:"validStatusCodes,omitempty"`
	// HealthCheck passes when the node may be terminated. Its wait period begins with the POST request.
	HealthCheck HealthCheck `json:"healthCheck"`
	// TLSConfig of the client.
	// +optional
	TLSConfig TLSConfig `json:"tlsConfig,omitzero"`
	// TLS is Cyclops' name of tlsConfig. Give one of them.
	// +optional
	TLS *CyclopsTLS `json:"tls,omitempty"`
}

// TLSConfig has names of environment variables of the controller with PEM text. Certificate and key belong together.
//
// +kubebuilder:validation:XValidation:rule="has(self.certificate) == has(self.key)",message="certificate and key belong together"
type TLSConfig struct {
	// +optional
	RootCA string `json:"rootCA,omitempty"`
	// +optional
	Certificate string `json:"certificate,omitempty"`
	// +optional
	Key string `json:"key,omitempty"`
}

// RequestPhase is the phase of a CycleNodeRequest.
type RequestPhase string

// The phases of a request. A new one has none.
const (
	RequestPending            RequestPhase = "Pending"
	RequestInitialised        RequestPhase = "Initialised"
	RequestScalingUp          RequestPhase = "ScalingUp"
	RequestCordoningNode      RequestPhase = "CordoningNode"
	RequestWaitingTermination RequestPhase = "WaitingTermination"
	RequestSuccessful         RequestPhase = "Successful"
	RequestHealing            RequestPhase = "Healing"
	RequestFailed             RequestPhase = "Failed"
)

// CycleNodeRequestStatus is what the controller knows and intends. Before it does something at the provider, it writes
// here that it is going to.
type CycleNodeRequestStatus struct {
	// Phase is empty for a new request.
	// +optional
	// +kubebuilder:validation:Enum=Pending;Initialised;ScalingUp;CordoningNode;WaitingTermination;Successful;Healing;Failed
	Phase RequestPhase `json:"phase,omitempty"`
	// PhaseStarted is when the phase began.
	// +optional
	PhaseStarted *metav1.MicroTime `json:"phaseStarted,omitempty"`
	// Message says in a sentence what the request waits for, or why it failed.
	// +optional
	Message string `json:"message,omitempty"`
	// Reason is why the request is Healing or Failed.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Progress is the number of nodes cycled and of those to be cycled, such as 2/5.
	// +optional
	Progress string `json:"progress,omitempty"`
	// NodesToTerminate are all nodes that are to be cycled, as they were when the request began, each with how far it
	// has come.
	// +optional
	// +listType=map
	// +listMapKey=providerId
	NodesToTerminate []CycleNodeRequestNode `json:"nodesToTerminate,omitempty"`
	// CurrentNodes are those that are being cycled.
	// +optional
	// +listType=map
	// +listMapKey=providerId
	CurrentNodes []NodeRef `json:"currentNodes,omitempty"`
	// CurrentNodeNames are their names, for people: kubectl get shows only the first item of a list.
	// +optional
	CurrentNodeNames string `json:"currentNodeNames,omitempty"`
	// NumNodesCycled is the number of nodes that were cycled.
	// +optional
	NumNodesCycled int64 `json:"numNodesCycled,omitempty"`
	// ActiveChildren is the number of CycleNodeStatuses that have not ended.
	// +optional
	ActiveChildren int64 `json:"activeChildren,omitempty"`
	// Groups are the groups as they were when the request began.
	// +optional
	// +listType=map
	// +listMapKey=name
	Groups []GroupRecord `json:"groups,omitempty"`
	// Replaced are instances without a Node that the request terminates before it begins, so that their groups replace
	// them.
	// +optional
	// +listType=set
	Replaced []string `json:"replaced,omitempty"`
	// ExtraInstances is by how many instances the groups are larger than when the request began: a request that fails
	// attaches the old nodes again, beside the new ones. A request with restore removes them.
	// +optional
	ExtraInstances int64 `json:"extraInstances,omitempty"`
	// MissingGroup is a node group that the provider does not know; the request has failed because of it.
	// +optional
	MissingGroup string `json:"missingGroup,omitempty"`
	// EquilibriumWaitStarted is when the request began to wait until the provider's and Kubernetes' nodes agree.
	// +optional
	EquilibriumWaitStarted *metav1.MicroTime `json:"equilibriumWaitStarted,omitempty"`
	// ScaleUpStarted is when the request began to wait for new nodes.
	// +optional
	ScaleUpStarted *metav1.MicroTime `json:"scaleUpStarted,omitempty"`
	// HealingStarted is when the request began to attach nodes again.
	// +optional
	HealingStarted *metav1.MicroTime `json:"healingStarted,omitempty"`
	// HealthChecks are those of new nodes.
	// +optional
	// +listType=map
	// +listMapKey=providerId
	HealthChecks []HealthCheckStatus `json:"healthChecks,omitempty"`
	// PreTerminationChecks are those of old nodes.
	// +optional
	// +listType=map
	// +listMapKey=providerId
	PreTerminationChecks []PreTerminationCheckStatus `json:"preTerminationChecks,omitempty"`
	// FinishedAt is when the request was Successful or Failed.
	// +optional
	FinishedAt *metav1.MicroTime `json:"finishedAt,omitempty"`
}

// NodeRef identifies a node in both systems.
type NodeRef struct {
	// Name of the Node.
	Name string `json:"name"`
	// UID of the Node. Another node may get the same name later.
	UID types.UID `json:"uid"`
	// ProviderID identifies the instance at the provider.
	ProviderID string `json:"providerId"`
	// NodeGroupName is the group that it belongs to.
	NodeGroupName string `json:"nodeGroupName"`
	// PrivateIP is the node's internal address.
	// +optional
	PrivateIP string `json:"privateIp,omitempty"`
}

// NodeState is how far a node has come. Each is written before what it names is done.
//
// +kubebuilder:validation:Enum=Available;Detaching;Detached;Cycling;Cycled;Attaching;Attached;Missing
type NodeState string

// The states of a node.
const (
	NodeAvailable NodeState = "Available" // nothing has been done
	NodeDetaching NodeState = "Detaching" // it may be detached
	NodeDetached  NodeState = "Detached"  // it is detached, the group has or gets a replacement
	NodeCycling   NodeState = "Cycling"   // it has, or gets, a CycleNodeStatus, which drains and terminates it
	NodeCycled    NodeState = "Cycled"    // its instance is terminated, its Node object is gone
	NodeAttaching NodeState = "Attaching" // healing: it may be attached
	NodeAttached  NodeState = "Attached"  // healing: it is attached again
	NodeMissing   NodeState = "Missing"   // someone else ended its instance before it was detached
)

// CycleNodeRequestNode is a node that is to be cycled.
type CycleNodeRequestNode struct {
	NodeRef `json:",inline"`
	State   NodeState `json:"state"`
	// Detached is set when it was seen to be detached, so that its group has started another instance, or will.
	// +optional
	Detached bool `json:"detached,omitempty"`
}

// GroupRecord is a group as it was when the request began.
type GroupRecord struct {
	Name string `json:"name"`
	// DesiredCapacity is its number of instances.
	DesiredCapacity int64 `json:"desiredCapacity"`
}

// HealthCheckStatus is the state of a new node's health checks.
type HealthCheckStatus struct {
	ProviderID string `json:"providerId"`
	// Ready is when the node was Ready first; of an old node: when its checks began.
	// +optional
	Ready *metav1.MicroTime `json:"ready,omitempty"`
	// Checks are those of the spec, in order: whether each has passed.
	// +optional
	Checks []bool `json:"checks,omitempty"`
	// Skip is set for nodes that were there before.
	// +optional
	Skip bool `json:"skip,omitempty"`
}

// PreTerminationCheckStatus is the state of an old node's checks.
type PreTerminationCheckStatus struct {
	ProviderID string `json:"providerId"`
	// Checks are those of the spec, in order.
	// +optional
	Checks []PreTerminationCheckState `json:"checks,omitempty"`
}

// PreTerminationCheckState is the state of one check.
type PreTerminationCheckState struct {
	// Trigger is when the POST request was answered.
	// +optional
	Trigger *metav1.MicroTime `json:"trigger,omitempty"`
	// Check is whether the health check has passed.
	// +optional
	Check bool `json:"check,omitempty"`
}
