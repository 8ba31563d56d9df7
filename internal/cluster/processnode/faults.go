package processnode

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/internal/cluster"
)

// faults are the faults that injectors have begun; see package fault.
type faults struct {
	mu     sync.Mutex
	active map[string]*activeFault // by ID
}

type activeFault struct {
	fault.Listed
	pod   *pod
	end   func()        // undoes the fault and returns when nothing of it is left
	timer *time.Timer   // ends it in case no injector does
	ended chan struct{} // closed at the end of end
	// ending is set when somebody has begun to end it. Guarded by faults.mu.
	ending bool
}

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

func (n *Node) faultSocket() string { return filepath.Join(n.config.Dir, "faults.sock") }

func (n *Node) serveFaults() error {
	n.faults.active = map[string]*activeFault{}
	_ = os.Remove(n.faultSocket())
	listener, err := net.Listen("unix", n.faultSocket())
	if err != nil {
		return fmt.Errorf("listen for injectors: %w", err)
	}
	if err := os.Chmod(n.faultSocket(), 0o600); err != nil {
		_ = listener.Close()
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /faults/{id}", n.putFault)
	mux.HandleFunc("DELETE /faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		if err := n.endFault(r.Context(), r.PathValue("id")); err != nil {
			answerError(w, http.StatusInternalServerError, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, http.StatusOK, fault.List{Faults: n.listFaults()})
	})
	server := &http.Server{Handler: mux, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: agentTimeout}
	n.tasks.Go(func() { _ = server.Serve(listener) })
	context.AfterFunc(n.ctx, func() { _ = server.Close() })
	return nil
}

func answerJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func answerError(w http.ResponseWriter, code int, err error) {
	answerJSON(w, code, fault.Error{Error: err.Error()})
}

func (n *Node) putFault(w http.ResponseWriter, r *http.Request) {
	var f fault.Fault
	decoder := json.NewDecoder(io.LimitReader(r.Body, 1<<20))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&f)
	if err != nil {
		answerError(w, http.StatusBadRequest, fmt.Errorf("%w: %w", errInvalid, err))
		return
	}
	if r.URL.Query().Get("dryRun") != "" {
		_, err = n.prepareFault(r.Context(), f)
	} else {
		err = n.beginFault(r.Context(), r.PathValue("id"), f)
	}
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, errUnsupported):
		answerError(w, http.StatusNotImplemented, err)
	case errors.Is(err, errNoTarget):
		answerError(w, http.StatusNotFound, err)
	case errors.Is(err, errInvalid):
		answerError(w, http.StatusBadRequest, err)
	default:
		answerError(w, http.StatusInternalServerError, err)
	}
}

// preparedFault is a fault that the node can do.
type preparedFault struct {
	pod *pod
	// begin begins the fault and returns when it is in effect; after an error nothing of it is left. end ends it and
	// returns when nothing of it is left. What can fail is checked before, as far as possible.
	begin func() (end func(), err error)
}

// prepareFault checks whether the node can do a fault. It changes nothing.
func (n *Node) prepareFault(ctx context.Context, f fault.Fault) (preparedFault, error) {
	if f.Node != "" && f.Node != n.config.Name {
		return preparedFault{}, unsupported("the pod runs on the simulated node %s, so it has no process and no "+
			"connections", f.Node)
	}
	n.mu.Lock()
	p := n.pods[f.Pod]
	n.mu.Unlock()
	if p == nil {
		return preparedFault{}, fmt.Errorf("%w: %s", errNoTarget, f.Pod)
	}
	prepare := faultKinds[f.Kind]
	if prepare == nil {
		return preparedFault{}, unsupported("%s", cmp.Or(unsupportedKinds[f.Kind], fmt.Sprintf("kind %q is unknown", f.Kind)))
	}
	begin, err := prepare(ctx, p, f)
	return preparedFault{pod: p, begin: begin}, err
}

// faultKinds prepare the kinds that the node can do.
var faultKinds = map[v1alpha1.Kind]func(context.Context, *pod, fault.Fault) (begin func() (end func(), err error), err error){
	"apiFault":         prepareAPIFault,
	"network":          prepareNetwork,
	"dns":              prepareDNS,
	"cpuPressure":      prepareCPUPressure,
	"containerFailure": prepareContainerFailure,
	"diskFailure":      prepareDiskFailure,
	"diskPressure":     prepareDiskPressure,
	"grpc":             prepareGRPC,
}

// unsupportedKinds say why the node cannot do the other kinds.
var unsupportedKinds = map[v1alpha1.Kind]string{
	"memoryPressure": "processes on it have no memory limits: it puts them into no cgroup",
	"nodeFailure":    "it runs the pods of this run and cannot fail; choose a simulated node",
	"podReplacement": "there is no other node for a pod that runs as a process",
}

// decodeSpec decodes a kind's own struct strictly.
func decodeSpec(f fault.Fault, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(f.Spec))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("%w: spec of %s: %w", errInvalid, f.Kind, err)
	}
	return nil
}

// targets returns the containers that a fault is about.
func (p *pod) targets(f fault.Fault) ([]*container, error) {
	all := slices.Clone(p.containers)
	for _, c := range p.init {
		if c.isSidecar() {
			all = append(all, c)
		}
	}
	if len(f.Containers) == 0 {
		return all, nil
	}
	var of []*container
	for _, name := range f.Containers {
		i := slices.IndexFunc(all, func(c *container) bool { return c.spec.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%w: pod %s/%s has no container %q", errInvalid, p.namespace, p.name, name)
		}
		of = append(of, all[i])
	}
	return of, nil
}

// wholePod returns an error unless the fault is about all containers of the pod.
func (p *pod) wholePod(f fault.Fault) error {
	of, err := p.targets(f)
	if err != nil {
		return err
	}
	if all, _ := p.targets(fault.Fault{}); len(of) < len(all) {
		return unsupported("it does not see which container of a pod a connection comes from; leave containers out")
	}
	return nil
}

// asksNode returns an error unless the pod's programs ask the node before they connect and look names up.
func (p *pod) asksNode() error {
	if !p.address.own() {
		return unsupported("this machine has only one loopback address, so pods have none of their own")
	}
	containers, _ := p.targets(fault.Fault{})
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	for _, c := range containers {
		switch {
		case c.starts == 0:
			return fmt.Errorf("container %q has not started", c.spec.Name)
		case !c.hooked:
			return unsupported("the program of container %q has no hooks in its standard library, so it does not ask the "+
				"node for names and addresses: build it with `build:`", c.spec.Name)
		}
	}
	return nil
}

func prepareAPIFault(_ context.Context, p *pod, f fault.Fault) (func() (func(), error), error) {
	var spec v1alpha1.APIFault
	if err := decodeSpec(f, &spec); err != nil {
		return nil, err
	}
	if err := p.wholePod(f); err != nil {
		return nil, err
	}
	if p.node.config.Certificate == nil {
		return nil, unsupported("it has no certificate for a proxy of API servers")
	}
	return func() (func(), error) {
		a := &apiFault{spec: spec, disruption: f.Disruption, ended: make(chan struct{})}
		p.link.add(a)
		return func() { p.link.remove(a) }, nil
	}, nil
}

// beginFault begins a fault, or replaces the one with this ID if it is another. It returns when the fault is in effect.
func (n *Node) beginFault(ctx context.Context, id string, f fault.Fault) error {
	prepared, err := n.prepareFault(ctx, f)
	if err != nil {
		return err
	}
	for {
		n.faults.mu.Lock()
		old := n.faults.active[id]
		if old == nil {
			break
		}
		same := !old.ending && sameFault(old.Fault, f)
		n.faults.mu.Unlock()
		if same {
			return nil
		}
		if err := n.endFault(ctx, id); err != nil {
			return err
		}
	}
	defer n.faults.mu.Unlock()
	// A pod forgets its faults after it has left the list.
	n.mu.Lock()
	live := n.pods[f.Pod] == prepared.pod && !n.closed
	n.mu.Unlock()
	if !live {
		return fmt.Errorf("%w: %s", errNoTarget, f.Pod)
	}
	active := &activeFault{
		Listed: fault.Listed{ID: id, Fault: f, Began: time.Now()}, pod: prepared.pod, ended: make(chan struct{}),
	}
	if active.end, err = prepared.begin(); err != nil {
		return err
	}
	if !f.EndsAt.IsZero() {
		active.timer = time.AfterFunc(time.Until(f.EndsAt), func() {
			n.log.Warn("end a fault whose injector has not ended it", "disruption", f.Disruption, "kind", f.Kind)
			n.finishFault(active)
		})
	}
	n.faults.active[id] = active
	return nil
}

func sameFault(a, b fault.Fault) bool {
	return a.Kind == b.Kind && a.Pod == b.Pod && bytes.Equal(a.Spec, b.Spec) && slices.Equal(a.Containers, b.Containers) &&
		a.EndsAt.Equal(b.EndsAt)
}

// endFault ends a fault and returns when nothing of it is left.
func (n *Node) endFault(ctx context.Context, id string) error {
	n.faults.mu.Lock()
	f := n.faults.active[id]
	n.faults.mu.Unlock()
	if f == nil {
		return nil
	}
	go n.finishFault(f)
	select {
	case <-f.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end fault %s: %w", id, ctx.Err())
	}
}

// finishFault ends a fault once.
func (n *Node) finishFault(f *activeFault) {
	n.faults.mu.Lock()
	again := f.ending
	f.ending = true
	n.faults.mu.Unlock()
	if again {
		return
	}
	if f.timer != nil {
		f.timer.Stop()
	}
	f.end()
	n.faults.mu.Lock()
	delete(n.faults.active, f.ID)
	n.faults.mu.Unlock()
	close(f.ended)
}

// forgetFaults ends the faults of a pod that has ended.
func (n *Node) forgetFaults(p *pod) {
	n.faults.mu.Lock()
	var of []*activeFault
	for _, f := range n.faults.active {
		if f.pod == p {
			of = append(of, f)
		}
	}
	n.faults.mu.Unlock()
	for _, f := range of {
		n.finishFault(f)
	}
}

func (n *Node) listFaults() []fault.Listed {
	n.faults.mu.Lock()
	defer n.faults.mu.Unlock()
	list := make([]fault.Listed, 0, len(n.faults.active))
	for _, f := range n.faults.active {
		list = append(list, f.Listed)
	}
	slices.SortFunc(list, func(a, b fault.Listed) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Faults lists the faults that injectors have begun and not ended.
func (n *Node) Faults(context.Context) ([]cluster.Fault, error) {
	var list []cluster.Fault
	for _, f := range n.listFaults() {
		n.mu.Lock()
		namespace, name := "", ""
		if p := n.pods[f.Pod]; p != nil {
			namespace, name = p.namespace, p.name
		}
		n.mu.Unlock()
		list = append(list, cluster.Fault{
			ID: f.ID, Disruption: f.Disruption, Kind: string(f.Kind), Namespace: namespace, Pod: name, Began: f.Began,
		})
	}
	return list, nil
}

// EndFaults ends all faults and returns when nothing of them is left.
func (n *Node) EndFaults(ctx context.Context) error {
	var errs []error
	for _, f := range n.listFaults() {
		errs = append(errs, n.endFault(ctx, f.ID))
	}
	return errors.Join(errs...)
}
