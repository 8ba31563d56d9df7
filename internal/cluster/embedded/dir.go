package embedded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/privatedir"
)

// maxDir leaves room for the names of sockets: the path of a unix socket is limited to 104 bytes on some systems,
// including the final 0.
const maxDir = 80

// aliveFile is locked while the owner of a run directory lives.
const aliveFile = "alive"

// runDir is a cluster's own directory. It is locked while it is open.
type runDir struct {
	path  string
	alive *os.File
}

// newRunDir creates a directory in parent, or in the default place, and deletes the directories there whose owners
// died.
func newRunDir(parent string) (*runDir, error) {
	if parent == "" {
		var err error
		if parent, err = defaultParent(); err != nil {
			return nil, fmt.Errorf("create the cluster's directory: %w", err)
		}
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return nil, err
	}
	if len(parent) > maxDir-len("/00000000") {
		return nil, fmt.Errorf("create the cluster's directory: %s is too long for the sockets in it "+
			"(at most %d bytes)", parent, maxDir-9)
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, fmt.Errorf("create the cluster's directory: %w", err)
	}
	unlock, err := lockParent(parent)
	if err != nil {
		return nil, fmt.Errorf("create the cluster's directory: %w", err)
	}
	defer unlock()
	removeStale(parent)
	d := &runDir{path: filepath.Join(parent, cluster.RandomHex(4))}
	if err := os.Mkdir(d.path, 0o700); err != nil {
		return nil, fmt.Errorf("create the cluster's directory: %w", err)
	}
	d.alive, err = os.OpenFile(d.file(aliveFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = flock(d.alive)
	}
	if err != nil {
		_ = d.remove()
		return nil, fmt.Errorf("create the cluster's directory: %w", err)
	}
	return d, nil
}

// defaultParent creates a private directory of the user at a short path, and returns the path.
func defaultParent() (string, error) {
	name := fmt.Sprintf("trommel-%d", os.Getuid())
	path := filepath.Join(os.TempDir(), name)
	if len(path) > maxDir/2 {
		path = filepath.Join("/tmp", name)
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	// Anyone can create directories there: check that this one was not prepared by another user.
	if err := privatedir.Check(path, 0o077); err != nil {
		return "", err
	}
	return path, nil
}

// lockParent makes sure that a directory being created is not taken for a stale one. It may block for a moment.
func lockParent(parent string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(parent, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// removeStale deletes run directories whose owners died before they could.
func removeStale(parent string) {
	entries, err := filepath.Glob(filepath.Join(parent, "*", aliveFile))
	if err != nil {
		return
	}
	for _, file := range entries {
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if flock(f) == nil {
			_ = os.RemoveAll(filepath.Dir(file))
		}
		_ = f.Close()
	}
}

func (d *runDir) file(name string) string { return filepath.Join(d.path, name) }

func (d *runDir) write(name string, content []byte) error {
	return os.WriteFile(d.file(name), content, 0o600)
}

func (d *runDir) remove() error {
	err := os.RemoveAll(d.path)
	if d.alive != nil {
		_ = d.alive.Close()
	}
	return err
}

// flock locks the file for as long as it is open; it fails if the file is locked.
func flock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// locked reports whether another process holds the file's lock. Concurrent calls do not disturb each other.
func locked(f *os.File) bool {
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// runLock is the file that lockRun locks.
func runLock(dir string) string { return filepath.Join(dir, "run.lock") }

// lockRun takes the lock for a run on a cluster and writes its process ID into the file.
func lockRun(name, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock cluster %q: %w", name, err)
	}
	if err := flock(f); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
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
