package shrink

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/plan"
)

// A smaller plan never has more lines than the plan that it was made from, whatever is taken away. The steps of a
// workload of the suite that become the plan's own are written as they are in the suite, and count there.
func TestSmallerPlansHaveNoMoreLines(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*/plans/*.yaml")
	if err != nil || len(files) < 25 {
		t.Fatalf("%d plans: %v", len(files), err)
	}
	lines := func(text []byte) int { return bytes.Count(bytes.TrimSpace(text), []byte("\n")) + 1 }
	edits := 0
	for _, file := range files {
		suiteFile, err := plan.FindSuite(file)
		if err != nil {
			t.Fatal(err)
		}
		suite, err := plan.LoadSuite(suiteFile)
		if err != nil {
			t.Fatal(err)
		}
		if len(suite.Clusters) > 0 {
			continue
		}
		p, err := plan.LoadWith(file, suite)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		first, err := clone(p)
		if err != nil {
			t.Fatal(err)
		}
		first.Complete(suite)
		s := newSearch(suite, first, nil)
		var all []edit
		for _, k := range s.kinds() {
			for i := range k.list(s.best) {
				for _, size := range []int{1, 2} {
					all = append(all, edit{k.list(s.best)[i], func(p *plan.Plan) bool {
						return k.drop(p, func(n int) bool { return n >= i && n < i+size })
					}})
				}
			}
		}
		all = append(all, simplifications(s.best, nil)...)
		all = append(all, edit{"nothing", func(*plan.Plan) bool { return true }})
		for _, e := range all {
			smaller, _ := s.edited(e)
			if smaller == nil {
				continue
			}
			edits++
			got, err := plan.MarshalLike(smaller, p, suite)
			if err != nil {
				t.Fatal(err)
			}
			want := lines(text)
			if len(p.Steps) == 0 && len(smaller.Steps) > 0 {
				want = max(want, size(suite, p, p).Lines+lines(text)-size(&plan.Suite{}, p, p).Lines)
			}
			if n := lines(got); n > want {
				t.Errorf("%s without %s has %d lines, and had %d:\n%s", file, e.what, n, want, got)
			}
			if e.what == "nothing" && strings.Join(strings.Fields(string(got)), " ") !=
				strings.Join(strings.Fields(string(text)), " ") {
				t.Errorf("%s is written differently:\n%s", file, got)
			}
		}
	}
	t.Logf("%d smaller plans of %d", edits, len(files))
}
