package propose

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/testing/golden"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// controller is the example's.
const controller = "database-operator"

// fake carries out workloads of the database operator's example, with a controller that scales a StatefulSet, ignores
// the image, keeps a volume too many after the second member was taken away, and panics without members. The API server
// refuses to change the size.
type fake struct {
	t *testing.T
	// finishes: objects are finished after a while, and are ignored then.
	finishes bool
	// template: the controller writes the image and the storage class into the StatefulSet's template.
	template bool
	// quiet: the controller does nothing.
	quiet bool
	// claims: Kubernetes makes a volume claim for each member, and deletes them with the StatefulSet, but for the
	// first.
	claims  bool
	pending string // the object that is not finished yet

	version uint64
	now     map[string]map[string]any // by type/name
	writer  *record.Writer
}

func (f *fake) RunWith(_ context.Context, p *plan.Plan, dir string, _ run.RunOptions) (*record.Meta, error) {
	w, err := record.Create(dir)
	if err != nil {
		return nil, err
	}
	f.now, f.writer = map[string]map[string]any{}, w
	meta := &record.Meta{Verdict: record.Pass, Controllers: []record.Controller{{Name: controller, Hooks: true}}}
	var findings []record.Finding
	for _, s := range p.Steps {
		if bug := f.step(s); bug != nil {
			findings, meta.Verdict = append(findings, *bug), record.Bug
			break
		}
	}
	f.finish()
	f.must(w.Findings(findings))
	f.must(w.Meta(*meta))
	f.must(w.Plan(nil))
	f.must(w.Suite(nil))
	f.must(w.Close())
	return meta, nil
}

func (f *fake) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fake) step(s plan.Step) *record.Finding {
	switch {
	case s.Wait != nil || s.Sleep > 0:
		f.finish()
	case s.Apply != nil:
		for _, o := range s.Apply.Objects {
			db := f.copied(o)
			spec := db["spec"].(map[string]any)
			spec["image"] = "registry.example/database:1.0"
			db["metadata"].(map[string]any)["generation"] = 1.0
			name := db["metadata"].(map[string]any)["name"].(string)
			f.write("", record.Created, "database", name, db)
			return f.reconcile(name)
		}
	case s.Delete != nil:
		name := s.Delete.ResourceKey.Name
		f.write("", record.Deleted, "database", name, f.now["database/"+name])
		f.write(controller, record.Deleted, "statefulset", name, f.now["statefulset/"+name])
		for i := 1; i < 9; i++ {
			claim := fmt.Sprintf("data-%s-%d", name, i)
			f.write("", record.Deleted, "persistentvolumeclaim", claim, f.now["persistentvolumeclaim/"+claim])
		}
	case s.Patch != nil:
		name := s.Patch.ResourceKey.Name
		db := f.copied(f.now["database/"+name])
		for field, value := range f.copied(s.Patch.Patch.(map[string]any))["spec"].(map[string]any) {
			if field == "storage" {
				return &record.Finding{Severity: record.SeverityBug, Judge: record.JudgeWorkload,
					Title: "storage is immutable"}
			}
			db["spec"].(map[string]any)[field] = value
		}
		meta := db["metadata"].(map[string]any)
		meta["generation"] = meta["generation"].(float64) + 1
		f.write("", record.Updated, "database", name, db)
		return f.reconcile(name)
	}
	return nil
}

// finish lets the controller do its work, and finishes the object.
func (f *fake) finish() {
	name := f.pending
	f.pending = ""
	if db := f.copied(f.now["database/"+name]); db != nil {
		f.write(controller, record.Created, "statefulset", name, map[string]any{"spec": map[string]any{
			"replicas": db["spec"].(map[string]any)["replicas"]}})
		db["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Complete", "status": "True"}}}
		f.write(controller, record.Updated, "database", name, db)
	}
}

func (f *fake) reconcile(name string) *record.Finding {
	if f.quiet {
		return nil
	}
	if f.finishes {
		if f.now["database/"+name]["status"] == nil {
			f.pending = name
		}
		return nil
	}
	db := f.copied(f.now["database/"+name])
	replicas := db["spec"].(map[string]any)["replicas"].(float64)
	if replicas == 0 {
		return &record.Finding{Severity: record.SeverityBug, Judge: record.JudgePanic, Title: "division by zero"}
	}
	set, event := f.copied(f.now["statefulset/"+name]), record.Updated
	if set == nil {
		event, set = record.Created, map[string]any{"spec": map[string]any{}}
	}
	for i := range int(replicas) {
		claim := fmt.Sprintf("data-%s-%d", name, i)
		if f.claims && f.now["persistentvolumeclaim/"+claim] == nil {
			f.write("", record.Created, "persistentvolumeclaim", claim, map[string]any{})
		}
	}
	if wanted := db["spec"].(map[string]any); f.template {
		set["spec"].(map[string]any)["template"] = map[string]any{
			"image": wanted["image"], "class": wanted["storageClassName"],
		}
	}
	if spec := set["spec"].(map[string]any); spec["replicas"] != replicas ||
		f.template && fmt.Sprint(set) != fmt.Sprint(f.now["statefulset/"+name]) {
		if before, _ := spec["replicas"].(float64); before > replicas {
			spec["volumes"] = before
		}
		spec["replicas"] = replicas
		f.write(controller, event, "statefulset", name, set)
	}
	db["status"] = map[string]any{
		"phase": "Ready", "observedGeneration": db["metadata"].(map[string]any)["generation"],
		"readyReplicas": replicas,
	}
	f.write(controller, record.Updated, "database", name, db)
	return nil
}

func (f *fake) copied(object map[string]any) (to map[string]any) {
	data, err := json.Marshal(object)
	f.must(err)
	f.must(json.Unmarshal(data, &to))
	return to
}

// write records a write, by the controller or by the user.
func (f *fake) write(by, event, typ, name string, object map[string]any) {
	if object == nil {
		return
	}
	f.version++
	group := map[string]string{"database": "example.trommel.dev", "statefulset": "apps"}[typ]
	object = f.copied(object)
	object["kind"], object["apiVersion"] = strings.ToUpper(typ[:1])+typ[1:], group+"/v1"
	meta, _ := object["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["name"], meta["namespace"], meta["resourceVersion"] = name, "default", fmt.Sprint(f.version)
	object["metadata"] = meta
	f.now[typ+"/"+name] = object
	if event == record.Deleted {
		delete(f.now, typ+"/"+name)
	}
	data, err := json.Marshal(object)
	f.must(err)
	at := time.Unix(int64(f.version), 0)
	f.must(f.writer.History(record.HistoryEntry{
		Time: at, ResourceVersion: f.version, Event: event, Type: typ, Group: group, Namespace: "default", Name: name,
		Object: data,
	}))
	if by == "" {
		return
	}
	o := record.Observation{
		By: by, Session: 1, Call: f.version, Point: wire.ControllerWrite, Phase: wire.Before, Op: wire.Update,
		Group: group, Kind: typ, Resource: typ + "s", Namespace: "default", Name: name,
	}
	if event == record.Deleted {
		o.Op = wire.Delete
	}
	f.must(f.writer.Event(record.Event{Time: at, Observation: &o}))
	o.Phase = wire.After
	if event != record.Deleted {
		o.Object = data
	}
	f.must(f.writer.Event(record.Event{Time: at, Observation: &o}))
}

func TestRun(t *testing.T) {
	suite, err := plan.LoadSuite("../../../examples/database-operator/trommel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	result, err := Run(t.Context(), Config{
		Runner: &fake{t: t}, Suite: suite, Dir: filepath.Join(t.TempDir(), "runs"), Differential: true,
		Progress: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	block, err := Render(result.Workloads, "")
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/database.yaml", block)

	var dropped []string
	for _, d := range result.Dropped {
		dropped = append(dropped, d.Field+": "+d.Reason)
	}
	if diff := cmp.Diff([]string{
		"spec.storageClassName: a text of unknown meaning: the schema has neither an enum nor an example",
		"spec.replicas: it does not pass without faults: division by zero",
		"spec.storage: storage is immutable",
		`spec.image: spec.image from "registry.example/database:1.0" to "registry.example/database:1.1": ` +
			"no controller under test writes anything afterwards",
	}, dropped); diff != "" {
		t.Errorf("dropped (-want +got):\n%s", diff)
	}
	var findings []string
	for _, f := range result.Findings {
		findings = append(findings, strings.Join(append([]string{f.What, f.Title}, f.Lines...), "\n"))
	}
	if diff := cmp.Diff([]string{
		"Change: spec.replicas from 2 to 1.\nthe end differs from that of a fresh creation\n" +
			"statefulset.apps/default/db: spec.volumes is 2; created like that: absent",
		"Change: spec.replicas from 2 to 0.\npanic: division by zero",
	}, findings); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}

	for _, alone := range []bool{false, true} {
		text, added, err := result.Text(suite, alone)
		if err != nil {
			t.Fatal(err)
		}
		written, err := plan.ParseSuite(text, suite.File)
		if err != nil {
			t.Fatal(err)
		}
		want := len(result.Workloads)
		if !alone {
			want += len(suite.Workloads)
		}
		if len(written.Workloads) != want || added != len(result.Workloads) {
			t.Errorf("%d workloads, %d of them added, want %d and %d", len(written.Workloads), added, want,
				len(result.Workloads))
		}
		if alone {
			continue
		}
		// Proposed twice, they are there already, whatever their names are.
		again, added, err := result.Text(written, false)
		if err != nil || added != 0 || !bytes.Equal(again, text) {
			t.Errorf("proposed twice: %v, %d added\n%s", err, added, again)
		}
	}
}

// What is finished ignores changes: they are made right after the creation.
func TestRunOfWhatFinishes(t *testing.T) {
	suite, err := plan.LoadSuite("../../../examples/database-operator/trommel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	result, err := Run(t.Context(), Config{
		Runner: &fake{t: t, finishes: true}, Suite: suite, Dir: filepath.Join(t.TempDir(), "runs"),
		Fields: []string{"spec.replicas", "spec.image"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, w := range result.Workloads {
		names = append(names, w.Name)
	}
	if diff := cmp.Diff([]string{"create", "delete", "recreate", "recreate-later", "delete-early", "two",
		"replicas-up-early", "replicas-down-early", "replicas-to-zero-early"}, names); diff != "" {
		t.Errorf("workloads (-want +got):\n%s", diff)
	}
	if last := result.Dropped[len(result.Dropped)-1]; last.Field != "spec.image" ||
		!strings.Contains(last.Reason, "right after the creation it makes no difference") {
		t.Errorf("dropped: %v", result.Dropped)
	}
}

func TestOnlySomeFields(t *testing.T) {
	p := &proposer{Config: Config{Fields: []string{"spec.parts"}}}
	for path, want := range map[string]bool{
		"spec.parts": true, "spec.parts.0.replicas": true, "spec.partsOfIt": false, "spec.replicas": false,
	} {
		if got := p.wanted(Field{Path: strings.Split(path, ".")}); got != want {
			t.Errorf("%s: %t", path, got)
		}
	}
}

func TestInsert(t *testing.T) {
	const block = "a:\n  - sleep: 1s\n\n# second\nb:\n  - sleep: 1s\n"
	for _, tt := range []struct {
		name, suite, want string
		alone             bool
	}{
		{
			name: "at the end, before the comment of what follows",
			suite: "kind: Suite\nworkloads: # all\n    x: # one\n    - sleep: 1s # here\n\n" +
				"# what must hold\ninvariants: []\n",
			want: "kind: Suite\nworkloads: # all\n    x: # one\n    - sleep: 1s # here\n\n    a:\n" +
				"      - sleep: 1s\n\n" +
				"    # second\n    b:\n      - sleep: 1s\n\n# what must hold\ninvariants: []\n",
		},
		{
			name: "alone", alone: true,
			suite: "kind: Suite\nworkloads:\n  x: [{sleep: 1s}]\n# end\nmasks: []",
			want: "kind: Suite\nworkloads:\n  a:\n    - sleep: 1s\n\n  # second\n  b:\n    - sleep: 1s\n# end\n" +
				"masks: []\n",
		},
		{
			name:  "no workloads yet",
			suite: "kind: Suite",
			want:  "kind: Suite\n\nworkloads:\n  a:\n    - sleep: 1s\n\n  # second\n  b:\n    - sleep: 1s\n",
		},
		{
			name:  "empty workloads",
			suite: "workloads: {}\nkind: Suite\n",
			want:  "workloads:\n  a:\n    - sleep: 1s\n\n  # second\n  b:\n    - sleep: 1s\nkind: Suite\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Insert([]byte(tt.suite), []byte(block), tt.alone)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
	if _, err := Insert([]byte("workloads: {x: [{sleep: 1s}]}\n"), []byte(block), false); err == nil {
		t.Error("workloads in braces: no error")
	}
}

func TestDone(t *testing.T) {
	object := func(text string) (o map[string]any) {
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	for _, tt := range []struct{ name, end, other, want string }{
		{name: "no status", end: `{}`},
		{
			name: "counts and phase, without what differs each time",
			end: `{"metadata": {"generation": 2}, "status": {"phase": "Up", "ready": 2, "seen": 7, "hash": 5,
				"observedGeneration": 2, "since": "2020-01-01T00:00:00Z"}}`,
			other: `{"status": {"phase": "Up", "ready": 2, "seen": 9}}`,
			want: `object.status.phase == "Up" && object.status.observedGeneration == object.metadata.generation && ` +
				`object.status.ready == 2`,
		},
		{
			name: "conditions",
			end: `{"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Failed", "status": "False"},
				{"type": "Progressing", "status": "True"}]}}`,
			other: `{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`,
			want:  `object.status.conditions.exists(c, c.type == "Ready" && c.status == "True")`,
		},
		{
			name: "states with longer names, but no texts of other fields",
			end:  `{"status": {"jobDeploymentStatus": "Running", "jobId": "a", "status": {}, "apparatus": "b"}}`,
			want: `object.status.jobDeploymentStatus == "Running"`,
		},
		{name: "a generation that is not observed",
			end: `{"metadata": {"generation": 3}, "status": {"observedGeneration": 2}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var others []map[string]any
			if tt.other != "" {
				others = append(others, object(tt.other))
			}
			got := done(object(tt.end), others...)
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if got != "" && !meets(got, object(tt.end)) {
				t.Errorf("it does not hold: %s", got)
			}
		})
	}
}

// A status that counts to zero shows no more than that a controller has written it.
func TestReady(t *testing.T) {
	for status, want := range map[string]string{
		`{"failed": 0, "succeeded": 0, "suspended": false}`: "",
		`{"failed": 0, "done": 1}`:                          "object.status.done == 1 && object.status.failed == 0",
		`{"failed": 0, "phase": "Up"}`:                      `object.status.phase == "Up" && object.status.failed == 0`,
		`{}`:                                                "",
	} {
		var object map[string]any
		if err := json.Unmarshal([]byte(`{"status": `+status+`}`), &object); err != nil {
			t.Fatal(err)
		}
		if got := ready(object, object); got != want {
			t.Errorf("%s: got %q, want %q", status, got, want)
		}
	}
}

func TestExpression(t *testing.T) {
	path := []string{"spec", "containers", "0", "labels", "a/b", "in"}
	if got, want := expression(path), `object.spec.containers[0].labels["a/b"]["in"]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !slices.Equal(path[:1], []string{"spec"}) {
		t.Error("the path was changed")
	}
}
