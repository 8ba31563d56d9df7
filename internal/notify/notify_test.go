package notify

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
)

var pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}

// hook is a webhook that answers with the codes, and then with 200.
func hook(t *testing.T, codes ...int) (address string, bodies chan string) {
	t.Helper()
	bodies = make(chan string, 200)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent := []string{r.Method, r.Header.Get("Content-Type"), r.Header.Get("Authorization"), string(body)}
		bodies <- strings.Join(slices.DeleteFunc(sent, func(s string) bool { return s == "" }), " ")
		if len(codes) > 0 {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(codes[0])
			codes = codes[1:]
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/secret", bodies
}

// started is a recorder that sends until the test ends, with what it writes into its log then.
func started(t *testing.T, o Options) (r *Recorder, recorded *events.FakeRecorder, stop func() string) {
	t.Helper()
	var mu sync.Mutex
	var log strings.Builder
	o.Logger = funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		log.WriteString(args + "\n")
	}, funcr.Options{})
	recorded = events.NewFakeRecorder(200)
	r, err := Wrap(recorded, o)
	if err != nil {
		t.Fatal(err)
	}
	r.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC) }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Start(ctx) }()
	return r, recorded, func() string {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		return log.String()
	}
}

func TestWebhook(t *testing.T) {
	address, bodies := hook(t)
	r, recorded, stop := started(t, Options{URL: address})
	r.Eventf(pod, nil, corev1.EventTypeNormal, "Fine", "Test", "nobody wants to know")
	r.Eventf(pod, nil, corev1.EventTypeWarning, "Failed", "Test", "with %q", "quotes")
	const want = `POST application/json {"text": "Pod ns/p: Failed: with \"quotes\"", "type": "Warning", ` +
		`"reason": "Failed", "note": "with \"quotes\"", "kind": "Pod", "namespace": "ns", "name": "p", ` +
		`"time": "2026-01-02T03:04:05Z"}`
	got := <-bodies
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if body := strings.SplitN(got, " ", 3)[2]; !json.Valid([]byte(body)) {
		t.Errorf("no JSON: %s", body)
	}
	if log := stop(); !strings.Contains(log, "with") || strings.Contains(log, "secret") {
		t.Errorf("the log is %s", log)
	}
	if n := len(recorded.Events); n != 2 || len(bodies) != 0 {
		t.Errorf("%d events were recorded, %d more were sent", n, len(bodies))
	}
}

func TestTemplateAndReasons(t *testing.T) {
	address, bodies := hook(t)
	secret := filepath.Join(t.TempDir(), "authorization")
	if err := os.WriteFile(secret, []byte("Bearer x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, _, stop := started(t, Options{
		URL: address, Template: "{{.Kind}} {{.Name}} is {{.Reason}}", ContentType: "text/plain",
		Reasons: []string{"Fine"}, Kinds: []string{"Pod"}, AuthorizationFile: secret,
	})
	r.Eventf(&corev1.Node{}, nil, corev1.EventTypeNormal, "Fine", "Test", "of another kind")
	r.Eventf(pod, nil, corev1.EventTypeWarning, "Failed", "Test", "nobody asked for it")
	r.Eventf(pod, nil, corev1.EventTypeNormal, "Fine", "Test", "x")
	if got, want := <-bodies, "POST text/plain Bearer x Pod p is Fine"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	stop()
}

// A webhook that fails is asked again; one that refuses is not; its redirects are not followed, and its URL is not
// revealed.
func TestAttempts(t *testing.T) {
	for _, tt := range []struct {
		name  string
		codes []int
		sent  int
		log   string
	}{
		{"it comes back", []int{503, 429}, 3, ""},
		{"it does not come back", []int{500, 500, 500, 500}, 4, "it answers 500 Internal Server Error"},
		{"it refuses", []int{400}, 1, "it answers 400 Bad Request"},
		{"it is elsewhere", []int{307}, 1, "it answers 307 Temporary Redirect"},
	} {
		address, bodies := hook(t, tt.codes...)
		r, _, stop := started(t, Options{URL: address, Pause: time.Millisecond})
		r.Eventf(pod, nil, corev1.EventTypeWarning, "Failed", "Test", "x")
		for range tt.sent {
			<-bodies
		}
		r.Eventf(pod, nil, corev1.EventTypeWarning, "Failed", "Test", "the next one")
		if next := <-bodies; !strings.Contains(next, "the next one") {
			t.Errorf("%s: sent %s", tt.name, next)
		}
		result := "failed"
		if tt.log == "" {
			result = "sent"
		}
		if testutil.ToFloat64(r.results.WithLabelValues(result)) < 1 {
			t.Errorf("%s: not counted as %s", tt.name, result)
		}
		if log := stop(); !strings.Contains(log, tt.log) || strings.Contains(log, "secret") ||
			tt.log == "" && strings.Contains(log, "not sent") {
			t.Errorf("%s: the log is %s", tt.name, log)
		}
	}
}

// A webhook that does not answer blocks nothing.
func TestNeverBlocks(t *testing.T) {
	hold := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(hold) })
	r, recorded, stop := started(t, Options{URL: s.URL})
	for range 150 {
		r.Eventf(pod, nil, corev1.EventTypeWarning, "Failed", "Test", "x")
	}
	if n := len(recorded.Events); n != 150 {
		t.Errorf("%d events were recorded", n)
	}
	if testutil.ToFloat64(r.results.WithLabelValues("dropped")) < 49 {
		t.Error("what is dropped is not counted")
	}
	if log := stop(); !strings.Contains(log, "too many others wait") {
		t.Errorf("the log is %s", log)
	}
}

func TestWrongOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"must begin with http:// or https://": {URL: "file:///etc/passwd"},
		"template of the webhook":             {Template: "{{"},
		"can't evaluate field Nobody":         {Template: "{{.Nobody}}"},
	} {
		if _, err := Wrap(events.NewFakeRecorder(1), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}
