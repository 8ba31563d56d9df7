package faults

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/cluster/passthrough"
	"github.com/trommel-dev/trommel/internal/processnode/faults/requests"
)

var _ = register(v1alpha1.KindAPIFault, prepareAPIFault)

func prepareAPIFault(_ context.Context, p *Pod, f fault.Fault, spec v1alpha1.APIFault) (beginFunc, error) {
	if err := p.wholePod(f); err != nil {
		return nil, err
	}
	if p.set.config.Certificate == nil {
		return nil, unsupported("it has no certificate for a proxy of API servers")
	}
	return func() (func(), error) {
		a := &apiFault{spec: spec, disruption: f.Disruption, ended: make(chan struct{})}
		p.link.add(a)
		return func() { p.link.remove(a) }, nil
	}, nil
}

// apiLink is a pod's way to the API server. Without faults of requests it forwards bytes; with them it is a reverse
// proxy that sees requests. Open connections cannot change between the two: they are reset when a fault begins; when
// the last one ends, watches end as after a timeout of the API server's, other requests are completed, and the client
// has to open a new connection.
type apiLink struct {
	proxy *passthrough.Proxy
	log   *slog.Logger
	start func() *requests.Proxy

	mu     sync.Mutex
	faults []*apiFault
	server *requests.Proxy // nil without faults
}

// apiFault is a fault of requests that is in effect.
type apiFault struct {
	spec       v1alpha1.APIFault
	disruption string
	ended      chan struct{} // closed at its end
}

func (p *Pod) newLink() (*apiLink, error) {
	s, dial := p.set, p.config.DialAPIServer
	l := &apiLink{log: s.log}
	var err error
	l.proxy, err = passthrough.New(clock.Of(s.ctx), func(ctx context.Context) (net.Conn, error) {
		l.mu.Lock()
		server := l.server
		l.mu.Unlock()
		if server != nil {
			if conn, err := server.Dial(); err == nil {
				return conn, nil
			}
			// It has stopped meanwhile.
		}
		return dial(ctx)
	})
	if err != nil {
		return nil, err
	}
	l.start = func() *requests.Proxy {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(s.config.CA)
		return requests.Start(requests.Config{
			Context: s.ctx, Disturb: l.disturb, Dial: dial, Log: s.log,
			// A client with a certificate must be recognised.
			TLS: &tls.Config{
				Certificates: []tls.Certificate{*s.config.Certificate}, ClientAuth: tls.RequestClientCert,
			},
			// Certificates of the cluster's API servers have this name.
			Client: &tls.Config{RootCAs: roots, ServerName: "kubernetes.default.svc"},
			Host:   "kubernetes.default.svc:443",
		})
	}
	return l, nil
}

// add begins a fault. It is in effect when add returns: no request that the client sends from now on escapes it.
func (l *apiLink) add(f *apiFault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults[:len(l.faults):len(l.faults)], f)
	if l.server == nil {
		l.server = l.start()
	}
	// A connection that is still being opened will see the server.
	l.proxy.Cut()
}

// drain is how long the end of the last fault waits for requests to complete.
const drain = time.Second

// remove ends a fault. It returns when connections pass unchanged, if it was the last one.
func (l *apiLink) remove(f *apiFault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var rest []*apiFault
	for _, other := range l.faults {
		if other != f {
			rest = append(rest, other)
		}
	}
	l.faults = rest
	close(f.ended)
	if len(rest) == 0 && l.server != nil {
		server := l.server
		l.server = nil
		// add must not wait for requests of before.
		l.mu.Unlock()
		server.Stop(drain)
		l.mu.Lock()
	}
}

func (l *apiLink) current() []*apiFault {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.faults
}

// close resets all connections.
func (l *apiLink) close() {
	l.mu.Lock()
	server := l.server
	l.server = nil
	l.mu.Unlock()
	if server != nil {
		server.Stop(0)
	}
	l.proxy.Close()
}

// disturb carries out the faults.
func (l *apiLink) disturb(
	t *requests.Proxy, w http.ResponseWriter, r *http.Request,
) (requests.Consequence, requests.ModifyFunc) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		const message = "the client authenticates by a certificate, which cannot be forwarded while an apiFault " +
			"lasts; use a token of a service account"
		l.log.Warn("refuse a request", "path", r.URL.Path, "reason", message)
		answerStatus(w, r, apiRequest{}, http.StatusServiceUnavailable, nil, message)
		return requests.Answered, nil
	}
	request := parseAPIRequest(r)
	lost := false
	for _, f := range l.current() {
		did, loses := f.disturb(w, r, request)
		if did != requests.None {
			return did, nil
		}
		lost = lost || loses
	}
	return requests.None, func(resp *http.Response) error {
		switch {
		case lost:
			return requests.ErrLost
		case request.verb == "watch" && resp.StatusCode == http.StatusOK:
			resp.Body = t.Endable(resp.Body)
		}
		return nil
	}
}

// disturb carries out one fault; lost means that the answer must get lost.
func (f *apiFault) disturb(
	w http.ResponseWriter, r *http.Request, request apiRequest,
) (did requests.Consequence, lost bool) {
	spec := &f.spec
	if request.verb == "create" && request.name == "" && len(spec.Names) > 0 {
		body, err := readBody(r)
		if err != nil {
			return requests.Aborted, false
		}
		request.name = nameIn(body)
	}
	if !request.matches(spec) || !requests.Drawn(spec.Percentage) {
		return requests.None, false
	}
	if spec.Delay != nil || spec.Hang {
		if _, err := readBody(r); err != nil {
			return requests.Aborted, false
		}
	}
	if spec.Delay != nil {
		timer := clock.NewTimer(r.Context(), spec.Delay.Duration())
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-f.ended:
			return requests.None, false
		case <-r.Context().Done():
			return requests.Aborted, false
		}
	}
	switch {
	case spec.Hang:
		select {
		case <-f.ended:
		case <-r.Context().Done():
		}
		return requests.Aborted, false
	case spec.Status != nil:
		answerStatus(w, r, request, int(*spec.Status), spec.RetryAfter, "injected by the disruption "+f.disruption)
		return requests.Answered, false
	case spec.Lost:
		return requests.None, true
	}
	return requests.None, false
}

// answerStatus answers as an API server does.
func answerStatus(w http.ResponseWriter, r *http.Request, request apiRequest, code int, retryAfter *v1alpha1.Duration,
	message string) {
	seconds := 0
	if retryAfter != nil {
		seconds = int(math.Ceil(retryAfter.Duration().Seconds()))
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	resource := schema.GroupResource{Group: request.group, Resource: request.resource}
	status := apierrors.NewGenericServerResponse(code, r.Method, resource, request.name, message, seconds, false).
		ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if status.Reason == "" || status.Reason == metav1.StatusReasonUnknown {
		status.Message = message
	} else {
		status.Message += " (" + message + ")"
	}
	body, _ := json.Marshal(status) // plain data
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
