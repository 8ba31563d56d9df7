package output

import (
	"os"
	"path/filepath"

	"github.com/trommel-dev/trommel/record"
)

// MakeWritable makes the file's directory and checks that the file can be written. If the file need not be kept, it
// removes the file, unless that is a device or a pipe.
func MakeWritable(file string, keep bool) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return nil
	}
	isThere := err == nil
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, record.FileMode)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil || isThere && keep {
		return err
	}
	return os.Remove(file)
}
