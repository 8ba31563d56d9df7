package report

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// plainProgressEvery is how often progress is printed where lines cannot be overwritten.
const plainProgressEvery = 5 * time.Second

// ProgressLine shows the newest line of a long operation: on a terminal it overwrites the previous line, elsewhere it
// prints one line every few seconds. It is not safe for concurrent use.
type ProgressLine struct {
	out      io.Writer
	prefix   string // of plain lines
	terminal bool
	width    int
	last     time.Time
	dirty    bool
}

// NewProgressLine writes to out; plain lines begin with prefix.
func NewProgressLine(out io.Writer, prefix string) *ProgressLine {
	p := &ProgressLine{out: out, prefix: prefix}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.terminal = true
		p.width, _, _ = term.GetSize(int(f.Fd()))
	}
	return p
}

// Line shows the text.
func (p *ProgressLine) Line(text string) {
	if p.terminal {
		if p.width > 1 && len(text) > p.width-1 {
			text = text[:p.width-1]
		}
		fmt.Fprintf(p.out, "\r\x1b[K%s", text)
		p.dirty = true
		return
	}
	if time.Since(p.last) >= plainProgressEvery {
		p.last = time.Now()
		fmt.Fprintf(p.out, "%s%s\n", p.prefix, text)
	}
}

// End clears the terminal's line.
func (p *ProgressLine) End() {
	if p.dirty {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.dirty = false
	}
}
