package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/chaos/kinds"
)

// A fault that cannot begin: errUnsupported because of the node, errNoTarget because of the pod, errInvalid because of
// its spec.
var (
	errUnsupported = errors.New("not supported on the process node")
	errNoTarget    = errors.New("no such pod on this node")
	errInvalid     = errors.New("invalid fault")
)

// unsupported says why the node cannot do something.
func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errUnsupported, fmt.Sprintf(format, args...))
}

// beginFunc begins a fault and returns when it is in effect; after an error nothing of it is left. end ends it and
// returns when nothing of it is left.
type beginFunc func() (end func(), err error)

// prepareFunc checks whether a kind can disturb a pod. It changes nothing, and what can fail it checks, as far as
// possible, before the fault begins.
type prepareFunc func(ctx context.Context, p *Pod, f fault.Fault) (beginFunc, error)

// registered are the kinds that the node can carry out. Each is one file, which registers it.
var registered = map[v1alpha1.Kind]prepareFunc{}

// register makes a kind known, with the struct of its spec, which it decodes strictly.
func register[Spec any](
	k v1alpha1.Kind, prepare func(context.Context, *Pod, fault.Fault, Spec) (beginFunc, error),
) v1alpha1.Kind {
	registered[k] = func(ctx context.Context, p *Pod, f fault.Fault) (beginFunc, error) {
		var spec Spec
		decoder := json.NewDecoder(bytes.NewReader(f.Spec))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&spec); err != nil {
			return nil, fmt.Errorf("%w: spec of %s: %w", errInvalid, f.Kind, err)
		}
		return prepare(ctx, p, f, spec)
	}
	return k
}

// prepare checks whether the node can do a fault. It changes nothing.
func (s *Set) prepare(ctx context.Context, f fault.Fault) (*Pod, beginFunc, error) {
	if f.Node != "" && f.Node != s.config.Node {
		return nil, nil, unsupported("the pod runs on the simulated node %s, so it has no process and no connections",
			f.Node)
	}
	p := s.pod(f.Pod)
	if p == nil {
		return nil, nil, fmt.Errorf("%w: %s", errNoTarget, f.Pod)
	}
	prepare := registered[f.Kind]
	if reason := kinds.Of(f.Kind).NotOnProcessNode; reason != "" {
		return nil, nil, unsupported("%s", reason)
	}
	if prepare == nil {
		return nil, nil, unsupported("kind %q is unknown", f.Kind)
	}
	begin, err := prepare(ctx, p, f)
	return p, begin, err
}
