// Package registrytest is a registry of images for tests: as much of the OCI distribution specification as a push and a
// pull need, in memory, without TLS.
package registrytest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Registry is an http.Handler. Its zero value is empty and lets everybody in.
type Registry struct {
	// User and Password are what the registry asks for; both empty: nothing.
	User, Password string

	mu    sync.Mutex
	blobs map[string][]byte // also manifests; by digest
	types map[string]string // of manifests
	puts  int
	fail  int
}

// Start serves a registry on loopback until the test's end, and returns its host and port.
func Start(t testing.TB, r *Registry) string {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// Puts returns how many blobs and manifests were uploaded since it was last called.
func (r *Registry) Puts() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.puts
	r.puts = 0
	return n
}

// Fail lets the next uploads fail.
func (r *Registry) Fail(uploads int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = uploads
}

// Content returns a blob or a manifest; nil: there is none.
func (r *Registry) Content(digest string) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.blobs[digest]
}

var (
	uploadPath  = regexp.MustCompile(`^/v2/[a-z0-9/._-]+/blobs/uploads/(one)?$`)
	contentPath = regexp.MustCompile(`^/v2/[a-z0-9/._-]+/(blobs|manifests)/(sha256:[0-9a-f]{64})$`)
)

// ServeHTTP answers a request.
func (r *Registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if user, password, _ := q.BasicAuth(); user != r.User || password != r.Password {
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
		return
	}
	at := contentPath.FindStringSubmatch(q.URL.Path)
	switch {
	case q.URL.Path == "/v2/":
	case q.Method == http.MethodPost && uploadPath.MatchString(q.URL.Path):
		w.Header().Set("Location", strings.TrimSuffix(q.URL.Path, "/")+"/one")
		w.WriteHeader(http.StatusAccepted)
	case q.Method == http.MethodPut && uploadPath.MatchString(q.URL.Path):
		r.put(w, q, q.URL.Query().Get("digest"), "")
	case at != nil && q.Method == http.MethodPut && at[1] == "manifests":
		r.put(w, q, at[2], q.Header.Get("Content-Type"))
	case at != nil:
		r.get(w, q, at[2])
	default:
		refuse(w, http.StatusNotFound, "UNSUPPORTED", q.Method+" "+q.URL.Path)
	}
}

func (r *Registry) get(w http.ResponseWriter, q *http.Request, digest string) {
	r.mu.Lock()
	data, found, mediaType := r.blobs[digest], r.blobs[digest] != nil, r.types[digest]
	r.mu.Unlock()
	if !found {
		refuse(w, http.StatusNotFound, "BLOB_UNKNOWN", digest)
		return
	}
	if mediaType == "" {
		mediaType = "application/octet-stream"
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	if q.Method == http.MethodGet {
		_, _ = io.Copy(w, bytes.NewReader(data))
	}
}

func (r *Registry) put(w http.ResponseWriter, q *http.Request, digest, mediaType string) {
	data, err := io.ReadAll(q.Body)
	sum := sha256.Sum256(data)
	if got := "sha256:" + hex.EncodeToString(sum[:]); err != nil || got != digest {
		refuse(w, http.StatusBadRequest, "DIGEST_INVALID", got)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail > 0 {
		r.fail--
		refuse(w, http.StatusBadGateway, "UNKNOWN", "try again")
		return
	}
	for _, needed := range parts(mediaType, data) {
		if r.blobs[needed] == nil {
			refuse(w, http.StatusBadRequest, "MANIFEST_BLOB_UNKNOWN", needed)
			return
		}
	}
	if r.blobs == nil {
		r.blobs, r.types = map[string][]byte{}, map[string]string{}
	}
	r.blobs[digest], r.types[digest] = data, mediaType
	r.puts++
	w.Header().Set("Docker-Content-Digest", digest)
	w.WriteHeader(http.StatusCreated)
}

// parts are the blobs that a manifest names.
func parts(mediaType string, data []byte) (digests []string) {
	var manifest struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	if mediaType == "" || json.Unmarshal(data, &manifest) != nil {
		return nil
	}
	for _, l := range manifest.Layers {
		digests = append(digests, l.Digest)
	}
	return append(digests, manifest.Config.Digest)
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": code, "message": message}}})
}
