package campaign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/atomicfile"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/campaign/schedule"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// StateFile is the file in a campaign's directory from which it can be resumed.
const StateFile = "campaign.json"

// newestFile is beside the state and has outcomes that are newer, one a line, if there are so many that the state is
// not written after each plan.
const newestFile = "campaign-newest.jsonl"

// keepShare is the part of the time that a campaign may spend on writing its state.
const keepShare = 20

// quickly is how long writing the state may take in any case.
const quickly = time.Millisecond

// State is what a campaign keeps after each plan.
type State struct {
	Settings result.Settings   `json:"settings"`
	Outcomes []*result.Outcome `json:"outcomes"`
	Spent    time.Duration     `json:"nanoseconds"` // how long the campaign has taken
	// Faultless are the runs of workloads without faults, by workload.
	Faultless map[string]*Faultless `json:"faultless,omitempty"`
	// WorkDir is the directory that relative paths begin at.
	WorkDir string `json:"workDir"`
}

// ReadState reads the state of the campaign in a directory. The error is fs.ErrNotExist if there is none.
func ReadState(dir string) (*State, error) {
	file := filepath.Join(dir, StateFile)
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &State{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	newest, err := readNewest(filepath.Join(dir, newestFile))
	if err != nil {
		return nil, err
	}
	at := map[string]int{}
	for i, o := range s.Outcomes {
		at[o.Plan] = i
	}
	for _, o := range newest {
		if i, known := at[o.Plan]; known {
			s.Outcomes[i] = o
			continue
		}
		at[o.Plan] = len(s.Outcomes)
		s.Outcomes = append(s.Outcomes, o)
	}
	return s, nil
}

// readNewest reads outcomes, one a line. A last line that is not whole, as a campaign leaves that was killed, is left
// out. A file that does not exist has none.
func readNewest(file string) (all []*result.Outcome, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			return all, nil
		}
		o := &result.Outcome{}
		if err := json.Unmarshal(line, o); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all, data = append(all, o), rest
	}
}

// store keeps the state of a campaign in its directory. The campaign writes it after each plan.
type store struct {
	dir      string
	settings result.Settings
	keeping  time.Duration // how long it took to write the state
	kept     time.Time     // when that was
	appended bool          // some outcomes are only in the file of newer ones
}

// keep writes the state. The file is replaced as a whole.
func (s *store) keep(state State) error {
	began := time.Now()
	state.Settings = s.settings
	var err error
	if state.WorkDir, err = os.Getwd(); err != nil {
		return err
	}
	data, err := json.MarshalIndent(state, "", "  ")
	if err == nil {
		err = atomicfile.Write(filepath.Join(s.dir, StateFile), data, record.FileMode)
	}
	if err != nil {
		return fmt.Errorf("keep the state of the campaign: %w", err)
	}
	// What an earlier campaign has appended is in the state, too.
	if err := os.Remove(filepath.Join(s.dir, newestFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep the state of the campaign: %w", err)
	}
	s.kept, s.keeping, s.appended = time.Now(), time.Since(began), false
	return nil
}

// due reports whether the whole state is written now. The more plans there were, the longer that takes. If it would
// take more than its share of the time, outcomes are only appended to a file.
func (s *store) due() bool { return s.keeping < quickly || time.Since(s.kept) >= keepShare*s.keeping }

// add appends an outcome to the file of newer ones.
func (s *store) add(o *result.Outcome) error {
	line, err := json.Marshal(o)
	if err == nil {
		var f *os.File
		f, err = os.OpenFile(filepath.Join(s.dir, newestFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, record.FileMode)
		if err == nil {
			_, err = f.Write(append(line, '\n'))
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("keep the state of the campaign: %w", err)
	}
	s.appended = true
	return nil
}

// goOn is the command that goes on with the campaign, with the same budget again.
func (s *store) goOn(budget time.Duration) string {
	words := []string{"trommel", "test", "--resume", s.dir}
	if s.settings.Budget > 0 {
		words = append(words, "--budget", plan.FormatDuration(budget))
	}
	return result.Command(words)
}

// resume takes in what an earlier session of the campaign has found, and writes the first state, so that the campaign
// can be resumed from now on.
func (q *queue) resume() error {
	s, err := ReadState(q.store.dir)
	if errors.Is(err, fs.ErrNotExist) {
		s, err = &State{}, nil
	}
	if err != nil {
		return err
	}
	q.clock.Resume(s.Spent)
	q.mu.Lock()
	q.schedule.Resume(q.clock.Before(), s.Outcomes)
	maps.Copy(q.faultless, s.Faultless)
	q.mu.Unlock()
	if err := os.MkdirAll(q.store.dir, record.DirMode); err != nil {
		return err
	}
	return q.keep()
}

// takeUp lets the plans be confirmed that an earlier session has left. number takes in how many runs each of them had.
// The caller holds the lock.
func (q *queue) takeUp(claimed schedule.Claimed, number func(plan string, runs int)) {
	n := 0
	for i, p := range claimed.Pending {
		o := claimed.Outcomes[i]
		r, err := record.Open(o.Record)
		runs, noNumber := strconv.Atoi(filepath.Base(o.Record))
		if err != nil || noNumber != nil || len(o.Findings) == 0 {
			continue // it is run as if it had not been
		}
		known := *o
		known.Findings = slices.Clone(o.Findings)
		p.Before, q.tasks[p].first = o, &r.Meta
		number(o.Plan, runs)
		q.schedule.Ran(o.Plan, r.Meta.Took())
		q.schedule.PutOff(p, &known)
		n++
	}
	if n > 0 {
		q.Say("%s to confirm, for which the budget was too short", wording.Count(n, "plan"))
	}
}

// keepOutcome keeps what became of a plan. The caller holds the lock.
func (q *queue) keepOutcome(o *result.Outcome) error {
	if q.store.due() {
		return q.keepAll()
	}
	return q.store.add(o)
}

// keepRest writes the state if it is not up to date.
func (q *queue) keepRest() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.store.appended {
		return nil
	}
	return q.keepAll()
}

// keep writes the state.
func (q *queue) keep() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.keepAll()
}

// change changes outcomes that have ended, and keeps them.
func (q *queue) change(what func()) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	what()
	return q.keepAll()
}

// keepAll is keep. The caller holds the lock.
func (q *queue) keepAll() error {
	return q.store.keep(State{
		Outcomes: q.schedule.Outcomes(), Spent: q.clock.Elapsed(), Faultless: q.faultless,
	})
}

// points names what is compiled into a controller and can be observed, each once, as baseline.Reached does.
func points(m *wire.Manifest) []string {
	var all []string
	seen := map[string]bool{}
	for _, p := range m.Points {
		name := facts.PointName(p.Point, p.Name)
		if p.Point != wire.APIServerRecv && !seen[name] {
			seen[name] = true
			all = append(all, name)
		}
	}
	return all
}
