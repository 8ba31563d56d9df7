package notify

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

// webhook is a server that answers with these statuses, and then 200. got are the requests: type, authorization, body.
func webhook(t *testing.T, statuses ...int) (address string, got chan string) {
	got = make(chan string, 1000)
	var n atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.Header.Get("Content-Type") + "|" + r.Header.Get("Authorization") + "|" + string(body)
		if i := int(n.Add(1)) - 1; i < len(statuses) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(statuses[i])
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, got
}

func started(t *testing.T, c Config, log logr.Logger) (*Notifier, events.EventRecorder) {
	t.Helper()
	n, err := New(c, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return n, n.Recorder(events.NewFakeRecorder(1000))
}

func disruption(name string) *chaos.Disruption {
	d := &chaos.Disruption{}
	d.Namespace, d.Name = "shop", name
	return d
}

func TestWebhook(t *testing.T) {
	pause = time.Millisecond
	secret := filepath.Join(t.TempDir(), "authorization")
	if err := os.WriteFile(secret, []byte("Bearer x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const chat = `{"text": {{json (printf "%s %s/%s: %s" .Reason .Namespace .Name .Message)}}}`
	const said = `{"text": "Injected shop/slow: \"1\" of 1"}`
	for _, tt := range []struct {
		name     string
		statuses []int
		config   Config
		want     []string
		results  string
	}{
		{name: "a chat", config: Config{Template: chat}, want: []string{"application/json||" + said}, results: "sent"},
		{name: "with authorization", config: Config{Template: "{{.Name}}", AuthorizationFile: secret},
			want: []string{"text/plain; charset=utf-8|Bearer x|slow"}, results: "sent"},
		{name: "it recovers", config: Config{Template: "{{.Name}}"}, statuses: []int{500, 429},
			want: slices.Repeat([]string{"text/plain; charset=utf-8||slow"}, 3), results: "sent"},
		{name: "it does not recover", config: Config{Template: "{{.Name}}"}, statuses: []int{500, 500, 500, 500},
			want: slices.Repeat([]string{"text/plain; charset=utf-8||slow"}, 4), results: "failed"},
		{name: "it refuses", config: Config{Template: "{{.Name}}"}, statuses: []int{403},
			want: []string{"text/plain; charset=utf-8||slow"}, results: "failed"},
		{name: "it leads elsewhere", config: Config{Template: "{{.Name}}"}, statuses: []int{307},
			want: []string{"text/plain; charset=utf-8||slow"}, results: "failed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			address, got := webhook(t, tt.statuses...)
			tt.config.Webhook = address
			n, r := started(t, tt.config, logr.Discard())
			r.Eventf(&corev1.Pod{}, disruption("slow"), corev1.EventTypeWarning, "Disrupted", "Inject", "a target")
			r.Eventf(disruption("slow"), nil, corev1.EventTypeNormal, "Injected", "Inject", "%q of %d", "1", 1)
			for i, want := range tt.want {
				if request := <-got; request != want {
					t.Errorf("request %d: %s", i, request)
				}
			}
			for testutil.ToFloat64(n.results.WithLabelValues(tt.results)) != 1 {
				time.Sleep(time.Millisecond)
			}
			if len(got) > 0 {
				t.Errorf("%d more requests", len(got))
			}
		})
	}
}

// A webhook that hangs delays nobody.
func TestWebhookThatHangs(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer server.Close()
	defer close(hang)
	n, r := started(t, Config{Webhook: server.URL}, logr.Discard())
	for range waiting + 10 {
		r.Eventf(disruption("slow"), nil, corev1.EventTypeNormal, "Injected", "Inject", "1 of 1")
	}
	if dropped := testutil.ToFloat64(n.results.WithLabelValues("dropped")); dropped < 9 || dropped > 10 {
		t.Errorf("%v dropped", dropped)
	}
}

func TestLog(t *testing.T) {
	var lines []string
	log := funcr.New(func(prefix, args string) { lines = append(lines, prefix+" "+args) }, funcr.Options{})
	_, r := started(t, Config{Log: true, WarningsOnly: true}, log)
	r.Eventf(disruption("slow"), nil, corev1.EventTypeNormal, "Injected", "Inject", "1 of 1")
	r.Eventf(disruption("slow"), nil, corev1.EventTypeWarning, "Refused", "Validate", "too long")
	if len(lines) != 1 || !strings.Contains(lines[0], `"msg"="too long" "type"="Warning" "reason"="Refused"`) {
		t.Errorf("%q", lines)
	}
}

func TestMistakes(t *testing.T) {
	for _, tt := range []struct {
		config Config
		want   string
	}{
		{Config{Webhook: "chat.example"}, "webhook: it must begin with http:// or https:// and a host"},
		{Config{Webhook: "https://chat.example", Template: "{{.Nome}}"}, "template of the webhook: "},
		{Config{Webhook: "https://chat.example", Template: "{{"}, "template of the webhook: "},
	} {
		if _, err := New(tt.config, logr.Discard()); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt.config, err)
		}
	}
}
