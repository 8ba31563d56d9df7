package report

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"

	"github.com/trommel-dev/trommel/record"
)

func TestCutTitle(t *testing.T) {
	for _, tt := range []struct {
		name, title string
		cells       int
		head, rest  string
	}{
		{"short", "it is short", 40, "it is short", ""},
		{"as long as the line", strings.Repeat("x", 40), 40, strings.Repeat("x", 40), ""},
		{"at a blank", "the controller forgot what it had to do", 30, "the controller forgot what it…", "had to do"},
		{"without a blank", strings.Repeat("x", 50), 40, strings.Repeat("x", 39) + "…", strings.Repeat("x", 11)},
		{"only early blanks", "a " + strings.Repeat("x", 50), 40, "a " + strings.Repeat("x", 37) + "…",
			strings.Repeat("x", 13)},
		{"no terminal", strings.Repeat("x", 500), -10, strings.Repeat("x", 500), ""},
		{"a tiny terminal", strings.Repeat("x", 500), 10, strings.Repeat("x", 500), ""},
		{"wide characters", strings.Repeat("世", 15), 24, strings.Repeat("世", 11) + "…", strings.Repeat("世", 4)},
		{"several lines", strings.Repeat("x", 30) + "\nmore", 25, strings.Repeat("x", 24) + "…", "xxxxxx\nmore"},
	} {
		head, rest := CutTitle(tt.title, tt.cells)
		if head != tt.head || rest != tt.rest {
			t.Errorf("%s: %q and %q, want %q and %q", tt.name, head, rest, tt.head, tt.rest)
		}
	}
}

// On a terminal the headline of a finding fits into its line; elsewhere it is whole.
func TestHeadlinesFitIntoTheTerminal(t *testing.T) {
	title := strings.Repeat("the Secret default/db-admin-password was written again and again; ", 4) + "end"
	r := &record.Run{Meta: record.Meta{Plan: "p", Verdict: record.Bug},
		Findings: []record.Finding{{Judge: "end state", Severity: record.SeverityBug, Title: title, Detail: "detail"}}}
	var plain bytes.Buffer
	if err := Text(&plain, r); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(plain.String(), "  end state: "+title+"\n      detail\n") {
		t.Errorf("in a file:\n%s", plain.String())
	}
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if err := pty.Setsize(terminal, &pty.Winsize{Rows: 20, Cols: 72}); err != nil {
		t.Fatal(err)
	}
	shown := make(chan string)
	go func() {
		text, _ := io.ReadAll(terminal) // ends with an error when the other side is closed
		shown <- string(text)
	}()
	err = Text(tty, r)
	if closeErr := tty.Close(); err != nil || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	lines := strings.Split(strings.ReplaceAll(ansi.Strip(<-shown), "\r", ""), "\n")
	if len(lines) < 4 || ansi.StringWidth(lines[1]) > 72 || !strings.HasSuffix(lines[1], "…") ||
		!strings.HasSuffix(lines[2], "; end") || lines[3] != "      detail" {
		t.Errorf("on a terminal:\n%s", strings.Join(lines, "\n"))
	}
	if got := strings.TrimPrefix(strings.TrimSuffix(lines[1], "…"), "  end state: ") + " " +
		strings.TrimSpace(lines[2]); got != title {
		t.Errorf("%q, want %q", got, title)
	}
}
