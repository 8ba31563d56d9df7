package binaries

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/buildcache"
	"github.com/trommel-dev/trommel/internal/wording"
)

// cacheKinds names the contents of the cache's directories, in the order in which they are shown.
var cacheKinds = []struct{ kind, what string }{
	{"controlplane", "control planes"},
	{"builds", "controllers"},
	{"modules", "patched modules"},
	{"hook", "hooks"},
	{"std", "patched standard libraries"},
	{"goroot", "copies of Go"},
}

// NewCacheCommand returns `trommel cache`.
func NewCacheCommand(s output.Streams) *cobra.Command {
	var all bool
	var format output.Format
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "Show what the cache contains, and clear it",
		Long: fmt.Sprintf(
			`Show what Trommel's cache directory contains: $TROMMEL_CACHE, or trommel in the user's cache directory.

When the cache exceeds %d GB, or $%s, a build that adds to it removes the least recently used entries. It keeps
entries that were used within the last hour or that a running process uses.`,
			buildcache.DefaultGB, buildcache.EnvGB),
		Example: `  trommel cache
  trommel cache --all
  trommel cache -o json
  trommel cache clear --older-than 168h`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			entries, err := buildcache.List("")
			if err == nil && !format.Table() {
				err = cacheListing.Print(s.Out, format, listedCache(entries))
			} else if err == nil {
				err = showCache(s.Out, entries, all || format == "wide", time.Now())
			}
			if err != nil {
				return exit.With(exit.CannotRun, err)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "list every entry")
	format.Register(cmd)
	cmd.AddCommand(newCacheClearCommand(s))
	return cmd
}

func newCacheClearCommand(s output.Streams) *cobra.Command {
	var olderThan time.Duration
	cmd := &cobra.Command{
		Use:   "clear",
		Short: "Remove cache entries that no running process uses",
		Example: `  trommel cache clear
  trommel cache clear --older-than 24h`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if olderThan < 0 {
				return exit.With(exit.Usage,
					fmt.Errorf("--older-than: %s: the time must not be negative", olderThan))
			}
			removed, err := buildcache.Clear("", time.Now().Add(-olderThan))
			var size int64
			for _, e := range removed {
				size += e.Size
			}
			fmt.Fprintf(s.Out, "removed %d entries, %s\n", len(removed), wording.Gigabytes(size))
			if err != nil {
				return exit.With(exit.CannotRun, err)
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&olderThan, "older-than", 0, "only entries that were not used for this long (default: all)")
	return cmd
}

// listedEntry is an entry of the cache as it is listed.
type listedEntry struct {
	Kind  string    `json:"kind"`
	Path  string    `json:"path"`
	Bytes int64     `json:"bytes"`
	Used  time.Time `json:"used"` // last
}

var cacheListing = output.List[listedEntry]{Name: func(e listedEntry) string { return e.Path }}

func listedCache(entries []buildcache.Entry) []listedEntry {
	var all []listedEntry
	for _, e := range entries {
		all = append(all, listedEntry{e.Kind, e.Path, e.Size, e.Used})
	}
	return all
}

func showCache(out io.Writer, entries []buildcache.Entry, all bool, now time.Time) error {
	dir, err := buildcache.Dir()
	if err != nil {
		return err
	}
	limit, err := buildcache.Limit()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.StripEscape)
	fmt.Fprintln(w, "KIND\tENTRIES\tSIZE\tLAST USE")
	var total int64
	for _, k := range cacheKinds {
		count, size, last := 0, int64(0), time.Time{}
		for _, e := range entries { // newest first
			if e.Kind != k.kind {
				continue
			}
			if count == 0 {
				last = e.Used
			}
			count++
			size += e.Size
		}
		total += size
		if count > 0 {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", k.what, count, wording.Gigabytes(size), wording.Ago(now.Sub(last)))
		}
	}
	most := "no limit"
	if limit > 0 {
		most = "limit " + wording.Gigabytes(limit)
	}
	fmt.Fprintf(w, "all\t%d\t%s\t(%s, %s)\n", len(entries), wording.Gigabytes(total), most, dir)
	if all {
		fmt.Fprintln(w, "\nENTRY\t\tSIZE\tLAST USE")
		for _, e := range entries {
			fmt.Fprintf(w, "%s\t\t%s\t%s\n", e.Path, wording.Gigabytes(e.Size), wording.Ago(now.Sub(e.Used)))
		}
	}
	return w.Flush()
}
