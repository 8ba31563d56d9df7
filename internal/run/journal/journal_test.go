package journal

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/record"
)

// heard returns a console, and what it has received as "type text".
func heard() (*Console, *[]string) {
	var all []string
	return NewConsole(progress.Func(func(e progress.Event) {
		all = append(all, string(e.Type)+" "+e.Text)
	}), ""), &all
}

func TestJournal(t *testing.T) {
	console, told := heard()
	j := &Journal{Console: console}
	j.Enter("workload")
	j.Step(1, 2, record.Step{Text: "apply"})
	j.Note("slow")
	j.Add(record.Finding{Severity: record.SeverityBug, Title: "broken"},
		record.Finding{Severity: record.SeverityNote, Title: "odd"})
	j.Enter("judges")
	j.Trouble(errors.New("no log\nat all"))
	j.Enter("")
	if want := []string{
		"phase workload", "step apply", "info slow", "finding broken", "info odd", "phase judges", "finding no log",
	}; !slices.Equal(*told, want) {
		t.Errorf("told %q, want %q", *told, want)
	}
	var phases []string
	for _, p := range j.Meta.Phases {
		phases = append(phases, p.Name)
	}
	if want := []string{"workload", "judges"}; !slices.Equal(phases, want) {
		t.Errorf("phases %q, want %q", phases, want)
	}
	if want := []string{"slow", "odd"}; !slices.Equal(j.Meta.Notes, want) || len(j.Meta.Steps) != 1 {
		t.Errorf("notes %q, %d steps", j.Meta.Notes, len(j.Meta.Steps))
	}
	if last := j.Findings[len(j.Findings)-1]; len(j.Findings) != 3 || last.Severity != record.SeverityInconclusive ||
		last.Detail != "at all" {
		t.Errorf("findings %+v", j.Findings)
	}
	if j.Judged() {
		t.Error("judged without a verdict")
	}
}

// A run whose clock had to go as the machine's does for a while says why, and nothing of what earlier runs did.
func TestJournalOfAClockThatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		console, _ := heard()
		c := clock.New()
		keep := func(d time.Duration, why string) {
			release := c.HoldFor(why)
			time.Sleep(d)
			release(true)
		}
		keep(time.Hour, "an earlier run used it")
		keep(time.Hour, "a command ran")
		j := &Journal{Console: console, Began: time.Now()}
		j.GoBy(c)
		keep(1234*time.Millisecond, "a command ran")
		keep(worthANote-1, "nobody could notice it")
		j.End()
		if want := []string{"time was real for 1.23s, while a command ran"}; !slices.Equal(j.Meta.Notes, want) {
			t.Errorf("notes %q, want %q", j.Meta.Notes, want)
		}
	})
}

// Nothing in a record is of another clock than the rest, although the run begins before it has the cluster's clock.
func TestJournalOfAClockThatIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		console, _ := heard()
		began := time.Now()
		j := &Journal{Console: console, Began: began, Meta: record.Meta{Started: began}}
		j.Enter("cluster")
		time.Sleep(2 * time.Second)
		c := clock.New()
		c.Advance(24 * time.Hour) // in earlier runs
		j.GoBy(c)
		time.Sleep(time.Second)
		j.Enter("workload")
		c.Advance(time.Hour)
		j.Trouble(errors.New("no log"))
		j.Enter("")
		j.End()
		if got, want := j.Meta.Phases, []record.Phase{
			{Name: "cluster", Duration: 3 * time.Second}, {Name: "workload", Duration: time.Hour},
		}; !slices.Equal(got, want) {
			t.Errorf("phases %v, want %v", got, want)
		}
		if m := j.Meta; !m.Started.Equal(began.Add(24*time.Hour)) || m.Ended.Sub(m.Started) != time.Hour+3*time.Second {
			t.Errorf("from %s to %s", m.Started, m.Ended)
		}
		if at := j.Findings[0].Time; !at.Equal(j.Meta.Ended) {
			t.Errorf("found at %s", at)
		}
		if m := j.Meta.Clock; m == nil || !m.Virtual || m.Took != 3*time.Second {
			t.Errorf("the clock: %+v", m)
		}
	})
	console, _ := heard()
	j := &Journal{Console: console}
	j.GoBy(nil)
	if j.End(); j.Meta.Clock != nil {
		t.Errorf("the machine's clock: %+v", j.Meta.Clock)
	}
}
