package fleet

import (
	"encoding/json"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// protocol is the version of what the two ends say to each other.
const protocol = 1

// pollFor is how long a request for work waits for some.
const pollFor = 20 * time.Second

// defaultLease is how long a worker that is not heard of keeps its run.
const defaultLease = 30 * time.Second

// Campaign is the first answer to a worker.
type Campaign struct {
	Protocol int    `json:"protocol"`
	Trommel  string `json:"trommel"` // its build, which the worker's must be
	// Lease is how long a worker keeps a run without saying that it is at it.
	Lease time.Duration `json:"lease"`
	// Bundle is the digest of the bundle, which is a blob.
	Bundle string `json:"bundle"`
}

// Job is a run that a worker makes.
type Job struct {
	Lease   string `json:"lease"`
	Attempt int    `json:"attempt"` // from 1
	Name    string `json:"name"`    // of the plan
	Plan    []byte `json:"plan"`    // YAML
	File    string `json:"file,omitempty"`
	// The options of the run; the baseline is a blob, by its digest.
	Trace     bool               `json:"trace,omitempty"`
	FindTypes bool               `json:"findTypes,omitempty"`
	Brief     bool               `json:"brief,omitempty"`
	History   []plan.ResourceKey `json:"history,omitempty"`
	Baseline  string             `json:"baseline,omitempty"`
	Shift     time.Duration      `json:"shift,omitempty"`
	Polls     []record.Poll      `json:"polls,omitempty"`
}

// Result is what became of a run.
type Result struct {
	// Error says why the run could not be made; empty: it was. User: the plan or the suite is wrong.
	Error string `json:"error,omitempty"`
	User  bool   `json:"user,omitempty"`
	// Record is the digest of the compressed record; empty: there is none.
	Record string `json:"record,omitempty"`
	// Left are parts of the record that were left out.
	Left []string `json:"left,omitempty"`

	file string // where the campaign has the record
}

// wholeReference is a baseline with what its own file does not have.
type wholeBaseline struct {
	*baseline.Baseline
	Kept  []baseline.Kept `json:"kept,omitempty"`
	Tried []string        `json:"tried,omitempty"`
}

func encodeReference(ref *baseline.Baseline) ([]byte, error) {
	return json.Marshal(wholeBaseline{ref, ref.Kept, ref.Tried})
}

func decodeReference(data []byte) (*baseline.Baseline, error) {
	w := wholeBaseline{Baseline: &baseline.Baseline{}}
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, err
	}
	w.Baseline.Kept, w.Baseline.Tried = w.Kept, w.Tried
	return w.Baseline, nil
}
