package inject

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/filelock"
	"github.com/trommel-dev/trommel/internal/privatedir"
)

// Journal is a directory with an entry for each injection that has begun and not ended. An entry is written before
// anything is done. It is locked as long as its injector lives.
type Journal struct{ dir string }

// OpenJournal creates the directory if necessary. It refuses one into which another user could write: what is in a
// journal is done with this user's rights.
func OpenJournal(dir string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	if err := privatedir.Check(dir, 0o022); err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	return &Journal{dir}, nil
}

// Entry is an injection in the journal.
type Entry struct {
	Backend string          `json:"backend"`
	Request Request         `json:"request"`
	Notes   json.RawMessage `json:"notes,omitempty"`
	Began   time.Time       `json:"began"`
}

// Files of an entry: itself, while it is written, and its lock.
const (
	entrySuffix = ".json"
	newSuffix   = ".new"
	lockSuffix  = ".lock"
)

func (j *Journal) file(id string) string    { return filepath.Join(j.dir, id+entrySuffix) }
func (j *Journal) newFile(id string) string { return filepath.Join(j.dir, id+newSuffix) }

// validID reports whether an ID can be part of a file's name.
func validID(id string) bool {
	return id != "" && !strings.ContainsAny(id, "/\x00") && len(id) < 200
}

// errLocked says that the injector of an entry lives, or that another cleaner has the entry.
var errLocked = errors.New("its injector is running")

// lock takes an entry until unlock. While another process has it, it waits for as long as patience lasts, and then
// returns errLocked.
func (j *Journal) lock(ctx context.Context, id string, patience time.Duration) (unlock func(), err error) {
	if !validID(id) {
		return nil, fmt.Errorf("invalid ID %q", id)
	}
	path := filepath.Join(j.dir, id+lockSuffix)
	began := time.Now()
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("lock journal entry: %w", err)
		}
		err = filelock.Try(f)
		if err == nil {
			// The one before may have removed it meanwhile.
			ours, err := f.Stat()
			there, err2 := os.Stat(path)
			if err == nil && err2 == nil && os.SameFile(ours, there) {
				return func() {
					_ = os.Remove(path)
					_ = f.Close()
				}, nil
			}
			_ = f.Close()
			continue
		}
		_ = f.Close()
		if !errors.Is(err, filelock.ErrLocked) {
			return nil, fmt.Errorf("lock journal entry: %w", err)
		}
		if time.Since(began) >= patience {
			return nil, errLocked
		}
		// Its end cannot be waited for together with a context.
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("lock journal entry: %w", ctx.Err())
		}
	}
}

// write stores an entry durably.
func (j *Journal) write(e Entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	path, newer := j.file(e.Request.ID()), j.newFile(e.Request.ID())
	if err := writeDurably(newer, data); err != nil {
		return fmt.Errorf("write journal entry: %w", err)
	}
	if err := os.Rename(newer, path); err != nil {
		return fmt.Errorf("write journal entry: %w", err)
	}
	return j.sync()
}

func writeDurably(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// sync makes changes of the directory durable.
func (j *Journal) sync() error {
	dir, err := os.Open(j.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// remove removes an entry; none is not an error.
func (j *Journal) remove(id string) error {
	_ = os.Remove(j.newFile(id))
	if err := os.Remove(j.file(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove journal entry: %w", err)
	}
	return j.sync()
}

// read reads an entry; the error is fs.ErrNotExist if there is none.
func (j *Journal) read(id string) (Entry, error) {
	var e Entry
	data, err := os.ReadFile(j.file(id))
	if err != nil {
		return e, fmt.Errorf("read journal entry: %w", err)
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return e, fmt.Errorf("read journal entry %s: %w", id, err)
	}
	return e, nil
}

// IDs lists the entries, and what injectors have left that were killed before they wrote one.
func (j *Journal) IDs() ([]string, error) {
	files, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, fmt.Errorf("list the journal: %w", err)
	}
	var ids []string
	for _, f := range files {
		for _, suffix := range []string{entrySuffix, newSuffix, lockSuffix} {
			if id, ok := strings.CutSuffix(f.Name(), suffix); ok && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}
