package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/expr"
	"github.com/trommel-dev/trommel/plan"
)

func newGraphCommand(s streams) *cobra.Command {
	var file, format string
	c := &cobra.Command{
		Use:   "graph -p plan.yaml",
		Short: "Draw the trigger graphs of a plan",
		Long: `Graph draws, for each action, what must happen in which order before it is carried out: as text, for
Graphviz (dot), for Mermaid, or as one SVG picture. Text and SVG draw up to 500 triggers of an action. For a larger
action, text has only the expression and SVG leaves the graph out; Graphviz and Mermaid get the whole graph.`,
		Example: `  trommel graph -p plan.yaml
  trommel graph -p plan.yaml -o svg > plan.svg`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return graph(s, file, format) },
	}
	c.Flags().StringVarP(&file, "plan", "p", "", "plan `file`")
	c.Flags().StringVarP(&format, "output", "o", "text", "`format`: text, dot, mermaid or svg")
	return c
}

func graph(s streams, file, format string) error {
	p, _, err := loadPlan(file, "")
	if err != nil {
		return err
	}
	var pictures []expr.Picture
	for i := range p.Actions {
		a := &p.Actions[i]
		pictures = append(pictures, expr.Picture{Caption: caption(i, a), Graph: a.Trigger.Graph})
	}
	switch format {
	case "text":
		for i, picture := range pictures {
			if i > 0 {
				fmt.Fprintln(s.out)
			}
			fmt.Fprintf(s.out, "%s\n%s", picture.Caption, picture.Graph)
		}
	case "dot":
		for _, picture := range pictures {
			fmt.Fprint(s.out, picture.Graph.DOT(picture.Caption))
		}
	case "mermaid":
		for i, picture := range pictures {
			if i > 0 {
				fmt.Fprintln(s.out)
			}
			fmt.Fprintf(s.out, "%%%% %s\n%s", picture.Caption, picture.Graph.Mermaid())
		}
	case "svg":
		fmt.Fprint(s.out, expr.SVG(pictures...))
	default:
		return &exitError{exitUsage, fmt.Errorf("unknown format %q (known: text, dot, mermaid, svg)", format)}
	}
	for i, picture := range pictures {
		if triggers := picture.Graph.Len(); triggers > expr.MaxDrawn {
			if note := tooLarge[format]; note != "" {
				fmt.Fprintf(s.err, "action %d has %d triggers, %s\n", i+1, triggers, note)
			}
		}
	}
	return nil
}

// tooLarge says what each format does with a graph that is too large to draw.
var tooLarge = map[string]string{
	"text":    "too many to draw: this is its expression; -o dot writes the whole graph for Graphviz",
	"svg":     "too many to draw: the picture leaves them out; -o dot writes the whole graph for Graphviz",
	"mermaid": "more than Mermaid draws by default; raise its maxEdges",
}

// caption names an action in a drawing.
func caption(i int, a *plan.Action) string { return fmt.Sprintf("%d. %s", i+1, a) }
