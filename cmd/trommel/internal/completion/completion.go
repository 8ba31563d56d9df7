// Package completion is what shells propose for the words of a command line.
package completion

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/runsdir"
	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/campaign"
	"github.com/trommel-dev/trommel/internal/campaign/pattern"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// completer proposes the words that may come next in a shell.
type completer = cobra.CompletionFunc

// ForFlags has the completers of flags, by the flag's name. All other flags take a file, or a word that cannot be
// completed.
var ForFlags = map[string]completer{
	"plan":               plans,
	"suite":              suites,
	"controller":         suites,
	"variant":            variants,
	"cluster":            clusters,
	"workload":           workloads,
	"pattern":            patterns,
	"kubernetes-version": versions,
	"pace":               cobra.FixedCompletions([]string{"none"}, cobra.ShellCompDirectiveNoFileComp),
	"stage":              cobra.FixedCompletions([]string{"test"}, cobra.ShellCompDirectiveNoFileComp),
	"mode":               cobra.FixedCompletions([]string{"test"}, cobra.ShellCompDirectiveNoFileComp),
	"resume":             campaigns,
	"plans":              directories,
	"record":             directories,
	"baseline":           directories,
	"dir":                directories,
	"log-dir":            directories,
	"cache":              directories,
	"files":              directories,
}

// ForArguments has the completers of arguments, by command.
var ForArguments = map[string]completer{
	"build": directories, "init": directories, "man": directories,
	"explain": Records, "replay": Records, "repro": Records, "report": Records,
	"shrink": Records, "diff": Records,
	"validate": Files, "convert": Files,
}

// Register registers what shells propose for a command and all below it.
func Register(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		of := ForFlags[f.Name]
		if f.Name == "name" && c.HasParent() && c.Parent().Name() == "cluster" && c.Name() != "up" {
			of = clusters
		}
		if of != nil {
			_ = c.RegisterFlagCompletionFunc(f.Name, of) // it fails only for a flag that is registered already
		}
	})
	if of := ForArguments[c.Name()]; of != nil && c.ValidArgs == nil {
		c.ValidArgsFunction = of
	}
	for _, sub := range c.Commands() {
		Register(sub)
	}
}

const (
	onlyThese = cobra.ShellCompDirectiveNoFileComp
	goesOn    = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace // a path that has not ended
)

func directories(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// Files proposes plans and suites, and directories on the way to them.
func Files(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return paths(begun, func(file string) bool { return kindOfFile(file) != "" })
}

// plans proposes plans, and directories on the way to them.
func plans(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return paths(begun, func(file string) bool { return kindOfFile(file) == "TestPlan" })
}

// suites proposes suites, and directories on the way to them.
func suites(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return paths(begun, func(file string) bool { return kindOfFile(file) == "Suite" })
}

// kindOfFile is TestPlan, Suite or nothing.
func kindOfFile(file string) string {
	if !manifests.IsYAML(file) {
		return ""
	}
	kind, err := plan.FileKind(file)
	if err != nil {
		return ""
	}
	return kind
}

// paths proposes files and directories.
func paths(begun string, wanted func(file string) bool) ([]cobra.Completion, cobra.ShellCompDirective) {
	dir, prefix := filepath.Split(begun)
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	if err != nil {
		return nil, onlyThese
	}
	var all []cobra.Completion
	directive := onlyThese
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, prefix) || strings.HasPrefix(name, ".") && !strings.HasPrefix(prefix, ".") {
			continue
		}
		path := dir + name
		switch info, err := os.Stat(path); {
		case err != nil:
		case info.IsDir():
			all = append(all, path+"/")
			directive = goesOn
		case wanted(path):
			all = append(all, path)
		}
	}
	return all, directive
}

// suiteOf reads the suite that a command line names, or the one that is nearest to its plan or to the working
// directory; nil if there is none.
func suiteOf(c *cobra.Command) *plan.Suite {
	value := func(name string) string {
		f := c.Flags().Lookup(name)
		if f == nil {
			return ""
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			if values := list.GetSlice(); len(values) > 0 {
				return values[0]
			}
			return ""
		}
		return f.Value.String()
	}
	file := cmp.Or(value("suite"), value("controller"))
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		file = filepath.Join(file, plan.SuiteFile)
	}
	if file == "" {
		var err error
		// Any file beside the suite stands for a plan.
		if file, err = plan.FindSuite(cmp.Or(value("plan"), plan.SuiteFile)); err != nil {
			return nil
		}
	}
	suite, err := plan.LoadSuite(file)
	if err != nil {
		return nil
	}
	return suite
}

func variants(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	suite := suiteOf(c)
	if suite == nil {
		return nil, onlyThese
	}
	return slices.Sorted(maps.Keys(suite.Variants)), onlyThese
}

func workloads(c *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	suite := suiteOf(c)
	if suite == nil {
		return nil, onlyThese
	}
	return inList(begun, slices.Sorted(maps.Keys(suite.Workloads))), onlyThese
}

func patterns(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var all []string
	for _, p := range pattern.Patterns() {
		all = append(all, cobra.CompletionWithDesc(p.Name, p.Finds))
	}
	return inList(begun, all), onlyThese
}

// inList proposes words for a flag that takes several, separated by commas.
func inList(begun string, words []string) []string {
	before := begun[:strings.LastIndexByte(begun, ',')+1]
	var all []string
	for _, word := range words {
		name, _, _ := strings.Cut(word, "\t")
		if !slices.Contains(strings.Split(before, ","), name) {
			all = append(all, before+word)
		}
	}
	return all
}

func versions(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return instrumentation.KubernetesVersions(), onlyThese
}

func clusters(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	entries, err := embedded.List()
	if err != nil {
		return nil, onlyThese
	}
	var names []cobra.Completion
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names, onlyThese
}

// Records proposes run records, newest first: those below the begun path, or below trommel-runs.
func Records(_ *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return inRuns(begun, args, record.MetaFile)
}

// campaigns proposes directories of campaigns, newest first.
func campaigns(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return inRuns(begun, nil, campaign.StateFile)
}

// inRuns proposes directories with a file. If there are none below trommel-runs it proposes directories.
func inRuns(begun string, but []string, file string) ([]cobra.Completion, cobra.ShellCompDirective) {
	found, _ := filepath.Glob(filepath.Join(runsdir.Name, "*", file))
	if begun != "" && !strings.HasPrefix(runsdir.Name+"/", begun) {
		dir, _ := filepath.Split(begun)
		found, _ = filepath.Glob(filepath.Join(dir, "*", file))
	}
	type dir struct {
		name string
		time int64
	}
	var dirs []dir
	for _, f := range found {
		name := filepath.Dir(f)
		if info, err := os.Stat(f); err == nil && strings.HasPrefix(name, begun) && !slices.Contains(but, name) {
			dirs = append(dirs, dir{name, info.ModTime().UnixNano()})
		}
	}
	if len(dirs) == 0 {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	slices.SortFunc(dirs, func(a, b dir) int { return cmp.Compare(b.time, a.time) })
	var names []cobra.Completion
	for _, d := range dirs {
		names = append(names, d.name)
	}
	return names, onlyThese | cobra.ShellCompDirectiveKeepOrder
}
