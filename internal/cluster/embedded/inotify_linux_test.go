package embedded_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/trommel-dev/trommel/internal/cluster/embedded"
)

// A user has few inotify instances for all his programs. A cluster takes none of them from the controllers under test,
// which may watch their own certificates.
func TestClusterWatchesNoFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	for name, pid := range embedded.PIDs(shared) {
		descriptors, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil || len(descriptors) == 0 {
			t.Fatalf("descriptors of %s: %v, %v", name, descriptors, err)
		}
		for _, d := range descriptors {
			if target, _ := os.Readlink(d); target == "anon_inode:inotify" {
				t.Errorf("%s has an inotify instance", name)
			}
		}
	}
}
