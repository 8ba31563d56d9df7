//go:build amd64 || arm64

package keeper

import (
	"bufio"
	"os/exec"
	"testing"
	"time"
)

// A process that computes runs; one that waits for its input does not, and after its end nothing is known.
func TestThreadsOfAProcess(t *testing.T) {
	cmd := exec.Command("sh", "-c", "echo ready; read a; while :; do :; done")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	threads := watchThreads(cmd.Process.Pid, 0)
	if threads == nil {
		t.Fatal("its threads cannot be read")
	}
	t.Cleanup(threads.leave)
	await := func(want bool, when string) {
		t.Helper()
		for began := time.Now(); threads.runs() != want; time.Sleep(time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("%s, runs is %v", when, !want)
			}
		}
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	await(false, "while it reads")
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	await(true, "while it computes")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !threads.runs() {
		t.Error("a process that has ended is said to be at rest")
	}
	other := watchThreads(cmd.Process.Pid, 0)
	if other != nil {
		t.Error("the threads of a process that has ended can be watched")
	}
}
