package hook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// apiServer counts the requests that reach it, answers each with the next of its answers, and then with 201.
type apiServer struct {
	*httptest.Server
	reached int
}

func serveAPI(t *testing.T, answers ...http.HandlerFunc) *apiServer {
	s := &apiServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if string(body) != "{}" {
			t.Errorf("the request's body is %q", body)
		}
		s.reached++
		if s.reached <= len(answers) {
			answers[s.reached-1](w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"kind":"Pod"}`)
	}))
	t.Cleanup(s.Close)
	return s
}

// exchange makes one request of the call and returns its status and body, or its error.
func (s *apiServer) exchange(t *testing.T, c *Call) (*http.Response, string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "POST", s.URL, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Exchange(request, s.Client().Do)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body), nil
}

// failing returns a call of a write that the coordinator makes to fail.
func failing(t *testing.T, f wire.Failure) (*Call, *monitored) {
	t.Helper()
	after := podWrites
	after.Phase = wire.After
	m := listen(t, socket(t), podWrites, after)
	start(t, m.address)
	s := receive(t, "session", m.sessions)
	c := Begin(write("web-1"))
	done := make(chan error)
	go func() { done <- c.Before([]byte("{}"), nil) }()
	receive(t, "observation", s.arrived).fail(f)
	if err := receive(t, "release", done); err != nil || !c.Fails() {
		t.Fatalf("the call may happen (%v)", err)
	}
	return c, s
}

// ended returns what is reported when the call returns.
func ended(t *testing.T, c *Call, s *monitored, err error, code int) *held {
	t.Helper()
	done := make(chan error)
	go func() { done <- c.After(nil, nil, err, code) }()
	h := receive(t, "observation after the call", s.arrived)
	h.release()
	if err := receive(t, "release after the call", done); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestRefusedCallDoesNotReachTheAPIServer(t *testing.T) {
	c, s := failing(t, wire.Failure{Answer: wire.Refused, Code: 409, Body: []byte(`{"reason":"Conflict"}`),
		Header: map[string]string{"Content-Type": "application/json"}})
	api := serveAPI(t)
	response, body, err := api.exchange(t, c)
	if err != nil || response.StatusCode != 409 || response.Header.Get("Content-Type") != "application/json" ||
		body != `{"reason":"Conflict"}` {
		t.Errorf("the caller got %v %q (%v)", response, body, err)
	}
	if api.reached != 0 || c.Lost() != nil {
		t.Errorf("the API server was reached %d times", api.reached)
	}
	if h := ended(t, c, s, errors.New("conflict"), 409); h.Failed != wire.Refused {
		t.Errorf("reported as failed: %q", h.Failed)
	}
}

func TestLostAnswer(t *testing.T) {
	c, s := failing(t, wire.Failure{Answer: wire.Lost})
	api := serveAPI(t)
	_, _, err := api.exchange(t, c)
	// The error of a real client whose timeout expires.
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer slow.Close()
	_, want := (&http.Client{Timeout: time.Millisecond}).Post(slow.URL, "", nil)
	if err == nil || strings.ReplaceAll(err.Error(), api.URL, slow.URL) != want.Error() {
		t.Errorf("the caller got %v, want %v", err, want)
	}
	var as *url.Error
	if !errors.As(err, &as) || !as.Timeout() || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%#v is no timeout", err)
	}
	lost := c.Lost()
	if api.reached != 1 || lost == nil || lost.Code != 201 || lost.ContentType != "application/json" ||
		string(lost.Body) != `{"kind":"Pod"}` {
		t.Errorf("the API server was reached %d times; lost: %+v", api.reached, lost)
	}
	if h := ended(t, c, s, err, 201); h.Failed != wire.Lost || h.Error == "" || h.Code != 201 {
		t.Errorf("reported: %+v", h.Observation)
	}
}

func TestLostAnswerWithAStatus(t *testing.T) {
	c, _ := failing(t, wire.Failure{Answer: wire.Lost, Code: 504})
	api := serveAPI(t)
	if response, _, err := api.exchange(t, c); err != nil || response.StatusCode != 504 || api.reached != 1 {
		t.Errorf("the caller got %v (%v), the API server was reached %d times", response, err, api.reached)
	}
}

// client-go repeats a request that is answered with Retry-After: the API server has not answered it for good.
func TestAnswerThatAsksToRetryIsNotLost(t *testing.T) {
	c, s := failing(t, wire.Failure{Answer: wire.Lost})
	api := serveAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	if response, _, err := api.exchange(t, c); err != nil || response.StatusCode != 429 {
		t.Errorf("first request: %v (%v)", response, err)
	}
	if _, _, err := api.exchange(t, c); err == nil || c.Lost() == nil || api.reached != 2 {
		t.Errorf("second request: %v, lost %+v, %d requests reached the API server", err, c.Lost(), api.reached)
	}
	if len(s.arrived) > 0 {
		t.Error("the repeated request was reported")
	}
}

func TestNothingIsLostWithoutAnAnswer(t *testing.T) {
	c, s := failing(t, wire.Failure{Answer: wire.Lost})
	api := serveAPI(t)
	api.Close()
	_, _, err := api.exchange(t, c)
	if err == nil || strings.Contains(err.Error(), "Client.Timeout") || c.Lost() != nil {
		t.Errorf("the caller got %v", err)
	}
	if h := ended(t, c, s, err, 0); h.Failed != "" {
		t.Errorf("reported as failed: %q", h.Failed)
	}
}

// The coordinator decides about each request of a call.
func TestRepeatedRequestIsReported(t *testing.T) {
	refused := wire.Failure{Answer: wire.Refused, Code: 429, Header: map[string]string{"Retry-After": "1"}}
	c, s := failing(t, refused)
	api := serveAPI(t)
	if response, _, err := api.exchange(t, c); err != nil || response.StatusCode != 429 ||
		response.Header.Get("Retry-After") != "1" {
		t.Fatalf("first request: %v (%v)", response, err)
	}
	type result struct {
		response *http.Response
		err      error
	}
	repeat := func() <-chan result {
		done := make(chan result)
		go func() {
			response, _, err := api.exchange(t, c)
			done <- result{response, err}
		}()
		return done
	}
	done := repeat()
	h := receive(t, "second request", s.arrived)
	if h.Phase != wire.Before || string(h.Object) != "{}" {
		t.Errorf("second request: %+v", h.Observation)
	}
	h.fail(refused)
	if r := receive(t, "second answer", done); r.err != nil || r.response.StatusCode != 429 || api.reached != 0 {
		t.Errorf("second answer: %+v", r)
	}
	done = repeat()
	receive(t, "third request", s.arrived).release()
	if r := receive(t, "third answer", done); r.err != nil || r.response.StatusCode != 201 || api.reached != 1 {
		t.Errorf("third answer: %+v", r)
	}
	if h := ended(t, c, s, nil, 201); h.Failed != "" {
		t.Errorf("reported as failed: %q", h.Failed)
	}
}

// A coordinator that has gone makes nothing fail: whoever it held goes on.
func TestLostSessionMakesNothingFail(t *testing.T) {
	m := listen(t, socket(t), podWrites)
	start(t, m.address)
	s := receive(t, "session", m.sessions)
	c := Begin(write("web-1"))
	done := make(chan error)
	go func() { done <- c.Before(nil, nil) }()
	h := receive(t, "observation", s.arrived)
	m.kill()
	if err := receive(t, "release", done); err != nil || c.Fails() {
		t.Errorf("the call fails (%v)", err)
	}
	h.fail(wire.Failure{Answer: wire.Refused, Code: 500})
	api := serveAPI(t)
	if response, _, err := api.exchange(t, c); err != nil || response.StatusCode != 201 {
		t.Errorf("the caller got %v (%v)", response, err)
	}
}

func TestCallThatNobodyTakesIsMade(t *testing.T) {
	var c *Call
	api := serveAPI(t)
	response, _, err := api.exchange(t, c)
	if err != nil || response.StatusCode != 201 || c.Fails() || c.Lost() != nil {
		t.Errorf("the caller got %v (%v)", response, err)
	}
}
