package existing

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/internal/cluster"
)

// journal is what a run must undo, in a file of which each line is an entry. It exists while a run is in progress, and
// after one that was killed or could not be undone.
type journal struct {
	file string

	mu      sync.Mutex
	out     *os.File
	entries []entry
}

// entry is one line.
type entry struct {
	// Begun is the first one.
	Begun *begun `json:"begun,omitempty"`
	// Intent is an object that is about to be created, and Made one that has been.
	Intent *object `json:"intent,omitempty"`
	Made   *object `json:"made,omitempty"`
	// Running: the manifests are installed, and the controllers start. What is made later is the workload's, the
	// plan's or the controllers'.
	Running bool `json:"running,omitempty"`
	// Replaced is a Deployment that is about to be scaled to 0.
	Replaced *replaced `json:"replaced,omitempty"`
}

// begun says which cluster the journal is about, and what there was before.
type begun struct {
	Context    string    `json:"context"`
	Kubeconfig string    `json:"kubeconfig,omitempty"` // empty: what kubectl takes
	Host       string    `json:"host"`
	Namespaces []string  `json:"namespaces"`
	PID        int       `json:"pid"`
	Snapshot   *snapshot `json:"snapshot"`
}

// snapshot is what there was before a run.
type snapshot struct {
	Taken      time.Time   `json:"taken"`              // by this machine's clock
	Namespaces []string    `json:"namespaces"`         // those of the run that there were
	UIDs       []types.UID `json:"uids"`               // of the objects in them
	Unlisted   []string    `json:"unlisted,omitempty"` // see unlistedKey
	known      map[types.UID]bool
}

// unlistedKey names the objects of a type in a namespace that the user may not list, so that those from before the run
// are unknown.
func unlistedKey(namespace, group, resource string) string {
	return namespace + "/" + group + "/" + resource
}

func (b *snapshot) has(uid types.UID) bool { return b != nil && b.known[uid] }

func (b *snapshot) index() {
	b.known = make(map[types.UID]bool, len(b.UIDs))
	for _, uid := range b.UIDs {
		b.known[uid] = true
	}
}

// object is an object that a run creates.
type object struct {
	Group     string    `json:"group,omitempty"`
	Version   string    `json:"version"`
	Resource  string    `json:"resource"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
	By        string    `json:"by"` // see byTrommel
	// Claims are the names of a StatefulSet's volume claim templates.
	Claims []string `json:"claims,omitempty"`
}

// Who creates objects.
const (
	byTrommel    = "trommel"
	byController = "controller"
)

func (o *object) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: o.Group, Version: o.Version, Resource: o.Resource}
}

func (o *object) String() string {
	text := o.Resource
	if o.Group != "" {
		text += "." + o.Group
	}
	if o.Namespace != "" {
		text += "/" + o.Namespace
	}
	return text + "/" + o.Name
}

// same reports whether two are of the same type and name.
func (o *object) same(p *object) bool {
	return o.Group == p.Group && o.Resource == p.Resource && o.Namespace == p.Namespace && o.Name == p.Name
}

// replaced is a Deployment that ran a controller under test.
type replaced struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Replicas  int32     `json:"replicas"` // what it had
}

// journalDir returns the directory of the journals on this machine.
func journalDir() (string, error) {
	base := os.Getenv("TROMMEL_CACHE")
	if base == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find a place for what a run must undo: %w", err)
		}
		base = filepath.Join(cache, "trommel")
	}
	return filepath.Join(base, "existing"), nil
}

// openJournal returns the journal of the use of a cluster; it may be empty.
func openJournal(id string) (*journal, error) {
	dir, err := journalDir()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("find a place for what a run must undo: %w", err)
	}
	return &journal{file: filepath.Join(dir, id+".jsonl")}, nil
}

func (j *journal) lockFile() string { return strings.TrimSuffix(j.file, ".jsonl") + ".lock" }

// read reads what an earlier process wrote. The error is fs.ErrNotExist if there is nothing. A last line that is not
// complete is not counted: what it would announce was not begun.
func (j *journal) read() (*begun, error) {
	data, err := os.ReadFile(j.file)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = nil
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			break
		}
		j.entries = append(j.entries, e)
	}
	if len(j.entries) == 0 || j.entries[0].Begun == nil || j.entries[0].Begun.Snapshot == nil {
		return nil, fs.ErrNotExist
	}
	b := j.entries[0].Begun
	b.Snapshot.index()
	return b, nil
}

// begin replaces an earlier journal with a new one.
func (j *journal) begin(b begun) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.out != nil {
		_ = j.out.Close()
	}
	// A reader sees the old one or a new one with its first line.
	text, err := json.Marshal(entry{Begun: &b})
	if err != nil {
		return err
	}
	if j.out, err = os.OpenFile(j.file+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600); err != nil {
		return fmt.Errorf("write what the run must undo: %w", err)
	}
	_, err = j.out.Write(append(text, '\n'))
	if err = errors.Join(err, j.out.Sync(), os.Rename(j.file+".new", j.file)); err != nil {
		return fmt.Errorf("write what the run must undo: %w", err)
	}
	j.entries = []entry{{Begun: &b}}
	return nil
}

// add writes an entry. When it returns, the entry outlives this process. Before begin, there is nothing to write to.
func (j *journal) add(e entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.out == nil {
		return errors.New("nothing may be written before there is a record of what was there")
	}
	text, err := json.Marshal(e)
	if err == nil {
		_, err = j.out.Write(append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write what the run must undo: %w", err)
	}
	j.entries = append(j.entries, e)
	return nil
}

// drop deletes the journal.
func (j *journal) drop() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.out != nil {
		_ = j.out.Close()
		j.out = nil
	}
	j.entries = nil
	return os.Remove(j.file)
}

// made lists what was made, oldest first, and what was only about to be. Early are those before the controllers began
// to run.
func (j *journal) made() (all, early, intents []*object) {
	j.mu.Lock()
	defer j.mu.Unlock()
	running := false
	for i := range j.entries {
		e := &j.entries[i]
		switch {
		case e.Running:
			running = true
		case e.Intent != nil:
			intents = append(intents, e.Intent)
		case e.Made != nil:
			all = append(all, e.Made)
			if !running {
				early = append(early, e.Made)
			}
			intents = slices.DeleteFunc(intents, e.Made.same)
		}
	}
	return all, early, intents
}

// madeUID reports whether the run made the object with this UID.
func (j *journal) madeUID(uid types.UID) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.ContainsFunc(j.entries, func(e entry) bool { return e.Made != nil && e.Made.UID == uid })
}

// replaced lists the Deployments that were scaled to 0.
func (j *journal) replaced() (all []*replaced) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.entries {
		if r := j.entries[i].Replaced; r != nil {
			all = append(all, r)
		}
	}
	return all
}

// Left is a cluster of which a run that has ended without that must be undone.
type Left struct {
	File   string // the journal
	config cluster.JoinConfig
	begun  *begun
}

// Context is the kubeconfig's context.
func (l *Left) Context() string { return l.begun.Context }

// Namespaces are those in which the run wrote.
func (l *Left) Namespaces() []string { return l.begun.Namespaces }

// PID is the process ID of the run.
func (l *Left) PID() int { return l.begun.PID }

// Config leads to the cluster: the user named its context for that run.
func (l *Left) Config() cluster.JoinConfig { return l.config }

// LeftBehind lists the journals on this machine. The runs of some may be in progress: [Cluster.Lock] fails for these.
func LeftBehind() (all []*Left, err error) {
	dir, err := journalDir()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	for _, file := range files {
		b, err := (&journal{file: file}).read()
		if err != nil {
			continue // deleted meanwhile
		}
		all = append(all, &Left{File: file, begun: b, config: cluster.JoinConfig{
			Kubeconfig: b.Kubeconfig, Context: b.Context, Namespaces: b.Namespaces, Confirmed: true,
		}})
	}
	return all, nil
}

// Restore puts back what a run on a cluster that exists already has left behind. It does nothing if that run is in
// progress: the error is an *InUseError.
func Restore(ctx context.Context, config cluster.JoinConfig) (err error) {
	c, err := Join(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	unlock, err := c.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	snapshot, err := c.KeptSnapshot()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := c.Reset(ctx, snapshot); err != nil {
		return err
	}
	return c.DropSnapshot()
}
