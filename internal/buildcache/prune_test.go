package buildcache

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const envKeepInUse = "TROMMEL_TEST_KEEP_IN_USE"

// filled returns a cache with entries of 100 MB each (sparse files), the least recently used first.
func filled(t *testing.T, names ...string) *Cache {
	t.Helper()
	c, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		dir, err := c.Make(name, func(dir string) error {
			file := filepath.Join(dir, "bin", "x")
			return errors.Join(os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o755),
				os.Truncate(file, 100e6))
		})
		if err != nil {
			t.Fatal(err)
		}
		was := time.Now().Add(time.Duration(i-len(names)) * 24 * time.Hour)
		if err := os.Chtimes(dir+usedSuffix, was, was); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// names lists the entries, by their names.
func names(t *testing.T, c *Cache) []string {
	t.Helper()
	entries, err := List(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		if e.Size != 100e6 {
			t.Errorf("%s has a size of %d bytes", e.Path, e.Size)
		}
		rel, err := filepath.Rel(c.dir, e.Path)
		if err != nil || !strings.HasPrefix(rel, e.Kind+"/") {
			t.Errorf("%s is of kind %s (%v)", e.Path, e.Kind, err)
		}
		list = append(list, rel)
	}
	slices.Sort(list)
	return list
}

func expect(t *testing.T, c *Cache, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := names(t, c); !slices.Equal(got, want) {
		t.Errorf("in the cache %q, want %q", got, want)
	}
}

var five = []string{"builds/a", "controlplane/b", "modules/k8s.io/client-go@v0.36.3-c", "hook/d", "builds/e"}

func TestPruneRemovesWhatWasUsedLongestAgo(t *testing.T) {
	for _, tc := range []struct {
		limit string
		want  []string
	}{
		{"", five}, {"0", five}, {"0.5", five}, {"0.49", five[1:]}, {"0.25", five[3:]}, {"0.001", nil},
	} {
		t.Run(tc.limit, func(t *testing.T) {
			c := filled(t, five...)
			t.Setenv(EnvGB, tc.limit)
			if err := c.prune(time.Now()); err != nil {
				t.Fatal(err)
			}
			expect(t, c, tc.want...)
		})
	}
}

func TestPruneKeepsWhatWasUsedLately(t *testing.T) {
	c := filled(t, five...)
	t.Setenv(EnvGB, "0.001")
	if _, err := c.Make(five[1], nil); err != nil { // used again
		t.Fatal(err)
	}
	if err := c.prune(time.Now()); err != nil {
		t.Fatal(err)
	}
	expect(t, c, five[1])
	left, err := filepath.Glob(filepath.Join(c.dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	// An empty directory remains of a module's path.
	want := []string{filepath.Join(c.dir, five[1]), filepath.Join(c.dir, five[1]+usedSuffix),
		filepath.Join(c.dir, "modules", "k8s.io")}
	if !slices.Equal(left, want) {
		t.Errorf("left %q", left)
	}
}

func TestNothingIsRemovedWhileSomethingIsBuilt(t *testing.T) {
	c := filled(t, five...)
	t.Setenv(EnvGB, "0.001")
	done, err := c.building(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.prune(time.Now()); err != nil {
		t.Error(err)
	}
	if _, err := Clear(c.dir, time.Now()); !errors.Is(err, errBusy) {
		t.Errorf("got %v, want %v", err, errBusy)
	}
	expect(t, c, five...)
	done()
	if err := c.prune(time.Now()); err != nil {
		t.Error(err)
	}
	expect(t, c)
}

// TestWhatIsBuiltByAnotherIsKept: a go command outlives the process that started it, and holds the lock of its build.
func TestWhatIsBuiltByAnotherIsKept(t *testing.T) {
	c := filled(t, five...)
	held, err := c.LockFile(context.Background(), five[0], func() {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Clear(c.dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	expect(t, c, five[0])
	_ = held.Close()
	removed, err := Clear(c.dir, time.Now())
	if err != nil || len(removed) != 1 || removed[0].Size != 100e6 {
		t.Errorf("removed %v, %v", removed, err)
	}
	expect(t, c)
}

// TestKeepInUse keeps a binary in the cache as long as the process lives that uses it.
func TestKeepInUse(t *testing.T) {
	if binary := os.Getenv(envKeepInUse); binary != "" {
		KeepInUse(binary)
		fmt.Println("kept")
		time.Sleep(time.Hour) // the runtime ends a process whose goroutines all wait for ever
	}
	c := filled(t, five...)
	cmd := exec.Command(os.Args[0], "-test.run=^TestKeepInUse$")
	cmd.Env = append(os.Environ(), envKeepInUse+"="+filepath.Join(c.dir, five[0], "bin", "x"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "kept\n" {
		t.Fatal(line, err)
	}
	if _, err := Clear(c.dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	expect(t, c, five[0])
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, err := Clear(c.dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	expect(t, c)
	KeepInUse("/bin/sh") // in no cache
}

func TestClearCacheByAge(t *testing.T) {
	c := filled(t, five...)
	removed, err := Clear(c.dir, time.Now().Add(-60*time.Hour))
	if err != nil || len(removed) != 3 {
		t.Errorf("removed %v, %v", removed, err)
	}
	expect(t, c, five[3:]...)
}

// TestCacheOfAnOlderTrommel has no records of sizes and uses: the time of the directory is used instead.
func TestCacheOfAnOlderTrommel(t *testing.T) {
	c := filled(t, five...)
	was := time.Now().Add(-time.Hour * 24 * 30)
	for _, name := range five {
		dir := filepath.Join(c.dir, name)
		if err := errors.Join(os.Remove(dir+usedSuffix), os.Chtimes(dir, was, was)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // listing does not count as a use
		entries, err := List(c.dir)
		if err != nil || len(entries) != len(five) || entries[0].Size != 100e6 ||
			!entries[0].Used.Equal(was.Truncate(0)) {
			t.Errorf("%+v, %v", entries, err)
		}
	}
}

func TestCacheLimitIsChecked(t *testing.T) {
	for value, want := range map[string]string{
		"many": `TROMMEL_CACHE_GB="many": want a number of gigabytes, or 0 for no limit`,
		"-1":   `TROMMEL_CACHE_GB="-1": want a number of gigabytes, or 0 for no limit`,
		"NaN":  `TROMMEL_CACHE_GB="NaN": want a number of gigabytes, or 0 for no limit`,
	} {
		t.Setenv(EnvGB, value)
		if _, err := Open(t.TempDir()); err == nil || err.Error() != want {
			t.Errorf("%s: %v", value, err)
		}
	}
}
