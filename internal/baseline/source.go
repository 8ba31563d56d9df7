package baseline

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
)

// Format is the version of what Learn records. Baselines of another format must be learned again.
const Format = 8

// Source is what a baseline was made from. A baseline of another source says nothing about a run.
type Source struct {
	Format int `json:"format"`
	// Suite is a hash of the suite with its variant, without other workloads, and of the files that it names.
	Suite        string            `json:"suite"`
	Controllers  map[string]string `json:"controllers"`            // hashes of their executables
	ControlPlane string            `json:"controlPlane,omitempty"` // empty: a running cluster's
	Kubernetes   string            `json:"kubernetes"`
	Trommel      string            `json:"trommel"`
	Runs         int               `json:"runs"` // without faults that were compared
}

// Differs names what is not the same in two sources; nil if they are equal.
func (s Source) Differs(t Source) []string {
	var all []string
	note := func(what string, same bool) {
		if !same {
			all = append(all, what)
		}
	}
	note("the format of baselines", s.Format == t.Format)
	note("the suite", s.Suite == t.Suite)
	names := map[string]bool{}
	for _, m := range []map[string]string{s.Controllers, t.Controllers} {
		for name := range m {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		note(name+"'s executable", s.Controllers[name] == t.Controllers[name])
	}
	note("the control plane", s.ControlPlane == t.ControlPlane)
	note("the version of Kubernetes", s.Kubernetes == t.Kubernetes)
	note("the version of Trommel", s.Trommel == t.Trommel)
	note("the number of runs", s.Runs == t.Runs)
	return all
}

// Read reads a baseline from a file that Write has written. The error is fs.ErrNotExist if there is no file.
func Read(file string) (*Baseline, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read baseline: %w", err)
	}
	ref := &Baseline{}
	if err := json.Unmarshal(data, ref); err != nil {
		return nil, fmt.Errorf("read baseline: %s: %w", file, err)
	}
	return ref, nil
}
