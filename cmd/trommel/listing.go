package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// listFormats are the values of -o where things are listed, as kubectl has them. Without -o there is a table.
var listFormats = []string{"name", "json", "yaml", "wide"}

// listFormat is the flag that says how a list is printed. It is checked when the command line is read.
type listFormat string

func (o *listFormat) register(c *cobra.Command) {
	c.Flags().VarP(o, "output", "o", "`format`: "+strings.Join(listFormats, "|")+" (default: a table)")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(listFormats, onlyThese))
}

// table reports whether a list is printed as a table.
func (o listFormat) table() bool { return o == "" || o == "wide" }

func (o *listFormat) String() string { return string(*o) }
func (*listFormat) Type() string     { return "format" }

func (o *listFormat) Set(value string) error {
	if !slices.Contains(listFormats, value) {
		return fmt.Errorf("unknown format, want %s", strings.Join(listFormats, ", "))
	}
	*o = listFormat(value)
	return nil
}

// listing is how a kind of things is listed. T is their form in JSON and YAML.
type listing[T any] struct {
	columns []column[T]
	name    func(T) string // what other commands know it by
	none    string         // said instead of a table without rows
}

// column is one of a table.
type column[T any] struct {
	title string
	text  func(T) string
	wide  bool // only with -o wide
}

// print writes the things in a format: a table, their names line by line, or a list of all that is known of them.
func (l *listing[T]) print(w io.Writer, format listFormat, all []T) error {
	if all == nil {
		all = []T{}
	}
	switch format {
	case "name":
		for _, each := range all {
			fmt.Fprintln(w, l.name(each))
		}
		return nil
	case "json":
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(all)
	case "yaml":
		data, err := yaml.Marshal(all)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(w, l.none)
		return err
	}
	table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	row := func(text func(column[T]) string) {
		var cells []string
		for _, c := range l.columns {
			if !c.wide || format == "wide" {
				cells = append(cells, text(c))
			}
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	row(func(c column[T]) string { return c.title })
	for _, each := range all {
		row(func(c column[T]) string { return c.text(each) })
	}
	return table.Flush()
}
