package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Phase summarises the injections of a disruption.
type Phase string

// The phases, as chaos-controller names them. A paused disruption is between two activations of its pulse; a previous
// one is over. PossiblyInjected does not exist in chaos-controller: an injector was killed, and it is unknown whether
// its fault is still in effect.
const (
	NotInjected                 Phase = "NotInjected"
	PartiallyInjected           Phase = "PartiallyInjected"
	Injected                    Phase = "Injected"
	PausedPartiallyInjected     Phase = "PausedPartiallyInjected"
	PausedInjected              Phase = "PausedInjected"
	PreviouslyNotInjected       Phase = "PreviouslyNotInjected"
	PreviouslyPartiallyInjected Phase = "PreviouslyPartiallyInjected"
	PreviouslyInjected          Phase = "PreviouslyInjected"
	PossiblyInjected            Phase = "PossiblyInjected"
)

// DisruptionStatus is written by the controllers. Each field, and each condition, has one writer. For a disruption that
// another cluster carries out, the controller disruption-remote is the writer of what comes from there.
type DisruptionStatus struct {
	// Phase summarises the injections.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Message says in a sentence what the disruption waits for or what a person has to do.
	// +optional
	Message string `json:"message,omitempty"`
	// SpecHash identifies the spec (without count) that the controllers carry out.
	// +optional
	SpecHash string `json:"specHash,omitempty"`
	// Spec is the spec (without count) that the controllers carry out: that of the first moment. If the disruption's
	// spec is another one, that has no effect, and the condition SpecUnchanged is false.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Spec *runtime.RawExtension `json:"spec,omitempty"`
	// Kinds are the kinds of the spec, with commas.
	// +optional
	Kinds string `json:"kinds,omitempty"`
	// Seed is that of the choice of targets: the one of the spec, or a random one.
	// +optional
	Seed *int64 `json:"seed,omitempty"`
	// Targets are the chosen targets.
	// +kubebuilder:validation:MaxItems=1000
	// +optional
	// +listType=map
	// +listMapKey=uid
	Targets []Target `json:"targets,omitempty"`
	// Counts of targets.
	// +optional
	Counts Counts `json:"counts,omitempty"`
	// Injections, one for each target and kind.
	// +optional
	// +listType=map
	// +listMapKey=target
	// +listMapKey=kind
	Injections []Injection `json:"injections,omitempty"`
	// Schedule says when the disruption is active.
	// +optional
	Schedule Schedule `json:"schedule,omitempty"`
	// EndsAt is when the duration is over.
	// +optional
	EndsAt *metav1.Time `json:"endsAt,omitempty"`
	// IsStuckOnRemoval is set while something cannot be cleaned without a person. Message says what to do.
	// +optional
	IsStuckOnRemoval bool `json:"isStuckOnRemoval,omitempty"`
	// Remote is where a disruption with remoteCluster is carried out. What the rest of the status says is copied from
	// there.
	// +optional
	Remote *RemoteStatus `json:"remote,omitempty"`
	// Conditions: Accepted, SpecAccepted, WithinSafetyNets, AcceptedRemotely, SpecUnchanged, TargetsFound, ChaosPods,
	// Removable, Remote.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions of a disruption.
const (
	// ConditionTargetsFound is false while fewer targets are disrupted than desired, with the reason.
	ConditionTargetsFound = "TargetsFound"
	// ConditionSpecUnchanged is false while the spec is not the one that is carried out. It must not be changed.
	ConditionSpecUnchanged = "SpecUnchanged"
	// ConditionRemovable is false while something keeps a deleted disruption from disappearing.
	ConditionRemovable = "Removable"
	// ConditionChaosPods is false while chaos pods cannot be created or deleted, with the error.
	ConditionChaosPods = "ChaosPods"
	// ConditionAccepted is false if one of the next three is false, with its reason. It is true when the disruption has
	// passed all checks, and absent before.
	ConditionAccepted = "Accepted"
	// ConditionSpecAccepted is false if the spec is refused: by a safety net, by the controllers' mode, or because the
	// selector is invalid.
	ConditionSpecAccepted = "SpecAccepted"
	// ConditionWithinSafetyNets is false if the first targets would be more than the safety nets allow.
	ConditionWithinSafetyNets = "WithinSafetyNets"
	// ConditionAcceptedRemotely is false if the other cluster refuses the disruption. Only disruptions with
	// remoteCluster have it.
	ConditionAcceptedRemotely = "AcceptedRemotely"
	// ConditionRemote is true while the status is that of the disruption in the other cluster, and false with the
	// reason while it is not, or not any more. Only disruptions with remoteCluster have it.
	ConditionRemote = "Remote"
)

// Target is a pod or a node.
type Target struct {
	UID types.UID `json:"uid"`
	// Name of the pod or node. The pod's namespace is the disruption's.
	Name string `json:"name"`
	// Node that the pod runs on.
	// +optional
	Node string `json:"node,omitempty"`
}

// Counts of targets.
type Counts struct {
	// Healthy matches of the selectors.
	// +optional
	Matching int32 `json:"matching"`
	// Ignored matches: unhealthy, or disrupted by others.
	// +optional
	Ignored int32 `json:"ignored"`
	// Desired by count.
	// +optional
	Desired int32 `json:"desired"`
	// Selected targets.
	// +optional
	Selected int32 `json:"selected"`
	// Injected targets: those with all kinds injected.
	// +optional
	Injected int32 `json:"injected"`
}

// InjectionState is the state of one kind on one target.
type InjectionState string

// The states of an injection.
const (
	InjectionPending     InjectionState = "Pending"     // its chaos pod is not ready yet
	InjectionInjected    InjectionState = "Injected"    // completely
	InjectionFailed      InjectionState = "Failed"      // see the error
	InjectionUnsupported InjectionState = "Unsupported" // the target's node cannot do it; nothing was touched
	InjectionRemoved     InjectionState = "Removed"     // nothing of it is left
	InjectionStuck       InjectionState = "Stuck"       // something is left that the injector could not remove
	InjectionUnknown     InjectionState = "Unknown"     // its injector was killed; it may still be in effect
)

// Injection is one kind of fault on one target.
type Injection struct {
	// Target is the target's UID.
	Target types.UID `json:"target"`
	// Kind is the kind's field name in the spec, such as apiFault.
	Kind Kind `json:"kind"`
	// State of the injection.
	State InjectionState `json:"state"`
	// Pod is the chaos pod's name, in the controllers' namespace.
	// +optional
	Pod string `json:"pod,omitempty"`
	// Error is the last error.
	// +optional
	Error string `json:"error,omitempty"`
	// InjectedAt is when the state was first Injected.
	// +optional
	InjectedAt *metav1.MicroTime `json:"injectedAt,omitempty"`
}

// Schedule says when a disruption is active.
type Schedule struct {
	// StartedAt is when the disruption had its first targets; the duration begins then.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
	// Active is whether its faults are injected or being injected now.
	// +optional
	Active bool `json:"active,omitempty"`
	// Since is when Active last changed.
	// +optional
	Since *metav1.MicroTime `json:"since,omitempty"`
	// Runs counts the activations, including the present one.
	// +optional
	Runs int32 `json:"runs,omitempty"`
	// Paused is whether the annotation chaos.trommel.dev/paused keeps it from being active.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// Over is whether the disruption has ended: its duration is over, or maxRuns were made.
	// +optional
	Over bool `json:"over,omitempty"`
}
