// Package privatedir checks directories at places where all users can create some, such as /tmp: the content of one
// that another user has prepared must not be believed.
package privatedir

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Check returns an error unless the path is a directory, not a link, that belongs to this user, and of whose
// permissions for others none is in forbidden: 0o077 if other users must not read it, 0o022 if they must not write into
// it.
func Check(path string, forbidden fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if info.IsDir() && ok && int(owner.Uid) == os.Getuid() && info.Mode().Perm()&forbidden == 0 {
		return nil
	}
	what := "write into"
	if forbidden&0o044 != 0 {
		what = "access"
	}
	return fmt.Errorf("%s must be a directory that only this user can %s", path, what)
}
