package kube

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/trommel-dev/trommel/internal/clock"
)

// How often client-go repeats a request, and after what time if the connection has ended.
const (
	mostRetries       = 10
	afterEndedRequest = time.Second
)

// Retries makes client-go's retries wait by the clock of the request's context, if it has one: of requests to which an
// API server answers "later" (429, or 500 and more, with Retry-After), as it does while a watch cache is being filled,
// and of GET requests whose connection ends. client-go itself waits by the machine's clock. To a run that looks as if
// nothing happened, so that its clock would move on, past all timeouts. It is meant for [rest.Config.Wrap].
//
// [rest.Config.Wrap]: https://pkg.go.dev/k8s.io/client-go/rest#Config.Wrap
func Retries(transport http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		ctx := r.Context()
		if clock.Of(ctx) == nil {
			return transport.RoundTrip(r)
		}
		for tries := 0; ; tries++ {
			response, err := transport.RoundTrip(r)
			after, again := retryAfter(r, response, err)
			if !again {
				return response, err
			}
			next, ok := rewound(r)
			switch {
			case tries < mostRetries && ok:
				r = next
			case err != nil:
				return unavailable(r, err), nil
			default:
				return last(response), nil
			}
			if response != nil {
				_ = response.Body.Close()
			}
			if err := clock.Sleep(ctx, after); err != nil {
				return nil, err
			}
		}
	})
}

// rewound returns the request with its body from the beginning. It is not ok if that cannot be had again; then
// client-go does not repeat the request either.
func rewound(r *http.Request) (again *http.Request, ok bool) {
	if r.Body == nil {
		return r, true
	}
	if r.GetBody == nil {
		return nil, false
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, false
	}
	again = r.Clone(r.Context())
	again.Body = body
	return again, true
}

// AtOnce makes client-go return a response that it would otherwise retry a second later: a watch cache that is being
// filled is ready much sooner.
func AtOnce(transport http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := transport.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		return last(response), nil
	})
}

// last makes of a response one after which client-go does not repeat the request.
func last(response *http.Response) *http.Response {
	response.Header.Del("Retry-After")
	return response
}

// unavailable is the answer 503 instead of the error of a connection that has ended, after which client-go would begin
// again. To its callers it means the same.
func unavailable(r *http.Request, err error) *http.Response {
	return &http.Response{
		Status: http.StatusText(http.StatusServiceUnavailable), StatusCode: http.StatusServiceUnavailable,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/plain"}},
		Body:   io.NopCloser(strings.NewReader(err.Error())), Request: r,
	}
}

// retryAfter says whether and when client-go would repeat a request.
func retryAfter(r *http.Request, response *http.Response, err error) (after time.Duration, again bool) {
	switch {
	case err != nil:
		return afterEndedRequest, r.Method == http.MethodGet && (utilnet.IsConnectionReset(err) ||
			utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err))
	case response.StatusCode == http.StatusTooManyRequests, response.StatusCode >= http.StatusInternalServerError:
		seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
		return time.Duration(seconds) * time.Second, err == nil
	}
	return 0, false
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
