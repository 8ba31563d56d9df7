package records

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/coordinator/machine"
	"github.com/trommel-dev/trommel/internal/report/page"
	"github.com/trommel-dev/trommel/record"
)

// indexFile is the name of the page about all runs.
const indexFile = "index.html"

// WritePage writes a run as a page. A replay shows which calls were held and how far triggers came; a record that does
// not replay, because it is truncated or another version of Trommel wrote it, has a page without that.
func WritePage(w io.Writer, r *record.Run) error {
	p, err := Plan(r)
	if err != nil {
		return page.HTML(w, r, nil, nil)
	}
	fires, _, err := machine.Replay(p, r.Meta.Controllers, r.Events)
	if err != nil || machine.CompareReplay(fires, r.Actions) != nil {
		return page.HTML(w, r, p, nil)
	}
	account, err := machine.Account(p, r.Meta.Controllers, r.Events)
	if err != nil {
		return err
	}
	return page.HTML(w, r, p, account)
}

// writePages writes a page for each run, and their index. It holds one record at a time: a campaign has hundreds.
func writePages(s output.Streams, dir string, records []string) error {
	if err := os.MkdirAll(dir, record.DirMode); err != nil {
		return exit.With(exit.Usage, fmt.Errorf("--to: %w", err))
	}
	var entries []page.IndexEntry
	taken := map[string]bool{indexFile: true}
	for _, path := range records {
		r, err := record.Open(path)
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		name := pageName(path, taken)
		err = writeFile(filepath.Join(dir, name), os.O_TRUNC, func(w io.Writer) error { return WritePage(w, r) })
		if err != nil {
			return exit.With(exit.CannotRun, err)
		}
		entries = append(entries, page.IndexEntry{Run: page.Slim(r), Page: name})
	}
	title := fmt.Sprintf("%d runs", len(entries))
	if len(entries) == 1 {
		title = "1 run"
	}
	file := filepath.Join(dir, indexFile)
	err := writeFile(file, os.O_TRUNC, func(w io.Writer) error { return page.Index(w, title, entries) })
	if err != nil {
		return exit.With(exit.CannotRun, err)
	}
	fmt.Fprintln(s.Out, file)
	return nil
}

// pageName names the page of a record. The record of a plan that was run several times is often a number in the plan's
// directory.
func pageName(path string, taken map[string]bool) string {
	path = filepath.Clean(path)
	base := filepath.Base(path)
	if strings.Trim(base, "0123456789") == "" {
		base = filepath.Base(filepath.Dir(path)) + "-" + base
	}
	safe := func(r rune) rune {
		if strings.ContainsRune(`%?#/\:`, r) {
			return '-'
		}
		return r
	}
	base = strings.TrimLeft(strings.Map(safe, base), ".-")
	name := base + ".html"
	for n := 2; taken[name]; n++ {
		name = fmt.Sprintf("%s-%d.html", base, n)
	}
	taken[name] = true
	return name
}
