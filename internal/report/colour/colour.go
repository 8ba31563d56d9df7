// Package colour colours text for terminals.
package colour

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/trommel-dev/trommel/record"
)

// Painter colours text if it is true.
type Painter bool

// For returns a painter that colours text if w is a terminal and NO_COLOR is not set.
func For(w io.Writer) Painter {
	f, ok := w.(interface{ Fd() uintptr }) // also what stands for a file
	return Painter(ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd())))
}

// Width returns how many cells a line has if w is a terminal; 0 if it is not, or does not say.
func Width(w io.Writer) int {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

func (p Painter) code(code, text string) string {
	if !p {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold makes text bold.
func (p Painter) Bold(text string) string { return p.code("1", text) }

// Dim makes text faint.
func (p Painter) Dim(text string) string { return p.code("2", text) }

// Red makes text red.
func (p Painter) Red(text string) string { return p.code("31", text) }

// Yellow makes text yellow.
func (p Painter) Yellow(text string) string { return p.code("33", text) }

// Cyan makes text cyan.
func (p Painter) Cyan(text string) string { return p.code("36", text) }

// Verdict makes a verdict bold, in a colour that says whether it is good.
func (p Painter) Verdict(v record.Verdict) string {
	switch v {
	case record.Pass:
		return p.code("1;32", string(v))
	case record.Bug:
		return p.code("1;31", string(v))
	}
	return p.code("1;33", string(v))
}
