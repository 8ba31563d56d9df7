package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Disruption is a fault with a life cycle: its controllers choose targets, start a chaos pod for each target and kind
// of fault, and remove everything when it is deleted or its duration is over.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=dis,categories=chaos
// +kubebuilder:printcolumn:name=Status,type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name=Kinds,type=string,JSONPath=`.status.kinds`
// +kubebuilder:printcolumn:name=Injected,type=integer,JSONPath=`.status.counts.injected`
// +kubebuilder:printcolumn:name=Desired,type=integer,JSONPath=`.status.counts.desired`
// +kubebuilder:printcolumn:name=Dry-Run,type=boolean,JSONPath=`.spec.dryRun`
// +kubebuilder:printcolumn:name=Ends,type=string,JSONPath=`.status.endsAt`
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type Disruption struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Shorter rules such as self.?pulse == oldSelf.?pulse are refused by the API server: it cannot estimate their cost.

	// Spec says what is disrupted, where and for how long. Only count can be changed.
	// +kubebuilder:validation:XValidation:rule="has(self.level) == has(oldSelf.level) && (!has(self.level) || self.level == oldSelf.level)",message="level is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.selector) == has(oldSelf.selector) && (!has(self.selector) || self.selector == oldSelf.selector)",message="selector is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.advancedSelector) == has(oldSelf.advancedSelector) && (!has(self.advancedSelector) || self.advancedSelector == oldSelf.advancedSelector)",message="advancedSelector is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.filter) == has(oldSelf.filter) && (!has(self.filter) || self.filter == oldSelf.filter)",message="filter is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.containers) == has(oldSelf.containers) && (!has(self.containers) || self.containers == oldSelf.containers)",message="containers is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.seed) == has(oldSelf.seed) && (!has(self.seed) || self.seed == oldSelf.seed)",message="seed is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.staticTargeting) == has(oldSelf.staticTargeting) && (!has(self.staticTargeting) || self.staticTargeting == oldSelf.staticTargeting)",message="staticTargeting is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.allowDisruptedTargets) == has(oldSelf.allowDisruptedTargets) && (!has(self.allowDisruptedTargets) || self.allowDisruptedTargets == oldSelf.allowDisruptedTargets)",message="allowDisruptedTargets is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.duration) == has(oldSelf.duration) && (!has(self.duration) || self.duration == oldSelf.duration)",message="duration is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.pulse) == has(oldSelf.pulse) && (!has(self.pulse) || self.pulse == oldSelf.pulse)",message="pulse is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.triggers) == has(oldSelf.triggers) && (!has(self.triggers) || self.triggers == oldSelf.triggers)",message="triggers is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.dryRun) == has(oldSelf.dryRun) && (!has(self.dryRun) || self.dryRun == oldSelf.dryRun)",message="dryRun is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.maxRuns) == has(oldSelf.maxRuns) && (!has(self.maxRuns) || self.maxRuns == oldSelf.maxRuns)",message="maxRuns is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.network) == has(oldSelf.network) && (!has(self.network) || self.network == oldSelf.network)",message="network is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.apiFault) == has(oldSelf.apiFault) && (!has(self.apiFault) || self.apiFault == oldSelf.apiFault)",message="apiFault is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.dns) == has(oldSelf.dns) && (!has(self.dns) || self.dns == oldSelf.dns)",message="dns is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.cpuPressure) == has(oldSelf.cpuPressure) && (!has(self.cpuPressure) || self.cpuPressure == oldSelf.cpuPressure)",message="cpuPressure is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.memoryPressure) == has(oldSelf.memoryPressure) && (!has(self.memoryPressure) || self.memoryPressure == oldSelf.memoryPressure)",message="memoryPressure is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.diskPressure) == has(oldSelf.diskPressure) && (!has(self.diskPressure) || self.diskPressure == oldSelf.diskPressure)",message="diskPressure is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.diskFailure) == has(oldSelf.diskFailure) && (!has(self.diskFailure) || self.diskFailure == oldSelf.diskFailure)",message="diskFailure is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.containerFailure) == has(oldSelf.containerFailure) && (!has(self.containerFailure) || self.containerFailure == oldSelf.containerFailure)",message="containerFailure is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.nodeFailure) == has(oldSelf.nodeFailure) && (!has(self.nodeFailure) || self.nodeFailure == oldSelf.nodeFailure)",message="nodeFailure is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.podReplacement) == has(oldSelf.podReplacement) && (!has(self.podReplacement) || self.podReplacement == oldSelf.podReplacement)",message="podReplacement is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.grpc) == has(oldSelf.grpc) && (!has(self.grpc) || self.grpc == oldSelf.grpc)",message="grpc is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="has(self.remoteCluster) == has(oldSelf.remoteCluster) && (!has(self.remoteCluster) || self.remoteCluster == oldSelf.remoteCluster)",message="remoteCluster is immutable: only count can be changed; create another disruption"
	// +kubebuilder:validation:XValidation:rule="!has(self.remoteCluster) || has(self.count) == has(oldSelf.count) && (!has(self.count) || self.count == oldSelf.count)",message="count is immutable with remoteCluster: the spec goes to the other cluster once; create another disruption"
	Spec DisruptionSpec `json:"spec"`
	// Status is written by the controllers.
	// +optional
	Status DisruptionStatus `json:"status,omitempty"`
}

// DisruptionList is a list of disruptions.
//
// +kubebuilder:object:root=true
type DisruptionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Disruption `json:"items"`
}

// AnnotationPaused pauses a disruption while its value is "true": nothing is injected. The duration goes on.
const AnnotationPaused = "chaos.trommel.dev/paused"

// Level says what a disruption's targets are.
//
// +kubebuilder:validation:Enum=pod;node
type Level string

// The levels.
const (
	LevelPod  Level = "pod"
	LevelNode Level = "node"
)

// DisruptionSpec says what is disrupted, where and for how long.
//
// +kubebuilder:validation:XValidation:rule="has(self.selector) && size(self.selector) > 0 || has(self.advancedSelector) && size(self.advancedSelector) > 0",message="selector or advancedSelector is required: a disruption without one would hit everything"
// +kubebuilder:validation:XValidation:rule="!has(self.containerFailure) || self.level == 'pod'",message="containerFailure needs level: pod"
// +kubebuilder:validation:XValidation:rule="!has(self.podReplacement) || self.level == 'pod'",message="podReplacement needs level: pod"
// +kubebuilder:validation:XValidation:rule="!has(self.grpc) || self.level == 'pod'",message="grpc needs level: pod"
// +kubebuilder:validation:XValidation:rule="!has(self.apiFault) || self.level == 'pod'",message="apiFault needs level: pod"
// +kubebuilder:validation:XValidation:rule="!has(self.containers) || self.level == 'pod'",message="containers needs level: pod"
type DisruptionSpec struct {
	// Level is what the targets are: pods, or the nodes themselves.
	// +kubebuilder:default=pod
	Level Level `json:"level,omitempty"`
	// Selector selects targets by labels.
	// +kubebuilder:validation:MaxProperties=32
	// +optional
	Selector map[string]string `json:"selector,omitempty"`
	// AdvancedSelector selects targets by label expressions. A target must match all of them, and Selector.
	// +kubebuilder:validation:MaxItems=32
	// +optional
	// +listType=atomic
	AdvancedSelector []LabelRequirement `json:"advancedSelector,omitempty"`
	// Filter narrows the selection.
	// +optional
	Filter *Filter `json:"filter,omitempty"`
	// Containers are the names of the containers that are disrupted; default: all of the pod.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	// +optional
	// +listType=set
	Containers []string `json:"containers,omitempty"`
	// Count is how many of the healthy matches are disrupted: a number, or a percentage, rounded up.
	// +kubebuilder:default="100%"
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(100|[1-9]?[0-9])%$')",message="count must be a number of targets, 0 or more, or a percentage from 0% to 100%"
	Count *intstr.IntOrString `json:"count,omitempty"`
	// Seed makes the choice of targets repeatable: the same seed chooses the same ones among pods or nodes of the same
	// names. Without it, the choice is random for each disruption. It is for tests.
	// +optional
	Seed *int64 `json:"seed,omitempty"`
	// StaticTargeting keeps the targets that were chosen first. Without it, targets that disappear are replaced.
	// +optional
	StaticTargeting bool `json:"staticTargeting,omitempty"`
	// AllowDisruptedTargets also chooses targets of other disruptions, unless one of them has a kind of this one.
	// +optional
	AllowDisruptedTargets bool `json:"allowDisruptedTargets,omitempty"`
	// Duration is how long the disruption lasts, from its first injection.
	// +kubebuilder:default="1h"
	Duration *Duration `json:"duration,omitempty"`
	// Pulse switches the disruption on and off until its duration is over.
	// +optional
	Pulse *Pulse `json:"pulse,omitempty"`
	// Triggers delay the beginning.
	// +optional
	Triggers *Triggers `json:"triggers,omitempty"`
	// DryRun does everything but inject.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
	// MaxRuns ends the disruption after that many activations of its pulse.
	// +kubebuilder:validation:Minimum=1
	// +optional
	MaxRuns *int32 `json:"maxRuns,omitempty"`
	// RemoteCluster lets another cluster carry out the disruption, for controllers with --mode=parent. All else in the
	// spec is about that cluster.
	// +optional
	RemoteCluster *RemoteTarget `json:"remoteCluster,omitempty"`

	Kinds `json:",inline"`
}

// LabelRequirement is a condition on a label.
//
// +kubebuilder:validation:XValidation:rule="(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",message="In and NotIn need values; Exists and DoesNotExist must not have any"
type LabelRequirement struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator metav1.LabelSelectorOperator `json:"operator"`
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	// +optional
	// +listType=atomic
	Values []string `json:"values,omitempty"`
}

// Filter narrows a selection.
type Filter struct {
	// Annotations that a target must have, with these values.
	// +kubebuilder:validation:MaxProperties=32
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Pulse switches a disruption on and off.
//
// +kubebuilder:validation:XValidation:rule="duration(self.activeDuration) >= duration('100ms') && duration(self.dormantDuration) >= duration('100ms')",message="activeDuration and dormantDuration must be at least 100ms"
type Pulse struct {
	// InitialDelay is the time before the first activation.
	// +optional
	InitialDelay *Duration `json:"initialDelay,omitempty"`
	// ActiveDuration is how long an activation lasts.
	ActiveDuration Duration `json:"activeDuration"`
	// DormantDuration is the time between two activations.
	DormantDuration Duration `json:"dormantDuration"`
}

// Triggers delay the beginning of a disruption.
type Triggers struct {
	// Inject delays the injection. Targets are chosen only then.
	Inject Trigger `json:"inject"`
}

// Trigger is a moment.
//
// +kubebuilder:validation:XValidation:rule="has(self.notBefore) || has(self.offset)",message="notBefore or offset is required"
// +kubebuilder:validation:XValidation:rule="!has(self.notBefore) || !has(self.offset)",message="notBefore and offset cannot both be given"
type Trigger struct {
	// NotBefore is a point in time.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	// Offset is a time after the disruption's creation.
	// +optional
	Offset *Duration `json:"offset,omitempty"`
}
