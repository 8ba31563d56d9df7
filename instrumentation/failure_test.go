package instrumentation_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/semver"

	"github.com/trommel-dev/trommel/coordinator/monitor"
	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/instrumentation/wire"
)

// failures is the coordinator's side: each ConfigMap's requests fail as its list says, one after the other.
type failures struct {
	byName map[string][]*wire.Failure

	mu    sync.Mutex
	after map[string]*wire.Observation
	seen  map[string]int // requests, before they were made
}

func (f *failures) take(e monitor.Event) {
	o := e.Observation
	if o == nil || e.Abandoned != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.Phase == wire.After {
		f.after[o.Name] = o
		e.Release()
		return
	}
	n := f.seen[o.Name]
	f.seen[o.Name]++
	if list := f.byName[o.Name]; n < len(list) {
		e.ReleaseToFail(list[n])
		return
	}
	e.Release()
}

func status(code int, reason string) []byte {
	data, _ := json.Marshal(map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "no",
	})
	return data
}

func refusal(code int, reason string, retryAfter string) *wire.Failure {
	f := &wire.Failure{Answer: wire.Refused, Code: code, Body: status(code, reason),
		Header: map[string]string{"Content-Type": "application/json"}}
	if retryAfter != "" {
		f.Header["Retry-After"] = retryAfter
	}
	return f
}

// TestFailedRequests makes requests of real clients fail. It is about how client-go takes an answer, so the server only
// counts the requests that reach it.
func TestFailedRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a controller")
	}
	for _, dir := range versionDirs(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			built, err := instrumentation.Build(t.Context(),
				instrumentation.BuildConfig{Dir: dir, Package: "./requests"})
			if err != nil {
				t.Fatal(err)
			}
			for _, contentType := range []string{"", "application/vnd.kubernetes.protobuf"} {
				failedRequests(t, built.Binary, contentType)
			}
		})
	}
}

func failedRequests(t *testing.T, binary, contentType string) {
	t.Helper()
	retried := refusal(429, "TooManyRequests", "1")
	f := &failures{after: map[string]*wire.Observation{}, seen: map[string]int{}, byName: map[string][]*wire.Failure{
		"conflict":  {refusal(409, "Conflict", "")},
		"forbidden": {refusal(403, "Forbidden", "")},
		"lost":      {{Answer: wire.Lost}},
		"late": {{Answer: wire.Lost, Code: 504, Body: status(504, "Timeout"),
			Header: map[string]string{"Content-Type": "application/json"}}},
		"busy":    {refusal(429, "TooManyRequests", "")},
		"retried": {retried, retried},
	}}
	reached := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, name := range []string{"plain", "conflict", "forbidden", "lost", "late", "busy", "retried"} {
			if bytes.Contains(body, []byte(name)) {
				reached[name]++
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"`+name+
					`","namespace":"default","resourceVersion":"7"}}`)
				return
			}
		}
		t.Errorf("a request with the body %q", body)
	}))
	defer server.Close()
	m, err := monitor.Listen(monitor.Config{Address: "unix://" + filepath.Join(t.TempDir(), "s"), Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer hear(m, f.take)()
	m.SetRules(t.Context(), map[string][]wire.Rule{"client": bothPhases(wire.Rule{Point: wire.ControllerWrite,
		Kind: "configmap", Resource: "configmaps", Namespace: "default"})})
	names := []string{"plain", "conflict", "forbidden", "lost", "late", "busy", "retried"}
	cmd := exec.Command(binary, names...)
	cmd.Env = append(os.Environ(), "API_SERVER="+server.URL, "CONTENT_TYPE="+contentType,
		wire.EnvCoordinator+"="+m.Addr(), wire.EnvToken+"=secret", wire.EnvIdentity+"=client")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	type got struct {
		Error, Reason  string
		TimeOut, Ended bool
	}
	url := server.URL + "/api/v1/namespaces/default/configmaps"
	results := map[string]got{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); len(results) < len(names); {
		var r got
		if err := decoder.Decode(&r); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		r.Error, _, _ = strings.Cut(strings.NewReplacer(`"`, "", url, "URL").Replace(r.Error), "?")
		results[names[len(results)]] = r
	}
	if diff := cmp.Diff(map[string]got{
		"plain":     {},
		"conflict":  {Error: "no", Reason: "Conflict"},
		"forbidden": {Error: "no", Reason: "Forbidden"},
		"lost": {Error: "Post URL: context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
			TimeOut: true, Ended: true},
		"late":    {Error: "no", Reason: "Timeout"},
		"busy":    {Error: "no", Reason: "TooManyRequests"},
		"retried": {},
	}, results); diff != "" {
		t.Errorf("what callers get (-want +got):\n%s", diff)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if diff := cmp.Diff(map[string]int{"plain": 1, "lost": 1, "late": 1, "retried": 1}, reached); diff != "" {
		t.Errorf("what reaches the server (-want +got):\n%s", diff)
	}
	want := map[string]int{"plain": 1, "conflict": 1, "forbidden": 1, "lost": 1, "late": 1, "busy": 1, "retried": 3}
	if diff := cmp.Diff(want, f.seen); diff != "" {
		t.Errorf("reported requests (-want +got):\n%s", diff)
	}
	for name, want := range map[string]wire.Observation{
		"plain": {Code: 201}, "conflict": {Code: 409, Failed: wire.Refused}, "retried": {Code: 201},
		"lost": {Code: 201, Failed: wire.Lost}, "late": {Code: 201, Failed: wire.Lost},
	} {
		o := f.after[name]
		if o == nil || o.Code != want.Code || o.Failed != want.Failed ||
			(want.Code == 201) != strings.Contains(string(o.Object), `"resourceVersion":"7"`) ||
			(want.Failed != "") != (o.Error != "") {
			t.Errorf("%s was reported as %+v", name, o)
		}
	}
}

// versionDirs lists the directories of testdata/versions that TROMMEL_TEST_VERSIONS selects: patterns for their names,
// separated by commas. Default: the newest.
func versionDirs(t *testing.T) []string {
	patterns := os.Getenv("TROMMEL_TEST_VERSIONS")
	all, err := filepath.Glob(filepath.Join("testdata", "versions", "client-go-*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b string) int {
		return semver.Compare(strings.Replace(filepath.Base(a), "client-go-", "v", 1),
			strings.Replace(filepath.Base(b), "client-go-", "v", 1))
	})
	if patterns == "" {
		patterns = filepath.Base(all[len(all)-1])
	}
	selected := slices.DeleteFunc(slices.Clone(all), func(dir string) bool {
		return !slices.ContainsFunc(strings.Split(patterns, ","),
			func(p string) bool { ok, _ := filepath.Match(p, filepath.Base(dir)); return ok })
	})
	if len(selected) == 0 {
		t.Fatalf("TROMMEL_TEST_VERSIONS=%s selects none of %v", patterns, all)
	}
	return selected
}
