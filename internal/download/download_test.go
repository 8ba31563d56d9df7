package download

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// content is a file larger than the buffers on its way.
var content = func() []byte {
	data := make([]byte, 3<<20)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(data)
	return data
}()

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// server serves content as a release does. Before that, it does to the n-th request what the n-th function says.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []http.Header
	faults []func(w http.ResponseWriter, r *http.Request)
}

func serve(t *testing.T, faults ...func(http.ResponseWriter, *http.Request)) *server {
	s := &server{faults: faults}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		n := len(s.asked)
		s.asked = append(s.asked, r.Header.Clone())
		s.mu.Unlock()
		if n < len(s.faults) && s.faults[n] != nil {
			s.faults[n](w, r)
			return
		}
		send(w, r, content, `"v1"`)
	}))
	t.Cleanup(s.Close)
	return s
}

func send(w http.ResponseWriter, r *http.Request, data []byte, etag string) {
	w.Header().Set("ETag", etag)
	http.ServeContent(w, r, "file", time.Time{}, bytes.NewReader(data))
}

// cutAfter breaks the connection after some bytes of what would be sent.
func cutAfter(n int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) { send(&cutting{w, n}, r, content, `"v1"`) }
}

type cutting struct {
	http.ResponseWriter
	left int
}

func (c *cutting) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p[:min(len(p), c.left)])
	if c.left -= n; c.left == 0 {
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// ranges lists which part each request asked for.
func (s *server) ranges() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, h := range s.asked {
		all = append(all, strings.TrimSpace(h.Get("Range")+" "+h.Get("If-Range")))
	}
	return all
}

func fetch(t *testing.T, f *File, path string) error {
	t.Helper()
	if f.Client == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		f.Client = &http.Client{Transport: transport}
		defer transport.CloseIdleConnections()
	}
	return f.To(t.Context(), path)
}

func check(t *testing.T, path string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, content) {
		t.Errorf("%d bytes differ from the %d that were served", len(got), len(content))
	}
	if _, err := os.Stat(path + PartSuffix); !os.IsNotExist(err) {
		t.Errorf("the part is left: %v", err)
	}
}

func TestWhole(t *testing.T) {
	s := serve(t)
	path := filepath.Join(t.TempDir(), "file")
	var last int64
	f := &File{URL: s.URL, Size: int64(len(content)), SHA256: strings.ToUpper(sum(content)),
		Progress: func(n int64) { last = n }}
	if err := fetch(t, f, path); err != nil {
		t.Fatal(err)
	}
	check(t, path)
	if last != f.Size {
		t.Errorf("the last progress is %d, want %d", last, f.Size)
	}
}

func TestCutOff(t *testing.T) {
	whole := func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Range")
		send(w, r, content, `"v1"`)
	}
	other := func(w http.ResponseWriter, r *http.Request) { send(w, r, content, `"v2"`) }
	for _, test := range []struct {
		name   string
		faults []func(http.ResponseWriter, *http.Request)
		ranges []string
		err    string
	}{
		{"twice", []func(http.ResponseWriter, *http.Request){cutAfter(1_000_000), cutAfter(500_000)},
			[]string{"", `bytes=1000000- "v1"`, `bytes=1500000- "v1"`}, ""},
		{"a server without ranges", []func(http.ResponseWriter, *http.Request){cutAfter(1_000_000), whole},
			[]string{"", `bytes=1000000- "v1"`}, ""},
		{"the file was replaced", []func(http.ResponseWriter, *http.Request){cutAfter(1_000_000), other},
			[]string{"", `bytes=1000000- "v1"`}, ""},
		{"always", slices.Repeat([]func(http.ResponseWriter, *http.Request){cutAfter(1000)}, 9),
			[]string{"", `bytes=1000- "v1"`, `bytes=2000- "v1"`, `bytes=3000- "v1"`, `bytes=4000- "v1"`},
			"get URL: cut off after 5000 of 3145728 bytes: unexpected EOF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t, test.faults...)
			path := filepath.Join(t.TempDir(), "file")
			err := fetch(t, &File{URL: s.URL, Size: int64(len(content)), SHA256: sum(content)}, path)
			if got := s.ranges(); !slices.Equal(got, test.ranges) {
				t.Errorf("asked for %q, want %q", got, test.ranges)
			}
			if test.err != "" {
				wantError(t, err, s.URL, test.err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			check(t, path)
		})
	}
}

// TestGoesOnLater checks that what one process left is used by the next one, unless it is wrong.
func TestGoesOnLater(t *testing.T) {
	for _, test := range []struct {
		name   string
		left   []byte
		ranges []string
	}{
		{"a part", content[:1000], []string{"bytes=1000-"}},
		{"all of it", content, nil},
		{"a part of another file", []byte("another"), []string{"bytes=7-", ""}},
		{"a larger file", append(slices.Clone(content), 1), []string{""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t)
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path+PartSuffix, test.left, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := fetch(t, &File{URL: s.URL, Size: int64(len(content)), SHA256: sum(content)}, path); err != nil {
				t.Fatal(err)
			}
			check(t, path)
			if got := s.ranges(); !slices.Equal(got, test.ranges) {
				t.Errorf("asked for %q, want %q", got, test.ranges)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	another := append([]byte("x"), content[1:]...)
	for _, test := range []struct {
		name  string
		fault func(http.ResponseWriter, *http.Request)
		err   string
	}{
		{"another content", func(w http.ResponseWriter, r *http.Request) { send(w, r, another, `"v1"`) },
			fmt.Sprintf("URL has the SHA-256 checksum %s…, want %s…", sum(another)[:16], sum(content)[:16])},
		{"not there", http.NotFound, "get URL: the server answers 404 Not Found"},
		{"a page of somebody else", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "log in, please") },
			"get URL: the file has 14 bytes, want 3145728"},
		{"another part", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Range", "bytes 5-9/10")
			w.WriteHeader(http.StatusPartialContent)
		}, `get URL: the server sends "bytes 5-9/10" instead of bytes 0-…`},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t, test.fault)
			path := filepath.Join(t.TempDir(), "file")
			err := fetch(t, &File{URL: s.URL, Size: int64(len(content)), SHA256: sum(content)}, path)
			wantError(t, err, s.URL, test.err)
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("there is a file: %v", err)
			}
			// The next call is not misled by what this one left.
			if err := fetch(t, &File{URL: s.URL, Size: int64(len(content)), SHA256: sum(content)}, path); err != nil {
				t.Fatal(err)
			}
			check(t, path)
		})
	}
}

func TestNoNetwork(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	err = fetch(t, &File{URL: "http://" + address, Size: 1, SHA256: sum(nil)}, filepath.Join(t.TempDir(), "file"))
	wantError(t, err, "http://"+address, "get URL: dial tcp "+address+": connect: connection refused")
}

func TestProxy(t *testing.T) {
	s := serve(t) // a proxy is asked for the whole URL
	proxy, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "file")
	f := func(proxy *url.URL) *File {
		transport := &http.Transport{Proxy: http.ProxyURL(proxy)}
		t.Cleanup(transport.CloseIdleConnections)
		return &File{URL: "http://release.invalid/file", Size: int64(len(content)), SHA256: sum(content),
			Client: &http.Client{Transport: transport}}
	}
	if err := fetch(t, f(proxy), path); err != nil {
		t.Fatal(err)
	}
	check(t, path)
	s.Close()
	err = fetch(t, f(proxy), path)
	wantError(t, err, "http://release.invalid/file",
		"get URL: proxyconnect tcp: dial tcp "+proxy.Host+": connect: connection refused")
}

func TestStalled(t *testing.T) {
	for _, bytes := range []int{0, 1000} {
		released := make(chan struct{})
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			_, _ = w.Write(content[:bytes])
			w.(http.Flusher).Flush()
			<-released
		}, func(w http.ResponseWriter, r *http.Request) { <-released })
		f := &File{URL: s.URL, Size: int64(len(content)), SHA256: sum(content), Stall: 50 * time.Millisecond}
		err := fetch(t, f, filepath.Join(t.TempDir(), "file"))
		close(released)
		if err == nil || !strings.HasSuffix(err.Error(), ": no bytes arrived for 50ms") {
			t.Errorf("after %d bytes: error %v", bytes, err)
		}
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	released := make(chan struct{})
	s := serve(t, func(http.ResponseWriter, *http.Request) {
		cancel()
		<-released
	})
	defer close(released)
	f := &File{URL: s.URL, Size: int64(len(content)), SHA256: sum(content)}
	if err := f.To(ctx, filepath.Join(t.TempDir(), "file")); err != context.Canceled {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

// wantError compares an error's text, in which URL stands for the server's.
func wantError(t *testing.T, err error, url, want string) {
	t.Helper()
	if err == nil || strings.ReplaceAll(err.Error(), url, "URL") != want {
		t.Errorf("error %v\n want %s", err, want)
	}
}
