package cluster

import (
	"path/filepath"
	"syscall"
)

// FreeSpace is how many bytes an ordinary user may still write to the file system of a directory, or of the nearest one
// above it that exists; negative: unknown.
func FreeSpace(dir string) int64 {
	for {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(dir, &fs); err == nil {
			return int64(fs.Bavail) * int64(fs.Bsize) //nolint:gosec,unconvert // their types differ between systems
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return -1
		}
		dir = parent
	}
}
