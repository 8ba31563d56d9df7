// Package hook is linked into API servers and controllers. It reports what they do to a coordinator and holds each
// reported call until the coordinator releases it. A request to the API server can also be made to fail.
//
// Without TROMMEL_COORDINATOR in the environment the package does nothing: every point costs one atomic load. With it,
// the package connects before main runs, and again whenever a coordinator comes back; while there is none, or while it
// does not answer, nothing is held and nothing fails. It never panics, exits, or writes to the process's output.
//
// The package is compiled into controllers of any age: it uses only the standard library and yamux, and no language
// feature newer than Go 1.16. Its source is also copied into builds under another import path, see package
// instrumentation.
package hook

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// Observation is one report. Points fill in what costs nothing; Before and After add objects.
type Observation = wire.Observation

// Operation is what happens to the object.
type Operation = wire.Operation

// PatchType is the format of a patch.
type PatchType = wire.PatchType

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

	MergePatch     = wire.MergePatch
	JSONPatch      = wire.JSONPatch
	StrategicPatch = wire.StrategicPatch
	ApplyPatch     = wire.ApplyPatch

	GeneratedName = wire.GeneratedName
)

// current holds the *interests of the connected coordinator, nil while there is none. If nobody listens, a point
// touches nothing else.
var current unsafe.Pointer

// Connected reports whether there is a coordinator.
func Connected() bool { return atomic.LoadPointer(&current) != nil }

// Listening reports whether any rule is about the point.
func Listening(p wire.Point) bool {
	i := (*interests)(atomic.LoadPointer(&current))
	return i != nil && i.listening(p)
}

// Call is one call of a hooked function. A nil *Call is one that no rule takes; its methods do nothing. One goroutine
// at a time may use it.
type Call struct {
	observation Observation
	ctx         context.Context // nil: the caller waits as long as it is held
	ended       error           // of ctx, which ended while the caller was held
	object      interface{}     // of the call, to report a repeated request
	failure     *wire.Failure   // of the request that is made next
	exchanged   bool            // a request was made
	failed      wire.Answer     // what became of the last request
	lost        *LostAnswer
}

var lastCall uint64

// Wanted reports whether a rule takes such a call, before or after.
func Wanted(o *Observation) bool {
	i := (*interests)(atomic.LoadPointer(&current))
	return i != nil && i.wants(o)
}

// Begin returns the Call to report, or nil if no rule takes it, before or after. It copies o.
func Begin(o *Observation) *Call {
	if !Wanted(o) {
		return nil
	}
	return newCall(o)
}

// BeginLong is Begin for calls that last: a call that no rule takes when it begins may be taken when it ends.
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

// Until limits how long the caller waits: until ctx, which may be nil, ends. It returns the Call.
func (c *Call) Until(ctx context.Context) *Call {
	if c != nil {
		c.ctx = ctx
	}
	return c
}

// Before reports that the call is about to happen, if a rule takes it, and returns when it may happen. object and old
// are what Encode takes; they are encoded only if a rule matches. The error is that of the context if it ended first.
func (c *Call) Before(object, old interface{}) error {
	if c != nil {
		c.object = object
	}
	return c.report(wire.Before, answer{object: object, old: old})
}

// After reports that the call has happened and returns when the process may go on. The error is that of the context if
// it ended first: for the caller the answer came too late.
func (c *Call) After(object, old interface{}, err error, code int) error {
	return c.report(wire.After, answer{object: object, old: old, err: err, code: code})
}

// AfterList is After for a list. found returns what was found, each as Encode takes it, and whether there may be more;
// it is called only if a rule asks for listed objects.
func (c *Call) AfterList(found func() (items []interface{}, partial bool), err error, code int) error {
	return c.report(wire.After, answer{found: found, err: err, code: code})
}

// answer is what a call is about, and its result.
type answer struct {
	object, old interface{}
	found       func() (items []interface{}, partial bool)
	err         error
	code        int
}

// Name sets the call's object if only the answer contains its name, which the server has generated.
func (c *Call) Name(namespace, name string) {
	if c != nil {
		c.observation.Namespace, c.observation.Name = namespace, name
	}
}

// report returns the error of the context that ended while the caller was held, here or before the call.
func (c *Call) report(phase wire.Phase, a answer) error {
	if c == nil {
		return nil
	}
	c.send(phase, a)
	return c.ended
}

func (c *Call) send(phase wire.Phase, a answer) {
	defer IgnorePanic()
	i := (*interests)(atomic.LoadPointer(&current))
	if i == nil {
		return
	}
	o := c.observation
	o.Phase = phase
	wanted, items, from := i.complete(&o)
	if !wanted {
		return
	}
	if from {
		o.Callers = callers()
	}
	o.Object, o.OldObject = Encode(a.object), Encode(a.old)
	if a.found != nil && len(items) > 0 && a.err == nil {
		all, partial := a.found()
		o.Objects, o.Partial = selected(all, items), partial
	}
	if a.err != nil {
		o.Error = a.err.Error()
	}
	o.Code = a.code
	if phase == wire.After {
		o.Failed = c.failed
	}
	failure, err := i.session.observe(c.ctx, &o, i.letGo)
	if err != nil {
		c.ended = err
	}
	if phase == wire.Before {
		c.failure = failure
	}
}

// selected encodes those of the listed objects that a rule asks for.
func selected(all []interface{}, rules []*wire.Rule) [][]byte {
	var list [][]byte
	for _, object := range all {
		namespace, name := nameOf(object)
		for _, r := range rules {
			if r.TakesItem(namespace, name) {
				if data := Encode(object); data != nil {
					list = append(list, data)
				}
				break
			}
		}
	}
	return list
}

// IgnorePanic, deferred, keeps a mistake of ours out of the process that we are linked into. It tells the coordinator,
// so that nobody takes what follows for the behavior of the process.
func IgnorePanic() {
	if r := recover(); r != nil {
		troubled(r)
	}
}

// maxTroubles limits how many failures of its hooks one process reports.
const maxTroubles = 10

var troubles int32

func troubled(r interface{}) {
	debugf("panic: %v", r)
	if atomic.AddInt32(&troubles, 1) > maxTroubles {
		return
	}
	if i := (*interests)(atomic.LoadPointer(&current)); i != nil {
		i.session.trouble(&wire.Trouble{Text: fmt.Sprint(r), Stack: string(debug.Stack())})
	}
}

// ReconcileIdentity says which reconcile makes a call. It travels in the context.
type ReconcileIdentity struct {
	Owner      interface{} // the controller, so that it recognizes its own context
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

// SplitRequest splits a reconcile's request, namespace/name.
func SplitRequest(request string) (namespace, name string) {
	if i := strings.IndexByte(request, '/'); i >= 0 {
		return request[:i], request[i+1:]
	}
	return "", request
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

// Mark adds to o which reconcile makes the call with this context.
func Mark(ctx context.Context, o *Observation) { ReconcileOf(ctx).mark(o) }

type insideKey struct{}

// Inside returns the context with which the hooked function calls itself, and whether ctx already is such a context.
func Inside(ctx context.Context) (inside context.Context, already bool) {
	if ctx == nil {
		return nil, true // the function fails on it, as without the hook
	}
	if ctx.Value(insideKey{}) != nil {
		return ctx, true
	}
	return context.WithValue(ctx, insideKey{}, true), false
}

// NewReconcileID numbers a reconcile that has no ID of its controller.
func NewReconcileID() string { return formatID(atomic.AddUint64(&lastCall, 1)) }

// BeginCall reports a call of a function that the suite names, before it happens. ctx may be nil.
func BeginCall(ctx context.Context, name string) *Call {
	if !Connected() {
		return nil
	}
	o := Observation{Point: AnnotatedCall, CallName: name}
	Mark(ctx, &o)
	o.Namespace, o.Name = SplitRequest(o.Request)
	c := BeginLong(&o).Until(ctx)
	_ = c.Before(nil, nil) // the function goes on in any case; it has the context
	return c
}
