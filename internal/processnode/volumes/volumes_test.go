package volumes

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
)

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

func TestTokensByClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New()
		ctx := clock.With(t.Context(), c)
		// due returns when the next timer is due; 0 without one.
		due := func() time.Duration {
			synctest.Wait()
			next, ok := c.Next()
			if !ok {
				return 0
			}
			return c.Until(next)
		}
		v := New(Pod{})
		timer := clock.NewTimer(ctx, 0)
		if v.awaitTokens(ctx, timer); due() != 0 {
			t.Errorf("without tokens it waits for %s", due())
		}
		v.tokens = map[string]*volumeToken{
			"a": {renew: c.Now().Add(2 * time.Hour)}, "b": {renew: c.Now().Add(time.Hour)},
		}
		if v.awaitTokens(ctx, timer); due() != time.Hour {
			t.Errorf("it waits for %s", due())
		}
		timer.Stop()
	})
}
