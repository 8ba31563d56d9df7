// Package hook is linked into API servers and controllers. It reports what they do to a coordinator and holds each
// reported call until the coordinator releases it.
//
// Without TROMMEL_COORDINATOR in its environment a process never notices the package: every point costs one atomic
// load. With it, the package connects before main runs, and again whenever a coordinator comes back; while there is
// none, nothing is held. It never panics, exits, or writes to the process's output.
//
// The package is compiled into controllers of any age: it uses the standard library and yamux only and no language
// feature newer than Go 1.16. Its source is also copied into builds under another import path, see package
// instrumentation.
package hook

import (
	"context"
	"sync/atomic"
	"unsafe"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// Observation is one report. Points fill in what they know without work; objects are added by Before and After.
type Observation = wire.Observation

// The points, phases and operations, so that patched packages need to import this package only.
const (
	APIServerRecv   = wire.APIServerRecv
	ControllerRecv  = wire.ControllerRecv
	ControllerRead  = wire.ControllerRead
	ControllerWrite = wire.ControllerWrite
	Reconcile       = wire.Reconcile
	AnnotatedCall   = wire.AnnotatedCall

	Create           = wire.Create
	Update           = wire.Update
	Patch            = wire.Patch
	Apply            = wire.Apply
	Delete           = wire.Delete
	DeleteCollection = wire.DeleteCollection
	Get              = wire.Get
	List             = wire.List
	Watch            = wire.Watch
)

// current holds the *interests of the connected coordinator, nil while there is none. It is the only thing that a
// point touches where nobody listens.
var current unsafe.Pointer

// Connected tells whether a coordinator is there at all.
func Connected() bool { return atomic.LoadPointer(&current) != nil }

// Listening tells whether anybody wants to know of anything at the point.
func Listening(p wire.Point) bool {
	i := (*interests)(atomic.LoadPointer(&current))
	return i != nil && i.listening(p)
}

// Call is one call of a hooked function. A nil *Call is one that nobody wants to know of; its methods do nothing.
type Call struct {
	observation Observation
}

var lastCall uint64

// Begin returns the Call to report, or nil if no rule takes either side of it. It keeps nothing of o but a copy.
func Begin(o *Observation) *Call {
	i := (*interests)(atomic.LoadPointer(&current))
	if i == nil || !i.wants(o) {
		return nil
	}
	return newCall(o)
}

// BeginLong is Begin for calls that last: one that nobody wants to know of when it begins may be wanted when it ends.
func BeginLong(o *Observation) *Call {
	if !Connected() {
		return nil
	}
	return newCall(o)
}

func newCall(o *Observation) *Call {
	c := &Call{observation: *o}
	c.observation.Call = atomic.AddUint64(&lastCall, 1)
	return c
}

// Before reports that the call is about to happen, if anybody wants to know, and returns when it may. object and old
// are what Encode takes; they are encoded only if a rule matches.
func (c *Call) Before(object, old interface{}) {
	if c == nil {
		return
	}
	defer IgnorePanic()
	c.report(wire.Before, object, old, nil, 0)
}

// After reports that the call has happened and returns when the process may go on.
func (c *Call) After(object, old interface{}, err error, code int) {
	if c == nil {
		return
	}
	defer IgnorePanic()
	c.report(wire.After, object, old, err, code)
}

// Name completes the call's object where it became known only with the answer: a name that the server generated.
func (c *Call) Name(namespace, name string) {
	if c != nil {
		c.observation.Namespace, c.observation.Name = namespace, name
	}
}

func (c *Call) report(phase wire.Phase, object, old interface{}, err error, code int) {
	i := (*interests)(atomic.LoadPointer(&current))
	if i == nil {
		return
	}
	o := c.observation
	o.Phase = phase
	if !i.complete(&o) {
		return
	}
	o.Object, o.OldObject = Encode(object), Encode(old)
	if err != nil {
		o.Error = err.Error()
	}
	o.Code = code
	i.session.observe(&o)
}

// IgnorePanic, deferred, keeps a mistake of ours out of the process that we are guests of.
func IgnorePanic() {
	if r := recover(); r != nil {
		debugf("panic: %v", r)
	}
}

// ReconcileIdentity says on behalf of which reconcile a call is made. It travels in the context.
type ReconcileIdentity struct {
	Owner      interface{} // the controller, to recognize its own context
	Reconciler string      // the controller's name
	Type       string      // package.(*Type)
	ID         string
	Request    string // namespace/name
}

func (r *ReconcileIdentity) mark(o *Observation) {
	if r != nil {
		o.Reconciler, o.ReconcilerType, o.ReconcileID, o.Request = r.Reconciler, r.Type, r.ID, r.Request
	}
}

type reconcileKey struct{}

// WithReconcile returns a context that carries r.
func WithReconcile(ctx context.Context, r *ReconcileIdentity) context.Context {
	return context.WithValue(ctx, reconcileKey{}, r)
}

// ReconcileOf returns the identity that ctx carries, or nil.
func ReconcileOf(ctx context.Context) *ReconcileIdentity {
	if ctx == nil {
		return nil
	}
	r, _ := ctx.Value(reconcileKey{}).(*ReconcileIdentity)
	return r
}

// Mark adds to o on behalf of which reconcile the call with this context is made.
func Mark(ctx context.Context, o *Observation) { ReconcileOf(ctx).mark(o) }

type insideKey struct{}

// Inside returns a context for the hooked function to call itself with, and whether ctx is such a context already.
func Inside(ctx context.Context) (inside context.Context, already bool) {
	if ctx == nil {
		return nil, true // the function will fail on it as it always did
	}
	if ctx.Value(insideKey{}) != nil {
		return ctx, true
	}
	return context.WithValue(ctx, insideKey{}, true), false
}

// NewReconcileID numbers a reconcile where the controller does not.
func NewReconcileID() string { return formatID(atomic.AddUint64(&lastCall, 1)) }

// BeginCall reports a call of a function that the suite names, before it happens. ctx may be nil.
func BeginCall(ctx context.Context, name string) *Call {
	if !Connected() {
		return nil
	}
	o := Observation{Point: AnnotatedCall, CallName: name}
	Mark(ctx, &o)
	c := BeginLong(&o)
	c.Before(nil, nil)
	return c
}
