package campaign

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/trommel-dev/trommel/internal/wording"
)

// ClusterBytes is about how much memory a cluster needs: three API servers, etcd, and what belongs to them.
const ClusterBytes = 1_600_000_000

// clustersPerCore is how many clusters a core can serve: in a run, most of the time everybody waits, until the
// controllers are at rest or for what they should do. The default is one, since other programs need cores too, and
// controllers that are slow do other things.
const clustersPerCore = 2

// Parallel returns how many clusters run plans side by side: n, or for 0 one for each core, if there is memory for
// them. The error says that n is more than the machine can serve.
func Parallel(n int) (int, error) { return parallel(n, runtime.GOMAXPROCS(0), AvailableMemory()) }

// parallel takes the cores, and the bytes of memory that are available, which are 0 if that is not known.
func parallel(n, cores int, memory int64) (int, error) {
	fit := clustersPerCore * cores
	here := wording.Count(cores, "core")
	if memory > 0 {
		fit = min(fit, int(memory/ClusterBytes))
		here = fmt.Sprintf("%.1f GB of memory and %s", float64(memory)/1e9, here)
	}
	fit = max(1, fit) // a single one runs anywhere, slowly
	switch {
	case n == 0:
		return min(fit, max(1, cores)), nil
	case n <= fit:
		return n, nil
	}
	return 0, fmt.Errorf("at most %d fit here: a cluster needs about %.1f GB of memory and half a core; available: %s",
		fit, float64(ClusterBytes)/1e9, here)
}

// AvailableMemory is how many bytes of memory new processes can use, as far as Linux says so: what the machine has, and
// what the process's own control group allows. Zero: unknown.
func AvailableMemory() int64 {
	free := field("/proc/meminfo", "MemAvailable:") * 1024
	limit, err1 := readNumber("/sys/fs/cgroup/memory.max")
	used, err2 := readNumber("/sys/fs/cgroup/memory.current")
	if err1 != nil || err2 != nil {
		return free
	}
	cache := field("/sys/fs/cgroup/memory.stat", "inactive_file") // the kernel gives it up first
	if left := max(1, limit-used+cache); free == 0 || left < free {
		free = left
	}
	return free
}

func readNumber(file string) (int64, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64) // "max" is not a number
}

// field reads a number from a file of lines with a name and a number; 0 if there is none.
func field(file, name string) int64 {
	f, err := os.Open(file)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	for in := bufio.NewScanner(f); in.Scan(); {
		if words := strings.Fields(in.Text()); len(words) >= 2 && words[0] == name {
			n, _ := strconv.ParseInt(words[1], 10, 64)
			return n
		}
	}
	return 0
}
