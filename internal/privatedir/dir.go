package privatedir

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/trommel-dev/trommel/internal/filelock"
)

// MaxPath is how long the path of a new directory is at most, in bytes. It leaves room for the names of sockets: the
// path of a unix socket is limited to 104 bytes on some systems, including the final 0.
const MaxPath = 80

// AliveFile is the file in a directory that is locked while its owner lives.
const AliveFile = "alive"

// Dir is a directory of this process, which only this user can enter. It is locked while it is open. If the process
// dies, the next [New] beside it deletes it, by whichever process.
type Dir struct {
	path  string
	alive *os.File
}

// New creates a directory in parent, or in the user's [Parent] if that is empty, and deletes the directories there
// whose owners died. The caller must remove it.
func New(parent string) (*Dir, error) {
	if parent == "" {
		var err error
		if parent, err = Parent(); err != nil {
			return nil, err
		}
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return nil, err
	}
	if len(parent) > MaxPath-len("/00000000") {
		return nil, fmt.Errorf("%s is too long for the sockets in it (at most %d bytes)", parent, MaxPath-9)
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return nil, err
	}
	unlock, err := lock(parent)
	if err != nil {
		return nil, err
	}
	defer unlock()
	removeStale(parent)
	name := make([]byte, 4)
	_, _ = rand.Read(name) // never fails
	d := &Dir{path: filepath.Join(parent, hex.EncodeToString(name))}
	if err := os.Mkdir(d.path, 0o700); err != nil {
		return nil, err
	}
	d.alive, err = os.OpenFile(d.File(AliveFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = filelock.Try(d.alive)
	}
	if err != nil {
		return nil, errors.Join(err, d.Remove())
	}
	return d, nil
}

// Parent creates a private directory of the user at a short path, and returns the path: below the directory of
// temporary files, or else below /tmp.
func Parent() (string, error) {
	name := fmt.Sprintf("trommel-%d", os.Getuid())
	path := filepath.Join(os.TempDir(), name)
	if len(path) > MaxPath/2 {
		path = filepath.Join("/tmp", name)
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	// Anyone can create directories there: check that this one was not prepared by another user.
	if err := Check(path, 0o077); err != nil {
		return "", err
	}
	return path, nil
}

// lock makes sure that a directory being created is not taken for a stale one. It may block for a moment.
func lock(parent string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(parent, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Block(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// removeStale deletes directories whose owners died before they could.
func removeStale(parent string) {
	entries, err := filepath.Glob(filepath.Join(parent, "*", AliveFile))
	if err != nil {
		return
	}
	for _, file := range entries {
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if filelock.Try(f) == nil {
			_ = os.RemoveAll(filepath.Dir(file))
		}
		_ = f.Close()
	}
}

// Path is the directory's absolute path.
func (d *Dir) Path() string { return d.path }

// File is the path of a file in the directory.
func (d *Dir) File(name string) string { return filepath.Join(d.path, name) }

// Write writes a file that only this user can read.
func (d *Dir) Write(name string, content []byte) error {
	return os.WriteFile(d.File(name), content, 0o600)
}

// Remove deletes the directory with all that is in it.
func (d *Dir) Remove() error {
	err := os.RemoveAll(d.path)
	if d.alive != nil {
		_ = d.alive.Close()
	}
	return err
}
