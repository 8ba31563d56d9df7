package plans

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Init in a large repository ends at once when it is interrupted.
func TestInitIsInterrupted(t *testing.T) {
	dir := t.TempDir()
	module := []byte("module example.com/op\n\ngo 1.22\n")
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), module, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	reading := make(chan struct{})
	defer close(reading)
	_, err := inspect(ctx, dir, func(string) {
		cancel()
		<-reading
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
