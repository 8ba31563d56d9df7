package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTook(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	end := begin.Add(time.Minute)
	for _, tt := range []struct {
		name         string
		meta         Meta
		took, lasted time.Duration
	}{
		{"real time", Meta{Started: begin, Ended: end}, time.Minute, time.Minute},
		{"its own time", Meta{Started: begin, Ended: end, Clock: &Clock{Virtual: true, Took: time.Second}}, time.Second,
			time.Minute},
		{"killed", Meta{Started: begin}, 0, 0},
	} {
		if took, lasted := tt.meta.Took(), tt.meta.Lasted(); took != tt.took || lasted != tt.lasted {
			t.Errorf("%s: it took %s and lasted %s", tt.name, took, lasted)
		}
	}
}

// Regression: a record can contain Secrets, but all users could read it.
func TestRecordIsClosedToOthers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", "one")
	w, err := Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	check(t, w.Plan([]byte("testName: one\n")))
	check(t, w.Findings(nil))
	check(t, w.Meta(Meta{}))
	log, err := CreateFile(w.LogFile("a.log"))
	if err != nil {
		t.Fatal(err)
	}
	check(t, log.Close())
	check(t, w.Close())
	files := 0
	err = filepath.WalkDir(filepath.Dir(dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(FileMode)
		if d.IsDir() {
			want = DirMode
		} else {
			files++
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s: %o, want %o", path, info.Mode().Perm(), want)
		}
		return nil
	})
	if err != nil || files != 7 {
		t.Errorf("%d files, %v", files, err)
	}
}

func TestWriteAndRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs", "one")
	w, err := Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	zero := 0
	want := &Run{
		Dir:   dir,
		Plan:  []byte("testName: one\n"),
		Suite: []byte("kind: Suite\n"),
		Meta: Meta{Plan: "one", Verdict: Bug, Started: now, Ended: now.Add(time.Second),
			Phases: []Phase{{"build", time.Second}}},
		Events: []Event{
			{Seq: 1, Time: now, Observation: &Observation{By: "apiserver-1", Object: json.RawMessage(`{"a":"<1>"}`)}},
			{Seq: 2, Time: now, Completed: &zero},
			{Seq: 3, Time: now, End: true},
		},
		Actions: []Action{{Index: 0, Type: "restartController", FiredBy: 1, Fired: now, Began: now, Done: now}},
		History: []HistoryEntry{{Time: now, ResourceVersion: 7, Event: Created, Type: "pod", Name: "a",
			Object: json.RawMessage(`{}`)}},
		Findings: []Finding{{Judge: JudgeCrash, Title: "it died", Time: now}},
	}
	for _, e := range want.Events {
		check(t, w.Event(e))
	}
	check(t, w.Action(want.Actions[0]))
	check(t, w.History(want.History[0]))
	check(t, w.Plan(want.Plan))
	check(t, w.Suite(want.Suite))
	check(t, w.Findings(nil))
	check(t, w.Findings(want.Findings))
	check(t, w.Meta(want.Meta))
	check(t, w.Close())
	got, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	// encoding/json escapes < and > for HTML; the value is the same.
	got.Events[0].Observation.Object = json.RawMessage(strings.NewReplacer(`\u003c`, "<", `\u003e`,
		">").Replace(string(got.Events[0].Observation.Object)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := Create(dir); err == nil || err.Error() != dir+" already holds a run record" {
		t.Errorf("got %v", err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestConcurrentLinesStayWhole(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir)
	check(t, err)
	var group sync.WaitGroup
	const writers, each = 8, 100
	for range writers {
		group.Go(func() {
			for n := range each {
				if err := w.Event(Event{Seq: n, Observation: &Observation{By: strings.Repeat("x", n*50)}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	// Not closed, but everything is written.
	r, err := Open(dir)
	check(t, err)
	if len(r.Events) != writers*each || !r.Truncated {
		t.Errorf("%d events, truncated %v", len(r.Events), r.Truncated)
	}
	check(t, w.Close())
}

func TestOpen(t *testing.T) {
	for _, test := range []struct {
		name      string
		files     map[string]string
		events    int
		truncated bool
		err       string
	}{
		{"no record", nil, 0, false, "DIR is not a run record: stat DIR/observations.jsonl: no such file or directory"},
		{"killed before the end", map[string]string{ObservationsFile: "{\"seq\":1}\n"}, 1, true, ""},
		{"killed within a line", map[string]string{ObservationsFile: "{\"seq\":1}\n{\"se"}, 1, true, ""},
		{"not JSON", map[string]string{ObservationsFile: "{\"seq\":1}\nx\n{\"seq\":3}\n"}, 0, false,
			"DIR/observations.jsonl:2: invalid character 'x' looking for beginning of value"},
		{"meta is not JSON", map[string]string{ObservationsFile: "", MetaFile: "x"}, 0, false,
			"DIR/meta.json: invalid character 'x' looking for beginning of value"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range test.files {
				check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
			r, err := Open(dir)
			if test.err != "" {
				if want := strings.ReplaceAll(test.err, "DIR", dir); err == nil || err.Error() != want {
					t.Errorf("got %v, want %s", err, want)
				}
				return
			}
			check(t, err)
			if len(r.Events) != test.events || r.Truncated != test.truncated {
				t.Errorf("got %d events, truncated %v", len(r.Events), r.Truncated)
			}
		})
	}
}

// A full disk is an error once and again at Close; in between the run goes on.
func TestFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("needs /dev/full")
	}
	w, err := Create(t.TempDir())
	check(t, err)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	check(t, err)
	check(t, w.events.file.Close())
	w.events.file = full
	if err := w.Event(Event{Seq: 1}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the first write: %v", err)
	}
	check(t, w.Action(Action{}))
	if err := w.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("close: %v", err)
	}
}

func TestFailureIsReportedOnce(t *testing.T) {
	w, err := Create(t.TempDir())
	check(t, err)
	check(t, w.events.file.Close())
	var failed []int
	for n := range 3 {
		if w.Event(Event{Seq: n}) != nil {
			failed = append(failed, n)
		}
	}
	if fmt.Sprint(failed) != "[0]" {
		t.Errorf("failed: %v", failed)
	}
	if w.Close() == nil {
		t.Error("Close does not return the error")
	}
}
