package processnode

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// Two clusters on a machine never have an address in common, and an address that was released is not the next one to be
// allocated.
func TestAddresses(t *testing.T) {
	one, two := &addresses{used: map[netip.Addr]bool{}}, &addresses{used: map[netip.Addr]bool{}}
	defer one.close()
	defer two.close()
	seen := map[netip.Addr]bool{}
	for range 3 * pairsPerBlock / 2 { // more than in one block
		for _, a := range []*addresses{one, two} {
			got, err := a.take()
			if err != nil {
				t.Fatal(err)
			}
			if !got.own() || !got.ip.IsLoopback() || !got.loopback.IsLoopback() || got.ip == got.loopback ||
				seen[got.ip] || seen[got.loopback] {
				t.Fatalf("%+v was allocated before, or is not a pod's own address", got)
			}
			seen[got.ip], seen[got.loopback] = true, true
		}
	}
	if len(one.blocks) != 2 || len(two.blocks) != 2 || one.blocks[0].prefix == two.blocks[0].prefix {
		t.Errorf("%d and %d blocks", len(one.blocks), len(two.blocks))
	}
	last, err := one.take()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(last.ip.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	one.giveBack(last)
	if next, err := one.take(); err != nil || next == last {
		t.Errorf("%v again (%v)", next, err)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	f := &files{root: filepath.Join(dir, "root")}
	for _, folder := range []string{"tmp", "volume", "certs"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f.add("/tmp", filepath.Join(dir, "tmp"))
	f.add(dir, dir) // like the node's own directory, which may be below /tmp
	for _, m := range []mount{{"/trommel-none", filepath.Join(dir, "volume")},
		{"/trommel-missing/a/b", filepath.Join(dir, "volume")}, {"/tmp/server/certs", filepath.Join(dir, "certs")}} {
		if err := f.mount(m.path, m.local); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.makeMountPoints(); err != nil {
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

// Changed files are replaced all at once, and unchanged content is not touched.
func TestReplaceAll(t *testing.T) {
	dir := t.TempDir()
	for i, step := range []struct {
		files map[string]file
		same  bool
	}{
		{files: map[string]file{"a": {[]byte("1"), 0o600}, "sub/b": {[]byte("2"), 0o600}}},
		{files: map[string]file{"a": {[]byte("1"), 0o600}, "sub/b": {[]byte("2"), 0o600}}, same: true},
		{files: map[string]file{"a": {[]byte("1"), 0o700}, "sub/b": {[]byte("2"), 0o600}}},
		{files: map[string]file{"sub/c": {[]byte("3"), 0o600}}},
		{files: map[string]file{}},
	} {
		before, _ := os.Readlink(filepath.Join(dir, dataLink))
		if err := replaceAll(dir, step.files); err != nil {
			t.Fatal(err)
		}
		after, err := os.Readlink(filepath.Join(dir, dataLink))
		if err != nil || (after == before) != step.same {
			t.Errorf("step %d: ..data was %q and is %q, %v", i, before, after, err)
		}
		for name, f := range step.files {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != string(f.content) {
				t.Errorf("step %d: %s is %q, %v", i, name, got, err)
			}
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for name := range step.files {
			first := name
			for filepath.Dir(first) != "." {
				first = filepath.Dir(first)
			}
			seen[first] = true
		}
		if want := len(seen) + 2; len(entries) != want { // and ..data, and the directory that it leads to
			t.Errorf("step %d: %v, want %d", i, entries, want)
		}
	}
}
