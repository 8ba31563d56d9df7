package kube

import (
	"net/http"
	"strconv"
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
func Retries(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		ctx := r.Context()
		if clock.Of(ctx) == nil {
			return next.RoundTrip(r)
		}
		for tries := 0; ; tries++ {
			response, err := next.RoundTrip(r)
			after, again := retryAfter(r, response, err)
			if !again {
				return response, err
			}
			again = tries < mostRetries
			if again && r.Body != nil {
				// client-go gives each request a body that can be read again, but for those that it does not repeat.
				if again = r.GetBody != nil; again {
					body, bodyErr := r.GetBody()
					if bodyErr != nil {
						return response, err
					}
					r = r.Clone(ctx)
					r.Body = body
				}
			}
			if !again {
				if response != nil {
					response.Header.Del("Retry-After")
				}
				return response, err
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
