package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/atomicfile"
	"github.com/trommel-dev/trommel/internal/filelock"
	"github.com/trommel-dev/trommel/internal/privatedir"
)

// Entry describes a running cluster that other processes can attach to.
type Entry struct {
	Name       string
	PID        int // of the process that runs it
	Started    time.Time
	Dir        string   // the cluster's own directory
	LogDir     string   // of the processes' logs
	APIServers []string // their names
	// Kubeconfigs maps the names of API servers to files for cluster-admin access.
	Kubeconfigs map[string]string
	Node        string   // the process node's name
	Equipment   []string // see cluster.Equipped
	Coordinator string   // see cluster.Cluster.Rendezvous
	Token       string

	// registered is the file this was read from.
	registered string
}

// NotRunningError is the error for a cluster name that is not running.
type NotRunningError struct {
	Name    string
	Running []string // the names of those that are running
}

func (e *NotRunningError) Error() string {
	running := "none is"
	if len(e.Running) > 0 {
		running = "running: " + strings.Join(e.Running, ", ")
	}
	return fmt.Sprintf("cluster %q is not running (%s)", e.Name, running)
}

func (e Entry) controlSocket() string { return filepath.Join(e.Dir, "control.sock") }

// live reports whether the process that runs the cluster is alive. That process holds locks on two files, one beside
// its entry and one in the cluster's own directory; if these files have been deleted, it still accepts connections on
// its control socket. An error means that this is unknown.
func (e Entry) live() (bool, error) {
	var errs []error
	for _, file := range []string{lockFile(e.registered), filepath.Join(e.Dir, privatedir.AliveFile)} {
		f, err := os.OpenFile(file, os.O_RDWR, 0)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		held := locked(f)
		_ = f.Close()
		if held {
			return true, nil
		}
	}
	if conn, err := net.DialTimeout("unix", e.controlSocket(), time.Second); err == nil {
		_ = conn.Close()
		return true, nil
	}
	for _, err := range errs {
		if !errors.Is(err, os.ErrNotExist) {
			return false, errors.Join(errs...)
		}
	}
	return false, nil
}

func lockFile(entry string) string { return strings.TrimSuffix(entry, ".json") + ".lock" }

// registryDir returns the directory of the running clusters' entries. It does not create it: a process that only looks
// may have no home to create it in.
func registryDir() (string, error) {
	base := os.Getenv("TROMMEL_CACHE")
	if base == "" {
		if cache, err := os.UserCacheDir(); err == nil {
			base = filepath.Join(cache, "trommel")
		} else if base, err = privatedir.Parent(); err != nil {
			return "", err
		}
	}
	return filepath.Join(base, "clusters"), nil
}

// RegistryFile returns a path beside the entry of the named cluster, with another ending. It creates the directory.
func RegistryFile(name, ending string) (string, error) {
	if !nameRE.MatchString(name) {
		return "", nameError(name)
	}
	dir, err := registryDir()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create the directory of the running clusters: %w", err)
	}
	return filepath.Join(dir, name+ending), nil
}

// List returns the running clusters, ordered by name, and deletes what dead clusters left. It neither lists nor deletes
// a cluster if it is unknown whether it is running.
func List() ([]Entry, error) {
	dir, err := registryDir()
	if err != nil {
		return nil, fmt.Errorf("list clusters: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list clusters: %w", err)
	}
	slices.Sort(files)
	var entries []Entry
	for _, file := range files {
		entry, err := readEntry(file)
		if err != nil {
			continue // being deleted, or not an entry
		}
		live, err := entry.live()
		switch {
		case err != nil:
		case live:
			entries = append(entries, entry)
		default:
			_ = os.Remove(file)
			_ = os.RemoveAll(entry.Dir)
		}
	}
	return entries, nil
}

func readEntry(file string) (Entry, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Entry{}, err
	}
	var e Entry
	if err := json.Unmarshal(text, &e); err != nil {
		return Entry{}, fmt.Errorf("%s: %w", file, err)
	}
	e.registered = file
	return e, nil
}

// find returns the entry of a running cluster, or a NotRunningError.
func find(name string) (Entry, error) {
	entries, err := List()
	if err != nil {
		return Entry{}, err
	}
	none := &NotRunningError{Name: name}
	for _, e := range entries {
		if e.Name == name {
			return e, nil
		}
		none.Running = append(none.Running, e.Name)
	}
	return Entry{}, none
}

// claim reserves the cluster's name until this process exits or calls release.
func claim(name string) (release func(), err error) {
	path, err := RegistryFile(name, ".lock")
	if err != nil {
		return nil, err
	}
	// The lock file may have been deleted while the cluster was running.
	if e, err := readEntry(strings.TrimSuffix(path, ".lock") + ".json"); err == nil {
		if live, _ := e.live(); live {
			return nil, runningAlready(name, e)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("claim the name of cluster %q: %w", name, err)
	}
	err = filelock.Try(f)
	for range 10 {
		if err == nil {
			break
		}
		// Another process may hold the lock for a moment to check it.
		time.Sleep(pollInterval)
		err = filelock.Try(f)
	}
	if err != nil {
		_ = f.Close()
		if !errors.Is(err, filelock.ErrLocked) {
			return nil, fmt.Errorf("claim the name of cluster %q: %w", name, err)
		}
		e, _ := readEntry(strings.TrimSuffix(path, ".lock") + ".json")
		return nil, runningAlready(name, e)
	}
	return func() { _ = f.Close() }, nil
}

func runningAlready(name string, e Entry) error {
	by := ""
	if e.PID != 0 {
		by = fmt.Sprintf(" (process %d)", e.PID)
	}
	return fmt.Errorf("a cluster named %q is running already%s", name, by)
}

func (c *Cluster) entry() Entry {
	e := Entry{
		Name: c.Name(), PID: os.Getpid(), Started: time.Now().Truncate(time.Second), Dir: c.Dir(), LogDir: c.LogDir(),
		APIServers: c.APIServers(), Kubeconfigs: map[string]string{}, Node: c.processes.NodeName(),
	}
	for _, a := range c.apis {
		e.Kubeconfigs[a.name] = a.kubeconfig
	}
	e.Coordinator, e.Token = c.Rendezvous()
	return e
}

// Serve starts a cluster that other processes can find by its name, and runs it until ctx ends or a process calls Stop.
// It calls ready when other processes can attach.
func Serve(ctx context.Context, config Config, ready func(Entry)) (err error) {
	if config, err = withDefaults(config); err != nil {
		return err
	}
	release, err := claim(config.Name)
	if err != nil {
		return err
	}
	defer release()
	file, err := RegistryFile(config.Name, ".json")
	if err != nil {
		return err
	}
	// An entry left by a dead process must not be taken for this cluster's.
	_ = os.Remove(file)
	c, err := Start(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	if config.Equip != nil {
		stop, err := config.Equip(ctx, c)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	control, err := serveControl(c)
	if err != nil {
		return err
	}
	defer control.close()
	entry := c.entry()
	entry.registered, entry.Equipment = file, config.Equipment
	text, err := json.MarshalIndent(entry, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(file, text, 0o600); err != nil {
		return fmt.Errorf("register cluster %q: %w", config.Name, err)
	}
	defer os.Remove(file)
	ready(entry)
	select {
	case <-ctx.Done():
	case <-control.stop:
	}
	return nil
}
