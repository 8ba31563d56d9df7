package display

import (
	"io"
	"os"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"
)

// screen draws lines at the bottom of a terminal and replaces them in place. Between two calls of draw the cursor is at
// the start of the line below them, visible, and the terminal's modes are never changed: nothing must be restored when
// the program is interrupted or killed.
type screen struct {
	out   io.Writer
	size  func() (width, height int)
	drawn []string
}

func newScreen(f *os.File) *screen {
	return &screen{out: f, size: func() (int, int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24
		}
		return width, height
	}}
}

// draw replaces the lines by others, below text that stays, which is whole lines. The terminal gets it in one piece. No
// line may be as wide as the terminal.
func (s *screen) draw(above string, lines []string) {
	if above == "" && slices.Equal(lines, s.drawn) {
		return
	}
	var b strings.Builder
	if len(s.drawn) > 0 {
		b.WriteString("\r" + ansi.CursorUp(s.rows()) + ansi.EraseScreenBelow)
	}
	b.WriteString(above)
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	_, _ = io.WriteString(s.out, b.String())
	s.drawn = slices.Clone(lines)
}

// rows is how many rows the drawn lines occupy now: a terminal that became narrower has wrapped them.
func (s *screen) rows() int {
	width, _ := s.size()
	rows := 0
	for _, line := range s.drawn {
		rows += max(1, (ansi.StringWidth(line)+width-1)/width)
	}
	return rows
}
