package display

import (
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/internal/progress"
)

// terminal is what a person sees of a pseudo-terminal. It knows what the display uses, and fails on everything else.
// Like most terminals it wraps lines again when its width changes.
type terminal struct {
	t      *testing.T
	ours   *os.File // the side of the program
	theirs *os.File

	mu    sync.Mutex
	width int
	lines []string        // without their wrapping; the cursor is in the last one, at its end, or further up
	up    int             // rows from the last one up to the cursor
	raw   strings.Builder // everything
	ended chan struct{}
}

func newTerminal(t *testing.T, width, height int) *terminal {
	t.Helper()
	theirs, ours, err := pty.Open()
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	s := &terminal{t: t, ours: ours, theirs: theirs, lines: []string{""}, ended: make(chan struct{})}
	s.resize(width, height)
	go func() {
		defer close(s.ended)
		buffer := make([]byte, 1<<16)
		for rest := ""; ; {
			n, err := theirs.Read(buffer)
			if err != nil {
				return
			}
			rest = s.take(rest + string(buffer[:n]))
		}
	}()
	t.Cleanup(func() {
		_ = ours.Close()
		_ = theirs.Close()
		<-s.ended
	})
	return s
}

func (s *terminal) resize(width, height int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.width = width
	if err := pty.Setsize(s.theirs, &pty.Winsize{Cols: uint16(width), Rows: uint16(height)}); err != nil {
		s.t.Fatal(err)
	}
}

var csi = regexp.MustCompile(`^\x1b\[(\d*)([A-Za-z])`)

// take interprets what the program writes and returns what is incomplete.
func (s *terminal) take(text string) (rest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for text != "" {
		if text[0] == '\x1b' {
			m := csi.FindStringSubmatch(text)
			switch {
			case m == nil && len(text) < 10:
				return text
			case m == nil:
				s.t.Errorf("unknown sequence %q", text[:10])
				return ""
			case m[2] == "A":
				n, _ := strconv.Atoi("0" + m[1])
				s.up += max(1, n)
			case m[2] == "J" && m[1] == "":
				s.erase()
			case m[2] == "m":
			default:
				s.t.Errorf("unknown sequence %q", m[0])
			}
			s.raw.WriteString(m[0])
			text = text[len(m[0]):]
			continue
		}
		if !utf8.FullRuneInString(text) {
			return text
		}
		c, n := utf8.DecodeRuneInString(text)
		switch c {
		case '\r':
		case '\n':
			if s.up > 0 {
				s.t.Error("a line begins where something is")
			}
			s.lines = append(s.lines, "")
		default:
			s.lines[len(s.lines)-1] += string(c)
		}
		s.raw.WriteString(text[:n])
		text = text[n:]
	}
	return ""
}

// erase erases everything below the cursor, which is at the start of a row.
func (s *terminal) erase() {
	for s.up > 0 {
		s.up--
		// The cursor's own row is empty.
		s.lines = s.lines[:len(s.lines)-1]
		last := s.lines[len(s.lines)-1]
		rows := max(1, (ansi.StringWidth(last)+s.width-1)/s.width)
		if rows-1 > s.up {
			s.t.Errorf("the rest of %q stays", last)
		}
		s.up = max(0, s.up-(rows-1))
		s.lines[len(s.lines)-1] = ""
	}
}

// waitFor waits until what is seen has the texts, in this order.
func (s *terminal) waitFor(texts ...string) string {
	s.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		seen, missing := s.seen(), ""
		rest := seen
		for _, text := range texts {
			var ok bool
			if _, rest, ok = strings.Cut(rest, text); !ok {
				missing = text
			}
		}
		if missing == "" {
			return seen
		} else if time.Now().After(end) {
			s.t.Fatalf("there is no %q in\n%s", missing, seen)
		}
	}
}

func (s *terminal) seen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

// sane checks that nothing of the terminal has changed, and that the cursor was never hidden.
func (s *terminal) sane(before *unix.Termios) {
	s.t.Helper()
	after, err := unix.IoctlGetTermios(int(s.ours.Fd()), unix.TCGETS)
	if err != nil || !reflect.DeepEqual(before, after) {
		s.t.Errorf("the terminal's modes were %+v and are %+v, %v", before, after, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.Contains(s.raw.String(), "\x1b[?") {
		s.t.Errorf("a mode was changed: %q", s.raw.String())
	}
}

// displayed is what the display has on a terminal with that many rows.
func displayed(rows int) []string {
	if rows < 6 {
		return []string{"workload ", "1 of 2 actions done", "more lines\n"}
	}
	return []string{"workload ", "1 of 2 actions done", "held ", "action 1\n"}
}

func TestConsoleOnATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	for _, size := range [][2]int{{80, 24}, {40, 24}, {80, 4}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			s := newTerminal(t, size[0], size[1])
			c := NewConsole(s.ours, Options{})
			show := func(e progress.Event) {
				e.Time = time.Now()
				c.Show(e)
			}
			events := shown()
			for _, e := range events[:12] {
				show(e)
			}
			seen := s.waitFor(displayed(size[1])...)
			for _, line := range strings.Split(seen, "\n") {
				if ansi.StringWidth(line) >= size[0] {
					t.Errorf("%q is wrapped", line)
				}
			}
			if strings.Count(seen, "stale-deletion") != 1 || !strings.HasPrefix(seen, "stale-deletion\n") ||
				strings.Count(seen, "workload ") != 1 {
				t.Errorf("seen:\n%s", seen)
			}
			// Lines of others, in parts and in a hurry, are whole and in order above the display.
			for i := range 200 {
				fmt.Fprintf(c.Writer(), "line ")
				fmt.Fprintf(c.Writer(), "%d\n", i)
			}
			c.Info("an information")
			seen = s.waitFor(append([]string{"an information\n"}, displayed(size[1])...)...)
			var want strings.Builder
			for i := range 200 {
				fmt.Fprintf(&want, "line %d\n", i)
			}
			if !strings.Contains(seen, "stale-deletion\n"+want.String()) || strings.Count(seen, " actions done") != 1 {
				t.Errorf("seen:\n%s", seen)
			}
			// Results are written while nothing is displayed, and stay.
			c.Pause(func() { fmt.Fprintln(s.ours, "the result") })
			s.waitFor("the result\nworkload")
			c.Close()
			fmt.Fprintln(s.ours, "$ prompt")
			seen = s.waitFor("$ prompt\n")
			if !strings.HasSuffix(seen, "the result\n$ prompt\n") || strings.Contains(seen, "held ") {
				t.Errorf("seen:\n%s", seen)
			}
		})
	}
}

// A terminal that becomes narrower wraps the display's lines; the next display replaces them all.
func TestConsoleIsResized(t *testing.T) {
	t.Setenv("TERM", "xterm")
	s := newTerminal(t, 80, 24)
	c := NewConsole(s.ours, Options{})
	defer c.Close()
	for _, e := range shown()[:12] {
		e.Time = time.Now()
		c.Show(e)
	}
	s.waitFor(displayed(24)...)
	s.resize(40, 24)
	c.Info("narrower")
	s.waitFor("narrower\n", "workload", "held ", "action 1\n")
	s.resize(120, 24)
	c.Info("wider")
	seen := s.waitFor("wider\n", "workload", "held ", "action 1\n")
	if strings.Count(seen, "held ") != 1 || strings.Count(seen, "workload ") != 1 ||
		!strings.Contains(seen, "update database/default/db: paused by action 1") {
		t.Errorf("seen:\n%s", seen)
	}
}

// The environment can ask for text without colours, or for lines.
func TestConsoleWithoutColours(t *testing.T) {
	for _, test := range []struct {
		variable, value string
		colours, live   bool
	}{{"NO_COLOR", "", true, true}, {"NO_COLOR", "1", false, true}, {"TERM", "dumb", false, false}} {
		t.Setenv("TERM", "xterm")
		t.Setenv("NO_COLOR", "")
		t.Setenv(test.variable, test.value)
		s := newTerminal(t, 80, 24)
		c := NewConsole(s.ours, Options{})
		for _, e := range shown()[:12] {
			e.Time = time.Now()
			c.Show(e)
		}
		s.waitFor("held")
		c.Close()
		fmt.Fprintln(s.ours, "end")
		s.waitFor("end")
		s.mu.Lock()
		if got := regexp.MustCompile(`\x1b\[\d+m`).MatchString(s.raw.String()); got != test.colours {
			t.Errorf("%s=%s: colours %t", test.variable, test.value, got)
		}
		if got := strings.Contains(s.raw.String(), ansi.EraseScreenBelow); got != test.live {
			t.Errorf("%s=%s: a display %t", test.variable, test.value, got)
		}
		s.mu.Unlock()
	}
}

// A program that is interrupted or killed while the display is up leaves the terminal as it was.
func TestConsoleInterrupted(t *testing.T) {
	if os.Getenv("TROMMEL_TEST_DISPLAY") != "" {
		c := NewConsole(os.Stderr, Options{})
		for _, e := range shown()[:12] {
			e.Time = time.Now()
			c.Show(e)
		}
		select {}
	}
	s := newTerminal(t, 80, 24)
	before, err := unix.IoctlGetTermios(int(s.ours.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"\x03", ""} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestConsoleInterrupted$")
		cmd.Env = append(os.Environ(), "TROMMEL_TEST_DISPLAY=1", "TERM=xterm")
		cmd.Stdin, cmd.Stderr = s.ours, s.ours
		cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s.waitFor("held ")
		if key == "" {
			err = cmd.Process.Kill()
		} else {
			_, err = s.theirs.WriteString(key) // Ctrl-C, as typed
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("it has ended well")
		}
		s.sane(before)
		fmt.Fprintln(s.ours, "$ prompt")
		s.waitFor("$ prompt")
		s.mu.Lock()
		s.lines, s.up = []string{""}, 0
		s.raw.Reset()
		s.mu.Unlock()
	}
}
