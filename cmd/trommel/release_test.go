package main

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/trommel-dev/trommel/instrumentation"
)

// envIndex is a file with the index of a release. The trommel of the scripts is then that release's.
const envIndex = "TROMMEL_TEST_PREBUILT_INDEX"

// useIndex makes this process the trommel of a release, if a script wants it.
func useIndex() {
	path := os.Getenv(envIndex)
	if path == "" {
		return
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = instrumentation.SetPrebuiltIndex(data)
	}
	if err != nil {
		panic(err)
	}
}

// TestRelease fetches a control plane from a local server that plays the release, by all ways there are, and starts it.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	t.Parallel()
	dir := t.TempDir()
	platform := runtime.GOOS + "/" + runtime.GOARCH
	// Not in this process: with the race detector, compression takes minutes.
	packer := buildTrommel(t)
	release := func(args ...string) string {
		t.Helper()
		var out, progress bytes.Buffer
		cmd := exec.CommandContext(t.Context(), packer, append([]string{"release"}, args...)...)
		cmd.Stdout, cmd.Stderr = &out, &progress
		if err := cmd.Run(); err != nil {
			t.Fatalf("trommel release %s: %v\n%s", args[0], err, progress.String())
		}
		return strings.TrimSpace(out.String())
	}
	packed := release("controlplane", "--out", dir, "--kubernetes-version", instrumentation.KubernetesVersion,
		"--platform", platform)
	file := filepath.Join(dir, "prebuilt.json")
	release("index", "--release", "v0.1.0", "--output", file, "--kubernetes-version", instrumentation.KubernetesVersion,
		"--platform", platform, dir)
	data, err := os.ReadFile(packed)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(playRelease(filepath.Base(packed), data))
	t.Cleanup(s.Close)
	p := params(filepath.Join("testdata", "release"))
	p.Setup = func(e *testscript.Env) error {
		shareCaches(e)
		e.Setenv("TROMMEL_CACHE", filepath.Join(e.WorkDir, "cache"))
		e.Setenv("SERVER", s.URL)
		e.Setenv("PID", strconv.Itoa(os.Getpid()))
		e.Setenv("ARCHIVE", filepath.Base(packed))
		e.Setenv("PLATFORM", platform)
		e.Setenv("KUBERNETES", instrumentation.KubernetesVersion)
		e.Setenv(envIndex, file)
		for _, name := range []string{"HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy", instrumentation.EnvBuild} {
			e.Setenv(name, "")
		}
		// Without a go command, a build ends when it begins.
		trommel, err := exec.LookPath("trommel") // the test binary's, which takes the index from its environment
		if err != nil {
			return err
		}
		without := filepath.Join(e.WorkDir, "bin")
		e.Setenv("WITHOUT_GO", without)
		return errors.Join(os.Mkdir(without, 0o755), os.Symlink(trommel, filepath.Join(without, "trommel")))
	}
	testscript.Run(t, p)
}

// playRelease returns a handler that has the archive at /v0.1.0/NAME, cuts it off in the middle the first time at
// /cut/NAME, always at /broken/NAME, and has something else of that size at /wrong/NAME. It is a proxy too.
func playRelease(name string, data []byte) http.Handler {
	mux := http.NewServeMux()
	send := func(w http.ResponseWriter, r *http.Request, data []byte) {
		w.Header().Set("ETag", `"release"`)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
	}
	var first sync.Once
	mux.HandleFunc("/v0.1.0/"+name, func(w http.ResponseWriter, r *http.Request) { send(w, r, data) })
	mux.HandleFunc("/wrong/"+name, func(w http.ResponseWriter, r *http.Request) { send(w, r, make([]byte, len(data))) })
	mux.HandleFunc("/broken/"+name, func(w http.ResponseWriter, r *http.Request) {
		send(&cutting{ResponseWriter: w, left: 100_000}, r, data)
	})
	mux.HandleFunc("/cut/"+name, func(w http.ResponseWriter, r *http.Request) {
		first.Do(func() { send(&cutting{ResponseWriter: w, left: len(data) / 2}, r, data) })
		send(w, r, data)
	})
	return mux
}

// cutting breaks the connection after some bytes.
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
