// Package notify tells people what happens to disruptions, where they look: in a log, or by a webhook, such as that of
// a chat. What it tells are the events about disruptions and their crons, in their order. It never delays a controller:
// what a webhook does not take in time is tried again some times, and then dropped and counted.
package notify

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/template"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// Config says who is told. The zero value tells nobody.
type Config struct {
	// Log tells the log of the controllers.
	Log bool
	// Webhook is a URL that is told by POST; empty: none.
	Webhook string
	// Template makes the request's body of a Notice. It has the function json. Default: {{json .}}
	Template string
	// AuthorizationFile has the value of the header Authorization. It is read for each request.
	AuthorizationFile string
	// WarningsOnly leaves out what goes as it should.
	WarningsOnly bool
}

// Notice is what is told.
type Notice struct {
	Time time.Time `json:"time"`
	// Type is Normal or Warning.
	Type string `json:"type"`
	// Kind, Namespace and Name of the object that it is about.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Reason is a word, such as Injected, Refused or StuckOnRemoval.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

const (
	waiting = 256 // notices that may wait
	tries   = 4
	timeout = 10 * time.Second // of a request
)

// pause is the time before the second try; each further one takes twice as long.
var pause = time.Second

// Notifier tells notices. It is a manager's Runnable.
type Notifier struct {
	config   Config
	template *template.Template
	queue    chan Notice
	client   *http.Client
	log      logr.Logger
	results  *prometheus.CounterVec
}

// New makes a notifier, if the configuration can be understood.
func New(c Config, log logr.Logger) (*Notifier, error) {
	n := &Notifier{config: c, queue: make(chan Notice, waiting), log: log.WithName("notify"), client: &http.Client{
		Timeout: timeout,
		// What is told, and the authorization, are for this server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	n.results = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trommel_notifications_total", Help: "Notices for the webhook: sent, failed after all tries, or dropped.",
	}, []string{"result"})
	if c.Webhook == "" {
		return n, nil
	}
	u, err := url.Parse(c.Webhook)
	if err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		err = errors.New("it must begin with http:// or https:// and a host")
	}
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	n.template, err = template.New("notice").Option("missingkey=error").Funcs(template.FuncMap{
		"json": func(v any) (string, error) { text, err := json.Marshal(v); return string(text), err },
	}).Parse(cmp.Or(c.Template, "{{json .}}"))
	if err == nil {
		_, err = n.body(Notice{})
	}
	if err != nil {
		return nil, fmt.Errorf("template of the webhook: %w", err)
	}
	return n, nil
}

// Metrics are what is to be registered.
func (n *Notifier) Metrics() prometheus.Collector { return n.results }

// Recorder records events, and tells those about disruptions and their crons.
func (n *Notifier) Recorder(of events.EventRecorder) events.EventRecorder { return &recorder{of, n} }

type recorder struct {
	events.EventRecorder
	notifier *Notifier
}

// Eventf implements events.EventRecorder.
func (r *recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.EventRecorder.Eventf(regarding, related, kind, reason, action, note, args...)
	notice := Notice{Time: time.Now(), Type: kind, Reason: reason, Message: fmt.Sprintf(note, args...)}
	switch o := regarding.(type) {
	case *chaos.Disruption:
		notice.Kind, notice.Namespace, notice.Name = "Disruption", o.Namespace, o.Name
	case *chaos.DisruptionCron:
		notice.Kind, notice.Namespace, notice.Name = "DisruptionCron", o.Namespace, o.Name
	case *chaos.DisruptionRollout:
		notice.Kind, notice.Namespace, notice.Name = "DisruptionRollout", o.Namespace, o.Name
	default:
		return
	}
	r.notifier.tell(notice)
}

func (n *Notifier) tell(notice Notice) {
	if n.config.WarningsOnly && notice.Type != corev1.EventTypeWarning {
		return
	}
	if n.config.Log {
		n.log.Info(notice.Message, "type", notice.Type, "reason", notice.Reason, "kind", notice.Kind,
			"namespace", notice.Namespace, "name", notice.Name)
	}
	if n.config.Webhook == "" {
		return
	}
	select {
	case n.queue <- notice:
	default:
		n.results.WithLabelValues("dropped").Inc()
	}
}

// Start tells the webhook until the context ends.
func (n *Notifier) Start(ctx context.Context) error {
	for {
		select {
		case notice := <-n.queue:
			if err := n.send(ctx, notice); err != nil {
				n.results.WithLabelValues("failed").Inc()
				n.log.Error(err, "the webhook is not told", "reason", notice.Reason, "namespace", notice.Namespace,
					"name", notice.Name)
				continue
			}
			n.results.WithLabelValues("sent").Inc()
		case <-ctx.Done():
			return nil
		}
	}
}

func (n *Notifier) body(notice Notice) ([]byte, error) {
	var body bytes.Buffer
	err := n.template.Execute(&body, notice)
	return body.Bytes(), err
}

// send tells the webhook, in several tries if it does not answer or says that it is its own fault.
func (n *Notifier) send(ctx context.Context, notice Notice) error {
	body, err := n.body(notice)
	if err != nil {
		return err
	}
	for try := range tries {
		var again bool
		if again, err = n.post(ctx, body); err == nil || !again || try == tries-1 {
			break
		}
		select {
		case <-time.After(pause << try):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
	return err
}

func (n *Notifier) post(ctx context.Context, body []byte) (again bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, n.config.Webhook, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	request.Header.Set("Content-Type", "text/plain; charset=utf-8")
	if json.Valid(body) {
		request.Header.Set("Content-Type", "application/json")
	}
	if file := n.config.AuthorizationFile; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return true, err
		}
		request.Header.Set("Authorization", strings.TrimSpace(string(text)))
	}
	answer, err := n.client.Do(request)
	if err != nil {
		// The URL may be a secret, as those of chats are.
		if of := new(url.Error); errors.As(err, &of) {
			err = of.Err
		}
		return true, err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<16)) // so that the connection can be used again
	if answer.StatusCode >= 300 {
		return answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests,
			fmt.Errorf("it answers %s", answer.Status)
	}
	return false, nil
}
