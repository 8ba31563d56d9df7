package plan

import (
	"os"
	"strings"
	"testing"
)

// documented returns the examples of the package comment: a plan and a suite.
func documented(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	inBlock := false
	for _, line := range strings.Split(string(data), "\n") {
		code, ok := strings.CutPrefix(line, "//\t")
		switch {
		case ok && !inBlock:
			blocks = append(blocks, code+"\n")
		case ok:
			blocks[len(blocks)-1] += code + "\n"
		}
		inBlock = ok
	}
	if len(blocks) != 2 {
		t.Fatalf("%d examples, want a plan and a suite", len(blocks))
	}
	return blocks
}

// The examples in the package comment load.
func TestDocumentedExamples(t *testing.T) {
	blocks := documented(t)
	s, err := ParseSuite([]byte(blocks[1]), "testdata/doc.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Controllers[:1] {
		if c.Namespace != "default" {
			t.Errorf("namespace %q", c.Namespace)
		}
	}
	// The example has two controllers, to show both kinds of build; the plan's defaults need exactly one.
	s.Controllers = s.Controllers[:1]
	p, err := Parse([]byte(blocks[0]), "testdata/doc.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(s); err != nil {
		t.Fatal(err)
	}
	checkRoundTrip(t, p)
}
