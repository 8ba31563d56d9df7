package display

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/report/colour"
)

// state is what happens now, as the events tell it. Its zero value is empty.
type state struct {
	builds []progress.Event  // the newest of each target
	status progress.Event    // of a campaign
	notes  map[string]string // what the next run of a plan is for, or the one that goes on
	lanes  []*liveRun        // runs that have not ended, oldest first; one without a name is the session
}

// liveRun is a run that goes on.
type liveRun struct {
	run, plan string
	aside     bool
	phase     string
	since     time.Time // of the phase
	step      string
	actions   int
	fired     int
	done      int
	next      progress.Event
	holds     []progress.Event
	waiting   string
}

// plan returns the name of a run's plan, or nothing if the run has ended.
func (s *state) plan(run string) string {
	if i := slices.IndexFunc(s.lanes, func(l *liveRun) bool { return l.run == run }); i >= 0 {
		return s.lanes[i].plan
	}
	return ""
}

// take takes an event in.
func (s *state) take(e progress.Event) {
	switch e.Type {
	case progress.Title:
		*s = state{}
		return
	case progress.Build:
		i := slices.IndexFunc(s.builds, func(have progress.Event) bool { return have.Target == e.Target })
		if i < 0 {
			s.builds = append(s.builds, e)
		} else {
			s.builds[i] = e
		}
		return
	case progress.Built:
		s.builds = nil
		s.end(e.Run)
		return
	case progress.Status:
		if e.Plan == "" {
			s.status = e
			return
		}
		if s.notes == nil {
			s.notes = map[string]string{}
		}
		s.notes[e.Plan] = e.Text
		return
	case progress.Ended:
		s.end(e.Run)
		return
	case progress.PlanDone, progress.Info, progress.Finding:
		return
	}
	if e.Type == progress.Failed && e.Action == nil {
		return
	}
	s.lane(e).take(e)
}

// end removes a run.
func (s *state) end(run string) {
	delete(s.notes, s.plan(run))
	s.lanes = slices.DeleteFunc(s.lanes, func(l *liveRun) bool { return l.run == run })
}

// lane returns the lane of the event's run.
func (s *state) lane(e progress.Event) *liveRun {
	for _, l := range s.lanes {
		if l.run == e.Run {
			return l
		}
	}
	l := &liveRun{run: e.Run, aside: e.Aside, since: e.Time}
	s.lanes = append(s.lanes, l)
	return l
}

func (l *liveRun) take(e progress.Event) {
	switch e.Type {
	case progress.Held, progress.Released, progress.Fired, progress.Done, progress.Failed, progress.Next:
		l.waiting = "" // something has happened
	}
	switch e.Type {
	case progress.Started:
		l.plan, l.actions = e.Plan, e.Actions
	case progress.Phase:
		l.phase, l.since, l.step = e.Text, e.Time, ""
	case progress.Step:
		l.step = fmt.Sprintf("step %d of %d: %s", e.Step.Number, e.Step.Of, e.Text)
	case progress.Fired:
		l.fired++
	case progress.Done, progress.Failed:
		l.done++
	case progress.Next:
		l.next = e
	case progress.Held:
		i := slices.IndexFunc(l.holds, func(h progress.Event) bool { return h.Hold.ID == e.Hold.ID })
		if i < 0 {
			l.holds = append(l.holds, e)
			return
		}
		since := l.holds[i].Time
		l.holds[i] = e
		l.holds[i].Time = since
	case progress.Released:
		l.holds = slices.DeleteFunc(l.holds, func(h progress.Event) bool { return h.Hold.ID == e.Hold.ID })
	case progress.Waiting:
		l.waiting = e.Text
	}
}

// These bounds keep the display small.
const (
	mostHolds = 4 // of one run
	mostRows  = 4 // of what one thing says
)

// lines is the display for a terminal of this size: every line is narrower than it, and all lines are less than its
// rows.
func (s *state) lines(now time.Time, width, height int, p colour.Painter) []string {
	var all []string
	add := func(format string, args ...any) {
		all = append(all, ansi.Truncate(fmt.Sprintf(format, args...), width-1, "…"))
	}
	// wrap adds a text in several rows; what does not fit is left out.
	wrap := func(indent, text string, most int) {
		rows := strings.Split(ansi.Wordwrap(text, max(1, width-3-len(indent)), ""), "\n")
		if len(rows) > most {
			rows[most-1] += " " + strings.Join(rows[most:], " ")
		}
		for i, row := range rows[:min(len(rows), most)] {
			if i == 1 {
				indent += "  "
			}
			add("%s%s", indent, row)
		}
	}
	if s.status.Text != "" {
		text := s.status.Text
		if c := s.status.Campaign; c != nil {
			// The lanes say which plans are running.
			text, _, _ = strings.Cut(text, ";")
			text = fmt.Sprintf("%s %s", gauge(c.Done, c.Of), text)
		}
		add("%s", text)
	}
	for _, l := range s.lanes {
		if l.aside {
			add("  %s  %s%s", p.Bold(cmp.Or(l.plan, "…")), l.short(now, p), dotted(s.notes[l.plan]))
			continue
		}
		add("%s %s%s", p.Bold(l.phase), p.Dim(ago(now, l.since)), dotted(l.step))
		if l.actions > 0 && l.plan != "" {
			wrap("  ", l.progress(p), mostRows)
		}
		for i, h := range l.holds {
			if i == mostHolds && len(l.holds) > mostHolds+1 {
				add("  %s", p.Yellow(fmt.Sprintf("and %d more are held", len(l.holds)-i)))
				break
			}
			wrap("  ", p.Yellow("held "+ago(now, h.Time)+" "+h.Hold.By)+" "+h.Hold.At+" "+h.Hold.What+": "+h.Hold.Why,
				mostRows)
		}
		if l.waiting != "" {
			wrap("  ", "waiting: "+l.waiting, mostRows)
		}
	}
	for _, e := range s.builds {
		add("  %s: %s", e.Target, e.Text)
	}
	if most := max(0, height-1); most == 0 {
		all = nil
	} else if len(all) > most {
		hidden := len(all) - most + 1
		all = append(all[:most-1], ansi.Truncate(p.Dim(fmt.Sprintf("  … and %d more lines", hidden)), width-1, ""))
	}
	return all
}

// short is a run in one line.
func (l *liveRun) short(now time.Time, p colour.Painter) string {
	text := l.phase + " " + p.Dim(ago(now, l.since)) + dotted(l.step)
	if l.actions > 0 {
		text += fmt.Sprintf(" · actions %d/%d", l.done, l.actions)
	}
	if n := len(l.holds); n > 0 {
		h := l.holds[0]
		text += p.Yellow(fmt.Sprintf(" · held %s %s %s", ago(now, h.Time), h.Hold.By, h.Hold.What))
		if n > 1 {
			text += p.Yellow(fmt.Sprintf(" and %d more", n-1))
		}
	}
	return text
}

// progress is what the plan has done and what it waits for.
func (l *liveRun) progress(p colour.Painter) string {
	text := fmt.Sprintf("%d of %d actions done", l.done, l.actions)
	if n := l.fired - l.done; n > 0 {
		text += fmt.Sprintf(", %d running", n)
	}
	if l.next.Action != nil {
		text += fmt.Sprintf("; %s comes %s", p.Cyan(fmt.Sprintf("action %d", l.next.Action.Number)), l.next.Text)
	}
	return text
}

func dotted(text string) string {
	if text == "" {
		return ""
	}
	return " · " + text
}

// ago is the time since then.
func ago(now, since time.Time) string {
	d := max(0, now.Sub(since))
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
}

// gauge shows how much of something is done.
func gauge(done, of int) string {
	const width = 20
	n := 0
	if of > 0 {
		n = width * done / of
	}
	return "[" + strings.Repeat("=", n) + strings.Repeat(" ", width-n) + "]"
}
