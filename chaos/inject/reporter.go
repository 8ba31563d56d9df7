package inject

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// Reporter writes states into an annotation of the injector's own pod, in the background and as often as it takes. Only
// the newest state is written. What the pod's status tells as well can wait: readiness tells first that the fault is in
// effect, so Injected is written a little later; and Removed is not written where nothing else was.
type Reporter struct {
	connect         func() (*rest.Config, error)
	namespace, name string
	log             *slog.Logger
	states          chan State
	done            chan struct{}
	ctx             context.Context
	cancel          context.CancelFunc
}

// NewReporter starts a reporter. connect is called in the background when there is something to write.
func NewReporter(connect func() (*rest.Config, error), namespace, pod string, log *slog.Logger) *Reporter {
	r := &Reporter{
		connect: connect, namespace: namespace, name: pod, log: log,
		states: make(chan State, 16), done: make(chan struct{}),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	go r.run()
	return r
}

// Report writes a state soon. It does not block unless there are many.
func (r *Reporter) Report(s State) { r.states <- s }

// Close waits until the last state is written, but no longer than within.
func (r *Reporter) Close(within time.Duration) {
	close(r.states)
	timer := time.AfterFunc(within, r.cancel)
	<-r.done
	timer.Stop()
	r.cancel()
}

const (
	firstRetry     = 20 * time.Millisecond
	longestRetry   = 2 * time.Second
	requestTimeout = 5 * time.Second
	// settleTime is how much later Injected is written: the node and the controllers are busy with the readiness.
	settleTime = 300 * time.Millisecond
)

func (r *Reporter) run() {
	defer close(r.done)
	var client *http.Client
	var host *url.URL
	delay := firstRetry
	var newest *State
	states, written := r.states, false
	for {
		if newest == nil {
			s, ok := <-states
			for ok && s.State == v1alpha1.InjectionInjected {
				next, more, waited := r.settle(states)
				if waited {
					break
				}
				s, ok = next, more
			}
			switch {
			case !ok:
				return
			case s.State == v1alpha1.InjectionRemoved && !written:
				continue // the pod's end says so
			}
			newest = &s
		}
		written = true
		err := r.ctx.Err()
		if err == nil && client == nil {
			client, host, err = r.open()
		}
		if err == nil {
			err = r.write(client, host, *newest)
		}
		if err == nil {
			if states == nil {
				return
			}
			newest, delay = nil, firstRetry
			continue
		}
		if r.ctx.Err() != nil {
			r.log.Warn("the state was not reported", "state", newest.State)
			return
		}
		r.log.Info("report the state again", "error", err)
		timer := time.NewTimer(delay)
		delay = min(2*delay, longestRetry)
		select {
		case s, ok := <-states:
			if ok {
				newest = &s
			} else {
				states = nil // the last one is still to be written
			}
		case <-timer.C:
		case <-r.ctx.Done():
		}
		timer.Stop()
	}
}

// settle returns the next state, or false if there will be none; or that none came in a while.
func (r *Reporter) settle(states <-chan State) (next State, more, waited bool) {
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case next, more = <-states:
		return next, more, false
	case <-timer.C:
		return State{}, true, true
	}
}

func (r *Reporter) open() (*http.Client, *url.URL, error) {
	config, err := r.connect()
	if err != nil {
		return nil, nil, err
	}
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, nil, err
	}
	client, err := rest.HTTPClientFor(config)
	return client, host, err
}

func (r *Reporter) write(client *http.Client, host *url.URL, s State) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{AnnotationState: string(text)},
	}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.ctx, requestTimeout)
	defer cancel()
	to := host.JoinPath("api/v1/namespaces", r.namespace, "pods", r.name)
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, to.String(), bytes.NewReader(patch))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	resp, err := client.Do(request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case resp.StatusCode < 300:
		return nil
	case resp.StatusCode == http.StatusNotFound:
		r.log.Info("the injector's pod has gone")
		return nil
	}
	return fmt.Errorf("patch pod %s/%s: %s: %.300s", r.namespace, r.name, resp.Status, body)
}
