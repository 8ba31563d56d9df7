package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
)

// kustomizeWarning begins the lines about deprecated fields that kustomize writes to os.Stderr, each time it reads a
// kustomization. They cannot be turned off.
const kustomizeWarning = "# Warning: "

// withoutKustomize runs the program with an os.Stderr from which kustomize's warnings are left out: they are about the
// user's files and not about his controller, and kustomize itself shows them. What else libraries write there passes
// at once, and so does what f writes to its streams.
func withoutKustomize(f func(s output.Streams) int) int {
	stderr := os.Stderr
	s := output.Streams{In: os.Stdin, Out: os.Stdout, Err: stderr}
	r, w, err := os.Pipe()
	if err != nil {
		return f(s)
	}
	os.Stderr = w // before anything else runs, because this variable has no lock
	done := make(chan struct{})
	go func() {
		defer close(done)
		dropWarnings(r, stderr)
	}()
	code := f(s)
	os.Stderr = stderr
	_ = w.Close()
	<-done
	return code
}

// dropWarnings copies r to w without kustomize's warnings.
func dropWarnings(r io.Reader, w io.Writer) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if !strings.HasPrefix(line, kustomizeWarning) {
			if _, err := io.WriteString(w, line); err != nil && !errors.Is(err, io.EOF) {
				_, _ = io.Copy(io.Discard, lines) // writers must not wait for a reader
				return
			}
		}
		if err != nil {
			return
		}
	}
}
