package buildcache

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path/filepath"
	"sort"
	"strings"
)

// Digest returns a name for the content of parts.
func Digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))[:20]
}

// DigestFS returns a name for the content of all files in an FS except tests.
func DigestFS(fsys fs.FS) (string, error) {
	var parts []string
	err := fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := fs.ReadFile(fsys, path)
		parts = append(parts, path, string(data))
		return err
	})
	if err != nil {
		return "", err
	}
	return Digest(parts...), nil
}

// TreeState changes whenever a file in the directory does.
func TreeState(dir string) (string, error) {
	var parts []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == ".git" {
				return filepath.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		parts = append(parts, fmt.Sprintf("%s %d %d", path, info.Size(), info.ModTime().UnixNano()))
		return nil
	})
	sort.Strings(parts)
	return Digest(parts...), err
}
