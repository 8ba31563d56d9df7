// Package provider is what node cycling needs of a provider of machines: groups of instances that keep their number,
// such as AWS' Auto Scaling groups.
package provider

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Provider gives access to groups of instances. An instance is identified by the text that its Node has in
// spec.providerID. All methods can be repeated: a state that is reached already is not an error. They block until the
// provider has answered or the context ends, and try nothing again. Their errors wrap one of the errors below, if one
// applies. An error, other than ErrNotFound, does not mean that nothing was done.
type Provider interface {
	// Name of the provider, such as aws.
	Name() string
	// Group describes a group as it is now. ErrNotFound: there is none of this name.
	Group(ctx context.Context, name string) (*Group, error)
	// Instances returns those of the instances that exist, in any group or in none, in any order. Terminated instances
	// do not exist.
	Instances(ctx context.Context, providerIDs ...string) ([]Instance, error)
	// Detach takes an instance out of its group. The group keeps its desired capacity, and therefore starts another
	// instance. An instance that is not in the group is not an error.
	Detach(ctx context.Context, group, providerID string) error
	// Remove takes an instance out of its group, whose desired capacity it decreases by one: nothing is started in its
	// place. An instance that is not in the group is not an error, and changes no capacity. ErrConflict: the group has
	// its minimal size.
	Remove(ctx context.Context, group, providerID string) error
	// Attach puts an instance into a group, whose desired capacity it increases by one. An instance that is in the
	// group is not an error, and changes no capacity. ErrConflict: it is in another group, is not running, or the group
	// has its maximal size.
	Attach(ctx context.Context, group, providerID string) error
	// Terminate ends an instance, which has not ended yet when it returns. One that does not exist is not an error.
	Terminate(ctx context.Context, providerID string) error
}

// Group is a group of instances.
type Group struct {
	Name string
	// DesiredCapacity is the number of instances that the group strives for.
	DesiredCapacity int
	// MinSize and MaxSize limit the desired capacity.
	MinSize, MaxSize int
	// Instances of the group, also those that are starting or ending, but not detached ones.
	Instances []Instance
}

// Instance is a machine.
type Instance struct {
	// ProviderID is what its Node has in spec.providerID.
	ProviderID string
	// Group that it is in; empty: in none. Instances need not tell it.
	Group string
	State State
	// OutOfDate is set if the group would start an instance of another template now.
	OutOfDate bool
}

// State of an instance.
type State string

// The states of an instance.
const (
	Starting    State = "Starting"
	InService   State = "InService"
	Detaching   State = "Detaching"
	Running     State = "Running" // and in no group
	Terminating State = "Terminating"
)

// Kinds of errors.
var (
	// ErrThrottled: there were too many calls. RetryAfter may tell when the next may be made.
	ErrThrottled = errors.New("throttled")
	// ErrNoCapacity: the provider has no instance to give now.
	ErrNoCapacity = errors.New("no capacity")
	// ErrNotFound: there is no such group or instance.
	ErrNotFound = errors.New("not found")
	// ErrConflict: it is impossible in the present state, and repeating alone does not help.
	ErrConflict = errors.New("conflict")
)

// Error is an error of a provider's call.
type Error struct {
	// Call is the method's name and Object what it was about.
	Call, Object string
	// Kind is one of the errors above; nil: another error, which may be over when the call is repeated.
	Kind error
	// RetryAfter is how long to wait before the next call; zero: unknown.
	RetryAfter time.Duration
	// Err is the provider's own error.
	Err error
}

func (e *Error) Error() string {
	switch {
	case e.Err == nil:
		return fmt.Sprintf("%s %s: %v", e.Call, e.Object, e.Kind)
	case e.Kind == nil:
		return fmt.Sprintf("%s %s: %v", e.Call, e.Object, e.Err)
	}
	return fmt.Sprintf("%s %s: %v: %v", e.Call, e.Object, e.Kind, e.Err)
}

// Unwrap gives errors.Is and errors.As both the kind and the provider's own error.
func (e *Error) Unwrap() []error {
	var errs []error
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
