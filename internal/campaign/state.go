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
	Settings Settings      `json:"settings"`
	Outcomes []*Outcome    `json:"outcomes"`
	Spent    time.Duration `json:"nanoseconds"` // how long the campaign has taken
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
func readNewest(file string) (all []*Outcome, err error) {
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
		o := &Outcome{}
		if err := json.Unmarshal(line, o); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all, data = append(all, o), rest
	}
}

// resume takes what the directory's campaign has found, and writes the first state, so that it can be resumed from now
// on.
func (c *campaign) resume() error {
	s, err := ReadState(c.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		c.spent = s.Spent
		maps.Copy(c.faultless, s.Faultless)
		for _, o := range s.Outcomes {
			if o.Status != Failed {
				c.done[o.Plan] = o
			}
		}
	}
	if err := os.MkdirAll(c.Dir, record.DirMode); err != nil {
		return err
	}
	return c.keep()
}

// forgetOthers forgets outcomes of plans that are not those of the tasks: something has changed since.
func (c *campaign) forgetOthers() {
	keys := map[string]string{}
	for _, t := range c.tasks {
		keys[t.plan.TestName] = t.key
	}
	before := len(c.done)
	for name, o := range c.done {
		if keys[name] != o.Key {
			delete(c.done, name)
		}
	}
	if n := before - len(c.done); n > 0 {
		c.say("%d plans are run again, because something has changed since", n)
	}
	if len(c.done) > 0 {
		c.say("%d of %d plans were run before", len(c.done), len(c.tasks))
	}
}

// takeUp lets the plans be confirmed that a campaign before has left.
func (c *campaign) takeUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.tasks {
		o := c.done[t.plan.TestName]
		if o == nil || !o.Pending {
			continue
		}
		delete(c.done, o.Plan)
		r, err := record.Open(o.Record)
		number, noNumber := strconv.Atoi(filepath.Base(o.Record))
		if err != nil || noNumber != nil || len(o.Findings) == 0 {
			continue // it is run as if it had not been
		}
		known := *o
		known.Findings = slices.Clone(o.Findings)
		t.before = o
		c.numbers[o.Plan], c.lasted[o.Plan] = number, r.Meta.Took()
		c.putOffUntil(t, &known, &r.Meta)
	}
	if n := len(c.putOff); n > 0 {
		c.say("%s to confirm, for which the budget was too short", wording.Count(n, "plan"))
	}
}

// outcome is what became of a task's plan, as far as the campaign knows; nil: it was not run. The caller holds the
// lock.
func (c *campaign) outcome(t *task) *Outcome {
	if o := c.done[t.plan.TestName]; o != nil {
		return o
	}
	return t.before
}

// keepOutcome keeps what became of a plan. The more plans there were, the longer takes it to write the state: if that
// would take more than its share of the time, the outcome is only appended to a file. The caller holds the lock.
func (c *campaign) keepOutcome(o *Outcome) error {
	if c.keeping < quickly || time.Since(c.kept) >= keepShare*c.keeping {
		return c.keep()
	}
	line, err := json.Marshal(o)
	if err == nil {
		var f *os.File
		f, err = os.OpenFile(filepath.Join(c.Dir, newestFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, record.FileMode)
		if err == nil {
			_, err = f.Write(append(line, '\n'))
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("keep the state of the campaign: %w", err)
	}
	c.appended = true
	return nil
}

// keepRest writes the state if it is not up to date.
func (c *campaign) keepRest() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.appended {
		return nil
	}
	return c.keep()
}

// keep writes the state. The file is replaced as a whole.
func (c *campaign) keep() error {
	began := time.Now()
	s := State{Settings: c.Settings, Outcomes: []*Outcome{}, Spent: c.elapsed(), Faultless: c.faultless}
	var err error
	if s.WorkDir, err = os.Getwd(); err != nil {
		return err
	}
	if c.tasks == nil {
		for _, name := range slices.Sorted(maps.Keys(c.done)) { // those of a campaign that is resumed
			s.Outcomes = append(s.Outcomes, c.done[name])
		}
	}
	for _, t := range c.tasks {
		if o := c.outcome(t); o != nil {
			s.Outcomes = append(s.Outcomes, o)
		}
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = atomicfile.Write(filepath.Join(c.Dir, StateFile), data, record.FileMode)
	}
	if err != nil {
		return fmt.Errorf("keep the state of the campaign: %w", err)
	}
	// What an earlier campaign has appended is in the state, too.
	if err := os.Remove(filepath.Join(c.Dir, newestFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keep the state of the campaign: %w", err)
	}
	c.kept, c.keeping, c.appended = time.Now(), time.Since(began), false
	return nil
}

// next is how many plans that were not run a result describes.
const next = 5

// finish completes the result. The error is what kept the campaign from going on.
func (c *campaign) finish(err error) *Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.result
	pending := false
	for _, t := range c.tasks {
		if o := c.outcome(t); o != nil {
			r.Outcomes = append(r.Outcomes, *o)
			pending = pending || o.Pending
		} else {
			if len(r.NotRun) < next {
				r.Next = append(r.Next, result.Unrun{
					Plan: t.plan.TestName, File: t.file, Workload: t.learned.Workload, Pattern: t.pattern, Why: t.why,
				})
			}
			r.NotRun = append(r.NotRun, t.plan.TestName)
		}
	}
	if len(r.NotRun) > 0 || len(r.Unstudied) > 0 || pending {
		words := []string{"trommel", "test", "--resume", c.Dir}
		if c.Budget > 0 {
			words = append(words, "--budget", plan.FormatDuration(c.given()))
		}
		r.GoOn = result.Command(words)
	}
	for _, workload := range slices.Sorted(maps.Keys(c.faultless)) {
		if counts := c.faultless[workload]; counts.Failed > 0 && counts.learned != nil {
			r.Unlearned = append(r.Unlearned, result.Unlearned{
				Workload: counts.learned.Workload, Reason: counts.String(),
			})
		}
	}
	r.Stopped, r.Took = c.stopped, c.elapsed()
	if err != nil && r.Stopped == "" {
		r.Stopped = err.Error()
	}
	return r
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
