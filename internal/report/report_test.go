package report

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/report/reporttest"
	"github.com/trommel-dev/trommel/internal/testing/golden"
	"github.com/trommel-dev/trommel/record"
)

var (
	start  = reporttest.Start
	at     = reporttest.At
	object = reporttest.Object
	runs   = reporttest.Runs
)

func TestText(t *testing.T) {
	var b bytes.Buffer
	for _, r := range runs() {
		if err := Text(&b, r); err != nil {
			t.Fatal(err)
		}
	}
	golden.Compare(t, "testdata/runs.txt", b.Bytes())
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := JSON(&b, runs()); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/runs.json", b.Bytes())
}

// The golden file of TestJSON matches the schema, which has exactly the fields that there are.
func TestJSONSchema(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(RunsJSONSchema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("runs.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("runs.json")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("testdata", "runs.json"))
	if err != nil {
		t.Fatal(err)
	}
	runs, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(runs); err != nil {
		t.Error(err)
	}
	defs := doc.(map[string]any)["$defs"].(map[string]any)
	for name, typ := range map[string]reflect.Type{
		"run": reflect.TypeFor[summary](), "phase": reflect.TypeFor[record.Phase](),
		"clock": reflect.TypeFor[record.Clock](), "poll": reflect.TypeFor[record.Poll](),
		"awaited":    reflect.TypeFor[record.Awaited](),
		"unrest":     reflect.TypeFor[record.Unrest](),
		"controller": reflect.TypeFor[record.Controller](), "staleRead": reflect.TypeFor[record.StaleRead](),
		"finding": reflect.TypeFor[record.Finding](), "action": reflect.TypeFor[record.Action](),
	} {
		def := defs[name].(map[string]any)
		var always, all []string
		for _, f := range reflect.VisibleFields(typ) {
			tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous || tag == "-" {
				continue
			}
			all = append(all, tag)
			if !strings.HasPrefix(options, "omit") {
				always = append(always, tag)
			}
		}
		slices.Sort(all)
		slices.Sort(always)
		if got := slices.Sorted(maps.Keys(def["properties"].(map[string]any))); !slices.Equal(got, all) {
			t.Errorf("%s: the schema has the fields\n%q, want\n%q", name, got, all)
		}
		var required []string
		for _, field := range def["required"].([]any) {
			required = append(required, field.(string))
		}
		if slices.Sort(required); !slices.Equal(required, always) {
			t.Errorf("%s: the schema requires\n%q, want\n%q", name, required, always)
		}
	}
}

// Regression: the reason of an inconclusive run was printed above the finding that says the same.
func TestReasonIsToldOnce(t *testing.T) {
	var b bytes.Buffer
	if err := Text(&b, runs()[6]); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(b.String(), "action 2 (patch pod/default/a) failed: no"); got != 1 {
		t.Errorf("the reason is printed %d times:\n%s", got, b.String())
	}
}

// A note has its detail, and is not a failure.
func TestNotesOfJudges(t *testing.T) {
	r := &record.Run{
		Meta: record.Meta{Plan: "p", Verdict: record.Pass, Notes: []string{"an orphan"}},
		Findings: []record.Finding{{
			Severity: record.SeverityNote, Judge: record.JudgeOrphan, Title: "an orphan", Detail: "its last change",
		}},
	}
	var text, junit bytes.Buffer
	if err := errors.Join(Text(&text, r), JUnit(&junit, []*record.Run{r}, JUnitOptions{})); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "note: an orphan\n      its last change\n") ||
		strings.Count(text.String(), "an orphan") != 1 {
		t.Errorf("got\n%s", text.String())
	}
	if strings.Contains(junit.String(), "orphan") {
		t.Errorf("got\n%s", junit.String())
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// A plan may make hundreds of calls fail.
func TestTextListsOnlySomeFailedCalls(t *testing.T) {
	r := &record.Run{Meta: record.Meta{Plan: "denied", Verdict: record.Pass}}
	for range 12 {
		r.Events = append(r.Events, record.Event{Observation: &record.Observation{
			By: "db", Point: wire.ControllerWrite, Phase: wire.After, Op: wire.Update, Kind: "service", Name: "db",
			Failed: wire.Refused, Code: 403, Error: "forbidden",
		}})
	}
	var b strings.Builder
	if err := Text(&b, r); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "failed call: "); n != 10 ||
		!strings.Contains(b.String(), "\n  and 2 more failed calls; trommel explain lists all\n") {
		t.Errorf("%d calls:\n%s", n, b.String())
	}
}
