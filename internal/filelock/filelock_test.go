package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestTry(t *testing.T) {
	for _, tt := range []struct {
		name          string
		first, second func(*os.File) error
		want          error
	}{
		{"two exclusive locks", Try, Try, ErrLocked},
		{"a shared lock beside an exclusive one", Try, TryShared, ErrLocked},
		{"an exclusive lock beside a shared one", TryShared, Try, ErrLocked},
		{"two shared locks", TryShared, TryShared, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lock")
			f, g := open(t, path), open(t, path)
			if err := tt.first(f); err != nil {
				t.Fatal(err)
			}
			if err := tt.second(g); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			_ = f.Close()
			if err := tt.second(g); err != nil {
				t.Errorf("after the first was closed: %v", err)
			}
		})
	}
}

func TestLockWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, g := open(t, path), open(t, path)
	if err := Lock(t.Context(), f, func() { t.Error("it waits for a free lock") }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := 0
	if err := Lock(ctx, g, func() { waits++; cancel() }); !errors.Is(err, context.Canceled) || waits != 1 {
		t.Errorf("got %v; it has said %d times that it waits", err, waits)
	}
	timer := time.AfterFunc(pollInterval, func() { _ = f.Close() })
	defer timer.Stop()
	if err := LockShared(t.Context(), g); err != nil {
		t.Error(err)
	}
}
