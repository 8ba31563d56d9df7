// Package report presents runs to users and to other programs.
package report

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// Console prints the progress of runs line by line, each with the time since the run's title. It is safe for concurrent
// use.
type Console struct {
	mu    sync.Mutex
	w     io.Writer
	paint painter
	start time.Time
	held  map[string]bool // messages about held observations that were printed
	// progress shows lines that the next line overwrites.
	progress *ProgressLine
}

// NewConsole writes to w, in colours if w is a terminal and NO_COLOR is not set.
func NewConsole(w io.Writer) *Console {
	return &Console{w: w, paint: newPainter(w), start: time.Now(), held: map[string]bool{},
		progress: NewProgressLine(w, "")}
}

// line writes a line; further lines of the text are indented more.
func (c *Console) line(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress.End()
	elapsed := c.elapsed()
	text = strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+strings.Repeat(" ", len(elapsed)+4))
	fmt.Fprintf(c.w, "%s%s\n", c.paint.dim(elapsed), text)
}

func (c *Console) elapsed() string { return fmt.Sprintf("%7.1fs  ", time.Since(c.start).Seconds()) }

// Title begins a run and resets the clock.
func (c *Console) Title(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start = time.Now()
	clear(c.held)
	fmt.Fprintln(c.w, c.paint.bold(text))
}

// Phase begins a phase of the run.
func (c *Console) Phase(name string) { c.line(c.paint.bold(name)) }

// Info reports progress within a phase.
func (c *Console) Info(text string) { c.line("  " + text) }

// Progress reports intermediate progress. On a terminal the next output overwrites it; elsewhere it is printed every
// few seconds.
func (c *Console) Progress(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress.Line(c.elapsed() + "  " + text)
}

// Step reports a step of many where Status shows nothing.
func (c *Console) Step(text string) {
	if !c.progress.terminal {
		c.Info(text)
	}
}

// Status shows how far something is, on a terminal: the next output overwrites it.
func (c *Console) Status(text string) {
	if c.progress.terminal {
		c.Progress(text)
	}
}

// Fired reports that an action's trigger is satisfied, and by what.
func (c *Console) Fired(index int, a *plan.Action, by string) {
	c.line(fmt.Sprintf("  %s %s", c.paint.cyan(record.ActionName(index, a.String())), "fired by "+by))
}

// Completed reports that an action was carried out, or failed.
func (c *Console) Completed(index int, a *plan.Action, err error) {
	name := record.ActionName(index, a.String())
	if err != nil {
		c.line(fmt.Sprintf("  %s %s: %v", c.paint.cyan(name), c.paint.red("failed"), err))
		return
	}
	c.line(fmt.Sprintf("  %s done", c.paint.cyan(name)))
}

// Held reports that a process is held at an observation. The same thing is reported once per run.
func (c *Console) Held(o *record.Observation, why string) {
	text := fmt.Sprintf("%s held %s %s: %s", o.By, describePoint(o), describeObject(o), why)
	c.mu.Lock()
	told := c.held[text]
	c.held[text] = true
	c.mu.Unlock()
	if !told {
		c.line("  " + c.paint.yellow(text))
	}
}

// Finding reports a finding.
func (c *Console) Finding(f record.Finding) {
	title := c.paint.red("found ") + f.Title
	if !f.IsBug() {
		title = c.paint.yellow("note ") + f.Title
	}
	c.line("  " + title)
}

// Failed reports why a run could not be carried out.
func (c *Console) Failed(err error) { c.line(c.paint.red("could not run: ") + err.Error()) }

func describePoint(o *record.Observation) string {
	return fmt.Sprintf("%s %s", o.Phase, o.Point)
}

func describeObject(o *record.Observation) string {
	kind := o.Kind
	if kind == "" {
		kind = o.Resource
	}
	switch {
	case o.CallName != "":
		return o.CallName
	case kind == "" && o.Request != "":
		return o.Request
	case kind == "":
		return string(o.Op)
	}
	return fmt.Sprintf("%s %s/%s/%s", o.Op, kind, o.Namespace, o.Name)
}

// painter colours text if it is true.
type painter bool

func newPainter(w io.Writer) painter {
	f, ok := w.(*os.File)
	return painter(ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd())))
}

func (p painter) code(code, text string) string {
	if !p {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p painter) bold(text string) string   { return p.code("1", text) }
func (p painter) dim(text string) string    { return p.code("2", text) }
func (p painter) red(text string) string    { return p.code("31", text) }
func (p painter) yellow(text string) string { return p.code("33", text) }
func (p painter) cyan(text string) string   { return p.code("36", text) }

// verdict colours a verdict.
func (p painter) verdict(v record.Verdict) string {
	switch v {
	case record.Pass:
		return p.code("1;32", string(v))
	case record.Bug:
		return p.code("1;31", string(v))
	}
	return p.code("1;33", string(v))
}
