package exits

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRanOutOfMemory: the last words of a program that ends for lack of memory, before the stacks of its goroutines,
// and other last words.
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
		{"Go, garbage collection", "SIGSEGV: segmentation violation\nPC=0x43497d m=4 sigcode=1 addr=0x0\n\n" +
			"goroutine 0 gp=0x36fde8555860 m=4 mp=0x36fde858f808 [idle]:\n" +
			"runtime.(*spanQueue).tryDrain(0x7f0800000400?, 0x435286?, 0xe8686000?)" + stacks, true, true},
		{"Go, C code", "SIGSEGV: segmentation violation\nPC=0x7f23 m=0 sigcode=1 addr=0x0\n" +
			"signal arrived during cgo execution\n\ngoroutine 1 gp=0xc000002380 m=0 mp=0x5 [syscall]:\n" +
			"runtime.cgocall(0x4a1b60, 0xc000058e90)\nmain._Cfunc_f()" + stacks, true, false},
		{"Go, nil", "panic: runtime error: invalid memory address or nil pointer dereference\n" +
			"[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x4a]\n\n" +
			"goroutine 1 [running]:\nmain.main()" + stacks, true, false},
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
			p := Process{Log: file, LogStart: int64(len(before)), Hooked: tt.hooked}
			if got := p.RanOutOfMemory(); got != tt.want {
				t.Errorf("ran out of memory: %t", got)
			}
		})
	}
}
