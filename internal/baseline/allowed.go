package baseline

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/trommel-dev/trommel/internal/atomicfile"
	"github.com/trommel-dev/trommel/record"
)

// Variations are ends of the workload that do not count as differences either.
type Variations struct {
	// Alternatives are the ends of further runs that may end differently: see Allow.
	Alternatives []Alternative `json:"alternatives,omitempty"`
	// Kept are fields that say what has happened: see Keep. Tried names the runs that were made to add something after
	// the baseline was learned. Allowed has both.
	Kept  []Kept   `json:"-"`
	Tried []string `json:"-"`
}

// Allowed is what was seen after a baseline was learned and does not count either, so that whoever judges a run later
// knows it as well. It is kept beside the baseline.
type Allowed struct {
	Source       Source        `json:"source"` // of the baseline
	Alternatives []Alternative `json:"alternatives,omitempty"`
	Kept         []Kept        `json:"kept,omitempty"`
	// Tried names the runs that need not be made again to see more.
	Tried []string `json:"tried,omitempty"`
}

// WriteAllowed writes to a file what was added to the baseline since it was learned.
func (ref *Baseline) WriteAllowed(file string) error {
	a := Allowed{Source: ref.Source, Kept: ref.Kept, Tried: ref.Tried}
	for _, alternative := range ref.Alternatives {
		if alternative.Later {
			a.Alternatives = append(a.Alternatives, alternative)
		}
	}
	data, err := json.MarshalIndent(a, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), record.DirMode)
	}
	if err == nil {
		err = atomicfile.Write(file, data, record.FileMode)
	}
	if err != nil {
		return fmt.Errorf("write what is allowed: %w", err)
	}
	return nil
}

// ReadAllowed adds to the baseline what was added to it before, if the file is of the same source. A file that does
// not exist has nothing.
func (ref *Baseline) ReadAllowed(file string) error {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	a := &Allowed{}
	if err == nil {
		err = json.Unmarshal(data, a)
	}
	if err != nil {
		return fmt.Errorf("read what is allowed: %s: %w", file, err)
	}
	if len(a.Source.Differs(ref.Source)) > 0 {
		return nil
	}
	ref.Alternatives = append(slices.Clip(ref.Alternatives), a.Alternatives...)
	ref.Kept, ref.Tried = a.Kept, a.Tried
	return nil
}

// Later notes that what is added to the baseline from index n of its alternatives on was seen after it was learned.
func (v *Variations) Later(n int) {
	for i := n; i < len(v.Alternatives); i++ {
		v.Alternatives[i].Later = true
	}
}
