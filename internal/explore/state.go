package explore

import (
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
	"github.com/trommel-dev/trommel/internal/reference"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// StateFile is the file in a campaign's directory from which it can be resumed.
const StateFile = "campaign.json"

// State is what a campaign keeps after each plan.
type State struct {
	Settings Settings      `json:"settings"`
	Outcomes []*Outcome    `json:"outcomes"`
	Spent    time.Duration `json:"nanoseconds"` // how long the campaign has taken
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
	return s, nil
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

// keep writes the state. The file is replaced as a whole.
func (c *campaign) keep() error {
	s := State{Settings: c.Settings, Outcomes: []*Outcome{}, Spent: c.elapsed()}
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
				r.Next = append(r.Next, Unrun{
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
		r.GoOn = quoted(words)
	}
	r.Stopped, r.Took = c.stopped, c.elapsed()
	if err != nil && r.Stopped == "" {
		r.Stopped = err.Error()
	}
	return r
}

// points names what is compiled into a controller and can be observed, each once, as reference.Reached does.
func points(m *wire.Manifest) []string {
	var all []string
	seen := map[string]bool{}
	for _, p := range m.Points {
		name := reference.PointName(p.Point, p.Name)
		if p.Point != wire.APIServerRecv && !seen[name] {
			seen[name] = true
			all = append(all, name)
		}
	}
	return all
}
