package inject_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
)

// script is a backend whose answers are given. Its only effect is a file.
type script struct {
	check, inject error
	cleans        []error // of one try after the other; nil afterwards
	file          string

	calls []string
}

func (s *script) Name() string { return "script" }

func (s *script) New(_ inject.Request, notes *inject.Notes) (inject.Injection, error) {
	return scripted{s, notes}, nil
}

type scripted struct {
	s     *script
	notes *inject.Notes
}

func (i scripted) call(name string) {
	i.s.calls = append(i.s.calls, name)
}

func (i scripted) Check(context.Context) error {
	i.call("check")
	return i.s.check
}

func (i scripted) Inject(context.Context) error {
	i.call("inject")
	if err := i.notes.Save(i.s.file); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(i.s.file, nil, 0o600), i.s.inject)
}

func (i scripted) Clean(context.Context) error {
	i.call("clean")
	if len(i.s.cleans) > 0 {
		err := i.s.cleans[0]
		i.s.cleans = i.s.cleans[1:]
		if err != nil {
			return err
		}
	}
	var file string
	if saved, err := i.notes.Load(&file); !saved || err != nil {
		return err
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func request() inject.Request {
	return inject.Request{
		Kind: "apiFault", Spec: json.RawMessage(`{}`), Disruption: "default/test", DisruptionUID: "d",
		Target: inject.Target{Namespace: "default", Pod: "web-0", UID: "t", Node: "n"},
	}
}

func TestRun(t *testing.T) {
	failed := errors.New("failed")
	unsupported := inject.Unsupported("no kernel module")
	for _, tt := range []struct {
		name     string
		script   script
		dryRun   bool
		calls    string
		states   []v1alpha1.InjectionState
		ready    bool
		reported string // part of an error
		left     bool
	}{
		{
			name: "everything works", calls: "check inject clean", ready: true,
			states: []v1alpha1.InjectionState{v1alpha1.InjectionInjected, v1alpha1.InjectionRemoved},
		},
		{
			name: "unsupported", script: script{check: unsupported}, calls: "check",
			states: []v1alpha1.InjectionState{v1alpha1.InjectionUnsupported}, reported: "no kernel module",
		},
		{
			name: "injected in part", script: script{inject: failed}, calls: "check inject clean",
			states:   []v1alpha1.InjectionState{v1alpha1.InjectionFailed, v1alpha1.InjectionRemoved},
			reported: "failed",
		},
		{
			name: "not even tried", script: script{check: failed}, calls: "check",
			states:   []v1alpha1.InjectionState{v1alpha1.InjectionFailed, v1alpha1.InjectionRemoved},
			reported: "failed",
		},
		{
			name: "dry run", dryRun: true, calls: "check", ready: true,
			states: []v1alpha1.InjectionState{v1alpha1.InjectionInjected, v1alpha1.InjectionRemoved},
		},
		{
			name: "clean at the third try", script: script{cleans: []error{failed, failed}}, ready: true,
			calls:  "check inject clean clean clean",
			states: []v1alpha1.InjectionState{v1alpha1.InjectionInjected, v1alpha1.InjectionRemoved},
		},
		{
			name: "stuck", script: script{cleans: []error{failed, failed, failed}}, ready: true,
			calls:    "check inject clean clean clean",
			states:   []v1alpha1.InjectionState{v1alpha1.InjectionInjected, v1alpha1.InjectionStuck},
			reported: "failed", left: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := &tt.script
			s.file = filepath.Join(dir, "effect")
			ready, journal := filepath.Join(dir, "ready"), filepath.Join(dir, "journal")
			ctx, cancel := context.WithCancel(t.Context())
			var states []v1alpha1.InjectionState
			wasReady, reported := false, ""
			err := inject.Run(ctx, inject.Config{
				Request: request(), Backends: []inject.Backend{s}, Backend: "script", Journal: journal,
				ReadyFile: ready, DryRun: tt.dryRun, Report: func(state inject.State) {
					states = append(states, state.State)
					reported += state.Error
					_, err := os.Stat(ready)
					wasReady = wasReady || err == nil
					cancel() // as by a signal
				},
			})
			if errors.Is(err, inject.ErrLeft) != tt.left || !tt.left && err != nil {
				t.Errorf("Run = %v", err)
			}
			if got := strings.Join(s.calls, " "); got != tt.calls {
				t.Errorf("calls: %s, want %s", got, tt.calls)
			}
			if !slices.Equal(states, tt.states) || !strings.Contains(reported, tt.reported) {
				t.Errorf("states: %v (%s), want %v (%s)", states, reported, tt.states, tt.reported)
			}
			if wasReady != tt.ready {
				t.Errorf("ready: %v", wasReady)
			}
			if _, err := os.Stat(ready); err == nil {
				t.Error("the readiness file is left")
			}
			if tt.left {
				// One clean-up, now that it works.
				n, err := inject.CleanAll(t.Context(), journal, []inject.Backend{s}, slog.New(slog.DiscardHandler))
				if n != 1 || err != nil {
					t.Errorf("CleanAll = %d, %v", n, err)
				}
			}
			if left, _ := os.ReadDir(journal); len(left) > 0 {
				t.Errorf("journal: %v", left)
			}
			if _, err := os.Stat(s.file); err == nil {
				t.Error("the effect is left")
			}
		})
	}
}

// The node may lose its API server at any time.
func TestCleansWithoutAPIServer(t *testing.T) {
	dir := t.TempDir()
	s := &script{file: filepath.Join(dir, "effect")}
	log := slog.New(slog.DiscardHandler)
	reporter := inject.NewReporter(func() (*rest.Config, error) {
		return &rest.Config{Host: "http://127.0.0.1:1"}, nil
	}, "ns", "pod", log)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := inject.Run(ctx, inject.Config{
		Request: request(), Backends: []inject.Backend{s}, Backend: "script", Journal: filepath.Join(dir, "journal"),
		Report: reporter.Report,
	}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.file); err == nil {
		t.Error("the effect is left")
	}
	start := time.Now()
	reporter.Close(100 * time.Millisecond)
	if d := time.Since(start); d > 2*time.Second {
		t.Errorf("Close took %v", d)
	}
}

func TestReporter(t *testing.T) {
	const injected, removed, failed, stuck = v1alpha1.InjectionInjected, v1alpha1.InjectionRemoved,
		v1alpha1.InjectionFailed, v1alpha1.InjectionStuck
	for _, tt := range []struct {
		name   string
		states []v1alpha1.InjectionState
		settle bool // after the first state
	}{
		{name: "it could not inject", states: []v1alpha1.InjectionState{failed, removed}},
		{name: "the end follows later", states: []v1alpha1.InjectionState{injected, removed}, settle: true},
		{name: "it cannot clean up", states: []v1alpha1.InjectionState{injected, stuck}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			states := make(chan v1alpha1.InjectionState, 10)
			var fails atomic.Int64
			if !tt.settle {
				fails.Store(2)
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if fails.Add(-1) >= 0 {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				var patch struct {
					Metadata struct{ Annotations map[string]string }
				}
				var state inject.State
				err := json.NewDecoder(r.Body).Decode(&patch)
				if err != nil || r.URL.Path != "/api/v1/namespaces/ns/pods/pod" {
					t.Errorf("%s: %v", r.URL, err)
				}
				told := patch.Metadata.Annotations[inject.AnnotationState]
				if err := json.Unmarshal([]byte(told), &state); err != nil {
					t.Error(err)
				}
				states <- state.State
			}))
			defer server.Close()
			reporter := inject.NewReporter(func() (*rest.Config, error) { return &rest.Config{Host: server.URL}, nil },
				"ns", "pod", slog.New(slog.DiscardHandler))
			var got []v1alpha1.InjectionState
			for i, s := range tt.states {
				reporter.Report(inject.State{State: s})
				if i == 0 && tt.settle {
					got = append(got, <-states)
				}
			}
			reporter.Close(10 * time.Second)
			close(states)
			for s := range states {
				got = append(got, s)
			}
			if len(got) == 0 || got[len(got)-1] != tt.states[1] || tt.settle && !slices.Equal(got, tt.states) {
				t.Errorf("written: %v, told: %v", got, tt.states)
			}
		})
	}
}

// The pod's status tells that the fault was in effect and is removed.
func TestReporterHasNothingToWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reporter := inject.NewReporter(func() (*rest.Config, error) {
			t.Error("it writes")
			return nil, errors.New("no API server")
		}, "ns", "pod", slog.New(slog.DiscardHandler))
		reporter.Report(inject.State{State: v1alpha1.InjectionInjected})
		time.Sleep(100 * time.Millisecond)
		reporter.Report(inject.State{State: v1alpha1.InjectionRemoved})
		reporter.Close(time.Second)
	})
}

func TestValidate(t *testing.T) {
	r := request()
	r.Kind, r.Target.Pod, r.Spec = "", "", json.RawMessage(`{`)
	want := "a kind is required\nthe target pod's namespace and name are required\nthe spec is not JSON: \"{\""
	if err := r.Validate(); err == nil || err.Error() != want {
		t.Errorf("Validate = %v, want %s", err, want)
	}
}
