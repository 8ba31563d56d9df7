//go:build !linux

package clustertest

import "testing"

// Isolate skips the test: isolated networks require Linux.
func Isolate(t *testing.T, _ string, _ ...string) { t.Skip("isolated networks require Linux") }

// Isolated calls run.
func Isolated(run func() int) int { return run() }
