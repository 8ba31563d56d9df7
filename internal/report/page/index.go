package page

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/baseline/findings"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// IndexEntry is a run in an index. Of its record only the metadata and the findings are needed.
type IndexEntry struct {
	Run  *record.Run
	Page string // the link to its page
}

// Slim returns a run with what an index and summaries need of it, without observations, history, actions and texts.
func Slim(r *record.Run) *record.Run {
	return &record.Run{
		Dir: r.Dir, Meta: r.Meta, Plan: r.Plan, Findings: r.Findings, Processes: r.Processes, Truncated: r.Truncated,
	}
}

type indexPage struct {
	Title    string
	Verdicts []indexCount
	Took     string
	Findings []indexFinding
	Plans    []indexPlan
}

type indexCount struct {
	Verdict record.Verdict
	Count   int
}

// indexFinding is what several runs have found.
type indexFinding struct {
	Class string
	Title string
	Cause string   // see findings.CauseOf; empty: unknown
	Also  []string // what else the first run has found
	Count int      // of runs
	Plans []indexFound
}

// indexFound is a plan whose runs have it.
type indexFound struct {
	Name  string
	Found int
	Of    int
	Page  string // of the first such run
}

type indexPlan struct {
	Name     string
	Suite    string
	Verdicts []indexCount
	Flakes   string // the share of runs with another verdict than most
	Fired    string
	Median   string
	Longest  string
	Runs     []indexRun
	worst    int
}

type indexRun struct {
	Number  int
	Verdict record.Verdict
	Page    string
	Title   string
}

// verdictOrder lists verdicts, those that need attention first.
var verdictOrder = []record.Verdict{
	record.Bug, record.Error, record.Inconclusive, report.Unfinished, record.NotRun, record.Pass,
}

// Index writes a page about several runs, which links to their pages: what they have found, and for each plan its
// verdicts, how often they differ and how long its runs took. The error is that of the writer.
func Index(w io.Writer, title string, entries []IndexEntry) error {
	page := indexPage{Title: title}
	all := map[record.Verdict]int{}
	plans := map[string][]IndexEntry{}
	var total time.Duration
	for _, e := range entries {
		all[report.Verdict(e.Run)]++
		plans[report.Name(e.Run)] = append(plans[report.Name(e.Run)], e)
		total += e.Run.Meta.Took()
	}
	page.Verdicts = counts(all)
	page.Took = report.Round(total).String()
	page.Findings = groupFound(entries, plans)
	for _, plan := range slices.Sorted(maps.Keys(plans)) {
		page.Plans = append(page.Plans, aboutPlan(plan, plans[plan]))
	}
	slices.SortStableFunc(page.Plans, func(x, y indexPlan) int { return x.worst - y.worst })
	return indexTemplate.Execute(w, page)
}

func counts(of map[record.Verdict]int) []indexCount {
	var all []indexCount
	for _, v := range verdictOrder {
		if of[v] > 0 {
			all = append(all, indexCount{v, of[v]})
		}
	}
	return all
}

func aboutPlan(plan string, entries []IndexEntry) indexPlan {
	p := indexPlan{Name: plan, Suite: entries[0].Run.Meta.Suite}
	verdicts := map[record.Verdict]int{}
	var durations []time.Duration
	fired, ofAll := 0, 0
	for i, e := range entries {
		v := report.Verdict(e.Run)
		verdicts[v]++
		if d := e.Run.Meta.Took(); d > 0 {
			durations = append(durations, d)
		}
		fired += e.Run.Meta.ActionsFired
		ofAll += e.Run.Meta.ActionsTotal
		headline, _, _ := strings.Cut(report.Headline(e.Run, report.ByCause(e.Run)), "\n")
		p.Runs = append(p.Runs, indexRun{i + 1, v, e.Page, headline})
	}
	p.Verdicts = counts(verdicts)
	p.worst = slices.Index(verdictOrder, p.Verdicts[0].Verdict)
	if most := slices.Max(slices.Collect(maps.Values(verdicts))); len(entries) > 1 {
		p.Flakes = fmt.Sprintf("%.0f %%", math.Ceil(100*float64(len(entries)-most)/float64(len(entries))))
	}
	if ofAll > 0 {
		p.Fired = fmt.Sprintf("%d of %d", fired, ofAll)
	}
	if slices.Sort(durations); len(durations) > 0 {
		p.Median = report.Round(durations[len(durations)/2]).String()
		p.Longest = report.Round(durations[len(durations)-1]).String()
	}
	return p
}

// groupFound lists what runs have found, grouped as in all summaries: bugs first, the worst first. A run is in one
// group of bugs; what else it has found follows from that.
func groupFound(entries []IndexEntry, plans map[string][]IndexEntry) []indexFinding {
	var all []indexFinding
	for _, severity := range []record.Severity{record.SeverityBug, record.SeverityInconclusive} {
		var in []int // the entries
		var ones []findings.One
		for i, e := range entries {
			one := findings.One{Sure: true}
			one.Cause, one.Struck = causeOf(e.Run)
			for _, f := range report.ByHarm(e.Run) {
				if f.Severity == severity {
					one.Findings = append(one.Findings, f)
				}
			}
			if one.Findings != nil {
				in, ones = append(in, i), append(ones, one)
			}
		}
		for _, g := range findings.Groups(ones) {
			one := indexFinding{
				Class: string(severity), Title: report.Title(g.Finding), Cause: ones[g.Members[0]].Cause,
				Count: len(g.Members),
			}
			for _, f := range ones[g.Members[0]].Findings {
				if f != g.Finding && len(one.Also) < maxAlso {
					one.Also = append(one.Also, report.Title(f))
				}
			}
			pages := map[string][]string{} // by plan
			slices.Sort(g.Members)
			for _, i := range g.Members {
				e := entries[in[i]]
				pages[report.Name(e.Run)] = append(pages[report.Name(e.Run)], e.Page)
			}
			for _, plan := range slices.Sorted(maps.Keys(pages)) {
				one.Plans = append(one.Plans, indexFound{plan, len(pages[plan]), len(plans[plan]), pages[plan][0]})
			}
			all = append(all, one)
		}
	}
	return all
}

// maxAlso is how many further findings of a group's first run the index shows.
const maxAlso = 3

// causeOf is the cause by which what a run has found is grouped, and the write that its plan has struck. They are empty
// if the record has no plan.
func causeOf(r *record.Run) (cause, struck string) {
	if len(r.Plan) == 0 {
		return "", ""
	}
	p, err := plan.Parse(r.Plan, record.PlanFile)
	if err != nil {
		return "", "" // another version of Trommel wrote it
	}
	return findings.CauseOf(p.Actions), findings.StruckBy(p.Actions)
}
