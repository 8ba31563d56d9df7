package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// Difference is what two runs have in common, and what not. Texts are for people: A and B name the runs.
type Difference struct {
	Settings []string // what they were run with
	Verdicts string   // empty: they are the same
	Actions  []string
	Findings []string // bugs and what made a run inconclusive, in one of the runs only
	// Parting is where what the processes observed first differs, Partings in how many places it does: a place is an
	// object at a point of a process. The order among places is not compared, because it is never the same.
	Parting  []string
	Partings int
	EndState []string
}

// SameOutcome reports whether the same actions were carried out for the same reasons, with the same verdict and
// findings.
func (d *Difference) SameOutcome() bool {
	return d.Verdicts == "" && len(d.Actions) == 0 && len(d.Findings) == 0
}

// Same reports whether there is no difference at all but for the settings.
func (d *Difference) Same() bool {
	return d.SameOutcome() && len(d.Parting) == 0 && len(d.EndState) == 0
}

// Compare compares two runs. Times, resource versions, UIDs and generated names do not count, nor does what differs
// between runs without faults, as far as the workload's baseline says so; nil: there is none. The error is that of a
// history that cannot be read.
func Compare(a, b *record.Run, known *baseline.Baseline) (*Difference, error) {
	inA, err := namesIn(a)
	if err != nil {
		return nil, err
	}
	inB, err := namesIn(b)
	if err != nil {
		return nil, err
	}
	d := &Difference{
		Settings: settings(a, b), Actions: actionsDiffer(a, b, inA, inB), Findings: findingsDiffer(a, b, inA, inB),
	}
	if va, vb := Verdict(a), Verdict(b); va != vb {
		d.Verdicts = fmt.Sprintf("A: %s, B: %s", va, vb)
	}
	end, err := endStates(a, b, known)
	if err != nil {
		return nil, err
	}
	d.EndState = end
	d.observations(a, b, inA, inB)
	return d, nil
}

// Text writes the difference of the two runs.
func (d *Difference) Text(w io.Writer, a, b *record.Run) error {
	var out strings.Builder
	fmt.Fprintf(&out, "A: %s: %s (%s)\nB: %s: %s (%s)\n", Name(a), Verdict(a), a.Dir, Name(b), Verdict(b), b.Dir)
	section := func(title, same string, lines []string) {
		if len(lines) == 0 {
			if same != "" {
				fmt.Fprintf(&out, "\n%s: %s\n", title, same)
			}
			return
		}
		fmt.Fprintf(&out, "\n%s:\n", title)
		for _, line := range lines {
			fmt.Fprintf(&out, "  %s\n", indent(line, "  "))
		}
	}
	section("run with different settings", "", d.Settings)
	section("observations", "the same", d.Parting)
	section("actions", "the same", d.Actions)
	section("findings", "the same", d.Findings)
	section("end state", "the same", d.EndState)
	_, err := io.WriteString(w, out.String())
	return err
}

// Again says whether a run that was made again, b, came out like the first one, a.
func (d *Difference) Again(w io.Writer, a, b *record.Run) error {
	var out strings.Builder
	for _, line := range d.Settings {
		fmt.Fprintf(&out, "not as in the first run: %s (A: the first run, B: this one)\n", line)
	}
	tell := func(what string, n int, lines []string) {
		if len(lines) == 0 {
			fmt.Fprintf(&out, "the same %s (%d)\n", what, n)
			return
		}
		fmt.Fprintf(&out, "not the same %s (A: the first run, B: this one)\n", what)
		for _, line := range lines {
			fmt.Fprintf(&out, "  %s\n", indent(line, "  "))
		}
	}
	if d.Verdicts != "" {
		fmt.Fprintf(&out, "not the same verdict: it was %s, and is %s\n", Verdict(a), Verdict(b))
	} else {
		fmt.Fprintf(&out, "the same verdict (%s)\n", Verdict(a))
	}
	tell("actions", len(a.Actions), d.Actions)
	counting := slices.DeleteFunc(slices.Clone(a.Findings), func(f record.Finding) bool {
		return f.Severity == record.SeverityNote
	})
	tell("findings", len(counting), d.Findings)
	_, err := io.WriteString(w, out.String())
	return err
}

func settings(a, b *record.Run) []string {
	var lines []string
	note := func(what, x, y string) {
		if x != y {
			lines = append(lines, fmt.Sprintf("%s: A: %s, B: %s", what, cmp.Or(x, "none"), cmp.Or(y, "none")))
		}
	}
	lines = append(lines, filesDiffer("plan", a.Plan, b.Plan, "variant", "build")...) // which are noted below
	lines = append(lines, filesDiffer("suite", a.Suite, b.Suite)...)
	note("variant", a.Meta.Variant, b.Meta.Variant)
	note("build", a.Meta.Build, b.Meta.Build)
	note("Trommel", a.Meta.Trommel, b.Meta.Trommel)
	note("Kubernetes", a.Meta.Kubernetes, b.Meta.Kubernetes)
	note("seed", fmt.Sprint(a.Meta.Seed), fmt.Sprint(b.Meta.Seed))
	for _, x := range a.Meta.Controllers {
		i := slices.IndexFunc(b.Meta.Controllers, func(y record.Controller) bool { return y.Name == x.Name })
		if i < 0 {
			lines = append(lines, "only A has the controller "+x.Name)
			continue
		}
		y := b.Meta.Controllers[i]
		note("client-go of "+x.Name, x.ClientGo, y.ClientGo)
		note("controller-runtime of "+x.Name, x.ControllerRuntime, y.ControllerRuntime)
	}
	for _, y := range b.Meta.Controllers {
		if !slices.ContainsFunc(a.Meta.Controllers, func(x record.Controller) bool { return x.Name == y.Name }) {
			lines = append(lines, "only B has the controller "+y.Name)
		}
	}
	return lines
}

// mostFields is how many fields of a plan or suite are named.
const mostFields = 8

// filesDiffer says in which fields two plans or suites differ, except the given ones, which other lines mention.
func filesDiffer(what string, a, b []byte, mentioned ...string) []string {
	if bytes.Equal(a, b) {
		return nil
	}
	var x, y map[string]any
	if yaml.Unmarshal(a, &x) != nil || yaml.Unmarshal(b, &y) != nil {
		return []string{"the " + what + " is not the same"}
	}
	for _, name := range mentioned {
		delete(x, name)
		delete(y, name)
	}
	var lines []string
	fieldsDiffer(x, y, "", func(path string, x, y any) {
		lines = append(lines, fmt.Sprintf("%s: %s: A: %s, B: %s", what, path, fieldText(x), fieldText(y)))
	})
	if more := len(lines) - mostFields; more > 1 {
		lines = append(lines[:mostFields], fmt.Sprintf("%s: %d more fields", what, more))
	}
	return lines
}

// fieldsDiffer calls found for each place where two values differ. A list's items are compared one by one.
func fieldsDiffer(x, y any, path string, found func(path string, x, y any)) {
	mapX, okX := x.(map[string]any)
	mapY, okY := y.(map[string]any)
	if okX && okY {
		keys := slices.Collect(maps.Keys(mapX))
		for key := range mapY {
			if _, ok := mapX[key]; !ok {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		for _, key := range keys {
			fieldsDiffer(mapX[key], mapY[key], strings.TrimPrefix(path+"."+key, "."), found)
		}
		return
	}
	listX, okX := x.([]any)
	listY, okY := y.([]any)
	if okX && okY {
		at := func(list []any, i int) any {
			if i < len(list) {
				return list[i]
			}
			return nil
		}
		for i := range max(len(listX), len(listY)) {
			fieldsDiffer(at(listX, i), at(listY, i), fmt.Sprintf("%s[%d]", path, i), found)
		}
		return
	}
	if !reflect.DeepEqual(x, y) {
		found(path, x, y)
	}
}

// fieldText shows a field's value, shortened; "none" if it is absent.
func fieldText(v any) string {
	if v == nil {
		return "none"
	}
	text := fmt.Sprint(v)
	if data, err := json.Marshal(v); err == nil {
		text = string(data)
	}
	if s, ok := v.(string); ok && !strings.Contains(s, "\n") {
		text = s
	}
	return ansi.Truncate(text, 60, "…")
}

// actionsDiffer compares what was carried out, action by action.
func actionsDiffer(a, b *record.Run, inA, inB names) []string {
	var lines []string
	at := func(r *record.Run, index int) *record.Action {
		i := slices.IndexFunc(r.Actions, func(x record.Action) bool { return x.Index == index })
		if i < 0 {
			return nil
		}
		return &r.Actions[i]
	}
	last := -1
	for _, x := range slices.Concat(a.Actions, b.Actions) {
		last = max(last, x.Index)
	}
	for i := range last + 1 {
		x, y := at(a, i), at(b, i)
		switch {
		case x == nil && y == nil:
		case y == nil:
			lines = append(lines, fmt.Sprintf("%s: only in A, at %s", x, Since(a, x.At())))
		case x == nil:
			lines = append(lines, fmt.Sprintf("%s: only in B, at %s", y, Since(b, y.At())))
		case x.String() != y.String():
			lines = append(lines, fmt.Sprintf("A: %s, B: %s", x, y))
		default:
			for _, f := range []struct{ what, x, y string }{
				{"fired by", x.Cause, y.Cause}, {"error", x.Error, y.Error}, {"note", x.Note, y.Note},
			} {
				if inA.text(f.x) != inB.text(f.y) {
					lines = append(lines, fmt.Sprintf("%s: %s:\n  A, at %s: %s\n  B, at %s: %s", x, f.what,
						Since(a, x.At()), cmp.Or(f.x, "none"), Since(b, y.At()), cmp.Or(f.y, "none")))
				}
			}
		}
	}
	return lines
}

// findingsDiffer lists the findings that only one of the runs has, without notes.
func findingsDiffer(a, b *record.Run, inA, inB names) []string {
	var lines []string
	only := func(which string, has, lacks *record.Run, inHas, inLacks names) {
		for _, f := range ByCause(has) {
			if f.Severity != record.SeverityNote && !slices.ContainsFunc(lacks.Findings, func(g record.Finding) bool {
				return f.Severity == g.Severity && inHas.finding(f.Finding).Same(inLacks.finding(g))
			}) {
				lines = append(lines, fmt.Sprintf("only in %s: %s", which, Title(f.Finding)))
			}
		}
	}
	only("A", a, b, inA, inB)
	only("B", b, a, inB, inA)
	return lines
}

var uid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// endStates compares the objects at the end of the runs, in the way in which runs are compared with a baseline.
func endStates(a, b *record.Run, known *baseline.Baseline) ([]string, error) {
	if known == nil {
		known = &baseline.Baseline{}
	}
	ref, err := baseline.Learn("", []*record.Run{a, a}, known.Given...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Dir, err)
	}
	ref.Compared, ref.Unordered, ref.Found = known.Compared, known.Unordered, known.Found
	follower, err := facts.Follow(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.Dir, err)
	}
	var lines []string
	for _, d := range ref.Compare(follower.Objects()) {
		if d.Field == "" {
			lines = append(lines, fmt.Sprintf("%s: A: %v, B: %v", d.Key, d.Want, d.Got))
			continue
		}
		want, _ := d.Want.(string)
		if got, _ := d.Got.(string); uid.MatchString(want) && uid.MatchString(got) || isTime(want) && isTime(got) {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %s: A: %s, B: %s", d.Key, d.Field, value(d.Want), value(d.Got)))
	}
	return lines, nil
}

func isTime(s string) bool {
	_, err := time.Parse(time.RFC3339Nano, s)
	return err == nil
}

// place is where observations are compared in their order: an object at a point of a process.
type place struct{ by, point, object string }

// seen is an observation at a place, in words.
type seen struct {
	text  string
	event record.Event
}

// observations finds the places whose observations differ, and reports the one where they differ first.
func (d *Difference) observations(a, b *record.Run, namesA, namesB names) {
	inA, inB := places(a, namesA), places(b, namesB)
	type parting struct {
		after time.Duration // since the start of the workload, in the run in which it came first
		place
		index int
	}
	var first *parting
	all := map[place]bool{}
	for p := range inA {
		all[p] = true
	}
	for p := range inB {
		all[p] = true
	}
	for p := range all {
		x, y := inA[p], inB[p]
		i := 0
		for i < len(x) && i < len(y) && x[i].text == y[i].text {
			i++
		}
		if i == len(x) && i == len(y) {
			continue
		}
		d.Partings++
		found := parting{place: p, index: i, after: 1<<63 - 1}
		if i < len(x) {
			found.after = x[i].event.Time.Sub(Zero(a))
		}
		if i < len(y) {
			found.after = min(found.after, y[i].event.Time.Sub(Zero(b)))
		}
		if first == nil || cmp.Or(cmp.Compare(found.after, first.after), strings.Compare(p.by, first.by),
			strings.Compare(p.point, first.point), strings.Compare(p.object, first.object)) < 0 {
			first = &found
		}
	}
	if first == nil {
		return
	}
	told := func(which string, r *record.Run, list []seen) string {
		if first.index >= len(list) {
			return fmt.Sprintf("  %s: nothing more", which)
		}
		s := list[first.index]
		return fmt.Sprintf("  %s, event %d at %s: %s", which, s.event.Seq, Since(r, s.event.Time), s.text)
	}
	same := "from the start"
	if first.index > 0 {
		same = fmt.Sprintf("after the first %d observations, which are the same", first.index)
	}
	d.Parting = []string{
		fmt.Sprintf("they part first at %s, %s of %s, %s:", first.by, first.point, first.object, same),
		told("A", a, inA[first.place]), told("B", b, inB[first.place]),
	}
	if d.Partings > 1 {
		d.Parting = append(d.Parting, fmt.Sprintf("and later in %d other places (an object at a point of a process)",
			d.Partings-1))
	}
}

// generatedName ends a name that the API server or a controller has made, of letters that Kubernetes takes for random
// names and hashes, or as client-go names events. The recorded history, which knows such names, does not have all
// objects.
var generatedName = regexp.MustCompile(`((-[bcdfghjklmnpqrstvwxz2456789]{5,10}){1,2}|\.[0-9a-f]{16})$`)

// namedObject is an object in a text: type/namespace/name.
var namedObject = regexp.MustCompile(`[a-z][a-z0-9.]*/[a-z0-9.-]*/[a-z0-9.:-]*[a-z0-9]`)

// names are a run's objects, type/namespace/name without the type's group, with a name that does not differ among runs.
type names map[string]string

func namesIn(r *record.Run) (names, error) {
	changes, err := facts.Changes(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Dir, err)
	}
	all := names{}
	for i := range changes {
		c := &changes[i]
		key := WithoutGroup(string(c.Key))
		all[key[:strings.LastIndex(key, "/")+1]+c.Name()] = key
	}
	return all, nil
}

// object names an object in the same way in all runs.
func (n names) object(name string) string {
	return cmp.Or(n[name], generatedName.ReplaceAllString(name, "-*"))
}

// text names objects in a text in the same way in all runs.
func (n names) text(s string) string {
	return namedObject.ReplaceAllStringFunc(s, func(name string) string { return n.object(WithoutGroup(name)) })
}

// finding names objects in the fields that distinguish findings in the same way in all runs.
func (n names) finding(f record.Finding) record.Finding {
	f.Subject, f.Title, f.Owner = n.text(f.Subject), n.text(f.Title), n.text(f.Owner)
	f.Awaited = n.text(f.Awaited)
	return f
}

// places sorts a run's observations by place. Whatever goes on for as long as the run does is left out: what a
// controller does for its leader election, and the heartbeats of nodes and of the control plane.
func places(r *record.Run, known names) map[place][]seen {
	all := map[place][]seen{}
	for _, e := range r.Events {
		o := e.Observation
		if o == nil || o.Election || strings.HasPrefix(cmp.Or(o.Kind, o.Resource), "lease") &&
			strings.HasPrefix(o.Namespace, "kube-") {
			continue
		}
		object := known.object(cmp.Or(o.Kind, o.Resource) + "/" + o.Namespace + "/" + o.Name)
		switch {
		case o.CallName != "":
			object = o.CallName
		case o.Kind == "" && o.Resource == "":
			object = o.Request
		}
		text := string(o.Op)
		if o.Failed != "" {
			text += ", which the plan made to fail"
		} else if o.Error != "" {
			text += fmt.Sprintf(", which failed (%d)", o.Code)
		}
		if text == "" {
			text = "once more"
		}
		p := place{o.By, o.Place(), object}
		all[p] = append(all[p], seen{text, e})
	}
	return all
}
