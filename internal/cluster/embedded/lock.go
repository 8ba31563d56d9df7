package embedded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/trommel-dev/trommel/internal/filelock"
)

// locked reports whether another process holds the file's lock. Concurrent calls do not disturb each other.
func locked(f *os.File) bool {
	return errors.Is(filelock.TryShared(f), filelock.ErrLocked)
}

// runLock is the file that lockRun locks.
func runLock(dir string) string { return filepath.Join(dir, "run.lock") }

// lockRun takes the lock for a run on a cluster and writes its process ID into the file.
func lockRun(name, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock cluster %q: %w", name, err)
	}
	if err := filelock.Try(f); err != nil {
		defer f.Close()
		if !errors.Is(err, filelock.ErrLocked) {
			return nil, fmt.Errorf("lock cluster %q: %w", name, err)
		}
		holder := "another process"
		if text, err := io.ReadAll(f); err == nil && len(text) > 0 {
			holder = "process " + strings.TrimSpace(string(text))
		}
		return nil, fmt.Errorf("cluster %q is in use by %s", name, holder)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock cluster %q: %w", name, err)
	}
	return func() { _ = f.Close() }, nil
}
