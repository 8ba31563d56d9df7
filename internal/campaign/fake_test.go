package campaign

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// fake answers runs with records instead of clusters. In each run the controller op creates a ConfigMap and a Secret
// for it; answer changes what a run says.
type fake struct {
	t *testing.T
	// answer is heard which run of the plan this is, from 1, and may change its record.
	answer func(p *plan.Plan, number int, meta *record.Meta, findings *[]record.Finding, history *[]string) error

	mu   sync.Mutex
	runs map[string]int // by plan
	all  []string       // plans in the order in which they were run
	// Of each run: how it was shifted, what it does not wait for, and whether its plan has actions.
	shifts []time.Duration
	polls  [][]record.Poll
	acts   []bool
	now    int // runs that are going on
	// baseline is what the newest run is compared with.
	baseline *baseline.Baseline
	recorded []plan.ResourceKey // in the newest run
	traced   []string           // plans with actions of which everything was recorded
	most     int
}

func (f *fake) RunWith(
	ctx context.Context, p *plan.Plan, dir string, o run.RunOptions,
) (*record.Meta, error) {
	f.mu.Lock()
	if f.runs == nil {
		f.runs = map[string]int{}
	}
	f.runs[p.TestName]++
	number := f.runs[p.TestName]
	f.all = append(f.all, p.TestName)
	f.polls = append(f.polls, o.Polls)
	f.shifts, f.acts = append(f.shifts, o.Shift), append(f.acts, len(p.Actions) > 0)
	f.baseline, f.recorded = o.Baseline, o.History
	traced := o.Trace && len(p.Actions) > 0
	if traced {
		f.traced = append(f.traced, p.TestName)
	}
	f.now++
	f.most = max(f.most, f.now)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.now--
		f.mu.Unlock()
	}()
	meta := &record.Meta{
		Plan: p.TestName, Verdict: record.Pass, ActionsTotal: len(p.Actions), ActionsFired: len(p.Actions),
		Controllers: []record.Controller{{Name: "op", Hooks: true}},
	}
	history := []string{"configmap/default/a", "op secret/default/a"}
	var findings []record.Finding
	w, err := record.Create(dir)
	if err != nil {
		return nil, err
	}
	if f.answer != nil {
		if err := f.answer(p, number, meta, &findings, &history); err != nil {
			return meta, errJoin(err, w.Close())
		}
	}
	if ctx.Err() != nil {
		return meta, errJoin(context.Cause(ctx), w.Close())
	}
	there := map[plan.ResourceKey]bool{}
	for i, line := range history {
		if err := f.written(w, there, i+1, line); err != nil {
			return nil, err
		}
	}
	if traced {
		const number = 1000
		for i, o := range []record.Observation{
			{Point: wire.Reconcile, Phase: wire.Before},
			{Point: wire.ControllerWrite, Phase: wire.Before, Op: wire.Update},
		} {
			o.By, o.Session, o.Call, o.ReconcileID, o.Request = "op", 1, number+uint64(i), "r", "default/a"
			event := record.Event{Seq: number + i, Time: time.Unix(number, 0), Observation: &o}
			if err := w.Event(event); err != nil {
				return nil, err
			}
		}
		for i := range findings {
			findings[i].Event = number + 1
		}
	}
	return meta, errJoin(w.Findings(findings), w.Meta(*meta), w.Close())
}

// written records that an object is created, or changed if it is there, by op if the line says so, which takes all in.
// JSON after the key are further parts of the object.
func (f *fake) written(w *record.Writer, there map[plan.ResourceKey]bool, version int, line string) error {
	line, ours := strings.CutPrefix(line, "op ")
	name, more, _ := strings.Cut(line, " ")
	key, err := plan.ParseResourceKey(name)
	if err != nil {
		return err
	}
	operation, event := wire.Create, record.Created
	if there[key] {
		operation, event = wire.Update, record.Updated
	}
	there[key] = true
	parts := map[string]any{}
	if more != "" {
		if err := json.Unmarshal([]byte(more), &parts); err != nil {
			return err
		}
	}
	parts["apiVersion"], parts["kind"] = strings.TrimPrefix(key.Group+"/v1", "/"), key.Type
	meta, _ := parts["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["namespace"], meta["name"] = key.Namespace, key.Name
	parts["metadata"] = meta
	sent, err := json.Marshal(parts)
	if err != nil {
		return err
	}
	meta["resourceVersion"] = fmt.Sprint(version)
	object, err := json.Marshal(parts)
	if err != nil {
		return err
	}
	o := record.Observation{
		By: "op", Session: 1, Call: uint64(version), Kind: key.Type, Group: key.Group, GroupKnown: true,
		Namespace: key.Namespace, Name: key.Name, Op: operation, Object: object,
	}
	points := []record.Observation{}
	if ours {
		before, after := o, o
		before.Point, before.Phase, before.Object = wire.ControllerWrite, wire.Before, sent
		after.Point, after.Phase = wire.ControllerWrite, wire.After
		points = append(points, before, after)
	}
	seen := o
	seen.Point, seen.Phase = wire.ControllerRecv, wire.After
	at := time.Unix(int64(version), 0)
	for _, o := range append(points, seen) {
		if err := w.Event(record.Event{Time: at, Observation: &o}); err != nil {
			return err
		}
	}
	entry := record.HistoryEntry{
		Time: at, ResourceVersion: uint64(version), Event: event, Type: key.Type, Group: key.Group,
		Namespace: key.Namespace, Name: key.Name, Object: object,
	}
	if !ours {
		entry.Writers = []record.FieldManager{{Manager: "trommel-workload"}}
	}
	return w.History(entry)
}

func errJoin(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// heard remembers what a campaign says.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (s *heard) Show(e progress.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Type != progress.Status {
		s.lines = append(s.lines, e.Text)
	}
}

func (s *heard) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

// acting are the patterns that are chosen by default whose plans do something.
func acting() (names []string) {
	for _, p := range pattern.Patterns() {
		if !p.OnRequest && p.Name != "caches" {
			names = append(names, p.Name)
		}
	}
	return names
}

// config returns a campaign of a suite with the given workloads, in a directory of its own.
func config(t *testing.T, f *fake, workloads ...string) Config {
	t.Helper()
	dir := t.TempDir()
	text := "controllers: [{name: op, build: {dir: .}}]\nmanifests: [manifests]\nworkloads:\n"
	for _, w := range workloads {
		text += "  " + w + ": [{sleep: 1s}]\n"
	}
	write := func(name, text string) {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(plan.SuiteFile, text)
	write("op", "executable")
	write("manifests/a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: b}}")
	suite, err := plan.LoadSuite(filepath.Join(dir, plan.SuiteFile))
	if err != nil {
		t.Fatal(err)
	}
	f.t = t
	return Config{
		Settings: result.Settings{SuiteFile: suite.File, Baselines: filepath.Join(dir, "baselines")},
		Runners:  []run.Runner{f}, Suite: suite, Dir: filepath.Join(dir, "campaign"),
		Binaries: []builds.Binary{{Path: filepath.Join(dir, "op"), Manifest: &wire.Manifest{}}}, Version: "v1",
		Progress: &heard{},
	}
}
