package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/json"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/record"
)

//go:embed timeline.html.tmpl
var timelineText string

var timelineTemplate = template.Must(template.New("timeline").Parse(timelineText))

// page is the data of the timeline's template. Positions are percentages of the time shown.
type page struct {
	Run      *record.Run
	Name     string
	Verdict  record.Verdict
	Reason   string
	Took     time.Duration
	Phases   []string
	Ticks    []tick
	Lanes    []lane
	Workload bar
	Rows     []row
}

type tick struct {
	At    float64
	Label string
}

// lane is a line of the timeline: the actions, a process's observations, an object's states.
type lane struct {
	Name  string
	Kind  string // action, process, object, finding
	Marks []mark
}

type mark struct {
	At    float64
	Width float64 // of a span; 0: a point
	Class string
	Title string
}

type bar struct{ From, Width float64 }

// row is a line of the list below the timeline.
type row struct {
	Offset string
	Class  string
	Who    string
	What   string
	Detail string
}

// HTML writes a run's timeline as one self-contained page: actions, observations, objects' states and findings over the
// time of the workload.
func HTML(w io.Writer, r *record.Run) error {
	b := newTimeline(r)
	b.actions()
	b.observations()
	b.history()
	b.findings()
	slices.SortStableFunc(b.rows, func(x, y timedRow) int { return x.time.Compare(y.time) })
	for _, row := range b.rows {
		b.page.Rows = append(b.page.Rows, row.row)
	}
	return timelineTemplate.Execute(w, b.page)
}

type timedRow struct {
	time time.Time
	row
}

type timeline struct {
	run      *record.Run
	page     page
	from     time.Time
	duration time.Duration
	rows     []timedRow
}

func newTimeline(r *record.Run) *timeline {
	t := &timeline{run: r}
	from, to := r.Meta.WorkloadStart, r.Meta.WorkloadEnd
	see := func(at time.Time) {
		if at.IsZero() {
			return
		}
		if from.IsZero() || at.Before(from) {
			from = at
		}
		if at.After(to) {
			to = at
		}
	}
	for _, e := range r.Events {
		see(e.Time)
	}
	for _, a := range r.Actions {
		see(a.Fired)
		see(a.Done)
	}
	for _, h := range r.History {
		if h.Event != record.Existing {
			see(h.Time)
		}
	}
	t.from, t.duration = from, max(to.Sub(from), time.Millisecond)
	t.page = page{
		Run: r, Name: name(r), Verdict: verdict(r), Reason: reason(r),
		Took: round(r.Meta.Ended.Sub(r.Meta.Started)),
	}
	if r.Meta.Ended.IsZero() {
		t.page.Took = 0
	}
	for _, p := range r.Meta.Phases {
		t.page.Phases = append(t.page.Phases, fmt.Sprintf("%s %s", p.Name, round(p.Duration)))
	}
	if !r.Meta.WorkloadStart.IsZero() {
		t.page.Workload = bar{t.at(r.Meta.WorkloadStart), t.width(r.Meta.WorkloadStart, r.Meta.WorkloadEnd)}
	}
	step := tickStep(t.duration)
	first := t.from.Sub(zero(r))
	for d := first.Truncate(step); d <= first+t.duration; d += step {
		if d >= first {
			t.page.Ticks = append(t.page.Ticks, tick{t.at(zero(r).Add(d)), signed(d)})
		}
	}
	return t
}

func tickStep(d time.Duration) time.Duration {
	for _, step := range []time.Duration{
		100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second,
		5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
	} {
		if d/step <= 12 {
			return step
		}
	}
	return max(d/10, time.Minute)
}

// at returns a moment's position in per cent, with two digits.
func (t *timeline) at(when time.Time) float64 {
	share := float64(when.Sub(t.from)) / float64(t.duration) * 100
	return float64(int(min(max(share, 0), 100)*100+0.5)) / 100
}

// width returns the time between two moments in per cent.
func (t *timeline) width(from, to time.Time) float64 {
	return float64(int((t.at(to)-t.at(from))*100+0.5)) / 100
}

func (t *timeline) offset(when time.Time) string { return since(t.run, when) }

func (t *timeline) add(when time.Time, class, who, what, detail string) {
	t.rows = append(t.rows, timedRow{when, row{t.offset(when), class, who, what, detail}})
}

func (t *timeline) lane(kind, name string) *lane {
	i := slices.IndexFunc(t.page.Lanes, func(l lane) bool { return l.Kind == kind && l.Name == name })
	if i < 0 {
		t.page.Lanes = append(t.page.Lanes, lane{Name: name, Kind: kind})
		i = len(t.page.Lanes) - 1
	}
	return &t.page.Lanes[i]
}

func (t *timeline) actions() {
	for _, a := range t.run.Actions {
		name := a.String()
		class, what := "action", fmt.Sprintf("took %s", round(a.Done.Sub(a.Fired)))
		if a.Error != "" {
			class, what = "action failed", "failed: "+a.Error
		}
		if by := firedBy(a); by != "" {
			if a.FiredBy > 0 && a.Cause != "" {
				by += fmt.Sprintf(" (event %d)", a.FiredBy)
			}
			what = strings.TrimPrefix(by, ", ") + "; " + what
		}
		if a.Note != "" {
			what += "; note: " + a.Note
		}
		l := t.lane("action", name)
		l.Marks = append(l.Marks, mark{t.at(a.Fired), t.width(a.Fired, a.Done), class, t.offset(a.Fired) + " " + what})
		t.add(a.Fired, class, name, what, "")
	}
}

func (t *timeline) observations() {
	fired := map[int]bool{}
	for _, a := range t.run.Actions {
		fired[a.FiredBy] = true
	}
	stale := map[int]record.StaleRead{}
	for _, s := range t.run.Meta.StaleReads {
		stale[s.Event] = s
	}
	for _, e := range t.run.Events {
		o := e.Observation
		switch {
		case o != nil:
			class := "observation"
			if fired[e.Seq] {
				class += " fired"
			}
			what := fmt.Sprintf("%s %s", describePoint(o), describeObject(o))
			if o.Failed != "" {
				class += " refused"
				what += "; " + failed(o)
			}
			if s, ok := stale[e.Seq]; ok {
				class += " stale"
				what += "; stale read: " + s.String()
			}
			l := t.lane("process", o.By)
			l.Marks = append(l.Marks, mark{t.at(e.Time), 0, class, t.offset(e.Time) + " " + what})
			t.add(e.Time, class, o.By, fmt.Sprintf("event %d: %s", e.Seq, what), pretty(o.Object))
		case e.SessionEnd != nil:
			l := t.lane("process", e.SessionEnd.By)
			l.Marks = append(l.Marks, mark{t.at(e.Time), 0, "end", t.offset(e.Time) + " its session ended"})
			t.add(e.Time, "end", e.SessionEnd.By, fmt.Sprintf("event %d: its session ended", e.Seq), "")
		case e.Timeout != nil:
			t.add(e.Time, "timeout", fmt.Sprintf("action %d", e.Timeout.Action+1),
				fmt.Sprintf("event %d: timeout", e.Seq), "")
		case e.Expired != nil:
			t.add(e.Time, "end", "hold", fmt.Sprintf("event %d: the observation of event %d was held too long", e.Seq,
				*e.Expired), "")
		}
	}
}

func (t *timeline) history() {
	began := map[string]time.Time{}
	last := map[string]string{}
	for _, h := range t.run.History {
		key := h.Type + "/" + h.Namespace + "/" + h.Name
		l := t.lane("object", key)
		at := h.Time
		if h.Event == record.Existing {
			at = t.from
		}
		if _, alive := began[key]; !alive {
			began[key] = at
		}
		what := fmt.Sprintf("%s at resource version %d%s", h.Event, h.ResourceVersion, writtenBy(h))
		l.Marks = append(l.Marks, mark{t.at(at), 0, h.Event, t.offset(at) + " " + what})
		text := pretty(h.Object)
		if h.Event != record.Existing {
			t.add(at, h.Event, key, what, difference(last[key], text))
		}
		last[key] = text
		if h.Event == record.Deleted {
			l.Marks = append(l.Marks, mark{t.at(began[key]), t.width(began[key], at), "life", key})
			delete(began, key)
			delete(last, key)
		}
	}
	end := t.from.Add(t.duration)
	for i := range t.page.Lanes {
		l := &t.page.Lanes[i]
		if at, alive := began[l.Name]; alive && l.Kind == "object" {
			l.Marks = append(l.Marks, mark{t.at(at), t.width(at, end), "life", l.Name})
		}
	}
}

// writtenBy names the writers of a state, as the end of a sentence.
func writtenBy(h record.HistoryEntry) string {
	var names []string
	for _, w := range h.Writers {
		names = append(names, w.String())
	}
	if len(names) == 0 {
		return ""
	}
	return " by " + strings.Join(names, ", ")
}

func (t *timeline) findings() {
	for _, f := range t.run.Findings {
		if f.Time.IsZero() {
			continue
		}
		l := t.lane("finding", "findings")
		l.Marks = append(l.Marks, mark{t.at(f.Time), 0, "finding", t.offset(f.Time) + " " + f.Title})
		t.add(f.Time, "finding", f.Oracle, f.Title, f.Detail)
	}
}

func pretty(data []byte) string {
	var v any
	if len(data) == 0 || json.Unmarshal(data, &v) != nil {
		return ""
	}
	if m, ok := v.(map[string]any); ok {
		if meta, ok := m["metadata"].(map[string]any); ok {
			delete(meta, "managedFields")
		}
	}
	return flatten("", v)
}

// flatten returns a value as sorted lines of path = value, which are easy to compare.
func flatten(path string, v any) string {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			return path + " = {}\n"
		}
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		var b strings.Builder
		for _, k := range keys {
			b.WriteString(flatten(strings.TrimPrefix(path+"."+k, "."), v[k]))
		}
		return b.String()
	case []any:
		if len(v) == 0 {
			return path + " = []\n"
		}
		var b strings.Builder
		for i, item := range v {
			b.WriteString(flatten(fmt.Sprintf("%s[%d]", path, i), item))
		}
		return b.String()
	case string:
		return fmt.Sprintf("%s = %q\n", path, v)
	}
	return fmt.Sprintf("%s = %v\n", path, v)
}

// difference returns the removed and the added lines; all lines if there were none before.
func difference(before, after string) string {
	if before == "" {
		return after
	}
	old, current := strings.Split(before, "\n"), strings.Split(after, "\n")
	path := func(line string) string { p, _, _ := strings.Cut(line, " = "); return p }
	var b strings.Builder
	i, j := 0, 0
	for i < len(old) || j < len(current) {
		switch {
		case i < len(old) && j < len(current) && old[i] == current[j]:
			i, j = i+1, j+1
		case i < len(old) && (j == len(current) || !slices.Contains(current[j:], old[i])) && old[i] != "":
			b.WriteString("- " + old[i] + "\n")
			i++
			if j < len(current) && path(current[j]) == path(old[i-1]) {
				b.WriteString("+ " + current[j] + "\n")
				j++
			}
		case j < len(current):
			if current[j] != "" {
				b.WriteString("+ " + current[j] + "\n")
			}
			j++
		default:
			i++
		}
	}
	return b.String()
}

// failed says how the plan made a call fail.
func failed(o *record.Observation) string {
	if o.Failed == wire.Lost {
		return fmt.Sprintf("the plan made its answer (%d) get lost: %s", o.Code, o.Error)
	}
	return "the plan had it refused: " + o.Error
}
