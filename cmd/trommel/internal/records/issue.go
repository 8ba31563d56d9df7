package records

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/campaign"
	"github.com/trommel-dev/trommel/internal/campaign/result"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/record"
)

// issueForm is the format of a page for a bug tracker, which is not made of records alone.
const issueForm = "issue"

// ErrNoBug is wrapped if a campaign has no confirmed bug that a page could be about.
var ErrNoBug = errors.New("the campaign has no such confirmed bug")

// writeIssue writes the page for a bug of a campaign, or of one run.
func writeIssue(ctx context.Context, s output.Streams, dirs []string, number int) error {
	if len(dirs) > 1 {
		return exit.With(exit.Usage, errors.New("-o issue is for one campaign, or one run"))
	}
	page, err := issueOf(dirs[0], func(groups []result.Group) (int, error) {
		if number < 1 || number > len(groups) {
			return 0, fmt.Errorf("--group %d: the campaign has %s", number,
				wording.Count(len(groups), "confirmed bug"))
		}
		return number - 1, nil
	})
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	page.Commits = commits(ctx, page.Record)
	if err := page.Write(s.Out); err != nil {
		return exit.With(exit.CannotRun, err)
	}
	return nil
}

// IssueAbout is the page for the first confirmed bug of a campaign with a finding that matches. If there is none, the
// error is ErrNoBug.
func IssueAbout(ctx context.Context, dir string, matches func(record.Finding) bool) (*result.Issue, error) {
	page, err := issueOf(dir, func(groups []result.Group) (int, error) {
		at := slices.IndexFunc(groups, func(g result.Group) bool {
			return slices.ContainsFunc(g.Plans, func(o result.Outcome) bool {
				return slices.ContainsFunc(o.Findings, matches)
			})
		})
		if at < 0 {
			return 0, ErrNoBug
		}
		return at, nil
	})
	if err != nil {
		return nil, err
	}
	page.Commits = commits(ctx, page.Record)
	return page, nil
}

// issueOf is the page of the chosen one of a campaign's bugs, of which there is at least one, or of a run's worst.
func issueOf(dir string, choose func([]result.Group) (int, error)) (*result.Issue, error) {
	state, err := campaign.ReadState(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return issueOfRun(dir)
	case err != nil:
		return nil, err
	}
	all := result.Result{Settings: state.Settings}
	for _, o := range state.Outcomes {
		all.Outcomes = append(all.Outcomes, *o)
	}
	groups := result.Groups(all.With(result.Bug))
	if len(groups) == 0 {
		return nil, fmt.Errorf("%s: %w", dir, ErrNoBug)
	}
	chosen, err := choose(groups)
	if err != nil {
		return nil, err
	}
	page := &result.Issue{Group: groups[chosen]}
	first := &page.Group.Plans[0]
	at := func(path string) string { // those of a campaign count from where it ran
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(state.WorkDir, path)
	}
	if first.Faultless {
		return nil, fmt.Errorf("%s: it comes without any plan; `%s` shows it", page.Group.Finding.Title,
			all.Show(first))
	}
	if page.Record, err = record.Open(at(page.Group.Record())); err != nil {
		return nil, err
	}
	page.File, page.Show = first.File, result.Install+all.Show(first)
	if first.Smaller != "" {
		page.File = first.Smaller
	}
	if page.Source, err = os.ReadFile(at(page.File)); err != nil {
		return nil, err
	}
	if f := state.Faultless[first.Workload]; f != nil {
		page.Quiet = f.Runs
	}
	page.Plan, err = Plan(page.Record)
	return page, err
}

func issueOfRun(dir string) (*result.Issue, error) {
	if !isRecord(dir) {
		return nil, fmt.Errorf("%s is neither a campaign nor a run record", dir)
	}
	r, err := record.Open(dir)
	if err != nil {
		return nil, err
	}
	found := report.ByCause(r)
	if len(found) == 0 || !found[0].IsBug() {
		return nil, fmt.Errorf("%s: the run has found no bug", dir)
	}
	o := result.Outcome{
		Plan: r.Meta.Plan, File: r.Meta.PlanFile, Confirmation: result.Confirmation{Came: 1, Of: 1},
		Findings: []record.Finding{found[0].Finding}, Record: dir,
	}
	page := &result.Issue{
		Group:  result.Group{Finding: found[0].Finding, Plans: []result.Outcome{o}},
		Record: r, Source: r.Plan, File: filepath.Join(dir, record.PlanFile),
		Show: result.Install + result.Command([]string{"trommel", "-p", r.Meta.PlanFile}),
	}
	page.Plan, err = Plan(r)
	return page, err
}

// commits are what the sources of a run's controllers are called by git today; unknown ones are missing.
func commits(ctx context.Context, r *record.Run) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	all := map[string]string{}
	for _, c := range r.Meta.Controllers {
		if c.Source == "" {
			continue
		}
		git := exec.CommandContext(ctx, "git", "-C", c.Source, "describe", "--always", "--tags", "--long")
		git.Env = append(os.Environ(), "GIT_OPTIONAL_LOCKS=0")
		if out, err := git.Output(); err == nil {
			all[c.Name] = strings.TrimSpace(string(out))
		}
	}
	return all
}
