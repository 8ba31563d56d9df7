package output

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/internal/report/display"
	"github.com/trommel-dev/trommel/record"
)

// Flags are the flags of commands that take long.
type Flags struct {
	Quiet   bool
	Verbose bool
	events  string
}

// FlagNames are the names of the flags.
var FlagNames = []string{"quiet", "verbose", "events"}

// Register adds the flags to a command.
func (o *Flags) Register(f *pflag.FlagSet) {
	f.BoolVarP(&o.Quiet, "quiet", "q", false, "show results and errors only")
	f.BoolVarP(&o.Verbose, "verbose", "v", false, "show everything that happens, and what the coordinator does")
	f.StringVar(&o.events, "events", "", "write what happens to this `file`, one JSON object a line (see trommel "+
		"schema events); - writes it to stderr, instead of text")
}

// Open returns the console of a command, and streams that do not tear its display. The caller closes the console.
func (o *Flags) Open(s Streams) (*Console, Streams, error) {
	if o.Quiet && o.Verbose {
		return nil, s, exit.With(exit.Usage, errors.New("--quiet and --verbose exclude each other"))
	}
	c := &Console{}
	options := display.Options{Quiet: o.Quiet, Verbose: o.Verbose}
	shown := s.Err
	switch o.events {
	case "":
	case "-":
		options.Events, shown = s.Err, io.Discard
	default:
		if err := MakeWritable(o.events, false); err != nil {
			return nil, s, exit.With(exit.Usage, fmt.Errorf("--events: %w", err))
		}
		f, err := os.OpenFile(o.events, os.O_CREATE|os.O_WRONLY|os.O_APPEND, record.FileMode)
		if err != nil {
			return nil, s, exit.With(exit.Usage, fmt.Errorf("--events: %w", err))
		}
		options.Events, c.file = f, f
	}
	c.Console = display.NewConsole(shown, options)
	around := Streams{In: s.In, Out: s.Out, Err: c.Writer()}
	if f, ok := s.Out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		around.Out = &besideDisplay{f, c.Console}
	}
	return c, around, nil
}

// Console is a display.Console with the file of its events.
type Console struct {
	*display.Console
	file *os.File // nil: none
}

// Close removes the display.
func (c *Console) Close() {
	c.Console.Close()
	if c.file != nil {
		_ = c.file.Close()
	}
}

// besideDisplay is a terminal that the display may be on. Writing to it removes the display for that time.
type besideDisplay struct {
	f *os.File
	c *display.Console
}

func (p *besideDisplay) Write(text []byte) (n int, err error) {
	p.c.Pause(func() { n, err = p.f.Write(text) })
	return n, err
}

// Fd is the terminal's descriptor.
func (p *besideDisplay) Fd() uintptr { return p.f.Fd() }
