// Package inject injects one kind of fault into one target and removes it again, whatever happens in between.
//
// Before it does something, it writes into a journal on disk how to undo it. An injector that is killed leaves its
// entry, and the next one with the same target, or one clean-up, undoes it.
package inject

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// State is what an injector reports about itself. A chaos pod has no access to the API: that the fault is in effect is
// shown by its readiness, and the rest by its termination message, which is the last State as JSON.
type State struct {
	// State is one of Injected, Failed, Unsupported, Removed and Stuck.
	State v1alpha1.InjectionState `json:"state"`
	// Error is why it failed, is unsupported or is stuck.
	Error string `json:"error,omitempty"`
	// At is when it came into this state.
	At time.Time `json:"at"`
	// InjectMillis and RemoveMillis are how long injection and removal took, in milliseconds, with all tries.
	InjectMillis int64 `json:"injectMillis,omitempty"`
	RemoveMillis int64 `json:"removeMillis,omitempty"`
	// Counts are what it has done so far.
	Counts Counts `json:"counts,omitzero"`
}

// Counts are what an injector has done since it was started. They are its metrics: it has no network, so the
// controllers publish what it reports.
type Counts struct {
	// Injected faults.
	Injected int `json:"injected,omitempty"`
	// Cleaned faults: its own, and those that other injectors have left.
	Cleaned int `json:"cleaned,omitempty"`
	// Retries of clean-ups.
	Retries int `json:"retries,omitempty"`
	// InjectFailures and CleanFailures are the tries that have failed.
	InjectFailures int `json:"injectFailures,omitempty"`
	CleanFailures  int `json:"cleanFailures,omitempty"`
}

// Target is a pod or a node.
type Target struct {
	// NodeLevel is set if the node itself is the target.
	NodeLevel bool `json:"nodeLevel,omitempty"`
	// Namespace and Pod are empty for a node.
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	// UID of the pod or the node.
	UID types.UID `json:"uid"`
	// Node is the target, or the target's node.
	Node string `json:"node"`
	// Containers of the pod; empty: all.
	Containers []string `json:"containers,omitempty"`
}

func (t Target) String() string {
	if t.NodeLevel {
		return "node " + t.Node
	}
	return "pod " + t.Namespace + "/" + t.Pod
}

// Request is what an injector has to do.
type Request struct {
	Kind v1alpha1.Kind `json:"kind"`
	// Spec is the kind's own struct.
	Spec json.RawMessage `json:"spec"`
	// Disruption is NAMESPACE/NAME, for people.
	Disruption    string    `json:"disruption"`
	DisruptionUID types.UID `json:"disruptionUID"`
	Target        Target    `json:"target"`
	// EndsAt is when the injection ends by itself.
	EndsAt time.Time `json:"endsAt"`
}

// ID identifies an injection: the same for all injectors of this kind, target and disruption.
func (r Request) ID() string {
	return fmt.Sprintf("%s.%s.%s", r.DisruptionUID, r.Target.UID, r.Kind)
}

// Validate reports what is missing.
func (r Request) Validate() error {
	var errs []error
	for _, required := range []struct{ name, value string }{
		{"a kind", string(r.Kind)}, {"the disruption's UID", string(r.DisruptionUID)},
		{"the target's UID", string(r.Target.UID)}, {"the target's node", r.Target.Node},
	} {
		if required.value == "" {
			errs = append(errs, fmt.Errorf("%s is required", required.name))
		}
	}
	if !r.Target.NodeLevel && (r.Target.Pod == "" || r.Target.Namespace == "") {
		errs = append(errs, errors.New("the target pod's namespace and name are required"))
	}
	if r.EndsAt.IsZero() {
		errs = append(errs, errors.New("a time at which it ends is required"))
	}
	if !json.Valid(r.Spec) {
		errs = append(errs, fmt.Errorf("the spec is not JSON: %q", r.Spec))
	}
	return errors.Join(errs...)
}

// ErrUnsupported is wrapped, with the reason, by errors of Injection.Check.
var ErrUnsupported = errors.New("unsupported")

// Unsupported says why something cannot be done.
func Unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...))
}

// Injection is one kind of fault at one target.
type Injection interface {
	// Check reports whether the injection is possible here; it changes nothing.
	Check(ctx context.Context) error
	// Inject injects the fault and returns when it is in effect. It may have done a part of it when it fails.
	Inject(ctx context.Context) error
	// Clean removes what Inject has done, completely or in part, in this process or in one that was killed. It returns
	// when nothing is left. It is idempotent, and needs no more than the journal's entry.
	Clean(ctx context.Context) error
}

// Foresees is an Injection that knows before Inject which notes it will save. They are in the journal's first entry
// then, and saving them takes no time.
type Foresees interface {
	Foresee() (notes any)
}

// Backend makes injections.
type Backend interface {
	// Name identifies the backend in the journal.
	Name() string
	// New makes an injection. It neither changes anything nor waits.
	New(request Request, notes *Notes) (Injection, error)
}

// Notes are what an injection must know to clean up, beside its request.
type Notes struct {
	data json.RawMessage
	save func(json.RawMessage) error
}

// Save durably replaces the stored value. The action that it describes may begin when Save has returned. It
// takes no time if the value is the one that is stored.
func (n *Notes) Save(value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if bytes.Equal(data, n.data) {
		return nil // it is on disk
	}
	if n.save != nil {
		if err := n.save(data); err != nil {
			return err
		}
	}
	n.data = data
	return nil
}

// Load reads the stored value; it reports false if there is none.
func (n *Notes) Load(into any) (bool, error) {
	if len(n.data) == 0 {
		return false, nil
	}
	return true, json.Unmarshal(n.data, into)
}
