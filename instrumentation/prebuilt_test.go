package instrumentation

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/points"
	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/buildcache"
	"github.com/trommel-dev/trommel/internal/download"
)

// release is a directory with the archive of a control plane that only says who it is, and a server that plays the
// release.
type release struct {
	*httptest.Server
	archive string // path
	data    []byte
	result  Result
	asked   atomic.Int64
	answer  http.HandlerFunc // nil: the archive
}

// playRelease packs a control plane as a release does, and makes it the one of this process's trommel.
func playRelease(t *testing.T) *release {
	t.Helper()
	r := &release{result: Result{
		Manifest: wire.Manifest{Builder: "v0.1.0"},
		Points: []points.Patched{{Path: "/somewhere/patched.go", CompiledPoint: wire.CompiledPoint{
			Module: "k8s.io/client-go", Version: "v0.36.3", File: "rest/request.go", Function: "Do", Line: 7}}},
	}}
	built := t.TempDir()
	b, err := configured(ControlPlaneConfig{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(built, "controlplane", b.key)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeResult(dir, &r.result); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 10_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(text) // it cannot be compressed
	if err := os.WriteFile(filepath.Join(dir, controlPlaneBinary), text, 0o755); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if r.archive, err = PackControlPlane(t.Context(), ControlPlaneConfig{CacheDir: built}, out); err != nil {
		t.Fatal(err)
	}
	if r.data, err = os.ReadFile(r.archive); err != nil {
		t.Fatal(err)
	}
	index, err := IndexControlPlanes("v0.1.0", out, []string{KubernetesVersion}, []string{platform{}.String()})
	if err != nil {
		t.Fatal(err)
	}
	useIndex(t, index)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.asked.Add(1)
		if r.answer != nil {
			r.answer(w, request)
			return
		}
		http.ServeFile(w, request, filepath.Join(out, filepath.Base(request.URL.Path)))
	}))
	t.Cleanup(r.Close)
	t.Setenv(EnvReleaseURL, r.URL+"/")
	t.Setenv(EnvBuild, "")
	return r
}

func useIndex(t *testing.T, data []byte) {
	t.Helper()
	before := prebuiltIndex.Load()
	t.Cleanup(func() { prebuiltIndex.Store(before) })
	if err := SetPrebuiltIndex(data); err != nil {
		t.Fatal(err)
	}
}

// obtain returns the control plane, and the messages for the user. There is no go command, so each build
// fails at once.
func obtain(t *testing.T, config ControlPlaneConfig) (*Result, []string, error) {
	t.Helper()
	t.Setenv("PATH", t.TempDir())
	var notices []string
	config.Notice = func(line string) { notices = append(notices, line) }
	result, err := BuildControlPlane(t.Context(), config)
	return result, notices, err
}

// buildBegan is the error of a build that has no go command.
const buildBegan = "install Go (https://go.dev/dl)"

func TestPrebuiltControlPlane(t *testing.T) {
	r := playRelease(t)
	cache := t.TempDir()
	result, notices, err := obtain(t, ControlPlaneConfig{CacheDir: cache})
	if err != nil || notices != nil {
		t.Fatalf("error %v, notices %q", err, notices)
	}
	b, err := configured(ControlPlaneConfig{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "controlplane", b.key)
	want := r.result
	want.Binary, want.Prebuilt = filepath.Join(dir, controlPlaneBinary), true
	want.Points = slices.Clone(want.Points)
	want.Points[0].Path = "k8s.io/client-go@v0.36.3/rest/request.go"
	if diff := cmp.Diff(&want, result); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
	info, err := os.Stat(result.Binary)
	if err != nil || info.Mode().Perm()&0o111 == 0 {
		t.Errorf("%s is not executable: %v, %v", result.Binary, info.Mode(), err)
	}
	var names []string
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{resultFile, controlPlaneBinary}; err != nil || !slices.Equal(names, want) {
		t.Errorf("the cache has %q, want %q; error %v", names, want, err)
	}

	again, notices, err := obtain(t, ControlPlaneConfig{CacheDir: cache})
	if err != nil || notices != nil {
		t.Fatalf("error %v, notices %q", err, notices)
	}
	if want.Cached = true; !cmp.Equal(&want, again) {
		t.Errorf("the second result (-want +got):\n%s", cmp.Diff(&want, again))
	}
	if n := r.asked.Load(); n != 1 {
		t.Errorf("the release was asked %d times", n)
	}
	// Who wants one that was built here gets no other.
	if _, _, err := obtain(t, ControlPlaneConfig{CacheDir: cache, FromSource: true}); !began(err) {
		t.Errorf("from source: error %v", err)
	}
}

func began(err error) bool { return err != nil && strings.Contains(err.Error(), buildBegan) }

func TestPrebuiltCannotBeUsed(t *testing.T) {
	const (
		unusable = "the prebuilt control plane cannot be used "
		instead  = ": it is built from source, which takes minutes"
	)
	for _, test := range []struct {
		name   string
		before func(t *testing.T, r *release)
		notice string // URL stands for the archive's
	}{
		{"a wrong checksum", func(_ *testing.T, r *release) {
			r.answer = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, len(r.data))) }
		}, unusable + "(URL has the SHA-256 checksum ZEROS…, want RIGHT…)" + instead},
		{"not there", func(_ *testing.T, r *release) { r.answer = http.NotFound },
			unusable + "(get URL: the server answers 404 Not Found)" + instead},
		{"no network", func(_ *testing.T, r *release) { r.Close() },
			unusable + "(get URL: dial tcp ADDRESS: connect: connection refused)" + instead},
		{"not an archive", func(t *testing.T, r *release) {
			r.replace(t, []byte("no archive"))
		}, unusable + "(unpack URL: gzip: invalid header)" + instead},
		{"another archive", func(t *testing.T, r *release) {
			r.replace(t, archiveOf(t, "../../elsewhere"))
		}, unusable + "(unpack URL: ../../elsewhere: it is not expected)" + instead},
		{"a part of the archive", func(t *testing.T, r *release) {
			r.replace(t, archiveOf(t, controlPlaneBinary))
		}, unusable + "(unpack URL: trommel-controlplane or result.json is missing)" + instead},
		{"not in the release", func(t *testing.T, r *release) {
			useIndex(t, []byte(`{"release": "v0.1.0", "controlPlanes": {"another": {}}}`))
		}, "release v0.1.0 has no control plane of Kubernetes " + KubernetesVersion + " for " + platform{}.String() +
			instead},
		{"not a release", func(t *testing.T, r *release) { useIndex(t, []byte("{}")) }, ""},
		{"built at the user's request", func(t *testing.T, r *release) { t.Setenv(EnvBuild, "1") }, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := playRelease(t)
			test.before(t, r)
			_, notices, err := obtain(t, ControlPlaneConfig{CacheDir: t.TempDir()})
			if !began(err) {
				t.Errorf("no build began: %v", err)
			}
			url := r.URL + "/" + filepath.Base(r.archive)
			got := strings.NewReplacer(url, "URL", strings.TrimPrefix(r.URL, "http://"), "ADDRESS",
				sum(make([]byte, len(r.data))), "ZEROS", sum(r.data), "RIGHT").Replace(strings.Join(notices, "\n"))
			if got != test.notice {
				t.Errorf("notice %q\n   want %q", got, test.notice)
			}
		})
	}
}

// sum is how messages show a checksum.
func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])[:16]
}

// replace makes something else the release's archive.
func (r *release) replace(t *testing.T, data []byte) {
	t.Helper()
	if err := os.WriteFile(r.archive, data, 0o644); err != nil {
		t.Fatal(err)
	}
	index, err := IndexControlPlanes("v0.1.0", filepath.Dir(r.archive), []string{""}, []string{""})
	if err != nil {
		t.Fatal(err)
	}
	useIndex(t, index)
}

func archiveOf(t *testing.T, name string) []byte {
	t.Helper()
	var data bytes.Buffer
	z := gzip.NewWriter(&data)
	archive := tar.NewWriter(z)
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return data.Bytes()
}

// TestPrebuiltBesideInterruptedBuild checks that a download does not touch what a build left that may still be written.
func TestPrebuiltBesideInterruptedBuild(t *testing.T) {
	playRelease(t)
	cache := t.TempDir()
	b, err := configured(ControlPlaneConfig{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "controlplane", b.key)
	left := []string{"src/main.go", "mod/go.mod", "overlay.json", controlPlaneBinary + ".new"}
	for _, name := range left {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("left"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	result, notices, err := obtain(t, ControlPlaneConfig{CacheDir: cache})
	if err != nil || notices != nil || !result.Prebuilt {
		t.Fatalf("result %+v, error %v, notices %q", result, err, notices)
	}
	for _, name := range left {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != "left" {
			t.Errorf("%s is now %q, %v", name, data, err)
		}
	}
}

// TestPrebuiltOnce checks that the control plane is fetched once for all that want it at the same time, and that a
// build's lock keeps the download waiting.
func TestPrebuiltOnce(t *testing.T) {
	r := playRelease(t)
	t.Setenv("PATH", t.TempDir())
	cache := t.TempDir()
	c, err := buildcache.Open(cache)
	if err != nil {
		t.Fatal(err)
	}
	b, err := configured(ControlPlaneConfig{})
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := c.Lock(t.Context(), "controlplane/"+b.key)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error)
	go func() {
		_, err := BuildControlPlane(ctx, ControlPlaneConfig{CacheDir: cache})
		waiting <- err
	}()
	cancel()
	if err := <-waiting; err == nil || r.asked.Load() != 0 {
		t.Errorf("beside a build: error %v, and the release was asked %d times", err, r.asked.Load())
	}
	unlock()
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if _, err := BuildControlPlane(t.Context(), ControlPlaneConfig{CacheDir: cache}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := r.asked.Load(); n != 1 {
		t.Errorf("the release was asked %d times", n)
	}
}

func TestIndexControlPlanes(t *testing.T) {
	r := playRelease(t)
	dir := filepath.Dir(r.archive)
	for _, test := range []struct {
		release             string
		versions, platforms []string
		err                 string
	}{
		{"0.1.0", []string{""}, []string{""}, `release "0.1.0": want a version such as v0.1.0`},
		{"v0.1", []string{""}, []string{""}, `release "v0.1": want a version such as v0.1.0`},
		{"v0.1.0", []string{""}, []string{"linux"},
			`platform "linux": want an operating system and an architecture, such as linux/arm64`},
		{"v0.1.0", []string{"1.2"}, []string{""},
			"unknown Kubernetes version 1.2: this trommel builds control planes of v"},
		{"v0.1.0", []string{""}, []string{"plan9/386"}, "the control plane of Kubernetes " + KubernetesVersion +
			" for plan9/386: open "},
	} {
		_, err := IndexControlPlanes(test.release, dir, test.versions, test.platforms)
		if err == nil || !strings.HasPrefix(err.Error(), test.err) {
			t.Errorf("error %v\n want %s", err, test.err)
		}
	}
	data, err := IndexControlPlanes("v0.1.0", dir, []string{"1.36"}, []string{platform{}.String()})
	if err != nil {
		t.Fatal(err)
	}
	var index PrebuiltIndex
	if err := json.Unmarshal(data, &index); err != nil || len(index.ControlPlanes) != 1 {
		t.Errorf("index %s, error %v", data, err)
	}
	if err := SetPrebuiltIndex([]byte(`{"nonsense": 1}`)); err == nil {
		t.Error("nonsense is an index")
	}
}

// TestPrebuiltCutOff checks that a download that is always cut off ends in a build, and that the next one goes on.
func TestPrebuiltCutOff(t *testing.T) {
	r := playRelease(t)
	r.answer = func(w http.ResponseWriter, request *http.Request) {
		http.ServeContent(&cutting{ResponseWriter: w}, request, "", time.Time{}, bytes.NewReader(r.data))
	}
	cache := t.TempDir()
	_, notices, err := obtain(t, ControlPlaneConfig{CacheDir: cache})
	if !began(err) || len(notices) != 1 || !strings.Contains(notices[0], ": cut off after ") {
		t.Errorf("error %v, notices %q", err, notices)
	}
	b, err := configured(ControlPlaneConfig{})
	if err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(cache, "controlplane", b.key, packedFile+download.PartSuffix)
	if info, err := os.Stat(part); err != nil || info.Size() != 500 {
		t.Errorf("the part: %v, %v", info, err)
	}
	// The next one goes on there.
	r.answer = nil
	if _, notices, err := obtain(t, ControlPlaneConfig{CacheDir: cache}); err != nil || notices != nil {
		t.Errorf("error %v, notices %q", err, notices)
	}
}

// cutting breaks the connection after 100 bytes.
type cutting struct {
	http.ResponseWriter
}

func (c *cutting) Write(p []byte) (int, error) {
	_, _ = c.ResponseWriter.Write(p[:100])
	c.ResponseWriter.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}
