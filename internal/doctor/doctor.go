// Package doctor checks whether a machine has what Trommel needs, and says what the first build will cost.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/buildcache"
	"github.com/trommel-dev/trommel/internal/campaign"
	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/wording"
)

// What is needed at least, and what the first builds cost.
const (
	clockGo    = "1.26.0" // from here on runs have a clock of their own
	coldBytes  = 6_000_000_000
	warmBytes  = 1_000_000_000
	leastFiles = 1024
	// Each pod's process has one instance for its files, and client-go's certificates have another one.
	leastInstances = 64

	controlPlaneCPU = 8 * time.Minute
	controllerCPU   = 4 * time.Minute
)

// computer is what a check reads from a machine.
type computer struct {
	goVersion  string // such as go1.26.8; empty: there is none
	goError    string
	needsGo    string // of the controller's go.mod; empty: there is no controller
	git        string // git's complaint about the repository; empty: none
	cores      int
	load       float64
	memory     int64 // bytes; 0: unknown
	caches     []space
	files      uint64
	instances  int64 // inotify; 0: unknown
	kubernetes string
	built      bool // the control plane
	prebuilt   bool // it is in a release
	binaries   int  // controllers in the cache
}

// space is what a directory's file system has left.
type space struct {
	what, dir string
	free      int64 // bytes; negative: unknown
}

// row is a line of the table. A bad one stops Trommel; one with advice does not.
type row struct {
	what, here, advice string
	bad                bool
}

// Check prints what Trommel needs and what this machine has, for the controller in a directory. Missing is true if
// something is missing that stops Trommel.
func Check(ctx context.Context, out io.Writer, dir string) (missing bool, err error) {
	m, err := look(ctx, dir)
	if err != nil {
		return false, err
	}
	rows := m.rows()
	return slices.ContainsFunc(rows, func(r row) bool { return r.bad }), printRows(out, rows)
}

func printRows(out io.Writer, rows []row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tHERE\t")
	for _, r := range rows {
		verdict := "ok"
		switch {
		case r.bad:
			verdict = "missing: " + r.advice
		case r.advice != "":
			verdict = r.advice
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", r.what, r.here, verdict)
	}
	return w.Flush()
}

func (m *computer) rows() []row {
	all := []row{m.goRow()}
	if m.git != "" {
		all = append(all, row{"git", wording.FirstLine(m.git),
			"go asks git about the repository to stamp the binary: see git's advice, or " +
				"`go env -w GOFLAGS=-buildvcs=false`",
			false})
	}
	busy := ""
	if m.load > 2*float64(m.cores) {
		busy = fmt.Sprintf("busy (load %.0f): all below takes longer", m.load)
	}
	all = append(all, row{"processors", strconv.Itoa(m.cores), busy, false})
	all = append(all, m.memoryRow())
	for _, c := range m.caches {
		r := row{what: "disk for " + c.what, here: wording.Gigabytes(c.free) + " free in " + c.dir}
		need := int64(coldBytes)
		if m.built || m.prebuilt {
			need = warmBytes
		}
		switch {
		case c.free < 0:
			r.here = "unknown, in " + c.dir
		case c.free < need:
			r.bad, r.advice = true, fmt.Sprintf("%s are needed", wording.Gigabytes(need))
		}
		all = append(all, r)
	}
	files := row{what: "open files", here: strconv.FormatUint(m.files, 10)}
	if m.files < leastFiles {
		files.advice = fmt.Sprintf("few: ulimit -n %d", leastFiles)
	}
	all = append(all, files)
	if m.instances > 0 {
		r := row{what: "inotify instances", here: strconv.FormatInt(m.instances, 10)}
		if m.instances < leastInstances {
			r.advice = fmt.Sprintf("few: sysctl fs.inotify.max_user_instances=%d", 2*leastInstances)
		}
		all = append(all, r)
	}
	built := "not built yet"
	if m.built {
		built = "built"
	} else if m.prebuilt {
		built = "prebuilt, to be downloaded"
	}
	all = append(all, row{what: "control plane " + m.kubernetes, here: built},
		row{what: "controllers", here: fmt.Sprintf("%d built", m.binaries)},
		row{what: "the first build here", here: m.estimate()})
	return all
}

func (m *computer) goRow() row {
	r := row{what: "go", here: m.goVersion}
	version := "v" + strings.TrimPrefix(m.goVersion, "go")
	switch {
	case m.goVersion == "":
		r.here, r.bad, r.advice = "none", true, "controllers are built from their source: "+
			cmp.Or(m.goError, "install Go (https://go.dev/dl) or add it to PATH")
	case !semver.IsValid(version): // a development version
	case m.needsGo != "" && semver.Compare(version, "v"+m.needsGo) < 0:
		r.advice = fmt.Sprintf("the controller's go.mod wants go %s, which go then downloads", m.needsGo)
	case semver.Compare(version, "v"+clockGo) < 0:
		r.advice = fmt.Sprintf("runs are in real time; from go %s on they have a clock of their own", clockGo)
	}
	return r
}

func (m *computer) memoryRow() row {
	if m.memory == 0 {
		return row{what: "memory", here: "unknown"}
	}
	r := row{what: "memory", here: wording.Gigabytes(m.memory) + " available"}
	if m.memory < campaign.ClusterBytes {
		r.advice = fmt.Sprintf("little: a cluster needs about %s", wording.Gigabytes(campaign.ClusterBytes))
	} else if n, err := campaign.Parallel(0); err == nil {
		r.here += fmt.Sprintf(", for %s side by side", wording.Count(n, "cluster"))
	}
	return r
}

// estimate says how long it takes until a first plan starts.
func (m *computer) estimate() string {
	cpu, of := controllerCPU, "the controller"
	if !m.built && !m.prebuilt {
		cpu, of = cpu+controlPlaneCPU, "control plane and controller"
	}
	// Compiling does not keep all cores busy all the time.
	cores := max(1, min(float64(m.cores)*0.85, 12))
	if m.load > float64(m.cores) {
		cores = max(0.2, cores*float64(m.cores)/(m.load+float64(m.cores)))
	}
	minutes := max(1, int(time.Duration(float64(cpu)/cores).Round(time.Minute)/time.Minute))
	return fmt.Sprintf("about %d min (%s: %d CPU minutes), less what go's cache has", minutes, of, cpu/time.Minute)
}

// look reads what this machine has.
func look(ctx context.Context, dir string) (*computer, error) {
	m := &computer{cores: runtime.GOMAXPROCS(0), load: loadAverage(), memory: campaign.AvailableMemory(),
		kubernetes: instrumentation.KubernetesVersion, instances: number("/proc/sys/fs/inotify/max_user_instances")}
	env, err := goEnv(ctx, dir)
	if err != nil {
		m.goError = err.Error()
	} else {
		m.goVersion = env[0]
	}
	if data, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil {
		if file, err := modfile.ParseLax("go.mod", data, nil); err == nil && file.Go != nil {
			m.needsGo = file.Go.Version
		}
	}
	if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
		out, err := exec.CommandContext(ctx, "git", "-C", dir, "status", "--porcelain", "-uno").CombinedOutput()
		if err != nil {
			m.git = strings.TrimSpace(string(out) + " " + err.Error())
		}
	}
	cache, err := buildcache.Dir()
	if err != nil {
		return nil, err
	}
	m.caches = []space{{"Trommel's cache", cache, cluster.FreeSpace(cache)}}
	if len(env) > 1 {
		m.caches = append(m.caches, space{"go's cache", env[1], cluster.FreeSpace(env[1])})
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err == nil {
		m.files = limit.Max // go raises the limit of its programs to that
	}
	planes, err := instrumentation.ControlPlanes()
	if err != nil {
		return nil, err
	}
	for _, p := range planes {
		if p.Kubernetes == m.kubernetes {
			m.built, m.prebuilt = p.Built, p.Prebuilt
		}
	}
	entries, err := buildcache.List("")
	for _, e := range entries {
		if e.Kind == "builds" {
			m.binaries++
		}
	}
	return m, err
}

// goEnv returns the go command's version and cache directory.
func goEnv(ctx context.Context, dir string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOCACHE")
	cmd.Dir = dir
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, errors.New("install Go (https://go.dev/dl) or add it to PATH")
	case errors.As(err, &exit):
		return nil, fmt.Errorf("go env: %s", strings.TrimSpace(string(exit.Stderr)))
	case err != nil:
		return nil, err
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), nil
}

func loadAverage() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), " ")
	load, _ := strconv.ParseFloat(first, 64)
	return load
}

// number reads a file with a number; zero: there is none.
func number(file string) int64 {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return n
}
