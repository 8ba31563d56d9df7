package buildcache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/trommel-dev/trommel/internal/filelock"
)

// EnvGB names the variable with the cache's limit in gigabytes (10^9 bytes); 0: no limit. Default: DefaultGB.
const EnvGB = "TROMMEL_CACHE_GB"

// DefaultGB is enough for the control planes of three versions of Kubernetes and some dozens of controllers.
const DefaultGB = 5

// youngest is the time since its last use after which a build may remove an entry.
const youngest = time.Hour

// kinds lists the directories of the cache whose entries can be rebuilt. Others, such as clusters, are never removed.
var kinds = []string{"builds", "controlplane", "goroot", "hook", kindModules, kindSources, "std"}

const (
	kindModules = "modules"
	kindSources = "sources"
)

// Entry is a part of the cache that is used and removed as a whole.
type Entry struct {
	Kind string // controlplane, builds, modules, hook, sources, std or goroot
	Path string
	Size int64     // bytes
	Used time.Time // by the most recent build
}

// building takes a shared lock for a build, so that no entry is removed that the build is about to use.
func (c *Cache) building(ctx context.Context) (done func(), err error) {
	f, err := openLock(filepath.Join(c.dir, lockSuffix))
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return func() {}, nil // existing entries can be used; none can be added
	}
	if err != nil {
		return nil, err
	}
	// A process that removes entries holds it only for a moment.
	if err := filelock.LockShared(ctx, f); err != nil {
		_ = f.Close()
		if ctx.Err() != nil {
			return nil, err
		}
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	return func() { _ = f.Close() }, nil
}

// Keep runs a build, which returns its binary and whether the cache had it already. The binary stays in the cache while
// this process runs, and the least recently used entries are removed to make room for new ones.
func (c *Cache) Keep(ctx context.Context, build func() (binary string, cached bool, err error)) error {
	done, err := c.building(ctx)
	if err != nil {
		return err
	}
	binary, cached, err := build()
	if err == nil {
		KeepInUse(binary)
	}
	done()
	if err == nil && !cached {
		// Another build will try again; this one already has its result.
		_ = c.prune(time.Now())
	}
	return err
}

// Source returns a directory of the cache with a source tree, which fill writes if it is not there yet. The name
// says what is in it. The directory must not be changed. No other process removes it while this one runs.
func Source(ctx context.Context, name string, fill func(dir string) error) (string, error) {
	c, err := Open("")
	if err != nil {
		return "", err
	}
	done, err := c.building(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	dir, err := c.Make(kindSources+"/"+name, fill)
	if err != nil {
		return "", err
	}
	KeepInUse(filepath.Join(dir, "go.mod")) // any file in it
	return dir, nil
}

// List lists the entries of the cache, most recently used first. An empty dir means Dir().
func List(dir string) ([]Entry, error) {
	c, err := Open(dir)
	if err != nil {
		return nil, err
	}
	return c.entries()
}

func (c *Cache) entries() ([]Entry, error) {
	var list []Entry
	for _, kind := range kinds {
		var find func(dir string) error
		find = func(dir string) error {
			files, err := os.ReadDir(dir)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			for _, f := range files {
				path := filepath.Join(dir, f.Name())
				switch {
				case !f.IsDir() || strings.HasPrefix(f.Name(), temporary):
				case kind == kindModules && !strings.Contains(f.Name(), "@"): // part of a module's path
					if err := find(path); err != nil {
						return err
					}
				default:
					e, err := entry(kind, path)
					if errors.Is(err, fs.ErrNotExist) {
						continue // just removed
					}
					if err != nil {
						return err
					}
					list = append(list, e)
				}
			}
			return nil
		}
		if err := find(filepath.Join(c.dir, kind)); err != nil {
			return nil, fmt.Errorf("read the cache: %w", err)
		}
	}
	slices.SortStableFunc(list, func(a, b Entry) int { return b.Used.Compare(a.Used) })
	return list, nil
}

// entry walks the files of an entry only if their size is not known yet.
func entry(kind, path string) (Entry, error) {
	e := Entry{Kind: kind, Path: path}
	for _, name := range []string{path + usedSuffix, path} {
		info, err := os.Stat(name)
		if err == nil {
			e.Used = info.ModTime()
			break
		}
		if name == path {
			return e, err
		}
	}
	if data, err := os.ReadFile(path + usedSuffix); err == nil {
		if e.Size, err = strconv.ParseInt(string(data), 10, 64); err == nil {
			return e, nil
		}
	}
	err := filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // replaced meanwhile
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			e.Size += info.Size()
		}
		return nil
	})
	if err != nil {
		return e, err
	}
	// Keep the time of the last use; this read does not count as one.
	if os.WriteFile(path+usedSuffix, []byte(strconv.FormatInt(e.Size, 10)), 0o644) == nil {
		_ = os.Chtimes(path+usedSuffix, e.Used, e.Used)
	}
	return e, nil
}

// errBusy is returned if nothing can be removed because a build is running.
var errBusy = errors.New("a build is using this cache; try again when it has finished")

// Clear removes entries whose last use was before the given time, except those that a process uses. It returns the
// removed entries. An empty dir means Dir().
func Clear(dir string, before time.Time) (removed []Entry, err error) {
	c, err := Open(dir)
	if err != nil {
		return nil, err
	}
	return c.remove(func(entries []Entry) []Entry {
		return slices.DeleteFunc(entries, func(e Entry) bool { return !e.Used.Before(before) })
	})
}

// prune removes the least recently used entries until the cache is within its limit. It does nothing while a build is
// running.
func (c *Cache) prune(now time.Time) error {
	limit, err := Limit()
	if err != nil || limit == 0 {
		return err
	}
	_, err = c.remove(func(entries []Entry) []Entry {
		var total int64
		for i, e := range entries { // newest first
			if total += e.Size; total > limit {
				old := func(e Entry) bool { return now.Sub(e.Used) > youngest }
				return slices.DeleteFunc(entries[i:], func(e Entry) bool { return !old(e) })
			}
		}
		return nil
	})
	if errors.Is(err, errBusy) {
		return nil
	}
	return err
}

// remove removes the entries that choose returns and that no process uses. choose may change its argument.
func (c *Cache) remove(choose func([]Entry) []Entry) (removed []Entry, err error) {
	all, err := openLock(filepath.Join(c.dir, lockSuffix))
	if err != nil {
		return nil, err
	}
	defer all.Close()
	if err := filelock.Try(all); err != nil {
		if errors.Is(err, filelock.ErrLocked) {
			return nil, errBusy
		}
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	entries, err := c.entries()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, e := range choose(entries) {
		ok, err := e.remove()
		if err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", e.Path, err))
		} else if ok {
			removed = append(removed, e)
		}
	}
	return removed, errors.Join(errs...)
}

// remove removes the entry and returns true, unless a process uses it. No build is running, so no process is about to
// take the entry's locks, and the lock files can be removed too.
func (e Entry) remove() (bool, error) {
	for _, suffix := range []string{usedSuffix, lockSuffix} {
		f, err := os.OpenFile(e.Path+suffix, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		defer f.Close()
		if err := filelock.Try(f); errors.Is(err, filelock.ErrLocked) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	// A partly removed entry must not keep the name.
	gone, err := os.MkdirTemp(filepath.Dir(e.Path), temporary)
	if err != nil {
		return false, err
	}
	if err := os.Rename(e.Path, filepath.Join(gone, "removed")); err != nil {
		return false, errors.Join(err, os.Remove(gone))
	}
	for _, suffix := range []string{usedSuffix, lockSuffix} {
		if err := os.Remove(e.Path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return true, err
		}
	}
	return true, os.RemoveAll(gone)
}

// Limit returns the number of bytes to which builds limit the cache; 0: no limit.
func Limit() (int64, error) {
	value := os.Getenv(EnvGB)
	if value == "" {
		return DefaultGB * 1e9, nil
	}
	gb, err := strconv.ParseFloat(value, 64)
	if err != nil || gb < 0 || gb > 1e6 || math.IsNaN(gb) {
		return 0, fmt.Errorf("%s=%q: want a number of gigabytes, or 0 for no limit", EnvGB, value)
	}
	return int64(gb * 1e9), nil
}
