package privatedir

import (
	"io/fs"
	"os"
	"path/filepath"
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
