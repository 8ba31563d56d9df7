// Package fault is the protocol between an injector and the process node: HTTP with JSON over a unix socket that only
// the node's user can open.
//
//	PUT /faults/ID            begins a fault; it is in effect when the answer comes
//	PUT /faults/ID?dryRun=1   only says whether the node could do it
//	DELETE /faults/ID         ends it; nothing of it is left when the answer comes
//	GET /faults               lists them
//
// PUT and DELETE are idempotent. An answer that is not 2xx has an Error as its body; status 501 means that the node
// cannot do it.
package fault

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

const (
	// EnvSocket is the environment variable with the socket's path. The process node sets it for containers of pods
	// that have AnnotationInjector.
	EnvSocket = "TROMMEL_FAULTS"
	// EnvCgroups is the environment variable with the directory where a chaos pod finds the cgroups of its real node.
	EnvCgroups = "TROMMEL_CGROUPS"
	// AnnotationInjector with the value "true" marks a pod that runs an injector.
	AnnotationInjector = "chaos.trommel.dev/injector"
	// AnnotationReadyFile on such a pod is the path, in its container, of the file that exists while the fault is in
	// effect. The process node watches it instead of running the readiness probe, which would start a program.
	AnnotationReadyFile = "chaos.trommel.dev/ready-file"
	// AnnotationSimulated marks the nodes that KWOK simulates now, and only those. It is KWOK's own.
	AnnotationSimulated = "kwok.x-k8s.io/node"
	// AnnotationFailing takes the place of KWOK's annotation while a simulated node fails: by it the controllers and
	// the admission policy of injectors know that the node is a simulated one.
	AnnotationFailing = "chaos.trommel.dev/failing-simulated"
)

// Simulated reports whether a node is simulated by KWOK, also while it fails.
func Simulated(node *corev1.Node) bool {
	_, failing := node.Annotations[AnnotationFailing]
	return failing || node.Annotations[AnnotationSimulated] != ""
}

// Fault is one kind of fault at one pod.
type Fault struct {
	// Disruption is the name of the disruption, for people: NAMESPACE/NAME.
	Disruption string        `json:"disruption"`
	Kind       v1alpha1.Kind `json:"kind"`
	// Pod is the target.
	Pod types.UID `json:"pod"`
	// Node is the target's node; empty: the process node.
	Node string `json:"node,omitempty"`
	// Containers of the target; empty: all.
	Containers []string `json:"containers,omitempty"`
	// Spec is the kind's own struct.
	Spec json.RawMessage `json:"spec"`
	// EndsAt is when the node ends the fault by itself, in case no injector does; zero: never.
	EndsAt time.Time `json:"endsAt,omitzero"`
}

// Listed is a fault that is in effect.
type Listed struct {
	ID string `json:"id"`
	Fault
	Began time.Time `json:"began"`
}

// List is the answer to GET.
type List struct {
	Faults []Listed `json:"faults"`
}

// Error is the body of an answer that is not 2xx.
type Error struct {
	Error string `json:"error"`
}
