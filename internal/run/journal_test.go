package run

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
func heard() (*console, *[]string) {
	var all []string
	return newConsole(progress.Func(func(e progress.Event) {
		all = append(all, string(e.Type)+" "+e.Text)
	}), ""), &all
}

func TestJournal(t *testing.T) {
	console, told := heard()
	j := &journal{console: console}
	j.enter("workload")
	j.step(1, 2, record.Step{Text: "apply"})
	j.note("slow")
	j.add(record.Finding{Severity: record.SeverityBug, Title: "broken"},
		record.Finding{Severity: record.SeverityNote, Title: "odd"})
	j.enter("judges")
	j.trouble(errors.New("no log\nat all"))
	j.enter("")
	if want := []string{
		"phase workload", "step apply", "info slow", "finding broken", "info odd", "phase judges", "finding no log",
	}; !slices.Equal(*told, want) {
		t.Errorf("told %q, want %q", *told, want)
	}
	var phases []string
	for _, p := range j.meta.Phases {
		phases = append(phases, p.Name)
	}
	if want := []string{"workload", "judges"}; !slices.Equal(phases, want) {
		t.Errorf("phases %q, want %q", phases, want)
	}
	if want := []string{"slow", "odd"}; !slices.Equal(j.meta.Notes, want) || len(j.meta.Steps) != 1 {
		t.Errorf("notes %q, %d steps", j.meta.Notes, len(j.meta.Steps))
	}
	if last := j.findings[len(j.findings)-1]; len(j.findings) != 3 || last.Severity != record.SeverityInconclusive ||
		last.Detail != "at all" {
		t.Errorf("findings %+v", j.findings)
	}
	if j.judged() {
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
		j := &journal{console: console, began: time.Now()}
		j.goBy(c)
		keep(1234*time.Millisecond, "a command ran")
		keep(worthANote-1, "nobody could notice it")
		j.end()
		if want := []string{"time was real for 1.23s, while a command ran"}; !slices.Equal(j.meta.Notes, want) {
			t.Errorf("notes %q, want %q", j.meta.Notes, want)
		}
	})
}

// Nothing in a record is of another clock than the rest, although the run begins before it has the cluster's clock.
func TestJournalOfAClockThatIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		console, _ := heard()
		began := time.Now()
		j := &journal{console: console, began: began, meta: record.Meta{Started: began}}
		j.enter("cluster")
		time.Sleep(2 * time.Second)
		c := clock.New()
		c.Advance(24 * time.Hour) // in earlier runs
		j.goBy(c)
		time.Sleep(time.Second)
		j.enter("workload")
		c.Advance(time.Hour)
		j.trouble(errors.New("no log"))
		j.enter("")
		j.end()
		if got, want := j.meta.Phases, []record.Phase{
			{Name: "cluster", Duration: 3 * time.Second}, {Name: "workload", Duration: time.Hour},
		}; !slices.Equal(got, want) {
			t.Errorf("phases %v, want %v", got, want)
		}
		if m := j.meta; !m.Started.Equal(began.Add(24*time.Hour)) || m.Ended.Sub(m.Started) != time.Hour+3*time.Second {
			t.Errorf("from %s to %s", m.Started, m.Ended)
		}
		if at := j.findings[0].Time; !at.Equal(j.meta.Ended) {
			t.Errorf("found at %s", at)
		}
		if m := j.meta.Clock; m == nil || !m.Virtual || m.Took != 3*time.Second {
			t.Errorf("the clock: %+v", m)
		}
	})
	console, _ := heard()
	j := &journal{console: console}
	j.goBy(nil)
	if j.end(); j.meta.Clock != nil {
		t.Errorf("the machine's clock: %+v", j.meta.Clock)
	}
}
