package main

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// BenchmarkRebuild measures `trommel build`, from exec to exit, if nothing has changed.
func BenchmarkRebuild(b *testing.B) {
	if testing.Short() {
		b.Skip("compiles controllers")
	}
	trommel := buildTrommel(b)
	for name, dir := range map[string]string{
		"client-go":          filepath.Join("..", "..", "testdata", "controllers", "copier"),
		"controller-runtime": filepath.Join("..", "..", "instrumentation", "testdata", "controller"),
	} {
		b.Run(name, func(b *testing.B) {
			build := func() {
				if out, err := exec.Command(trommel, "build", dir).CombinedOutput(); err != nil {
					b.Fatalf("trommel build: %v\n%s", err, out)
				}
			}
			build()
			for b.Loop() {
				build()
			}
		})
	}
}
