package campaign

import (
	"context"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/record"
)

// confirm runs a plan again that has found something. What comes every time is believed.
func (c *campaign) confirm(ctx context.Context, l *Learned, first Outcome) (err error) {
	f := Finding{Outcome: first, Came: 1, Of: 1}
	same := bugs(first.Findings)
	for f.Of < c.Repeat {
		var r *record.Run
		r, _, err = c.once(ctx, first.Candidate.Plan, l.Options())
		if err != nil {
			break // what was found so far is reported
		}
		f.Of++
		again := bugs(r.Findings)
		common := slices.DeleteFunc(slices.Clone(same), func(x record.Finding) bool {
			return !slices.ContainsFunc(again, func(y record.Finding) bool { return SameFinding(x, y) })
		})
		if len(common) > 0 {
			f.Came++
			same = common
		}
	}
	if err == nil && f.Came == f.Of {
		f.Findings = same
		c.result.Findings = append(c.result.Findings, f)
	} else {
		c.result.Unconfirmed = append(c.result.Unconfirmed, f)
	}
	return err
}

// bugs are the findings about the controllers.
func bugs(all []record.Finding) []record.Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f record.Finding) bool { return !f.IsBug() })
}

// SameFinding reports whether two runs of a plan have found the same: the values in it may differ.
func SameFinding(x, y record.Finding) bool {
	title := func(f record.Finding) string {
		t, _, _ := strings.Cut(f.Title, ":")
		return t
	}
	return x.Oracle == y.Oracle && x.Subject == y.Subject && title(x) == title(y)
}
