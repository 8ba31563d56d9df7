package exits

import (
	"os"
	"strings"
	"testing"
)

// Regression: JobSet "exited on its own" where other users of the machine had used up the inotify instances.
func TestExplainLimits(t *testing.T) {
	const refused = `ERROR	setup	problem running manager	{"error": "too many open files"}` + "\n"
	usedUp := limits{files: 1024, instances: 120, most: 128}
	for _, tt := range []struct {
		name, log string
		now       limits
		machine   bool
	}{
		{"the machine's", refused, usedUp, true},
		{"the machine's, before its last lines", "starting\n" + refused + "exit\n", usedUp, true},
		{"long ago", refused + strings.Repeat("working\n", 10), usedUp, false},
		{"something else", "", usedUp, false},
		{"few files", refused, limits{files: 64, instances: 1, most: 128}, true},
		{"its own files", refused, limits{files: 1024, instances: 63, most: 128}, false},
		{"unknown", refused, limits{files: 1024}, true},
	} {
		got := explainLimits(tt.log, func() limits { return tt.now })
		if strings.Contains(got, "fs.inotify.max_user_instances") != tt.machine {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}

func TestLimitsNow(t *testing.T) {
	l := limitsNow()
	if _, err := os.Stat("/proc/sys/fs/inotify"); err == nil && l.most == 0 {
		t.Error("no limit of inotify instances")
	}
	if l.files == 0 || l.instances > l.most {
		t.Errorf("%+v", l)
	}
}
