package inject_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
)

// A fault whose injector never returned is undone by the next injector on the node that can, when its time is over.
func TestInjectorsCleanWhatIsOver(t *testing.T) {
	dir := t.TempDir()
	leave := func(uid types.UID, kind v1alpha1.Kind, endsAt time.Time) string {
		r := request()
		r.DisruptionUID, r.Kind, r.EndsAt = uid, kind, endsAt
		file := filepath.Join(dir, r.ID()+".json")
		text, err := json.Marshal(inject.Entry{Backend: "script", Request: r, Notes: []byte(`"` + dir + `/effect"`)})
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	before, later := time.Now().Add(-time.Minute), time.Now().Add(time.Minute)
	over, lasts := leave("over", "dns", before), leave("lasts", "dns", later)
	inAPI := leave("api", "nodeFailure", before) // a client with a token has to do that
	never := filepath.Join(dir, "never.begun.dns.lock")
	if err := os.WriteFile(never, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := request()
	r.Kind = "dns"
	ctx, cancel := context.WithCancel(t.Context())
	if err := inject.Run(ctx, inject.Config{
		Request: r, Backends: []inject.Backend{&script{file: filepath.Join(dir, "other")}}, Backend: "script",
		Journal: dir, Report: func(inject.State) { cancel() },
	}); err != nil {
		t.Error(err)
	}
	for file, want := range map[string]bool{over: false, never: false, lasts: true, inAPI: true} {
		if _, err := os.Stat(file); (err == nil) != want {
			t.Errorf("%s: %v", filepath.Base(file), err)
		}
	}
}

// A journal that another user may have written is not believed.
func TestPlantedJournal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	failed := errors.New("failed")
	s := &script{
		file: filepath.Join(t.TempDir(), "effect"), cleans: []error{failed, failed, failed, failed},
	}
	config := inject.Config{
		Request: request(), Backends: []inject.Backend{s}, Backend: "script", Journal: dir, Grace: short,
	}
	s.inject = errors.New("only in part")
	if err := inject.Run(t.Context(), config); !errors.Is(err, inject.ErrLeft) {
		t.Fatal(err)
	}
	s.calls = nil
	if err := os.Chmod(dir, 0o777); err != nil { // as in a directory that another user has made in /tmp
		t.Fatal(err)
	}
	_, err := inject.CleanAll(t.Context(), dir, []inject.Backend{s}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "only this user can write into") || len(s.calls) > 0 {
		t.Errorf("clean: %v, calls %q", err, s.calls)
	}
	if err := inject.Run(t.Context(), config); err == nil || len(s.calls) > 0 {
		t.Errorf("inject: %v, calls %q", err, s.calls)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // as a kubelet makes it
		t.Fatal(err)
	}
	n, err := inject.CleanAll(t.Context(), dir, []inject.Backend{s}, slog.New(slog.DiscardHandler))
	if n != 1 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
}
