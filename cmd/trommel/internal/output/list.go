package output

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

// formats are the values of -o where things are listed, as kubectl has them. Without -o there is a table.
var formats = []string{"name", "json", "yaml", "wide"}

// Format is the flag that says how a list is printed. It is checked when the command line is read.
type Format string

// Register adds the flag to a command.
func (o *Format) Register(c *cobra.Command) {
	c.Flags().VarP(o, "output", "o", "`format`: "+strings.Join(formats, "|")+" (default: a table)")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// Table reports whether a list is printed as a table.
func (o Format) Table() bool { return o == "" || o == "wide" }

func (o *Format) String() string { return string(*o) }

// Type is the name of the flag's value in help texts.
func (*Format) Type() string { return "format" }

// Set refuses unknown formats.
func (o *Format) Set(value string) error {
	if !slices.Contains(formats, value) {
		return fmt.Errorf("unknown format, want %s", strings.Join(formats, ", "))
	}
	*o = Format(value)
	return nil
}

// List is how a kind of things is listed. T is their form in JSON and YAML.
type List[T any] struct {
	Columns []Column[T]
	Name    func(T) string // what other commands know it by
	None    string         // said instead of a table without rows
}

// Column is one of a table.
type Column[T any] struct {
	Title string
	Text  func(T) string
	Wide  bool // only with -o wide
}

// Print writes the things in a format: a table, their names line by line, or a list of all that is known of them.
func (l *List[T]) Print(w io.Writer, format Format, all []T) error {
	if all == nil {
		all = []T{}
	}
	switch format {
	case "name":
		for _, each := range all {
			fmt.Fprintln(w, l.Name(each))
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
		_, err := fmt.Fprintln(w, l.None)
		return err
	}
	table := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	row := func(text func(Column[T]) string) {
		var cells []string
		for _, c := range l.Columns {
			if !c.Wide || format == "wide" {
				cells = append(cells, text(c))
			}
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	row(func(c Column[T]) string { return c.Title })
	for _, each := range all {
		row(func(c Column[T]) string { return c.Text(each) })
	}
	return table.Flush()
}

// OrDash returns a text for a table; "-": it is empty.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
