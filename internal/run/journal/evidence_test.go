package journal

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// filed is a record, which may be full, and the recorder of a history, which may have failed.
type filed struct {
	history   []record.HistoryEntry
	processes []record.Process
	full      error
}

func (f *filed) Processes(all []record.Process) error {
	f.processes = all
	return f.full
}

type stopped struct{ err error }

func (s stopped) Stop(context.Context) ([]record.HistoryEntry, error) { return s.History(), s.err }
func (s stopped) History() []record.HistoryEntry {
	return []record.HistoryEntry{{Type: "pod"}, {Type: "secret"}}
}

func (f *filed) History(h record.HistoryEntry) error {
	f.history = append(f.history, h)
	return f.full
}

// What cannot be gathered is a finding each, and does not hide the rest.
func TestEvidence(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error // of everything
		want []string
	}{
		{name: "all is well"},
		{name: "nothing is well", err: errors.New("failed"), want: []string{
			"record history: failed", "failed", "failed", "failed\nfailed", `locks of controller "db": failed`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var told []string
			to := &filed{full: test.err}
			e := &Evidence{
				Needed: func(_ context.Context, all []record.HistoryEntry) ([]record.HistoryEntry, error) {
					return all[1:], test.err
				},
				ListProcesses: func(context.Context) ([]record.Process, error) {
					return []record.Process{{Pod: "db-0"}}, test.err
				},
				Locks: func(context.Context, string) ([]plan.ResourceKey, time.Duration, error) {
					return []plan.ResourceKey{{Type: "lease", Namespace: "a", Name: "db"}}, 15 * time.Second, test.err
				},
				Record: to, Trouble: func(err error) { told = append(told, err.Error()) },
			}
			states := e.History(t.Context(), stopped{test.err})
			processes := e.Processes(t.Context())
			controllers := []record.Controller{{Name: "db", Locks: []string{"old"}}}
			e.FillInLocks(t.Context(), controllers)
			if len(states) != 1 || len(to.history) != 1 || len(processes) != 1 || len(to.processes) != 1 ||
				!slices.Equal(controllers[0].Locks, []string{"lease/a/db"}) ||
				controllers[0].LeaseLasts != 15*time.Second {
				t.Errorf("%v, %v, %v", states, processes, controllers)
			}
			if !slices.Equal(told, test.want) {
				t.Errorf("told %q, want %q", told, test.want)
			}
		})
	}
}
