// Package buildcache keeps what builds can use again in a directory: copies of modules, control planes, controllers.
//
// Entries are written once, are named after what they are made from, and are removed when they were not used for a
// long time. Several processes may use a cache at once.
package buildcache

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/filelock"
)

// Dir is where builds keep reusable results: $TROMMEL_CACHE or trommel in the user's cache directory.
func Dir() (string, error) {
	if dir := os.Getenv("TROMMEL_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory (set TROMMEL_CACHE): %w", err)
	}
	return filepath.Join(dir, "trommel"), nil
}

// Cache is a directory whose entries are written once and named after their content.
type Cache struct{ dir string }

// Open returns the cache in a directory, which it creates. An empty dir means Dir().
func Open(dir string) (*Cache, error) {
	if dir == "" {
		var err error
		if dir, err = Dir(); err != nil {
			return nil, err
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create cache directory: %w", err)
	}
	if _, err := Limit(); err != nil {
		return nil, err // fail now, not at the end of a build
	}
	return &Cache{dir}, nil
}

// Path returns where the entry with a name is, or would be.
func (c *Cache) Path(name string) string { return filepath.Join(c.dir, filepath.FromSlash(name)) }

// Make returns the directory with that name, which fill has filled, and records that it is used. Two concurrent calls
// do not conflict: each fills a temporary directory, and the first to finish gives its directory the name.
func (c *Cache) Make(name string, fill func(dir string) error) (string, error) {
	dir := c.Path(name)
	if _, err := os.Stat(dir); err == nil {
		MarkUsed(dir)
		return dir, nil
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	removeLeftovers(parent)
	tmp, err := os.MkdirTemp(parent, temporary)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	if err := fill(tmp); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, dir); err != nil {
		if _, stat := os.Stat(dir); stat == nil {
			MarkUsed(dir)
			return dir, nil
		}
		return "", err
	}
	MarkChanged(dir)
	return dir, nil
}

const temporary = ".tmp-"

// removeLeftovers removes the temporary directories of killed processes.
func removeLeftovers(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), temporary) {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > time.Hour {
			os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// Lock takes the lock with that name, shared by all processes that use the cache. It waits until it has the lock or ctx
// ends.
func (c *Cache) Lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := c.LockFile(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// LockFile returns the locked file: the lock lasts until it is closed here and in all processes that were given it.
// waiting is called if another process has the lock. It may be nil.
func (c *Cache) LockFile(ctx context.Context, name string, waiting func()) (*os.File, error) {
	path := c.Path(name) + ".lock"
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := openLock(path)
	if err != nil {
		return nil, err
	}
	if err := filelock.Lock(ctx, f, waiting); err != nil {
		_ = f.Close()
		if ctx.Err() != nil {
			return nil, err
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}
