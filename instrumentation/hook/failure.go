package hook

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// LostAnswer is what the API server has answered to a request whose caller got a failure instead.
type LostAnswer struct {
	Code        int
	ContentType string
	Body        []byte
}

// Fails reports whether the coordinator has said, when it released the call, that its request must fail. The request
// must then be made with Exchange.
func (c *Call) Fails() bool { return c != nil && c.failure != nil }

// Lost returns the answer that the API server gave to the call's last request if the caller did not get it, otherwise
// nil.
func (c *Call) Lost() *LostAnswer {
	if c == nil {
		return nil
	}
	return c.lost
}

// Refused returns the error with which an annotated function must return at once, nil if it must run.
func (c *Call) Refused() error {
	if c == nil || c.failure == nil || c.failure.Answer != wire.Refused {
		return nil
	}
	c.failed = wire.Refused
	return &callFailure{name: c.observation.CallName}
}

// Returns reports that an annotated function has ended, and returns what its caller gets: err, or another error if the
// answer is lost. An answer that is an error is lost too.
func (c *Call) Returns(err error) error {
	if c == nil {
		return err
	}
	if f := c.failure; f != nil && f.Answer == wire.Lost {
		c.failed = wire.Lost
		err = &callFailure{name: c.observation.CallName, lost: true}
	}
	_ = c.After(nil, nil, err, 0)
	return err
}

// callFailure is the error that the caller of an annotated function gets. A lost answer is a timeout: that is what
// callers of other systems see of it.
type callFailure struct {
	name string
	lost bool
}

func (e *callFailure) Error() string {
	if e.lost {
		return e.name + ": context deadline exceeded (the test plan has lost the answer)"
	}
	return e.name + ": the test plan made this call fail"
}
func (e *callFailure) Timeout() bool        { return e.lost }
func (e *callFailure) Temporary() bool      { return e.lost }
func (e *callFailure) Is(target error) bool { return e.lost && target == context.DeadlineExceeded }

// Exchange makes one of the call's requests with do, or fails it if the coordinator has said so. It returns what
// [http.Client.Do] would return.
//
// A caller repeats a request if its answer says so (Retry-After). The coordinator then decides about the repeated one
// too; otherwise a server that is told to refuse calls for a second would refuse this one as often as it is tried.
func (c *Call) Exchange(request *http.Request,
	do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	if c == nil {
		return do(request)
	}
	if c.exchanged && c.failure == nil {
		_ = c.Before(c.object, nil) // if its context has ended, the request fails by itself
	}
	f := c.failure
	c.exchanged, c.failure, c.failed, c.lost = true, nil, "", nil
	if f == nil {
		return do(request)
	}
	if f.Answer == wire.Lost {
		answer, err := do(request)
		switch {
		case err != nil:
			return answer, err // there is no answer to lose
		case answer.Header.Get("Retry-After") != "":
			c.failure = f // the request is repeated; the answer to that one is lost
			return answer, nil
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			return nil, err
		}
		c.lost = &LostAnswer{Code: answer.StatusCode, ContentType: answer.Header.Get("Content-Type"), Body: body}
	} else if request.Body != nil {
		_ = request.Body.Close() // a transport closes it in any case
	}
	c.failed = f.Answer
	if f.Code == 0 {
		return nil, timedOut(request)
	}
	header := http.Header{"Content-Length": {strconv.Itoa(len(f.Body))}}
	for name, value := range f.Header {
		header.Set(name, value)
	}
	return &http.Response{
		Status: strconv.Itoa(f.Code) + " " + http.StatusText(f.Code), StatusCode: f.Code,
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: header, Request: request,
		Body: io.NopCloser(bytes.NewReader(f.Body)), ContentLength: int64(len(f.Body)),
	}, nil
}

// timedOut returns the error of [http.Client.Do] when the client's timeout has expired.
func timedOut(request *http.Request) error {
	method := request.Method
	if method == "" {
		method = http.MethodGet
	}
	return &url.Error{Op: method[:1] + strings.ToLower(method[1:]), URL: request.URL.String(), Err: timeout{}}
}

// timeout is net/http's error of the same text.
type timeout struct{}

func (timeout) Error() string {
	return "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
}
func (timeout) Timeout() bool        { return true }
func (timeout) Temporary() bool      { return true }
func (timeout) Is(target error) bool { return target == context.DeadlineExceeded }
