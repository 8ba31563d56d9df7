package propose

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/internal/wording"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// planless says why `trommel test` will make no plan from a workload, by what its trial has shown; empty: it will make
// some, or cannot tell.
func planless(suite *plan.Suite, workload string, t *trial) (string, error) {
	// One run stands for the two that a baseline needs: what differs between runs only takes plans away.
	ref, err := baseline.Learn(workload, []*record.Run{t.run, t.run}, suite.Masks...)
	var unstable *baseline.UnstableError
	if errors.As(err, &unstable) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", workload, err)
	}
	if !slices.ContainsFunc(ref.Changes, func(c facts.Change) bool { return c.By != "" }) {
		return "no controller under test writes anything in it", nil
	}
	rules := map[string]int{}
	for _, c := range pattern.GenerateFor(suite, suite.Workloads[workload].Steps, ref) {
		if c.Plan != nil {
			return "", nil
		}
		rule, _, _ := strings.Cut(c.Dropped, "\n") // further mistakes of one plan
		rules[rule]++
	}
	return whyDropped(rules), nil
}

// whyDropped names the rules that have dropped all candidates, those of most candidates first.
func whyDropped(rules map[string]int) string {
	if len(rules) == 0 {
		return "no pattern has a moment in it at which it could strike"
	}
	const most = 3
	names := slices.SortedFunc(maps.Keys(rules), func(a, b string) int {
		if rules[a] != rules[b] {
			return rules[b] - rules[a]
		}
		return strings.Compare(a, b)
	})
	var parts []string
	for _, name := range names[:min(most, len(names))] {
		parts = append(parts, fmt.Sprintf("%s: %s", wording.Count(rules[name], "moment"), name))
	}
	if rest := len(names) - most; rest > 0 {
		parts = append(parts, fmt.Sprintf("and %s", wording.Count(rest, "other reason")))
	}
	return strings.Join(parts, "; ")
}
