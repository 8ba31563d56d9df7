package volumes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mount maps a container's path to a path on this machine.
type Mount struct{ Path, Local string }

// SortMounts puts the longest paths first.
func SortMounts(mounts []Mount) []Mount {
	slices.SortFunc(mounts, func(a, b Mount) int { return len(b.Path) - len(a.Path) })
	return mounts
}

// Files maps a container's paths to paths on this machine. Paths that it does not contain are the machine's own.
type Files struct {
	list []Mount // longest paths first
	root string  // directory for parents of mounts that the machine does not have
}

// NewFiles returns an empty map. Root is the directory for parents of mounts that the machine does not have.
func NewFiles(root string) *Files { return &Files{root: root} }

// Add replaces an earlier entry for the same path.
func (f *Files) Add(path, local string) {
	f.list = slices.DeleteFunc(f.list, func(m Mount) bool { return m.Path == path })
	f.list = append(f.list, Mount{path, local})
	slices.SortStableFunc(f.list, func(a, b Mount) int { return len(b.Path) - len(a.Path) })
}

// local returns where a clean absolute path is on this machine, and whether that differs from the path.
func (f *Files) local(path string) (string, bool) {
	for _, m := range f.list {
		if rest, ok := strings.CutPrefix(path, m.Path); ok && (rest == "" || rest[0] == '/') {
			return m.Local + rest, m.Local != m.Path
		}
	}
	return path, false
}

// Have reports whether the program finds what it does at a path in files of its own, such as a volume of its pod, and
// not in those of the machine.
func (f *Files) Have(path string) bool {
	for _, m := range f.list {
		if rest, ok := strings.CutPrefix(path, m.Path); ok && (rest == "" || rest[0] == '/') {
			return !strings.HasPrefix(m.Local, f.root+"/")
		}
	}
	return false
}

// Mount adds a path that the pod's spec names, and the path to it: parents that the machine does not have, and the
// path's real name if a parent is a symbolic link on this machine, as /var/run often is.
func (f *Files) Mount(path, local string) error {
	parent := filepath.Dir(path)
	existing, names := f.existing(parent)
	rest, err := filepath.Rel(existing, path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, moved := f.local(name); !moved && parent != existing {
			first, _, _ := strings.Cut(rest, "/")
			missing := filepath.Join(name, first)
			f.Add(missing, filepath.Join(f.root, missing))
		}
		f.Add(filepath.Join(name, rest), local)
	}
	return nil
}

// existing returns the longest part of a path that exists, and its names: itself and, if it is a symbolic link on this
// machine, the real one.
func (f *Files) existing(path string) (existing string, names []string) {
	existing = path
	for existing != "/" {
		if _, err := os.Stat(existing); err == nil {
			break
		}
		if _, ok := f.local(existing); ok {
			break
		}
		existing = filepath.Dir(existing)
	}
	names = []string{existing}
	if _, moved := f.local(existing); !moved {
		if real, err := filepath.EvalSymlinks(existing); err == nil && real != existing {
			names = append(names, real)
		}
	}
	return existing, names
}

// Names returns the paths by which a program may open a file: that path and, if a part of it is a symbolic link on this
// machine, the real one.
func (f *Files) Names(path string) []string {
	existing, names := f.existing(path)
	for i := range names {
		names[i] = filepath.Join(names[i], strings.TrimPrefix(path, existing))
	}
	return names
}

// MakeMountPoints creates the entries that a listing of a mount's parent shows, if that parent is not the machine's
// own.
func (f *Files) MakeMountPoints() error {
	for _, m := range slices.Backward(f.list) {
		if m.Path == m.Local || strings.HasPrefix(m.Local, f.root+"/") {
			continue
		}
		point, moved := f.local(filepath.Dir(m.Path))
		if !moved {
			continue
		}
		if err := os.MkdirAll(point, 0o700); err != nil {
			return err
		}
		point = filepath.Join(point, filepath.Base(m.Path))
		if _, err := os.Lstat(point); err == nil {
			continue
		}
		if info, err := os.Stat(m.Local); err == nil && !info.IsDir() {
			if err := os.WriteFile(point, nil, 0o600); err != nil {
				return err
			}
		} else if err := os.Mkdir(point, 0o700); err != nil {
			return err
		}
	}
	for _, m := range f.list {
		if strings.HasPrefix(m.Local, f.root+"/") {
			if err := os.MkdirAll(m.Local, 0o700); err != nil {
				return err
			}
		}
	}
	return nil
}

// Moved lists the paths whose files are elsewhere on this machine, longest first.
func (f *Files) Moved() []Mount {
	return slices.DeleteFunc(slices.Clone(f.list), func(m Mount) bool { return m.Path == m.Local })
}

// Environment returns the files as text that the hooks in the standard library read.
func (f *Files) Environment() string {
	var b strings.Builder
	for _, m := range f.list {
		if strings.ContainsAny(m.Path+m.Local, "\t\n") {
			continue
		}
		fmt.Fprintf(&b, "%s\t%s\n", m.Path, m.Local)
	}
	return b.String()
}

// RewritePaths replaces mount paths that occur as whole paths or at the beginning of paths.
func RewritePaths(s string, mounts []Mount) string {
	var b strings.Builder
scan:
	for i := 0; i < len(s); {
		if s[i] == '/' && (i == 0 || !isPathByte(s[i-1])) {
			for _, m := range mounts {
				rest, ok := strings.CutPrefix(s[i:], m.Path)
				if ok && m.Path != "" && (rest == "" || rest[0] == '/' || !isPathByte(rest[0])) {
					b.WriteString(m.Local)
					i += len(m.Path)
					continue scan
				}
			}
		}
		b.WriteByte(s[i])
		i++
	}
	return b.String()
}

func isPathByte(c byte) bool {
	return c == '/' || c == '.' || c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' ||
		'A' <= c && c <= 'Z'
}
