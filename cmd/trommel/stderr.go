package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
)

// kustomizeWarning begins the lines about deprecated fields that kustomize writes to os.Stderr, each time it reads a
// kustomization. They cannot be turned off.
const kustomizeWarning = "# Warning: "

// withoutRepetitions runs the program with an os.Stderr from which kustomize's warnings are taken; each comes once, at
// the end. What else libraries write there passes at once, and so does what f writes to its streams.
func withoutRepetitions(f func(s output.Streams) int) int {
	stderr := os.Stderr
	s := output.Streams{In: os.Stdin, Out: os.Stdout, Err: stderr}
	r, w, err := os.Pipe()
	if err != nil {
		return f(s)
	}
	os.Stderr = w // before anything else runs, because this variable has no lock
	var warnings []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		warnings = takeWarnings(r, stderr)
	}()
	code := f(s)
	os.Stderr = stderr
	_ = w.Close()
	<-done
	for _, line := range warnings {
		fmt.Fprintf(stderr, "kustomize: %s\n", line)
	}
	return code
}

// takeWarnings copies r to w without kustomize's warnings, which it returns, each once.
func takeWarnings(r io.Reader, w io.Writer) (warnings []string) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if warning, ok := strings.CutPrefix(line, kustomizeWarning); ok {
			if warning = strings.TrimSpace(warning); !slices.Contains(warnings, warning) {
				warnings = append(warnings, warning)
			}
		} else if _, err := io.WriteString(w, line); err != nil && !errors.Is(err, io.EOF) {
			_, _ = io.Copy(io.Discard, lines) // writers must not wait for a reader
			return warnings
		}
		if err != nil {
			return warnings
		}
	}
}
