package plans

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/expr"
	"github.com/trommel-dev/trommel/plan"
)

// NewGraphCommand returns `trommel graph`.
func NewGraphCommand(s output.Streams) *cobra.Command {
	var file, format string
	c := &cobra.Command{
		Use:   "graph -p plan.yaml",
		Short: "Draw the trigger graphs of a plan",
		Long: `Graph draws, for each action, what must happen in which order before it is carried out: as text or for
Mermaid. It has the names of the triggers; "trommel explain -p" says in words what each waits for. Text draws up to 500
triggers of an action; for a larger action it has only the expression. Mermaid gets the whole graph.`,
		Example: `  trommel graph -p plan.yaml
  trommel graph -p plan.yaml -o mermaid > plan.mmd`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return graph(s, file, format) },
	}
	c.Flags().StringVarP(&file, "plan", "p", "", "plan `file`")
	c.Flags().StringVarP(&format, "output", "o", "text", "`format`: text or mermaid")
	_ = c.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"text", "mermaid"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func graph(s output.Streams, file, format string) error {
	p, _, err := loadPlan(file, "")
	if err != nil {
		return err
	}
	draw, known := drawings[format]
	if !known {
		return exit.With(exit.Usage, fmt.Errorf("unknown format %q (known: text, mermaid)", format))
	}
	for i := range p.Actions {
		if i > 0 {
			fmt.Fprintln(s.Out)
		}
		a := &p.Actions[i]
		fmt.Fprint(s.Out, draw(caption(i, a), a.Trigger.Graph))
	}
	for i := range p.Actions {
		if triggers := p.Actions[i].Trigger.Graph.Len(); triggers > expr.MaxDrawn {
			fmt.Fprintf(s.Err, "action %d has %d triggers, %s\n", i+1, triggers, tooLarge[format])
		}
	}
	return nil
}

var drawings = map[string]func(caption string, g *expr.Graph) string{
	"text":    func(caption string, g *expr.Graph) string { return caption + "\n" + g.String() },
	"mermaid": func(caption string, g *expr.Graph) string { return "%% " + caption + "\n" + g.Mermaid() },
}

// tooLarge says what each format does with a graph that is too large to draw.
var tooLarge = map[string]string{
	"text":    "too many to draw: this is its expression; -o mermaid writes the whole graph",
	"mermaid": "more than Mermaid draws by default; raise its maxEdges",
}

// caption names an action in a drawing.
func caption(i int, a *plan.Action) string { return fmt.Sprintf("%d. %s", i+1, a) }
