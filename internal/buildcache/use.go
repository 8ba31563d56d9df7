package buildcache

import (
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/trommel-dev/trommel/internal/filelock"
)

// Beside each entry there is a file with its name and usedSuffix. Its time is that of the last use; its content is the
// entry's size, or empty if the size is unknown. A process that uses the entry without building holds a shared lock on
// it.
const (
	usedSuffix = ".used"
	lockSuffix = ".lock"
)

func openLock(path string) (*os.File, error) { return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644) }

// MarkUsed records that an entry is used now. A cache that cannot be written is not pruned.
func MarkUsed(dir string) {
	f, err := openLock(dir + usedSuffix)
	if err != nil {
		return
	}
	_ = f.Close()
	now := time.Now()
	_ = os.Chtimes(dir+usedSuffix, now, now)
}

// MarkChanged causes an entry's size to be computed again.
func MarkChanged(dir string) {
	MarkUsed(dir)
	_ = os.Truncate(dir+usedSuffix, 0)
}

// inUse holds the locks of this process on entries; they last until it exits.
var inUse = struct {
	sync.Mutex
	files map[string]*os.File
}{files: map[string]*os.File{}}

// KeepInUse ensures that no other process removes the binary from the cache while this one runs. It does nothing for a
// file that is not in a cache.
func KeepInUse(binary string) {
	abs, err := filepath.Abs(binary)
	if err != nil {
		return
	}
	for dir := filepath.Dir(abs); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir + usedSuffix); err != nil {
			continue
		}
		inUse.Lock()
		defer inUse.Unlock()
		if inUse.files[dir] != nil {
			return
		}
		f, err := os.Open(dir + usedSuffix)
		if err != nil {
			return
		}
		if err := filelock.TryShared(f); err != nil {
			_ = f.Close()
			return
		}
		inUse.files[dir] = f
		return
	}
}
