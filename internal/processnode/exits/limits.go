package exits

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// limits are those of open files. Zero: unknown.
type limits struct {
	files           int // that a process may have open
	instances, most int // of inotify that this user's processes have, and may have, all together
}

// explainLimits is for a process that says at its end that the system has given it no more open files. The limit is the
// machine's if it is low, or if others have used it up: all processes of a user have the inotify instances in common,
// and whoever watches a file, such as a certificate, needs one. Otherwise the process has kept its files open itself.
func explainLimits(log string, now func() limits) string {
	lines := strings.Split(strings.TrimRight(log, "\n"), "\n")
	if !strings.Contains(strings.Join(lines[max(len(lines)-lastLines, 0):], "\n"), "too many open files") {
		return ""
	}
	// Some instances of those who have met the limit are free again.
	if l := now(); l.files >= enoughFiles && l.most > 0 && l.instances < l.most/2 {
		return ""
	}
	return "it says \"too many open files\": this machine has a limit of open files for each process (ulimit -n), " +
		"and one of inotify instances for all processes of a user together. Raise them: " +
		"sysctl fs.inotify.max_user_instances=1024"
}

// lastLines are those of a log that say why a process has ended.
const lastLines = 5

// enoughFiles is how many open files are enough for a controller: the limit of most systems.
const enoughFiles = 1024

// limitsNow are the limits that a process has which is started now.
func limitsNow() limits {
	var l limits
	// Go raises its own limit, but not that of the processes that it starts.
	if text, err := exec.Command("sh", "-c", "ulimit -n").Output(); err == nil {
		if l.files, err = strconv.Atoi(string(bytes.TrimSpace(text))); err != nil {
			l.files = enoughFiles // unlimited
		}
	}
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		return l
	}
	l.most, _ = strconv.Atoi(string(bytes.TrimSpace(text)))
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		info, err := os.Stat(p)
		if err != nil {
			continue // it has ended
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Getuid() {
			continue
		}
		files, _ := filepath.Glob(p + "/fd/*")
		for _, fd := range files {
			if target, _ := os.Readlink(fd); target == "anon_inode:inotify" {
				l.instances++
			}
		}
	}
	return l
}
