package embedded_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/trommel-dev/trommel/internal/cluster/embedded"
)

// A user has few inotify instances for all his programs. A cluster leaves them to the controllers under test, which may
// watch their own certificates. The controller manager has one, for plugins of volumes.
func TestInotifyInstances(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	var instances []string
	for name, pid := range embedded.PIDs(shared) {
		descriptors, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil || len(descriptors) == 0 {
			t.Fatalf("descriptors of %s: %v, %v", name, descriptors, err)
		}
		for _, d := range descriptors {
			if target, _ := os.Readlink(d); target == "anon_inode:inotify" {
				instances = append(instances, name)
			}
		}
	}
	if len(instances) > 1 {
		t.Errorf("inotify instances of %v", instances)
	}
}
