package inject_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
)

// script is a backend whose answers are given. Its only effect is a file.
type script struct {
	check, inject error
	cleans        []error                     // of one try after the other; nil afterwards
	clean         func(context.Context) error // before these; nil: nothing
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

func (i scripted) Clean(ctx context.Context) error {
	i.call("clean")
	if i.s.clean != nil {
		if err := i.s.clean(ctx); err != nil {
			return err
		}
	}
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
		EndsAt: time.Now().Add(time.Hour),
	}
}

// short lets a clean-up that fails be over soon.
const short = 200 * time.Millisecond

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
		counts   inject.Counts
	}{
		{
			name: "everything works", calls: "check inject clean", ready: true,
			states: []v1alpha1.InjectionState{v1alpha1.InjectionInjected, v1alpha1.InjectionRemoved},
			counts: inject.Counts{Injected: 1, Cleaned: 1},
		},
		{
			name: "unsupported", script: script{check: unsupported}, calls: "check",
			states: []v1alpha1.InjectionState{v1alpha1.InjectionUnsupported}, reported: "no kernel module",
		},
		{
			name: "injected in part", script: script{inject: failed}, calls: "check inject clean",
			states:   []v1alpha1.InjectionState{v1alpha1.InjectionFailed},
			reported: "failed",
			counts:   inject.Counts{InjectFailures: 1, Cleaned: 1},
		},
		{
			name: "not even tried", script: script{check: failed}, calls: "check",
			states:   []v1alpha1.InjectionState{v1alpha1.InjectionFailed},
			reported: "failed",
			counts:   inject.Counts{InjectFailures: 1},
		},
		{
			name: "dry run", dryRun: true, calls: "check", ready: true,
			states: []v1alpha1.InjectionState{v1alpha1.InjectionInjected, v1alpha1.InjectionRemoved},
		},
		{
			name: "clean at the third retry", script: script{cleans: []error{failed, failed, failed}}, ready: true,
			calls:  "check inject clean clean clean clean",
			states: []v1alpha1.InjectionState{v1alpha1.InjectionInjected, v1alpha1.InjectionRemoved},
			counts: inject.Counts{Injected: 1, Cleaned: 1, Retries: 3, CleanFailures: 3},
		},
		{
			name: "stuck", script: script{cleans: []error{failed, failed, failed, failed}}, ready: true,
			calls:    "check inject clean clean clean clean",
			states:   []v1alpha1.InjectionState{v1alpha1.InjectionInjected, v1alpha1.InjectionStuck},
			reported: "failed", left: true,
			counts: inject.Counts{Injected: 1, Retries: 3, CleanFailures: 4},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := &tt.script
			s.file = filepath.Join(dir, "effect")
			ready, journal := filepath.Join(dir, "ready"), filepath.Join(dir, "journal")
			state := filepath.Join(dir, "state")
			ctx, cancel := context.WithCancel(t.Context())
			var states []v1alpha1.InjectionState
			wasReady, reported := false, ""
			err := inject.Run(ctx, inject.Config{
				Request: request(), Backends: []inject.Backend{s}, Backend: "script", Journal: journal,
				ReadyFile: ready, StateFile: state, DryRun: tt.dryRun, Grace: short, Report: func(state inject.State) {
					states = append(states, state.State)
					reported += state.Error
					if took := state.RemoveMillis > 0; took == tt.dryRun && state.State == v1alpha1.InjectionRemoved {
						t.Errorf("it does not tell how long it took: %+v", state)
					}
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
			text, err := os.ReadFile(state)
			last := inject.StateOf(&corev1.ContainerStateTerminated{Message: string(text)})
			if err != nil || last.Counts != tt.counts || last.State != tt.states[len(tt.states)-1] {
				t.Errorf("it reported %+v (%v), want %+v", last, err, tt.counts)
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

// A clean-up that fails is retried three times, after longer and longer pauses, and ends before the injector is killed.
func TestCleanIsRetried(t *testing.T) {
	for _, tt := range []struct {
		name     string
		failures int
		hangs    bool
		grace    time.Duration
		at       []time.Duration // of each try
		state    v1alpha1.InjectionState
	}{
		{name: "it succeeds", at: []time.Duration{0}, state: v1alpha1.InjectionRemoved},
		{name: "it fails once", failures: 1, at: []time.Duration{0, time.Second}, state: v1alpha1.InjectionRemoved},
		{
			name: "it succeeds at the third retry", failures: 3, state: v1alpha1.InjectionRemoved,
			at: []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second},
		},
		{
			name: "it always fails", failures: 100, state: v1alpha1.InjectionStuck,
			at: []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second},
		},
		{
			name: "each try hangs", failures: 100, hangs: true, state: v1alpha1.InjectionStuck,
			at: []time.Duration{0, 11 * time.Second, 23 * time.Second, 37 * time.Second},
		},
		{
			name: "there is little time", failures: 100, grace: 4 * time.Second, state: v1alpha1.InjectionStuck,
			at: []time.Duration{
				0, 450 * time.Millisecond, 1237500 * time.Microsecond, 2418750 * time.Microsecond,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				var end time.Time
				var at []time.Duration
				s := &script{file: filepath.Join(dir, "effect"), clean: func(ctx context.Context) error {
					at = append(at, time.Since(end))
					if len(at) > tt.failures {
						return nil
					}
					if tt.hangs {
						<-ctx.Done()
					}
					return errors.New("failed")
				}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var last inject.State
				err := inject.Run(ctx, inject.Config{
					Request: request(), Backends: []inject.Backend{s}, Backend: "script",
					Journal: filepath.Join(dir, "journal"), Grace: tt.grace, Report: func(state inject.State) {
						last = state
						if state.State == v1alpha1.InjectionInjected {
							end = time.Now()
							cancel()
						}
					},
				})
				if last.State != tt.state || errors.Is(err, inject.ErrLeft) != (tt.state == v1alpha1.InjectionStuck) {
					t.Errorf("state %s, error %v", last.State, err)
				}
				if !slices.Equal(at, tt.at) {
					t.Errorf("tries at %v, want %v", at, tt.at)
				}
				if took, grace := time.Since(end), cmp.Or(tt.grace, time.Minute); took >= grace {
					t.Errorf("it ended after %v: it is killed after %v", took, grace)
				}
			})
		})
	}
}

// Kubernetes shows an injector's last message as that of its chaos pod, without any access to the API.
func TestStateFile(t *testing.T) {
	long := errors.New(strings.Repeat("x", 5000))
	for _, tt := range []struct {
		name   string
		script script
		want   v1alpha1.InjectionState
	}{
		{"injected", script{}, v1alpha1.InjectionRemoved},
		{"not even tried", script{check: long}, v1alpha1.InjectionFailed},
		{"injected in part", script{inject: long}, v1alpha1.InjectionFailed},
		{"unsupported", script{check: inject.Unsupported("no kernel module")}, v1alpha1.InjectionUnsupported},
		{"stuck", script{cleans: []error{long, long, long, long}}, v1alpha1.InjectionStuck},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s, file := &tt.script, filepath.Join(dir, "state")
			s.file = filepath.Join(dir, "effect")
			ctx, cancel := context.WithCancel(t.Context())
			err := inject.Run(ctx, inject.Config{
				Request: request(), Backends: []inject.Backend{s}, Backend: "script",
				Journal: filepath.Join(dir, "journal"), StateFile: file, Grace: short,
				Report: func(state inject.State) {
					if state.State == v1alpha1.InjectionInjected {
						cancel()
					}
				},
			})
			cancel()
			if (err != nil) != (tt.want == v1alpha1.InjectionStuck) {
				t.Errorf("Run = %v", err)
			}
			text, err := os.ReadFile(file)
			if err != nil || len(text) > 4096 {
				t.Fatalf("%d bytes (%v): more than a termination message has", len(text), err)
			}
			state := inject.StateOf(&corev1.ContainerStateTerminated{Message: string(text)})
			if state.State != tt.want || (state.Error == "") != (tt.want == v1alpha1.InjectionRemoved) {
				t.Errorf("it told %+v", state)
			}
		})
	}
	if s := inject.StateOf(&corev1.ContainerStateTerminated{Message: "panic: oh no"}); s != (inject.State{}) {
		t.Errorf("a log's end is %+v", s)
	}
}

// An injector that is started after its end, or again, injects nothing, and removes what an earlier one has left.
func TestNothingIsInjectedAfterTheEnd(t *testing.T) {
	dir := t.TempDir()
	failed := errors.New("failed")
	s := &script{file: filepath.Join(dir, "effect"), cleans: []error{failed, failed, failed, failed}}
	r := request()
	r.EndsAt = time.Now().Add(50 * time.Millisecond)
	config := inject.Config{
		Request: r, Backends: []inject.Backend{s}, Backend: "script", Journal: filepath.Join(dir, "journal"),
		Grace: short,
	}
	ctx, cancel := context.WithDeadline(t.Context(), r.EndsAt)
	defer cancel()
	if err := inject.Run(ctx, config); !errors.Is(err, inject.ErrLeft) {
		t.Fatalf("the first one left nothing: %v", err)
	}
	s.calls = nil
	if err := inject.Run(t.Context(), config); err != nil {
		t.Error(err)
	}
	if got := strings.Join(s.calls, " "); got != "clean" {
		t.Errorf("calls: %s", got)
	}
	if _, err := os.Stat(s.file); err == nil {
		t.Error("the effect is left")
	}
}

func TestValidate(t *testing.T) {
	r := request()
	r.Kind, r.Target.Pod, r.Spec, r.EndsAt = "", "", json.RawMessage(`{`), time.Time{}
	want := "a kind is required\nthe target pod's namespace and name are required\n" +
		"a time at which it ends is required\nthe spec is not JSON: \"{\""
	if err := r.Validate(); err == nil || err.Error() != want {
		t.Errorf("Validate = %v, want %s", err, want)
	}
}
