//go:build !linux

package clustertest

import "testing"

// Isolate skips the test: a network of one's own is Linux's.
func Isolate(t *testing.T, _ string, _ ...string) { t.Skip("a network of one's own is Linux's") }

// Isolated runs.
func Isolated(run func() int) int { return run() }
