package fleet

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// client is a worker's end of the protocol.
type client struct {
	base     string
	secret   string
	name     string
	http     *http.Client
	patience time.Duration
	say      func(text string)
}

// statusError is an answer of the campaign that is not what was asked for.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the campaign answers: %s (%d)", e.text, e.code)
}

func is(err error, code int) bool {
	var status *statusError
	return errors.As(err, &status) && status.code == code
}

func newClient(server, token, name string, patience time.Duration, say func(string)) (*client, error) {
	secret, config, err := parseToken(token)
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(server)
	if err != nil || at.Scheme != "https" || at.Host == "" {
		return nil, fmt.Errorf("the server must be given as https://HOST:PORT, not %q", server)
	}
	return &client{
		base: strings.TrimRight(at.String(), "/"), secret: secret, name: url.PathEscape(name), patience: patience,
		say: say,
		http: &http.Client{Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			// The campaign is reached directly: a proxy would not have its certificate.
			TLSClientConfig: config, TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: 2,
			IdleConnTimeout: time.Minute, ResponseHeaderTimeout: 2 * pollFor, DisableCompression: true,
		}},
	}, nil
}

// once makes a request. Body may be nil; the caller closes the body of the answer.
func (c *client) once(
	ctx context.Context, method, path string, body io.Reader, header ...string,
) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.secret)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		_ = resp.Body.Close()
		return nil, &statusError{resp.StatusCode, strings.TrimSpace(string(text))}
	}
	return resp, nil
}

// retried does something until the campaign answers. It waits longer after each failure, and gives up when the campaign
// has not been there for as long as the worker has patience. Answers that say no are errors at once.
func (c *client) retried(ctx context.Context, what string, do func(ctx context.Context) error) error {
	began, wait := time.Now(), 200*time.Millisecond
	for {
		err := do(ctx)
		var status *statusError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &status) && status.code < 500, errors.Is(err, errOtherCampaign):
			return err
		case time.Since(began) > c.patience:
			return fmt.Errorf("%s: the campaign was not reached for %s: %w", what, c.patience.Round(time.Second), err)
		}
		if wait == 200*time.Millisecond {
			c.say(fmt.Sprintf("%s: %v; trying again", what, err))
		}
		// At random, so that many workers do not come at once when a campaign is resumed.
		select {
		case <-time.After(wait/2 + rand.N(wait)): //nolint:gosec // it is not a secret
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		wait = min(2*wait, 15*time.Second)
	}
}

// campaign asks what the campaign is.
func (c *client) campaign(ctx context.Context) (*Campaign, error) {
	found := &Campaign{}
	err := c.retried(ctx, "find the campaign", func(ctx context.Context) error {
		resp, err := c.once(ctx, http.MethodGet, "/v1/campaign", nil)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		return json.NewDecoder(resp.Body).Decode(found)
	})
	return found, err
}

// fetch writes a blob. A download that breaks off goes on where it was.
func (c *client) fetch(ctx context.Context, digest string, w io.Writer) error {
	packed, err := os.CreateTemp("", "trommel-blob-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = packed.Close()
		_ = os.Remove(packed.Name())
	}()
	var have int64
	err = c.retried(ctx, "fetch what the runs need", func(ctx context.Context) error {
		var header []string
		if have > 0 {
			header = []string{"Range", "bytes=" + strconv.FormatInt(have, 10) + "-"}
		}
		resp, err := c.once(ctx, http.MethodGet, "/v1/blobs/"+digest, nil, header...)
		if is(err, http.StatusRequestedRangeNotSatisfiable) {
			return nil // it was whole
		}
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusPartialContent {
			have = 0
			if err := packed.Truncate(0); err != nil {
				return err
			}
		}
		if _, err := packed.Seek(have, io.SeekStart); err != nil {
			return err
		}
		n, err := io.Copy(packed, resp.Body)
		have += n
		return err
	})
	if err != nil {
		return err
	}
	if _, err := packed.Seek(0, io.SeekStart); err != nil {
		return err
	}
	z, err := gzip.NewReader(packed)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, z) //nolint:gosec // the digest is checked, and the campaign is trusted
	return err
}

// take asks for work until there is some.
func (c *client) take(ctx context.Context) (*Job, error) {
	for {
		var job *Job
		err := c.retried(ctx, "ask for work", func(ctx context.Context) error {
			resp, err := c.once(ctx, http.MethodPost, "/v1/workers/"+c.name+"/take", nil)
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode == http.StatusNoContent {
				return nil
			}
			job = &Job{}
			return json.NewDecoder(resp.Body).Decode(job)
		})
		if err != nil || job != nil {
			return job, err
		}
	}
}

// tell posts something that has no answer.
func (c *client) tell(ctx context.Context, path string, content any) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	resp, err := c.once(ctx, http.MethodPost, path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// send uploads the record of a lease, by its digest.
func (c *client) send(ctx context.Context, lease, file, digest string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	resp, err := c.once(ctx, http.MethodPut, "/v1/leases/"+lease+"/record/"+digest, f)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
