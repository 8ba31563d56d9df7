package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/completion"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
)

// There is a manual page for each command that is not hidden, and no other.
func TestManualPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	s := output.Streams{Out: t.Output(), Err: t.Output()}
	if code := execute(t.Context(), []string{"man", dir}, s); code != exit.Pass {
		t.Fatalf("exit code %d", code)
	}
	var want []string
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		want = append(want, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	root := newRootCommand(output.Streams{})
	root.InitDefaultCompletionCmd()
	walk(root)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, section := range []string{".TH", ".SH NAME", ".SH SYNOPSIS"} {
			if !strings.Contains(string(text), section) {
				t.Errorf("%s has no %s", e.Name(), section)
			}
		}
		got = append(got, e.Name())
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("pages\n%v\ncommands\n%v", got, want)
	}
}

// Each flag whose value can be known is completed: no name in the list is out of date.
func TestCompletersAreUsed(t *testing.T) {
	flags, commands := map[string]bool{}, map[string]bool{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		commands[c.Name()] = true
		for name := range completion.ForFlags {
			if c.Flags().Lookup(name) != nil {
				flags[name] = true
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRootCommand(output.Streams{}))
	for name := range completion.ForFlags {
		if !flags[name] {
			t.Errorf("no command has --%s", name)
		}
	}
	for name := range completion.ForArguments {
		if !commands[name] {
			t.Errorf("there is no command %s", name)
		}
	}
}
