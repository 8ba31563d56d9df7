package display

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/testing/golden"
)

var (
	pause = &progress.ActionEvent{Number: 1, Name: "action 1 (pauseAPIServer apiserver-3)"}
	apply = &progress.ActionEvent{Number: 2, Name: "action 2 (apply)"}
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func held(id int) progress.Event {
	h := &progress.HoldEvent{ID: id, By: "apiserver-3", At: "after apiServerRecv", What: "update database/default/db",
		Why: "paused by action 1"}
	return progress.Event{Type: progress.Held, Run: "r", Hold: h,
		Text: h.By + " held " + h.At + " " + h.What + ": " + h.Why}
}

// shown are the events of a run that shows every type.
func shown() []progress.Event {
	bug := &progress.FindingEvent{Severity: "bug", Judge: "invariant", Title: "StatefulSet db was deleted"}
	note := &progress.FindingEvent{Severity: "inconclusive", Judge: "hold", Title: "held too long"}
	return []progress.Event{
		{Type: progress.Title, Text: "stale-deletion"},
		{Type: progress.Phase, Text: "build"},
		{Type: progress.Build, Target: "control plane", Text: "compile 1/2 a"},
		{Type: progress.Build, Target: "control plane", Text: "compile 2/2 b"},
		{Type: progress.Built},
		{Type: progress.Started, Run: "r", Plan: "stale-deletion", Variant: "fixed", Actions: 2},
		{Type: progress.Phase, Run: "r", Text: "workload"},
		{Type: progress.Step, Run: "r", Text: "create the database", Step: &progress.StepEvent{Number: 1, Of: 4}},
		{Type: progress.Next, Run: "r", Action: &progress.ActionEvent{Number: 1}, Text: "when: onObjectCreation"},
		{Type: progress.Fired, Run: "r", Action: pause, Text: "the update of database/default/db at apiserver-3"},
		{Type: progress.Done, Run: "r", Action: pause},
		held(7), held(7),
		{Type: progress.Waiting, Run: "r", Text: "apiserver-3's receipt has been held for 12s by action 1"},
		{Type: progress.Released, Run: "r", Hold: &progress.HoldEvent{ID: 7}},
		{Type: progress.Failed, Run: "r", Action: apply, Text: "refused:\nno"},
		{Type: progress.Next, Run: "r"},
		{Type: progress.Info, Run: "r", Text: "stale read"},
		{Type: progress.Finding, Run: "r", Text: bug.Title, Finding: bug},
		{Type: progress.Finding, Run: "r", Text: note.Title, Finding: note},
		{Type: progress.Ended, Run: "r", Plan: "stale-deletion", Verdict: "bug", Text: bug.Title, Record: "runs/1"},
		{Type: progress.Failed, Text: "no space"},
		{Type: progress.Title, Text: "test trommel.yaml"},
		{Type: progress.Status, Text: "learning workload create: run 2 of 4, about 20 s left"},
		{Type: progress.Status, Plan: "create-crash-1", Text: "confirming, run 2 of 3, about 8.0 s left"},
		{Type: progress.Started, Run: "a", Aside: true, Plan: "create-crash-1", Actions: 1},
		{Type: progress.Phase, Run: "a", Aside: true, Text: "cluster"},
		{Type: progress.PlanDone, Plan: "create-crash-1", Verdict: "pass", Text: "[1/2] create-crash-1: pass",
			Record: "runs/create-crash-1/1"},
		{Type: progress.Status, Text: "1 of 2 plans, 0 bugs; create-crash-2", Campaign: &progress.CampaignEvent{
			Done: 1, Of: 2, Left: 3.5, Running: []string{"create-crash-2"}}},
	}
}

// Where lines cannot be overwritten, each event is one; every flag shows its own.
func TestConsoleLines(t *testing.T) {
	var all bytes.Buffer
	for _, o := range []struct {
		name string
		Options
	}{{name: "default"}, {"--quiet", Options{Quiet: true}}, {"--verbose", Options{Verbose: true}}} {
		fmt.Fprintf(&all, "== %s\n", o.name)
		c := NewConsole(&all, o.Options)
		for _, e := range shown() {
			e.Time = time.Now()
			c.Show(e)
		}
		fmt.Fprint(c.Writer(), "a line of ")
		fmt.Fprint(c.Writer(), "something else\n")
		c.Close()
	}
	golden.Compare(t, "testdata/console.txt", regexp.MustCompile(`(?m)^ +\d+\.\ds`).ReplaceAll(all.Bytes(),
		[]byte("    0.0s")))
}

// An event without a time happens now.
func TestLinesBeginWithTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		c := NewConsole(&text, Options{})
		c.Show(progress.Event{Type: progress.Title, Text: "title"})
		time.Sleep(1500 * time.Millisecond)
		c.Show(progress.Event{Type: progress.Phase, Text: "phase"})
		c.Close()
		if got, want := text.String(), "title\n    1.5s  phase\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// A build prints a line now and then where lines cannot be overwritten, and not each package.
func TestBuildsArePrintedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		c := NewConsole(&text, Options{})
		for i := range 600 { // ten minutes
			c.Build("control plane", fmt.Sprintf("compile %d", i))
			time.Sleep(time.Second)
		}
		if got, most := strings.Count(text.String(), "\n"), int(600*time.Second/plainBuildEvery); got != most {
			t.Errorf("%d lines, want %d", got, most)
		}
	})
}

// A campaign is silent about what is built already, and not about what takes minutes.
func TestBuildsOfCampaigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		c := NewConsole(&text, Options{})
		aside := progress.AsideOf(c)
		for i := range 50 {
			aside.Show(progress.Event{Type: progress.Build, Target: "op", Text: fmt.Sprintf("compile %d", i)})
			if i == 4 && text.String() != "" {
				t.Errorf("within 5 s: %q", &text)
			}
			time.Sleep(time.Second)
		}
		if got := text.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "op: compile 5\n") ||
			!strings.Contains(got, "op: compile 35\n") {
			t.Errorf("%q", got)
		}
	})
}

// The events can be read back, follow the schema, and the schema has exactly the fields that there are.
func TestEvents(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(EventJSONSchema))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("event.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("event.json")
	if err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	c := NewConsole(&bytes.Buffer{}, Options{Quiet: true, Events: &lines})
	at := began
	var want []progress.Event
	for _, e := range shown() {
		at = at.Add(time.Minute)
		e.Time = at
		c.Show(e)
		want = append(want, e)
	}
	fmt.Fprintln(c.Writer(), "<run record>: x")
	seen := map[progress.Type]bool{}
	var got []progress.Event
	for line := range strings.Lines(lines.String()) {
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		var e progress.Event
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil {
			t.Fatal(err)
		}
		seen[e.Type] = true
		got = append(got, e)
	}
	if n := len(got); n != len(want)+1 || !reflect.DeepEqual(got[:n-1], want) {
		t.Errorf("%d events were read back\n%+v\nwant\n%+v", len(got), got, want)
	}
	if last := got[len(got)-1]; last.Type != progress.Log || last.Text != "<run record>: x" {
		t.Errorf("%+v", last)
	}

	root := doc.(map[string]any)
	var types []string
	for _, one := range root["properties"].(map[string]any)["type"].(map[string]any)["oneOf"].([]any) {
		types = append(types, one.(map[string]any)["const"].(string))
	}
	for _, typ := range types {
		if !seen[progress.Type(typ)] {
			t.Errorf("the schema has the type %s, of which there is no event here", typ)
		}
	}
	if len(seen) != len(types) {
		t.Errorf("%d types of events, and %d in the schema", len(seen), len(types))
	}
	defs := root["$defs"].(map[string]any)
	defs["event"] = root
	for name, typ := range map[string]reflect.Type{
		"event": reflect.TypeFor[progress.Event](), "step": reflect.TypeFor[progress.StepEvent](),
		"action": reflect.TypeFor[progress.ActionEvent](), "hold": reflect.TypeFor[progress.HoldEvent](),
		"finding": reflect.TypeFor[progress.FindingEvent](), "campaign": reflect.TypeFor[progress.CampaignEvent](),
	} {
		var fields, required, described []string
		for _, f := range reflect.VisibleFields(typ) {
			tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			fields = append(fields, tag)
			if options == "" {
				required = append(required, tag)
			}
		}
		def := defs[name].(map[string]any)
		for field, of := range def["properties"].(map[string]any) {
			described = append(described, field)
			if _, ref := of.(map[string]any)["$ref"]; !ref && of.(map[string]any)["description"] == nil {
				t.Errorf("%s of %s has no description", field, name)
			}
		}
		var must []string
		for _, r := range def["required"].([]any) {
			must = append(must, r.(string))
		}
		slices.Sort(fields)
		slices.Sort(described)
		slices.Sort(required)
		slices.Sort(must)
		if !slices.Equal(fields, described) || !slices.Equal(required, must) {
			t.Errorf("%s: the schema has %v, of them always %v; the type has %v, of them always %v", name, described,
				must, fields, required)
		}
	}
}

// The display as it is at some moments, for several sizes.
func TestDisplay(t *testing.T) {
	var all bytes.Buffer
	show := func(what string, d *state, width, height int) {
		lines := d.lines(began.Add(75*time.Second), width, height, false)
		fmt.Fprintf(&all, "== %s, %dx%d\n%s\n", what, width, height, strings.Join(lines, "\n"))
		if len(lines) >= height {
			t.Errorf("%s: %d lines on %d rows", what, len(lines), height)
		}
		for _, line := range lines {
			if ansi.StringWidth(line) >= width {
				t.Errorf("%s: %q is not narrower than %d", what, line, width)
			}
		}
	}
	take := func(d *state, events ...progress.Event) {
		for i, e := range events {
			e.Time = began.Add(time.Duration(i) * time.Second)
			d.take(e)
		}
	}
	events := shown()
	at := func(typ progress.Type) int {
		return slices.IndexFunc(events, func(e progress.Event) bool { return e.Type == typ })
	}
	var building, waiting, many, learning, campaign, over state
	take(&learning, progress.Event{
		Type: progress.Status, Text: "learning workload create: run 2 of 4, about 20 s left"},
		progress.Event{Type: progress.Started, Run: "l", Aside: true, Plan: "create-without-faults"})
	take(&building, events[:at(progress.Built)]...)
	take(&waiting, events[:at(progress.Waiting)+1]...)
	take(&many, events[:at(progress.Waiting)]...)
	for i := range 20 {
		take(&many, held(10+i))
	}
	take(&campaign, events[len(events)-6:]...)
	for i := range 3 {
		run := fmt.Sprint("b", i)
		take(&campaign, progress.Event{Type: progress.Started, Run: run, Aside: true, Plan: "créer-" + run, Actions: 3},
			progress.Event{Type: progress.Phase, Run: run, Aside: true, Text: "workload"},
			progress.Event{Type: progress.Step, Run: run, Aside: true, Text: "apply 日本語",
				Step: &progress.StepEvent{Number: 2, Of: 3}},
			progress.Event{Type: progress.Held, Run: run, Aside: true, Hold: held(1).Hold})
	}
	take(&over, events[:at(progress.Ended)+1]...)
	for _, size := range [][2]int{{80, 24}, {40, 24}, {80, 4}, {1, 1}} {
		show("a build", &building, size[0], size[1])
		show("someone waits", &waiting, size[0], size[1])
		show("much is held", &many, size[0], size[1])
		show("a workload is learned", &learning, size[0], size[1])
		show("a campaign", &campaign, size[0], size[1])
	}
	show("the run has ended", &over, 80, 24)
	golden.Compare(t, "testdata/display.txt", all.Bytes())
}

// A question has no end of line: it must be seen nevertheless, before its answer is read.
func TestQuestionAfterClose(t *testing.T) {
	var out bytes.Buffer
	c := NewConsole(&out, Options{})
	w := c.Writer()
	fmt.Fprint(w, "so far")
	if out.Len() > 0 {
		t.Errorf("the beginning of a line is written: %q", out.String())
	}
	c.Close()
	fmt.Fprint(w, "\nend it? ")
	if want := "so far\nend it? "; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	fmt.Fprint(w, "yes\n")
	c.Close()
	if want := "so far\nend it? yes\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
