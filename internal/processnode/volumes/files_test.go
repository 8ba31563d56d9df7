package volumes

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	f := NewFiles(filepath.Join(dir, "root"))
	for _, folder := range []string{"tmp", "volume", "certs"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f.Add("/tmp", filepath.Join(dir, "tmp"))
	f.Add(dir, dir) // like the node's own directory, which may be below /tmp
	for _, m := range []Mount{{"/trommel-none", filepath.Join(dir, "volume")},
		{"/trommel-missing/a/b", filepath.Join(dir, "volume")}, {"/tmp/server/certs", filepath.Join(dir, "certs")}} {
		if err := f.Mount(m.Path, m.Local); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.MakeMountPoints(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path, want string
		moved      bool
	}{
		{"/etc/passwd", "/etc/passwd", false},
		{"/tmp", dir + "/tmp", true},
		{"/tmp/x", dir + "/tmp/x", true},
		{"/tmpx", "/tmpx", false},
		{"/tmp/server/certs/tls.crt", dir + "/certs/tls.crt", true},
		{"/tmp/server", dir + "/tmp/server", true},
		{dir + "/volume/x", dir + "/volume/x", false},
		{"/trommel-none/x", dir + "/volume/x", true},
		{"/trommel-missing/a/b/x", dir + "/volume/x", true},
		{"/trommel-missing/a", dir + "/root/trommel-missing/a", true},
	} {
		if got, moved := f.local(tt.path); got != tt.want || moved != tt.moved {
			t.Errorf("%s is %s (%t), want %s (%t)", tt.path, got, moved, tt.want, tt.moved)
		}
	}
	for _, point := range []string{dir + "/tmp/server/certs", dir + "/root/trommel-missing/a/b"} {
		if info, err := os.Stat(point); err != nil || !info.IsDir() {
			t.Errorf("no mount point %s: %v", point, err)
		}
	}
}

func TestRewritePaths(t *testing.T) {
	// The longest first, as Mounts sorts them.
	mounts := []Mount{{"/etc/config/sub", "/l/sub"}, {"/etc/config", "/l/config"}, {"/tmp", "/l/tmp"}}
	for _, tt := range []struct{ in, want, reason string }{
		{in: "/etc/config", want: "/l/config"},
		{in: "/etc/config/file.yaml", want: "/l/config/file.yaml"},
		{in: "--config=/etc/config/a,/tmp/b:/tmp", want: "--config=/l/config/a,/l/tmp/b:/l/tmp"},
		{in: "/etc/config/sub/x", want: "/l/sub/x", reason: "the deepest mount wins"},
		{in: "/etc/config2", want: "/etc/config2", reason: "another directory"},
		{in: "/etc/config.d/x", want: "/etc/config.d/x", reason: "another directory"},
		{in: "/var/tmp/x", want: "/var/tmp/x", reason: "a mount path within a path"},
		{in: "cat '/tmp/x' && ls /tmp", want: "cat '/l/tmp/x' && ls /l/tmp"},
		{in: "https://host/tmp", want: "https://host/tmp", reason: "a URL's path"},
		{in: "", want: ""},
	} {
		if got := RewritePaths(tt.in, mounts); got != tt.want {
			t.Errorf("RewritePaths(%q) = %q, want %q %s", tt.in, got, tt.want, tt.reason)
		}
	}
}
