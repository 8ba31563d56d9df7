// Package display shows people and programs what Trommel does while it does it, from the events of package progress.
package display

import (
	_ "embed" // the JSON Schema
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/report/colour"
)

// EventJSONSchema is the JSON Schema of the events that a Console writes.
//
//go:embed events.schema.json
var EventJSONSchema []byte

// Options say how much a Console shows. The zero value shows what most people want.
type Options struct {
	// Quiet shows nothing but why a run could not be carried out.
	Quiet bool
	// Verbose shows every event in a line of its own, also those of the runs of a campaign.
	Verbose bool
	// Events receives each event as JSON, one in a line; see EventJSONSchema. Nil: none.
	Events io.Writer
}

// Console shows people what Trommel does. On a terminal, one display that is updated in place says what happens now,
// and only what stays true is printed above it. Elsewhere each event is a line with the time since the title. It is
// safe for concurrent use.
//
// On a terminal whatever else writes there must write through the Console ([Console.Writer]) or while nothing is
// displayed ([Console.Pause]).
type Console struct {
	options Options
	w       io.Writer
	paint   colour.Painter
	events  *json.Encoder // of options.Events

	mu      sync.Mutex // guards what follows, and writing
	start   time.Time
	told    map[string]bool      // lines that are printed once for each title
	builds  map[string]time.Time // when a line about what is built was last printed, by target
	encoded map[string]time.Time // when a build event was last encoded, by target
	now     state
	partial string  // line that was written to Writer, without its end
	over    bool    // Close was called
	screen  *screen // nil: not a terminal
	ticker  *time.Ticker
	closed  chan struct{}
	ticking sync.WaitGroup
}

const (
	// plainBuildEvery is how often the progress of a build is printed where lines cannot be overwritten: seldom enough
	// for the log of a CI system, and often enough that it does not look hung.
	plainBuildEvery = 30 * time.Second
	// asideBuildAfter is how long a build of a campaign is not worth a line.
	asideBuildAfter = 5 * time.Second
	// encodedBuildEvery is how often it is an event for programs.
	encodedBuildEvery = time.Second
	// redrawEvery is how often the display is updated. Events do not redraw it: it stays calm.
	redrawEvery = 200 * time.Millisecond
)

// NewConsole returns a console that writes to w: a display if w is a terminal, in colours unless NO_COLOR is set. The
// caller closes it.
func NewConsole(w io.Writer, o Options) *Console {
	c := &Console{options: o, w: w, paint: colour.For(w), start: time.Now(), told: map[string]bool{},
		builds: map[string]time.Time{}, encoded: map[string]time.Time{}, closed: make(chan struct{})}
	if o.Events != nil {
		c.events = json.NewEncoder(o.Events)
		c.events.SetEscapeHTML(false)
	}
	if f, ok := w.(*os.File); ok && !o.Quiet && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd())) {
		c.screen = newScreen(f)
		c.ticker = time.NewTicker(redrawEvery)
		c.ticking.Go(c.tick)
	}
	return c
}

// tick updates the display until the console is closed.
func (c *Console) tick() {
	for {
		select {
		case <-c.ticker.C:
			c.mu.Lock()
			c.redraw("")
			c.mu.Unlock()
		case <-c.closed:
			return
		}
	}
}

// redraw prints lines above the display, and the display as it is now. The caller holds the lock.
func (c *Console) redraw(above string) {
	width, height := c.screen.size()
	c.screen.draw(above, c.now.lines(time.Now(), width, height, c.paint))
}

// Close removes the display and stops updating it. Later events are printed in lines. Further calls do nothing.
func (c *Console) Close() {
	c.mu.Lock()
	screen, before := c.screen, c.over
	c.screen, c.over = nil, true
	if screen != nil {
		screen.draw("", nil)
		c.ticker.Stop()
		close(c.closed)
	}
	if c.partial != "" && !before {
		_ = c.print(c.partial)
	}
	c.partial = ""
	c.mu.Unlock()
	c.ticking.Wait()
}

// Pause removes the display, calls f, which may write to the terminal, and shows the display again.
func (c *Console) Pause(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.screen != nil {
		c.screen.draw("", nil)
	}
	f()
}

// Writer returns a writer to the same place that does not tear the display. Until Close, the beginning of a line waits
// for its end; a question is asked afterwards. For programs each line is an event.
func (c *Console) Writer() io.Writer { return consoleWriter{c} }

type consoleWriter struct{ c *Console }

func (w consoleWriter) Write(text []byte) (int, error) {
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.partial += string(text)
	end := strings.LastIndexByte(c.partial, '\n') + 1
	for line := range strings.Lines(c.partial[:end]) {
		c.encode(progress.Event{Time: time.Now(), Type: progress.Log, Text: strings.TrimRight(line, "\n")})
	}
	whole := c.partial[:end]
	c.partial = c.partial[end:]
	if c.over {
		return len(text), c.print(string(text))
	}
	if whole == "" {
		return len(text), nil
	}
	return len(text), c.print(whole)
}

// print prints whole lines. The caller holds the lock.
func (c *Console) print(text string) error {
	if c.screen != nil {
		c.redraw(text)
		return nil
	}
	_, err := io.WriteString(c.w, text)
	return err
}

// line prints a line with the time at which it happened; further lines of the text are indented more. The caller holds
// the lock.
func (c *Console) line(at time.Time, text string) {
	elapsed := fmt.Sprintf("%7.1fs  ", at.Sub(c.start).Seconds())
	text = strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+strings.Repeat(" ", len(elapsed)+4))
	_ = c.print(c.paint.Dim(elapsed) + text + "\n")
}

// Title begins something, such as a run, and resets the clock.
func (c *Console) Title(text string) { c.Show(progress.Event{Type: progress.Title, Text: text}) }

// Info reports something that people should read.
func (c *Console) Info(text string) { c.Show(progress.Event{Type: progress.Info, Text: text}) }

// Failed reports why a run could not be carried out.
func (c *Console) Failed(err error) { c.Show(progress.Event{Type: progress.Failed, Text: err.Error()}) }

// Build reports the progress of a build.
func (c *Console) Build(target, text string) {
	c.Show(progress.Event{Type: progress.Build, Target: target, Text: text})
}

// Built ends the progress of all builds.
func (c *Console) Built() { c.Show(progress.Event{Type: progress.Built}) }

// Show shows an event; one without a time happens now. It implements progress.Listener.
func (c *Console) Show(e progress.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	c.encode(e)
	c.now.take(e)
	if e.Type == progress.Title {
		c.start = e.Time
		clear(c.told)
		if !c.options.Quiet {
			_ = c.print(c.paint.Bold(e.Text) + "\n")
		}
		return
	}
	if text := line(c.paint, e); text != "" && c.shown(e, text) {
		if e.Aside && e.Plan == "" && c.now.plan(e.Run) != "" {
			text = c.paint.Dim(c.now.plan(e.Run)+":") + " " + strings.TrimLeft(text, " ")
		}
		c.line(e.Time, text)
	}
}

// encode writes the event for programs. The caller holds the lock.
func (c *Console) encode(e progress.Event) {
	if c.events == nil {
		return
	}
	if e.Type == progress.Build {
		if e.Time.Sub(c.encoded[e.Target]) < encodedBuildEvery {
			return
		}
		c.encoded[e.Target] = e.Time
	}
	// A reader that has gone must not end a run.
	_ = c.events.Encode(e)
}

// shown reports whether an event is printed. The caller holds the lock.
func (c *Console) shown(e progress.Event, text string) bool {
	failed := e.Type == progress.Failed && e.Action == nil
	if c.options.Quiet {
		return failed
	}
	if e.Aside && !c.options.Verbose && e.Type != progress.Build {
		return false // what it finds is in what the campaign says
	}
	switch e.Type {
	case progress.Held:
		// The same call may be held again and again.
		again := c.told[e.Run+text]
		c.told[e.Run+text] = true
		return !again && (c.screen == nil || c.options.Verbose)
	case progress.Build:
		last, began := c.builds[e.Target]
		if e.Aside && !began {
			// What a campaign has built before takes no time.
			c.builds[e.Target] = e.Time.Add(asideBuildAfter - plainBuildEvery)
			return false
		}
		if c.screen != nil || e.Time.Sub(last) < plainBuildEvery {
			return false
		}
		c.builds[e.Target] = e.Time
		return true
	case progress.Status:
		return c.screen == nil && e.Campaign == nil // what a campaign has done, its plans say
	case progress.PlanDone:
		return c.screen == nil || c.options.Verbose || notable(e)
	case progress.Phase, progress.Step, progress.Fired, progress.Done, progress.Waiting:
		// The display has them.
		return c.screen == nil || c.options.Verbose
	case progress.Next, progress.Released, progress.Started, progress.Ended, progress.Built:
		return c.options.Verbose
	}
	return true
}

// notable reports whether what became of a plan of a campaign is printed beside the display.
func notable(e progress.Event) bool { return e.Verdict != "pass" && e.Verdict != "inconclusive" }
