package main

import (
	"fmt"
	"os"
	"strconv"
)

// envParentFD names the descriptor of a pipe whose other end only the parent holds.
const envParentFD = "TROMMEL_PARENT_FD"

// watchParent ends this process as soon as its parent has gone, however it went. Without envParentFD it does nothing.
func watchParent() {
	value := os.Getenv(envParentFD)
	if value == "" {
		return
	}
	os.Unsetenv(envParentFD)
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		fmt.Fprintf(os.Stderr, "%s=%q: not an inherited descriptor\n", envParentFD, value)
		os.Exit(2)
	}
	pipe := os.NewFile(uintptr(fd), "parent")
	go func() {
		// Nothing is ever written: Read returns when the last other end is closed.
		_, _ = pipe.Read(make([]byte, 1))
		fmt.Fprintln(os.Stderr, "the parent process has gone")
		os.Exit(1)
	}()
}
