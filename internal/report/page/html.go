// Package page writes runs as HTML pages: one for a run, with its timeline, and an index of several runs.
package page

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/expr"
	"github.com/trommel-dev/trommel/internal/lead"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// The files of the pages. They are written as they are served: the scripts are ES modules, which a page holds joined.
//
//go:embed html
var pageFiles embed.FS

var (
	runTemplate   = pageTemplate("run.html.tmpl")
	indexTemplate = pageTemplate("index.html.tmpl")
)

func pageTemplate(name string) *template.Template {
	return template.Must(template.New(name).Funcs(template.FuncMap{
		"style": func() template.CSS { return template.CSS(pageFile("page.css")) },
	}).ParseFS(pageFiles, "html/"+name))
}

func pageFile(name string) string {
	data, err := pageFiles.ReadFile("html/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(data)
}

// modules are the scripts of a run's page, each after those that it imports.
var modules = []string{
	"diff.js", "data.js", "axis.js", "look.js", "timeline.js", "details.js", "versions.js", "list.js", "main.js",
}

var (
	importLine = regexp.MustCompile(`(?m)^import .*;\n`)
	exportWord = regexp.MustCompile(`(?m)^export `)
)

// script joins the modules to one.
var script = func() template.JS {
	var b strings.Builder
	for _, name := range modules {
		fmt.Fprintf(&b, "\n// %s\n", name)
		b.WriteString(exportWord.ReplaceAllString(importLine.ReplaceAllString(pageFile(name), ""), ""))
	}
	return template.JS(b.String())
}()

// statesInBlock is how many states of objects a block holds. Blocks are read when one of their states is shown.
const statesInBlock = 64

// block is compressed JSON in the page: base64 of gzip, which cannot end the element that it is in.
type block struct {
	ID   string
	Data template.HTML
}

func newBlock(id string, v any) (block, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return block{}, err
	}
	var b bytes.Buffer
	text := base64.NewEncoder(base64.StdEncoding, &b)
	zip, err := gzip.NewWriterLevel(text, gzip.BestCompression)
	if err != nil {
		return block{}, err
	}
	if _, err := zip.Write(data); err != nil {
		return block{}, err
	}
	if err := zip.Close(); err != nil {
		return block{}, err
	}
	if err := text.Close(); err != nil {
		return block{}, err
	}
	return block{id, template.HTML(b.String())}, nil
}

// runPage is the data of the template of a run's page: what a reader sees without scripts.
type runPage struct {
	Run      *record.Run
	Name     string
	Verdict  record.Verdict
	Headline string
	Missing  []string // why the plan was not carried out, or why the run has no verdict
	About    string
	Facts    []string
	Findings []pageFinding
	Notes    []string
	Actions  []pageAction
	NoPlan   bool
	Story    []pageMoment
	Script   template.JS
	Blocks   []block
}

// ledTo is of how many findings the page shows what led to them: it is often the same.
const ledTo = 3

type pageFinding struct {
	Class  string
	Title  string
	Times  string
	Detail string
	Led    string // what led to it; empty: unknown
	File   string // of the source; empty: it is not there
	Source string // around the call that it names
	At     string // empty: unknown
	MS     float64
}

type pageMoment struct {
	At   string
	MS   float64
	Text string
}

// pageAction is an action of the plan with what became of it.
type pageAction struct {
	Number  int
	What    string // the first line
	More    string // further lines
	State   string // done, failed or waiting
	Outcome string
	Notes   []string
	At      string
	MS      float64
	Trigger *pageTrigger
}

// pageTrigger is a part of an action's trigger graph.
type pageTrigger struct {
	Op   string // then, or, and; empty: a node
	Kids []*pageTrigger
	// Of a node:
	Name    string
	Waits   string
	State   record.TriggerState
	Outcome string
	Event   int
	MS      float64
	Misses  []pageMiss
	Missed  int
}

type pageMiss struct {
	Text  string
	At    string
	Event int
	MS    float64
}

// HTML writes a run as one self-contained page: the verdict and its cause, the timeline, the versions of objects at
// each place, the plan with what became of it, and the logs. The plan is the recorded one; nil: it is not known. The
// account is a replay's; nil: holds and triggers are left out. Logs are read from the record's directory. The error is
// that of the writer, or of a history that cannot be read.
func HTML(w io.Writer, r *record.Run, p *plan.Plan, account *record.Account) error {
	data := newPage(r, p, account)
	found := report.ByCause(r)
	page := runPage{
		Run: r, Name: report.Name(r), Verdict: report.Verdict(r), Headline: report.Headline(r, found),
		Notes:  r.Meta.Notes,
		NoPlan: p == nil, Script: script,
	}
	if p != nil {
		page.About = strings.TrimSpace(p.Description)
	}
	headlined, rest, _ := strings.Cut(page.Headline, "\n")
	page.Headline = headlined
	for _, text := range []string{rest, report.Reason(r), r.Meta.NotHappened()} {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" && line != headlined && !slices.Contains(page.Missing, line) {
				page.Missing = append(page.Missing, line)
			}
		}
	}
	if p != nil && account == nil {
		page.Notes = append(slices.Clone(page.Notes), "What was held and how triggers were satisfied is not shown: "+
			"the record is incomplete, or another version of Trommel wrote it.")
	}
	page.Facts = headFacts(r)
	for i, f := range found {
		one := pageFinding{
			Class: string(f.Severity), Title: report.Title(f.Finding), Times: f.Times(),
			Detail: strings.TrimSpace(report.Place(f.Finding) + "\n" + f.Detail),
		}
		one.File, one.Source = report.SourceAround(r, f.Finding)
		if i < ledTo && f.IsBug() {
			if l := lead.Of(r, f.Finding); l != nil {
				one.Led = report.LeadText(r, l)
			}
		}
		if at := f.Happened; !at.IsZero() {
			one.At, one.MS = report.Since(r, at), data.ms(at)
		}
		page.Findings = append(page.Findings, one)
	}
	page.Actions = data.tellActions()
	moments, err := report.Story(r, found)
	if err != nil {
		return err
	}
	for _, m := range moments {
		page.Story = append(page.Story, pageMoment{report.Since(r, m.At), data.ms(m.At), m.Text})
	}
	if page.Blocks, err = data.blocks(); err != nil {
		return err
	}
	return runTemplate.Execute(w, page)
}

// headFacts says when, with what and for how long a run ran.
func headFacts(r *record.Run) []string {
	var all []string
	add := func(format string, v any, known bool) {
		if known {
			all = append(all, fmt.Sprintf(format, v))
		}
	}
	m := r.Meta
	add("%s", m.Began().Format("2006-01-02 15:04:05 MST"), !m.Began().IsZero())
	add("took %s", report.Took(m), !m.Ended.IsZero())
	for _, p := range m.Phases {
		add("%s", fmt.Sprintf("%s %s", p.Name, report.Round(p.Duration)), true)
	}
	add("Kubernetes %s", m.Kubernetes, m.Kubernetes != "")
	add("Trommel %s", m.Trommel, m.Trommel != "")
	add("run record %s", r.Dir, r.Dir != "")
	return all
}

// blocks are the compressed data of the page.
func (b *pageBuilder) blocks() ([]block, error) {
	b.data.Chunk = statesInBlock
	main, err := newBlock("data", b.data)
	if err != nil {
		return nil, err
	}
	blocks := []block{main}
	for chunk := range slices.Chunk(b.states, statesInBlock) {
		next, err := newBlock(fmt.Sprintf("states-%d", len(blocks)-1), chunk)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, next)
	}
	for i, l := range b.data.Logs {
		next, err := newBlock(fmt.Sprintf("log-%d", i), l.content)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, next)
	}
	return blocks, nil
}

// tellActions says of each action what it was to do, what became of it, and how far its trigger came. Without a plan it
// lists the actions that were carried out.
func (b *pageBuilder) tellActions() []pageAction {
	var all []pageAction
	if b.plan == nil {
		for _, a := range b.run.Actions {
			one := pageAction{Number: a.Index + 1, What: a.String()}
			b.carriedOut(&one, a)
			all = append(all, one)
		}
		return all
	}
	for i := range b.plan.Actions {
		what, more, _ := strings.Cut(plan.ExplainAction(b.plan, i), "\n")
		one := pageAction{Number: i + 1, What: what, More: more, State: "waiting", Outcome: "It was not carried out."}
		at := slices.IndexFunc(b.run.Actions, func(a record.Action) bool { return a.Index == i })
		if at >= 0 {
			b.carriedOut(&one, b.run.Actions[at])
		}
		graph := b.plan.Actions[i].Trigger.Graph
		switch {
		case i < len(b.account.Triggers) && graph.Len() <= expr.MaxDrawn:
			one.Trigger = b.tellTrigger(graph.Tree(), &b.account.Triggers[i])
		case at < 0:
			one.Notes = report.WaitedFor(b.run, i)
		}
		all = append(all, one)
	}
	return all
}

// carriedOut says how an action was carried out.
func (b *pageBuilder) carriedOut(one *pageAction, a record.Action) {
	one.State, one.At, one.MS = "done", report.Since(b.run, a.At()), b.ms(a.At())
	one.Outcome = fmt.Sprintf("It was carried out at %s%s.", one.At, report.WithCause(", after ", a))
	if a.Error != "" {
		one.State = "failed"
		one.Notes = append(one.Notes, "It failed: "+a.Error)
	}
	if a.Note != "" {
		one.Notes = append(one.Notes, "But it "+a.Note)
	}
}

func (b *pageBuilder) tellTrigger(t expr.Tree, how *record.Trigger) *pageTrigger {
	if t.Op != "" {
		joined := &pageTrigger{Op: map[string]string{";": "then", "|": "or", "&": "and"}[t.Op]}
		for _, kid := range t.Kids {
			joined.Kids = append(joined.Kids, b.tellTrigger(kid, how))
		}
		return joined
	}
	n := &how.Nodes[t.Node]
	node := &pageTrigger{Name: n.Name, Waits: n.Waits, State: n.State, Missed: n.Missed}
	switch n.State {
	case record.TriggerSatisfied:
		node.Outcome = "satisfied at once"
		if n.By > 0 {
			at := b.run.Events[n.By-1].Time
			node.Event, node.MS = n.By, b.ms(at)
			node.Outcome = fmt.Sprintf("satisfied at %s by %s", report.Since(b.run, at), b.eventText(n.By))
		}
	case record.TriggerWaiting:
		node.Outcome = "it still waits"
	case record.TriggerDropped:
		node.Outcome = "no longer needed: the expression was satisfied another way"
	default:
		node.Outcome = "it was never its turn"
	}
	for _, m := range n.Misses {
		at := b.run.Events[m.Event-1].Time
		node.Misses = append(node.Misses, pageMiss{m.Text, report.Since(b.run, at), m.Event, b.ms(at)})
	}
	return node
}

// eventText describes an event in a few words.
func (b *pageBuilder) eventText(seq int) string {
	e := b.run.Events[seq-1]
	switch {
	case e.Observation != nil:
		return fmt.Sprintf("event %d: %s", seq, b.say(e.Observation))
	case e.Timeout != nil:
		return "its timeout"
	}
	return fmt.Sprintf("event %d", seq)
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
