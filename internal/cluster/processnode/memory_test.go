package processnode

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRanOutOfMemory: what a program says that ends for want of memory, before the stacks of its goroutines, and what
// is no reason to think so.
func TestRanOutOfMemory(t *testing.T) {
	stacks := strings.Repeat("\ngoroutine 7 [select (no cases)]:\nmain.main.func1()\n", 1000)
	for _, tt := range []struct {
		name, log    string
		hooked, want bool
	}{
		{"Go, heap", "runtime: out of memory: cannot allocate 104857600-byte block (12320768 in use)\n" +
			"fatal error: out of memory" + stacks, true, true},
		{"Go, arena", "{\"msg\":\"x\"}\nfatal error: runtime: cannot allocate memory" + stacks, true, true},
		{"Go, map", "fatal error: runtime: out of memory" + stacks, true, true},
		{"Go, thread", "runtime: failed to create new OS thread (have 9 already; errno=12)\n" +
			"fatal error: newosproc" + stacks, true, true},
		{"Go, thread with C", "runtime/cgo: pthread_create failed: Resource temporarily unavailable\n" +
			"SIGABRT: abort" + stacks, true, true},
		{"Go, another end", "fatal error: concurrent map writes" + stacks, true, false},
		{"Go, panic", "panic: out of memory" + stacks, true, false},
		{"Go, what it heard", `{"level":"error","error":"fork/exec /bin/sh: cannot allocate memory"}` + "\npanic: nil" +
			stacks, true, false},
		{"a long line", strings.Repeat("x", 10000) + "\nfatal error: out of memory" + stacks, true, true},
		{"Python", "Traceback (most recent call last):\nMemoryError\n", false, true},
		{"shell", "sh: Cannot allocate memory\n", false, true},
		{"nothing", "", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "log")
			// Of an earlier process.
			const before = "fatal error: out of memory\n"
			if err := os.WriteFile(file, []byte(before+tt.log), 0o600); err != nil {
				t.Fatal(err)
			}
			c := &container{logFile: file, hooked: tt.hooked}
			if got := c.ranOutOfMemory(int64(len(before))); got != tt.want {
				t.Errorf("ran out of memory: %t", got)
			}
		})
	}
}
