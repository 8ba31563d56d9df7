package inject_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/chaos/inject"
)

// A journal that another user may have written is not believed.
func TestPlantedJournal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	s := &script{file: filepath.Join(t.TempDir(), "effect"), cleans: []error{errors.New("a"), errors.New("b"),
		errors.New("c")}}
	config := inject.Config{
		Request: request(), Backends: []inject.Backend{s}, Backend: "script", Journal: dir,
	}
	s.inject = errors.New("only in part")
	if err := inject.Run(t.Context(), config); !errors.Is(err, inject.ErrLeft) {
		t.Fatal(err)
	}
	s.calls = nil
	if err := os.Chmod(dir, 0o777); err != nil { // as in a directory that somebody else has made in /tmp
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
