package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// SimulatedNodeGroup is a group of simulated instances that keeps its number, as a cloud's autoscaling groups do. Its
// Nodes are KWOK's. What one asks of the provider is asked by ProviderCalls.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.desiredCapacity,statuspath=.status.inService
// +kubebuilder:resource:scope=Cluster,shortName=sng,categories=node-cycling
// +kubebuilder:printcolumn:name=Desired,type=integer,JSONPath=`.spec.desiredCapacity`
// +kubebuilder:printcolumn:name=In service,type=integer,JSONPath=`.status.inService`
// +kubebuilder:printcolumn:name=Ready,type=integer,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name=Detached,type=integer,JSONPath=`.status.detached`
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=`.spec.template.version`
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40",message="the name must have at most 40 characters: the names of Nodes begin with it"
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.contains('.')",message="the name must not contain dots: it is the value of a label and begins the names of Nodes"
type SimulatedNodeGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SimulatedNodeGroupSpec `json:"spec"`
	// Status is written by the simulated cloud.
	// +optional
	Status SimulatedNodeGroupStatus `json:"status,omitempty"`
}

// SimulatedNodeGroupList is a list of groups.
//
// +kubebuilder:object:root=true
type SimulatedNodeGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SimulatedNodeGroup `json:"items"`
}

// SimulatedNodeGroupSpec says how many instances the group has, what they are like, and what goes wrong.
//
// +kubebuilder:validation:XValidation:rule="self.minSize <= self.desiredCapacity && self.desiredCapacity <= self.maxSize",message="desiredCapacity must be from minSize to maxSize"
type SimulatedNodeGroupSpec struct {
	// DesiredCapacity is the number of instances that the group strives for. Attaching an instance increases it.
	// +kubebuilder:validation:Minimum=0
	DesiredCapacity int64 `json:"desiredCapacity"`
	// MinSize is the smallest desired capacity.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	MinSize int64 `json:"minSize"`
	// MaxSize is the largest desired capacity.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MaxSize int64 `json:"maxSize"`
	// Template is what new instances are like. Those of another template are out of date.
	// +optional
	Template SimulatedTemplate `json:"template,omitempty"`
	// Delays are how long things take. Default: no time.
	// +optional
	Delays SimulatedDelays `json:"delays,omitempty"`
	// Faults are what goes wrong. They can be changed at any time. The first that applies counts.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	Faults []SimulatedFault `json:"faults,omitempty"`
}

// SimulatedTemplate is what new instances are like.
type SimulatedTemplate struct {
	// Version of the instances, such as that of an image. It is the label simulated.nodes.trommel.dev/version of Nodes.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`
	Version string `json:"version,omitempty"`
	// Labels of Nodes.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Taints of Nodes.
	// +optional
	// +kubebuilder:validation:MaxItems=20
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Capacity of Nodes, all of it allocatable. Default: 1000 CPUs, 1Ti of memory, 10000 pods.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// Address is the internal IP address of all Nodes. Default: one of 198.18.0.0/15, at which nothing listens.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="address must be an IP address"
	// +kubebuilder:validation:MaxLength=45
	Address string `json:"address,omitempty"`
}

// SimulatedDelays are how long things take.
type SimulatedDelays struct {
	// Launch is the time until an instance is in service and its Node exists.
	// +optional
	Launch chaos.Duration `json:"launch,omitempty"`
	// Ready is the time from then until KWOK may make the Node Ready.
	// +optional
	Ready chaos.Duration `json:"ready,omitempty"`
	// Detach is the time that an instance is Detaching.
	// +optional
	Detach chaos.Duration `json:"detach,omitempty"`
	// Terminate is the time that an instance is Terminating. Then its Node is deleted, unless another client has
	// deleted it before.
	// +optional
	Terminate chaos.Duration `json:"terminate,omitempty"`
}

// SimulatedFaultType is what goes wrong.
//
// +kubebuilder:validation:Enum=NoCapacity;Throttled;Error;AnswerLost;Hangs;NeverReady;NoNode
type SimulatedFaultType string

// What can go wrong.
const (
	// FaultNoCapacity: an attempt of the group to start instances starts none. It tries again each second.
	FaultNoCapacity SimulatedFaultType = "NoCapacity"
	// FaultThrottled: a call is refused, with a time to wait.
	FaultThrottled SimulatedFaultType = "Throttled"
	// FaultError: a call is refused with an error that says nothing more.
	FaultError SimulatedFaultType = "Error"
	// FaultAnswerLost: a call is carried out, but who called gets an error.
	FaultAnswerLost SimulatedFaultType = "AnswerLost"
	// FaultHangs: a call to detach, remove or terminate begins what it should, which does not end while the fault is
	// there.
	FaultHangs SimulatedFaultType = "Hangs"
	// FaultNeverReady: the Node of a new instance does not become Ready while the fault is there.
	FaultNeverReady SimulatedFaultType = "NeverReady"
	// FaultNoNode: a new instance has no Node while the fault is there.
	FaultNoNode SimulatedFaultType = "NoNode"
)

// SimulatedFault is something that goes wrong.
//
// +kubebuilder:validation:XValidation:rule="!has(self.retryAfter) || self.type == 'Throttled'",message="retryAfter belongs to the type Throttled"
// +kubebuilder:validation:XValidation:rule="!has(self.calls) || self.type in ['Throttled', 'Error', 'AnswerLost', 'Hangs']",message="calls belong to the types Throttled, Error, AnswerLost and Hangs"
// +kubebuilder:validation:XValidation:rule="!has(self.calls) || self.type != 'Hangs' || self.calls.all(c, c in ['Detach', 'Remove', 'Terminate'])",message="only Detach, Remove and Terminate can hang"
// +kubebuilder:validation:XValidation:rule="!has(self.calls) || !('Describe' in self.calls) || self.type in ['Throttled', 'Error'] && !has(self.times)",message="Describe can be Throttled or fail with an Error, and not for a number of times"
// +kubebuilder:validation:XValidation:rule="!has(self.providerId) || self.type != 'NoCapacity'",message="NoCapacity concerns no instance"
type SimulatedFault struct {
	// Name of the fault. How often a fault has happened is counted by its name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string             `json:"name"`
	Type SimulatedFaultType `json:"type"`
	// Calls that the fault concerns. Default: all that change something. Describe is reading groups and instances.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	Calls []Call `json:"calls,omitempty"`
	// ProviderID is the instance that the fault concerns. Default: all.
	// +optional
	ProviderID string `json:"providerId,omitempty"`
	// Times is how often it happens. Default: for as long as the fault is there.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Times int64 `json:"times,omitempty"`
	// RetryAfter is how long a throttled call is asked to wait.
	// +optional
	RetryAfter chaos.Duration `json:"retryAfter,omitempty"`
}

// SimulatedNodeGroupStatus is what the simulated cloud knows.
type SimulatedNodeGroupStatus struct {
	// Instances that the group has started, also detached ones, until they have ended.
	// +optional
	// +listType=map
	// +listMapKey=providerId
	Instances []SimulatedInstance `json:"instances,omitempty"`
	// Started is the number of instances that were started so far. It is part of their names.
	// +optional
	Started int64 `json:"started,omitempty"`
	// InService is the number of instances of the group that are in service.
	// +optional
	InService int64 `json:"inService"`
	// Ready is how many of those have a Node that is Ready.
	// +optional
	Ready int64 `json:"ready"`
	// Detached is the number of instances that are in no group.
	// +optional
	Detached int64 `json:"detached"`
	// Message says why the group does not start instances.
	// +optional
	Message string `json:"message,omitempty"`
	// NextLaunch is when the group tries again to start instances.
	// +optional
	NextLaunch *metav1.MicroTime `json:"nextLaunch,omitempty"`
	// LastCall was carried out; its answer is kept until it is written into the call itself.
	// +optional
	LastCall *CarriedOutCall `json:"lastCall,omitempty"`
	// Attached is the call that has changed the desired capacity last.
	// +optional
	Attached types.UID `json:"attached,omitempty"`
	// Faults that have happened.
	// +optional
	// +listType=map
	// +listMapKey=name
	Faults []FaultCount `json:"faults,omitempty"`
}

// FaultCount counts how often a fault has happened.
type FaultCount struct {
	Name  string `json:"name"`
	Times int64  `json:"times"`
}

// CarriedOutCall is a call that was carried out.
type CarriedOutCall struct {
	UID    types.UID          `json:"uid"`
	Answer ProviderCallStatus `json:"answer"`
}

// InstanceState is the state of an instance.
//
// +kubebuilder:validation:Enum=Starting;InService;Detaching;Running;Terminating
type InstanceState string

// The states of an instance. Running ones are detached, and Terminating ones do not count any more.
const (
	InstanceStarting    InstanceState = "Starting"
	InstanceInService   InstanceState = "InService"
	InstanceDetaching   InstanceState = "Detaching"
	InstanceRunning     InstanceState = "Running"
	InstanceTerminating InstanceState = "Terminating"
)

// SimulatedInstance is an instance.
type SimulatedInstance struct {
	// ProviderID is what its Node has in spec.providerID: simulated:///GROUP/INSTANCE.
	ProviderID string `json:"providerId"`
	// NodeName is the name of its Node.
	NodeName string        `json:"nodeName"`
	State    InstanceState `json:"state"`
	// Since is when the state began.
	Since metav1.MicroTime `json:"since"`
	// Version of its template.
	// +optional
	Version string `json:"version,omitempty"`
	// TemplateHash identifies its template.
	TemplateHash string `json:"templateHash"`
	// Detached is set while it is in no group.
	// +optional
	Detached bool `json:"detached,omitempty"`
	// Registered is set when its Node was created. It is created only once.
	// +optional
	Registered bool `json:"registered,omitempty"`
	// RegisteredAt is when its Node was created.
	// +optional
	RegisteredAt *metav1.MicroTime `json:"registeredAt,omitempty"`
	// Connected is set when KWOK was allowed to make the Node Ready.
	// +optional
	Connected bool `json:"connected,omitempty"`
	// Fault is the name of the fault that holds it in its state, or keeps its Node from being Ready.
	// +optional
	Fault string `json:"fault,omitempty"`
}

// Call is what a provider can be asked to do.
//
// +kubebuilder:validation:Enum=Describe;Detach;Remove;Attach;Terminate
type Call string

// The calls. There are ProviderCalls of those that change something.
const (
	CallDescribe  Call = "Describe"
	CallDetach    Call = "Detach"
	CallRemove    Call = "Remove" // Detach, with a smaller desired capacity
	CallAttach    Call = "Attach"
	CallTerminate Call = "Terminate"
)

// ProviderCall asks the simulated cloud to do something, once. Who created it waits for its answer; if he does not live
// to see it, it is carried out all the same.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=pcall,categories=node-cycling
// +kubebuilder:printcolumn:name=Call,type=string,JSONPath=`.spec.call`
// +kubebuilder:printcolumn:name=Instance,type=string,JSONPath=`.spec.providerId`
// +kubebuilder:printcolumn:name=Result,type=string,JSONPath=`.status.result`
// +kubebuilder:printcolumn:name=Changed,type=boolean,JSONPath=`.status.changed`
// +kubebuilder:printcolumn:name=Fault,type=string,JSONPath=`.status.fault`,priority=1
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type ProviderCall struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec is immutable: create another call"
	// +kubebuilder:validation:XValidation:rule="self.call != 'Describe'",message="call must be Detach, Remove, Attach or Terminate"
	Spec ProviderCallSpec `json:"spec"`
	// Status is the answer.
	// +optional
	Status ProviderCallStatus `json:"status,omitempty"`
}

// ProviderCallList is a list of calls.
//
// +kubebuilder:object:root=true
type ProviderCallList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ProviderCall `json:"items"`
}

// ProviderCallSpec is what the simulated cloud is asked to do.
type ProviderCallSpec struct {
	Call Call `json:"call"`
	// NodeGroupName is the group. For Terminate it is the one that has started the instance.
	// +kubebuilder:validation:MinLength=1
	NodeGroupName string `json:"nodeGroupName"`
	// ProviderID is the instance.
	// +kubebuilder:validation:MinLength=1
	ProviderID string `json:"providerId"`
}

// CallResult is how a call came out. Those other than Done and Lost have done nothing.
//
// +kubebuilder:validation:Enum=Done;Lost;Throttled;NotFound;Conflict;Error
type CallResult string

// The results of calls.
const (
	CallDone      CallResult = "Done"
	CallLost      CallResult = "Lost" // it was carried out, but who called must not know
	CallThrottled CallResult = "Throttled"
	CallNotFound  CallResult = "NotFound"
	CallConflict  CallResult = "Conflict"
	CallError     CallResult = "Error"
)

// ProviderCallStatus is the answer to a call.
type ProviderCallStatus struct {
	// Result is empty until the call was answered.
	// +optional
	Result CallResult `json:"result,omitempty"`
	// Changed is set if the call has changed something: it did not ask for what was so already.
	// +optional
	Changed bool `json:"changed,omitempty"`
	// Message says why nothing was done.
	// +optional
	Message string `json:"message,omitempty"`
	// RetryAfter is how long to wait before the next call.
	// +optional
	RetryAfter chaos.Duration `json:"retryAfter,omitempty"`
	// Fault is the name of the fault that has happened to the call.
	// +optional
	Fault string `json:"fault,omitempty"`
	// AnsweredAt is when the call was answered.
	// +optional
	AnsweredAt *metav1.MicroTime `json:"answeredAt,omitempty"`
}
