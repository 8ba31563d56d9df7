package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/trommel-dev/trommel/internal/report/display"
	"github.com/trommel-dev/trommel/record"
)

// progressOptions are the flags of commands that take long.
type progressOptions struct {
	quiet   bool
	verbose bool
	events  string
}

// progressFlags are the names of the flags.
var progressFlags = []string{"quiet", "verbose", "events"}

func (o *progressOptions) register(f *pflag.FlagSet) {
	f.BoolVarP(&o.quiet, "quiet", "q", false, "show results and errors only")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show everything that happens, and what the coordinator does")
	f.StringVar(&o.events, "events", "", "write what happens to this `file`, one JSON object a line (see trommel "+
		"schema events); - writes it to stderr, instead of text")
}

// open returns the console of a command, and streams that do not tear its display. The caller closes the console.
func (o *progressOptions) open(s streams) (*console, streams, error) {
	if o.quiet && o.verbose {
		return nil, s, &exitError{exitUsage, errors.New("--quiet and --verbose exclude each other")}
	}
	c := &console{}
	options := display.Options{Quiet: o.quiet, Verbose: o.verbose}
	shown := s.err
	switch o.events {
	case "":
	case "-":
		options.Events, shown = s.err, io.Discard
	default:
		if err := writable(o.events, false); err != nil {
			return nil, s, &exitError{exitUsage, fmt.Errorf("--events: %w", err)}
		}
		f, err := os.OpenFile(o.events, os.O_CREATE|os.O_WRONLY|os.O_APPEND, record.FileMode)
		if err != nil {
			return nil, s, &exitError{exitUsage, fmt.Errorf("--events: %w", err)}
		}
		options.Events, c.file = f, f
	}
	c.Console = display.NewConsole(shown, options)
	around := streams{in: s.in, out: s.out, err: c.Writer()}
	if f, ok := s.out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		around.out = &besideDisplay{f, c.Console}
	}
	return c, around, nil
}

// console is a display.Console with the file of its events.
type console struct {
	*display.Console
	file *os.File // nil: none
}

// Close removes the display.
func (c *console) Close() {
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
