package record

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Callers are the places in a controller's own source that made a call, the innermost first; zero: unknown. In JSON
// they are a list. An array, so that findings can be compared.
type Callers [4]Frame

// Origin is where a call of a controller comes from; zero: unknown.
type Origin struct {
	Callers Callers `json:"callers,omitzero"`
	// Event is the Seq of the observation before the call; 0: unknown, also in older records.
	Event int `json:"callEvent,omitempty"`
}

// CallKind says which call a finding's Callers made.
type CallKind string

// The calls.
const (
	NamedWrite  CallKind = ""       // the newest of the writes that the finding names
	FailedCall  CallKind = "failed" // the first call that the plan made to fail
	KilledAfter CallKind = "killed" // the last write before the plan killed the controller
	Panicked    CallKind = "panic"  // no call: where the controller panicked
	WroteIt     CallKind = "wrote"  // the controller's last write of the object, before the finding was noticed
)

// Frame is a place in the source of a controller.
type Frame struct {
	Function string `json:"function"` // with the path of its package: example.com/op/controller.(*Reconciler).Reconcile
	File     string `json:"file"`     // of the main module: relative to its root; otherwise module@version/file
	Line     int    `json:"line"`
}

// Package is the path of the function's package.
func (f Frame) Package() string {
	slash := strings.LastIndexByte(f.Function, '/') + 1
	name, _, _ := strings.Cut(f.Function[slash:], ".")
	return f.Function[:slash] + name
}

// String is the place as file:line function, without the path of the function's package.
func (f Frame) String() string {
	_, name, _ := strings.Cut(f.Function[strings.LastIndexByte(f.Function, '/')+1:], ".")
	return fmt.Sprintf("%s:%d %s", f.File, f.Line, name)
}

// List lists the callers.
func (c Callers) List() []Frame {
	for n, f := range c {
		if f == (Frame{}) {
			return c[:n]
		}
	}
	return c[:]
}

// Known reports whether there is a caller.
func (c Callers) Known() bool { return c != Callers{} }

// MarshalJSON writes a list.
func (c Callers) MarshalJSON() ([]byte, error) { return json.Marshal(c.List()) }

// UnmarshalJSON reads a list.
func (c *Callers) UnmarshalJSON(data []byte) error {
	var list []Frame
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	*c = Callers{}
	copy(c[:], list)
	return nil
}
