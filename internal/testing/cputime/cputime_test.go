package cputime

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestDescendants(t *testing.T) {
	script := `sleep 1000 & while [ $(cut -d' ' -f1 /proc/$$/schedstat) -lt 20000000 ]; do :; done; echo $!; wait`
	cmd := exec.Command("/bin/sh", "-c", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Of(os.Getpid()); errors.Is(err, ErrUnknown) {
		t.Skip(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var child int
	t.Cleanup(func() {
		if p, err := os.FindProcess(child); err == nil && child > 0 {
			_ = p.Kill()
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	all, err := Descendants()
	if err != nil {
		t.Fatal(err)
	}
	for pid, name := range all {
		if name == "sleep" {
			child = pid
		}
	}
	if all[cmd.Process.Pid] != "sh" || child == 0 {
		t.Errorf("%v; the shell is %d and its child %s", all, cmd.Process.Pid, line)
	}
	if used, err := Of(cmd.Process.Pid); err != nil || used < 20*time.Millisecond {
		t.Errorf("the shell has used %s: %v", used, err)
	}
}
