package privatedir

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	made := func(name string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	private := made("private", 0o700)
	if err := os.Symlink(private, link); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path      string
		forbidden fs.FileMode
		want      string
	}{
		{private, 0o077, ""},
		{made("readable", 0o755), 0o022, ""},
		{filepath.Join(dir, "readable"), 0o077, "/readable must be a directory that only this user can access"},
		{made("writable", 0o777|fs.ModeSticky), 0o022,
			"/writable must be a directory that only this user can write into"},
		{link, 0o022, "/link must be a directory that only this user can write into"},
		{file, 0o022, "/file must be a directory that only this user can write into"},
	} {
		got := ""
		if err := Check(tt.path, tt.forbidden); err != nil {
			got = err.Error()
		}
		if tt.want != "" {
			tt.want = dir + tt.want
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.path, got, tt.want)
		}
	}
	if os.Getuid() != 0 {
		return // only root can give files away
	}
	stranger := made("stranger", 0o700)
	if err := os.Chown(stranger, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if Check(stranger, 0o022) == nil {
		t.Error("another user's directory")
	}
}

func TestNew(t *testing.T) {
	parent := t.TempDir()
	if len(parent) > 60 {
		t.Skip("the path of the directory for temporary files is too long")
	}
	live, err := New(parent)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := New(parent)
	if err != nil {
		t.Fatal(err)
	}
	dead.alive.Close() // as the kernel does when the owner dies
	if _, err := os.Stat(live.path); err != nil {
		t.Errorf("the directory of a living process was deleted: %v", err)
	}
	next, err := New(parent)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead.path); !os.IsNotExist(err) {
		t.Errorf("the directory of a dead process still exists: %v", err)
	}
	for _, d := range []*Dir{live, next} {
		if _, err := os.Stat(d.path); err != nil {
			t.Error(err)
		}
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
	}
	if _, err := New(filepath.Join(parent, strings.Repeat("x", 80))); err == nil ||
		!strings.Contains(err.Error(), "too long for the sockets") {
		t.Errorf("long path: %v", err)
	}
}
