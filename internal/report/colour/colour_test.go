package colour

import (
	"bytes"
	"testing"

	"github.com/trommel-dev/trommel/record"
)

func TestColours(t *testing.T) {
	if p := For(&bytes.Buffer{}); p {
		t.Error("a buffer is not a terminal")
	}
	if width := Width(&bytes.Buffer{}); width != 0 {
		t.Errorf("a buffer has %d cells", width)
	}
	if got := Painter(true).Verdict(record.Bug); got != "\x1b[1;31mbug\x1b[0m" {
		t.Errorf("%q", got)
	}
}
