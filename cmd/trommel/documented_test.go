package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	nodescommand "github.com/trommel-dev/trommel/nodes/command"
)

var (
	fenced  = regexp.MustCompile("(?ms)^ *```[a-z]*\n(.*?)^ *```")
	trommel = regexp.MustCompile(`^(?:[A-Z_]+=\S+ )*(?:\S*/)?trommel((?: \S.*)?)$`)
	flagIn  = regexp.MustCompile("`(--[a-z][a-z-]+)")
)

// Each command that the pages show is one that there is, with flags and arguments that it takes. What a command prints
// is compared by hand, and by the tests of what it does.
func TestDocumentedCommands(t *testing.T) {
	pages := documentedPages(t, "../..")
	known := map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.InitDefaultHelpFlag()
		c.Flags().VisitAll(func(f *pflag.Flag) { known["--"+f.Name] = true })
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand(output.Streams{}))
	walk(nodescommand.New(map[string]nodescommand.Provider{"any": {}})) // trommel-nodes
	commands := 0
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range fenced.FindAllStringSubmatch(string(data), -1) {
			for _, args := range commandsIn(block[1]) {
				commands++
				if err := parses(args); err != nil {
					t.Errorf("%s: trommel %s: %v", page, strings.Join(args, " "), err)
				}
			}
		}
		switch filepath.Base(page) {
		case "instrumentation.md", "disruptions.md", "node-cycling.md", "node-cycling-providers.md",
			"remote-disruptions.md", "originals.md":
			continue // they are about flags of the go command, of the program in a cluster, and of other projects, too
		}
		for _, m := range flagIn.FindAllStringSubmatch(string(data), -1) {
			if !known[m[1]] && !otherFlags[m[1]] {
				t.Errorf("%s: no command has the flag %s", page, m[1])
			}
		}
	}
	if commands < 20 {
		t.Errorf("only %d commands were found", commands)
	}
}

// documentedPages lists the pages for users in the repository at root.
func documentedPages(t *testing.T, root string) []string {
	t.Helper()
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*.md", "examples/*/*.md"} {
		list, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, list...)
	}
	return pages
}

// otherFlags are flags of other programs and of controllers that the pages name.
var otherFlags = map[string]bool{
	"--feature-gates": true, "--leader-elect": true, "--cascade": true,
	"--region":             true, // of trommel-nodes in nodes/aws
	"--fix-stale-deletion": true, "--fix-interrupted-create": true, "--fix-missed-scale": true,
	"--fix-marker": true, "--fix-stale": true,
}

// commandsIn returns the arguments of each call of trommel in a block. A synopsis, with brackets or alternatives, is
// left out.
func commandsIn(block string) [][]string {
	var all [][]string
	block = strings.ReplaceAll(block, "\\\n", " ")
	for line := range strings.Lines(block) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		line, _, _ = strings.Cut(line, "   #")
		line, _, _ = strings.Cut(line, " && ")
		m := trommel.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || strings.ContainsAny(m[1], "[]|<>…") {
			continue
		}
		var args []string
		for _, word := range strings.Fields(m[1]) {
			args = append(args, strings.Trim(word, `'"`))
		}
		all = append(all, args)
	}
	return all
}

// parses checks a command line without carrying it out.
func parses(args []string) error {
	root := newRootCommand(output.Streams{})
	root.InitDefaultCompletionCmd(args...)
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	c.InitDefaultHelpFlag()
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}

func TestDocumentedCommandsAreChecked(t *testing.T) {
	got := commandsIn("$ trommel test -c a \\\n  --budget 5m   # five minutes\nbin/trommel dance\ntrommel x [-p]\n" +
		"trommeltest\nNO_COLOR=1 trommel version && ls\n")
	if len(got) != 3 {
		t.Fatalf("%q", got)
	}
	for i, ok := range []bool{true, false, true} {
		if err := parses(got[i]); (err == nil) != ok {
			t.Errorf("%q: %v", got[i], err)
		}
	}
	for _, bad := range []string{"run --plam x", "diff a", "schema nothing", "test x"} {
		if parses(strings.Fields(bad)) == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}
