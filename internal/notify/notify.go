// Package notify informs people outside of a cluster of the events of controllers: by a webhook, and in the log.
//
// A Recorder records events as before, and passes those that are asked for on. It never blocks a controller, and
// promises no delivery: an event that cannot be sent after some attempts, or comes while too many wait, is counted and
// logged.
package notify

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/reference"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Event is what templates see.
type Event struct {
	// Type is Normal or Warning.
	Type string `json:"type"`
	// Reason is one word, such as Failed.
	Reason string `json:"reason"`
	// Note says it in a sentence.
	Note string `json:"note"`
	// Kind, Namespace and Name are those of the object that it is about.
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	Time      time.Time `json:"time"`
}

// Text is the event in one line. JSON has it, too, for services that show the field "text".
func (e Event) Text() string {
	name := e.Name
	if e.Namespace != "" {
		name = e.Namespace + "/" + name
	}
	return fmt.Sprintf("%s %s: %s: %s", e.Kind, name, e.Reason, e.Note)
}

// DefaultTemplate makes the body of a webhook's request: the event's fields, and its text.
const DefaultTemplate = `{"text": {{json .Text}}, "type": {{json .Type}}, "reason": {{json .Reason}}, ` +
	`"note": {{json .Note}}, "kind": {{json .Kind}}, "namespace": {{json .Namespace}}, "name": {{json .Name}}, ` +
	`"time": {{json .Time}}}`

// Options say which events are passed on, and how. Without a URL they are written into the log only.
type Options struct {
	// URL of a webhook, to which each event is posted; redirections are not followed.
	URL string
	// Template of the body (text/template), with the fields of Event and the function json; default: DefaultTemplate.
	Template string
	// ContentType of the body; default: application/json.
	ContentType string
	// AuthorizationFile has the value of the header Authorization; empty: there is none. It is read for each request.
	AuthorizationFile string
	// Reasons of the events that are passed on; "*": all. Default: all of the type Warning.
	Reasons []string
	// Kinds of the objects whose events are passed on; empty: all.
	Kinds []string
	// Scheme knows the kinds of the objects; default: Kubernetes' own.
	Scheme *runtime.Scheme
	Logger logr.Logger
	// Attempts are made for each event; default: 4. Pause is the time after the first one, and doubles each time;
	// default: 1 second.
	Attempts int
	Pause    time.Duration
}

const (
	waiting = 100 // events that may wait
	limit   = 10 * time.Second
)

// Recorder is an events.EventRecorder that passes events on while Start runs.
type Recorder struct {
	events.EventRecorder
	options Options
	body    *template.Template
	queue   chan Event
	client  *http.Client
	results *prometheus.CounterVec
	now     func() time.Time
}

// Of returns the manager's recorder of that name, which passes events on while the manager runs, and what is to be
// registered as its metrics. Without options nothing is passed on, and there are no metrics.
func Of(mgr manager.Manager, name string, o *Options, log logr.Logger) (
	events.EventRecorder, []prometheus.Collector, error,
) {
	recorder := mgr.GetEventRecorder(name)
	if o == nil {
		return recorder, nil, nil
	}
	passed := *o
	passed.Scheme, passed.Logger = mgr.GetScheme(), log.WithName("notify")
	r, err := Wrap(recorder, passed)
	if err != nil {
		return nil, nil, err
	}
	return r, []prometheus.Collector{r.results}, mgr.Add(r)
}

// Wrap makes a Recorder of another one. Its Start is for manager.Add.
func Wrap(to events.EventRecorder, o Options) (*Recorder, error) {
	if o.URL != "" {
		if u, err := url.Parse(o.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, errors.New("the URL of the webhook must begin with http:// or https://") // it may be a secret
		}
	}
	o.Attempts, o.Pause = cmp.Or(o.Attempts, 4), cmp.Or(o.Pause, time.Second)
	o.ContentType, o.Scheme = cmp.Or(o.ContentType, "application/json"), cmp.Or(o.Scheme, scheme.Scheme)
	r := &Recorder{EventRecorder: to, options: o, queue: make(chan Event, waiting), now: time.Now, client: &http.Client{
		Timeout: limit, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	r.results = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trommel_notifications_total",
		Help: "Events for the webhook: sent, failed after all attempts, or dropped, because too many others waited.",
	}, []string{"result"})
	var err error
	functions := template.FuncMap{"json": func(v any) (string, error) {
		data, err := json.Marshal(v)
		return string(data), err
	}}
	r.body, err = template.New("body").Funcs(functions).Parse(cmp.Or(o.Template, DefaultTemplate))
	if err != nil {
		return nil, fmt.Errorf("template of the webhook: %w", err)
	}
	if _, err := r.render(Event{}); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Recorder) render(e Event) ([]byte, error) {
	var body bytes.Buffer
	if err := r.body.Execute(&body, e); err != nil {
		return nil, fmt.Errorf("template of the webhook: %w", err)
	}
	return body.Bytes(), nil
}

// Eventf records an event, and passes it on if it is asked for.
func (r *Recorder) Eventf(
	regarding, related runtime.Object, eventtype, reason, action, note string, args ...any,
) {
	r.EventRecorder.Eventf(regarding, related, eventtype, reason, action, note, args...)
	if !r.asked(eventtype, reason) {
		return
	}
	e := r.event(regarding, eventtype, reason, fmt.Sprintf(note, args...))
	if len(r.options.Kinds) == 0 || slices.Contains(r.options.Kinds, e.Kind) {
		r.pass(e)
	}
}

func (r *Recorder) asked(eventtype, reason string) bool {
	if len(r.options.Reasons) == 0 {
		return eventtype == corev1.EventTypeWarning
	}
	return slices.Contains(r.options.Reasons, reason) || slices.Contains(r.options.Reasons, "*")
}

func (r *Recorder) event(regarding runtime.Object, eventtype, reason, note string) Event {
	e := Event{Type: eventtype, Reason: reason, Note: note, Time: r.now().UTC().Truncate(time.Second)}
	if ref, err := reference.GetReference(r.options.Scheme, regarding); err == nil {
		e.Kind, e.Namespace, e.Name = ref.Kind, ref.Namespace, ref.Name
	} else if o, err := meta.Accessor(regarding); err == nil {
		e.Namespace, e.Name = o.GetNamespace(), o.GetName()
	}
	return e
}

func (r *Recorder) pass(e Event) {
	log := r.options.Logger.WithValues("kind", e.Kind, "namespace", e.Namespace, "name", e.Name, "reason", e.Reason)
	log.Info("notify", "type", e.Type, "note", e.Note)
	if r.options.URL == "" {
		return
	}
	select {
	case r.queue <- e:
	default:
		r.results.WithLabelValues("dropped").Inc()
		log.Info("not sent to the webhook: too many others wait")
	}
}

// Start sends events until the context ends.
func (r *Recorder) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-r.queue:
			err := r.deliver(ctx, e)
			if err == nil {
				r.results.WithLabelValues("sent").Inc()
				continue
			}
			if ctx.Err() == nil {
				r.results.WithLabelValues("failed").Inc()
				r.options.Logger.Error(err, "not sent to the webhook", "kind", e.Kind, "namespace", e.Namespace,
					"name", e.Name, "reason", e.Reason)
			}
		}
	}
}

// deliver tries to send an event some times.
func (r *Recorder) deliver(ctx context.Context, e Event) error {
	body, err := r.render(e)
	if err != nil {
		return err
	}
	pause := r.options.Pause
	for attempt := 1; ; attempt++ {
		again, err := r.send(ctx, body)
		if err == nil || !again || attempt == r.options.Attempts || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause *= 2
	}
}

// send reports whether it is worth another attempt. Its errors do not have the URL, which may be a secret.
func (r *Recorder) send(ctx context.Context, body []byte) (again bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.options.URL, bytes.NewReader(body))
	if err != nil {
		return false, errors.New("the request cannot be made")
	}
	request.Header.Set("Content-Type", r.options.ContentType)
	if file := r.options.AuthorizationFile; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return true, err
		}
		request.Header.Set("Authorization", strings.TrimSpace(string(text)))
	}
	response, err := r.client.Do(request)
	if failed := (*url.Error)(nil); errors.As(err, &failed) {
		return true, failed.Err
	} else if err != nil {
		return true, err
	}
	defer response.Body.Close()
	if code := response.StatusCode; code < 200 || code > 299 {
		return code >= 500 || code == http.StatusTooManyRequests, fmt.Errorf("it answers %s", response.Status)
	}
	return false, nil
}
